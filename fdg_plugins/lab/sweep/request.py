# SPDX-License-Identifier: Apache-2.0
"""The request of a sweep, as stored in ``sweep.json``, and the check whether a later request may continue it."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import pydantic

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.sweep.values import as_json, split_key
from fdg_plugins.plugins.own_dataset import OwnDataset, plain_dataset
from fdg_plugins.storage import read_json
from fdg_plugins.values import first_problem, shorten


class Kept(pydantic.BaseModel):
    """Base of the contents of ``sweep.json``."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


class Request(Kept):
    """Everything that determines which runs there are and their settings; nothing that depends on the machine.

    ``settings`` contains the values of ``--set`` by ``name`` or ``method:name``; several values form an axis of the
    grid.
    """

    dataset: str | OwnDataset
    protocol: str
    methods: tuple[str, ...] = pydantic.Field(min_length=1)
    targets: tuple[str, ...] = pydantic.Field(min_length=1)
    seeds: tuple[int, ...] = pydantic.Field(min_length=1)
    settings: dict[str, tuple[Any, ...]] = pydantic.Field(default_factory=dict)


class DataFound(Kept):
    """The images of a sweep: whether they only stand in for others, and their number per domain."""

    stand_in: bool
    images: dict[str, int]


class SweepFile(Kept):
    """The content of ``sweep.json``. ``versions`` are those of the first call; each run's record has its own.

    ``pretrained``: the SHA-256 of the file that ``FDG_PRETRAINED_FILE`` names, from which runs start; empty if it names
    none, None in sweeps from before this was kept.
    """

    format: Literal[1] = 1
    request: Request
    data: DataFound
    versions: dict[str, str]
    pretrained: str | None = None


def read_sweep_file(path: Path) -> SweepFile | None:
    """Return the content of ``path``, None if there is no such file; raise ``DataError`` if it is invalid."""
    if not path.exists():
        return None
    try:
        return SweepFile.model_validate(read_json(path))
    except pydantic.ValidationError as error:
        raise DataError(f"file {path} is not what fdg sweep wrote: {first_problem(error)}") from error


def check_continues(earlier: SweepFile, request: Request, data: DataFound, folder: Path) -> None:
    """Raise unless ``request`` equals the earlier one, possibly with longer lists.

    Methods, targets, seeds and the values of an axis may be added, and settings of an added method. Changes that would
    alter an existing run, or remove it from the plan, raise ``SettingsError``; other images raise ``DataError``.
    """
    before = earlier.request
    _require_equal("dataset", plain_dataset(before.dataset), plain_dataset(request.dataset), folder)
    _require_equal("protocol", before.protocol, request.protocol, folder)
    for name in ("methods", "targets", "seeds"):
        _require_more(name, getattr(before, name), getattr(request, name), folder)
    # What only a new method has changes no earlier run.
    of_earlier = {
        key: values for key, values in request.settings.items() if key in before.settings or _is_of(key, before.methods)
    }
    _check_settings(before.settings, of_earlier, folder)
    if earlier.data != data:
        raise DataError(
            f"sweep {folder} was begun on {_describe(earlier.data)}, but this call finds {_describe(data)}: "
            "name the same data root, or another folder with --to."
        )


def check_pretrained(earlier: SweepFile, pretrained: str, folder: Path) -> None:
    """Raise ``DataError`` if runs of this call would start from other weights than the earlier ones."""
    if earlier.pretrained not in (None, pretrained):
        before, now = (f"a file of SHA-256 {one[:16]}" if one else "none" for one in (earlier.pretrained, pretrained))
        raise DataError(
            f"sweep {folder} was begun with another pretrained file (FDG_PRETRAINED_FILE): expected {before}, found "
            f"{now}; name the same, or another folder with --to."
        )


def _is_of(key: str, methods: Collection[str]) -> bool:
    """Return whether a setting is that of all methods, or of one of ``methods``."""
    owner, _ = split_key(key)
    return owner is None or owner in methods


def _check_settings(before: Mapping[str, tuple[Any, ...]], now: Mapping[str, tuple[Any, ...]], folder: Path) -> None:
    for key in sorted({*before, *now}):
        old, new = before.get(key, ()), now.get(key, ())
        if len(old) > 1 and len(new) > 1:
            _require_more(key, old, new, folder)
        else:
            _require_equal(key, old, new, folder)


def _require_equal(name: str, before: Any, now: Any, folder: Path) -> None:
    if as_json(before) != as_json(now):
        raise SettingsError(
            f"sweep {folder} was begun with {name} {_show(before)}, but is now asked for {_show(now)}: "
            "expected the same, or another folder with --to."
        )


def _require_more(name: str, before: tuple[Any, ...], now: tuple[Any, ...], folder: Path) -> None:
    if missing := [value for value in before if as_json(value) not in map(as_json, now)]:
        raise SettingsError(
            f"sweep {folder} was begun with {name} {_show(before)}, and {_show(missing)} is now left out: "
            "a list may grow but not shrink; name all of it, or another folder with --to."
        )


def _show(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_show(item) for item in value) or "as the protocol has it"
    return value if isinstance(value, str) else shorten(value)


def _describe(data: DataFound) -> str:
    kind = "the STAND-IN" if data.stand_in else "real images"
    return f"{kind} ({', '.join(f'{domain} {count}' for domain, count in sorted(data.images.items()))})"

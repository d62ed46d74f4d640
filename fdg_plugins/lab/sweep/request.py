# SPDX-License-Identifier: Apache-2.0
"""The request of a sweep, as stored in ``sweep.json``, and the check whether a later request may continue it."""

from pathlib import Path
from typing import Any, Literal

import pydantic

from fdg_plugins.errors import DataError, SettingsError, first_problem
from fdg_plugins.lab.sweep.values import as_json, split_key
from fdg_plugins.plugins.own_dataset import OwnDataset, plain_dataset
from fdg_plugins.storage import read_json


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


def check_continues(earlier: SweepFile, now: SweepFile, folder: Path) -> None:
    """Raise unless ``now`` asks for what ``earlier`` did, possibly with longer lists.

    Methods, targets, seeds and the values of an axis may be added, and settings of an added method. Changes that would
    alter an existing run, or remove it from the plan, raise ``SettingsError``; other images or weights, ``DataError``.
    """
    before, request = earlier.request, now.request
    fixed = {
        "dataset": (plain_dataset(before.dataset), plain_dataset(request.dataset)),
        "protocol": (before.protocol, request.protocol),
    }
    lists = {name: (getattr(before, name), getattr(request, name)) for name in ("methods", "targets", "seeds")}
    for key in sorted({*before.settings, *request.settings}):
        if key not in before.settings and split_key(key)[0] not in (None, *before.methods):
            continue  # what only a new method has changes no earlier run
        pair = before.settings.get(key, ()), request.settings.get(key, ())
        (lists if min(map(len, pair)) > 1 else fixed)[key] = pair
    for name, (old, new) in fixed.items():
        if as_json(old) != as_json(new):
            text = (
                f"sweep {folder} was begun with {name} {as_json(old)}, expected the same, or another folder with --to"
            )
            raise SettingsError(f"{text}, found {as_json(new)}.")
    for name, (old, new) in lists.items():
        if missing := [value for value in old if as_json(value) not in map(as_json, new)]:
            text = f"sweep {folder} was begun with {name} {as_json(old)}, and {as_json(missing)} is now left out"
            raise SettingsError(f"{text}: a list may grow but not shrink; name all of it, or another folder with --to.")
    if earlier.data != now.data:
        found = [
            f"{'the STAND-IN' if one.stand_in else 'real images'} ({one.images})" for one in (earlier.data, now.data)
        ]
        text = f"sweep {folder} was begun on {found[0]}, but this call finds {found[1]}"
        raise DataError(f"{text}: name the same data root, or another folder with --to.")
    if earlier.pretrained not in (None, now.pretrained):
        digests = f"of SHA-256 {earlier.pretrained or 'none'}, found {now.pretrained or 'none'}"
        text = f"sweep {folder} was begun with another pretrained file (FDG_PRETRAINED_FILE), {digests}"
        raise DataError(f"{text}: name the same, or another folder with --to.")

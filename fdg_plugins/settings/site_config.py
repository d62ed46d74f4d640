# SPDX-License-Identifier: Apache-2.0
"""A site's own config, ``local/fdg_site.json``: the settings that its administrator controls and no job can change.

The file is keyed by site name, because all sites of a simulator share one file: ``{"photo": {"data_root":
"/data", "device": "cuda:0"}}``. Omitted fields come from the environment of the site's process
(``FDG_DATA_ROOT``, ``FDG_DATASET_FILE``, ``FDG_DEVICE``, ``FDG_WORKERS``, ``FDG_THREADS``, ``FDG_IMAGE_MEMORY``,
``FDG_COMPILE``, ``FDG_ISOLATE``, ``FDG_REPORT_NAMES``, ``FDG_MAX_IMAGE_PIXELS``, ``FDG_DAMAGED_IMAGES``), else from
the defaults.
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import torch
from pydantic_core import PydanticCustomError

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.naming import expected_one_of
from fdg_plugins.plugins.admission import ALLOWED_PLUGINS, Allowed, is_allowed
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.reports import reports_of
from fdg_plugins.storage import read_json, user_path, write_json
from fdg_plugins.values import first_problem, is_utf8, shorten

FILE_NAME = "fdg_site.json"
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"  # set by an operator, or by FLARE for a job that asks for GPUs; numbered from 0

FROM_ENVIRONMENT = (
    "data_root",
    "dataset_file",
    "device",
    "workers",
    "threads",
    "image_memory",
    "compile",
    "isolate",
    "report_names",
    "max_image_pixels",
    "damaged_images",
)


def _in_words(pattern: str, words: str) -> pydantic.AfterValidator:
    """Return a check that refuses texts of another form than ``pattern``, and says in words what was expected."""

    def check(value: str) -> str:
        if re.fullmatch(pattern, value) is None:
            raise PydanticCustomError("form", "it should be {words}", {"words": words})
        return value

    return pydantic.AfterValidator(check)


DistributionName = Annotated[
    str, _in_words(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", "the name of a distribution: letters, digits, '.', '_' and '-'")
]
Part = Annotated[str, _in_words(r"[1-9]\d{0,5}/[1-9]\d{0,5}", "two numbers from 1 to 999999, such as 3/10")]
Device = Annotated[
    str, _in_words(r"auto|cpu|cuda(:\d{1,3})?", "auto, cpu, cuda, or a GPU by its number, such as cuda:0")
]


class SiteConfig(pydantic.BaseModel):
    """The settings that a site controls itself."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    data_root: Path | None = pydantic.Field(None, description="folder that holds the data sets")
    dataset_file: Path | None = pydantic.Field(
        None,
        description="file about a data set of one's own; default: `dataset.toml` in the data root, if there is one",
    )
    domain: str | None = pydantic.Field(
        None, description="domain held by the site; default: the site's name, of `photo-3of10` what precedes the part"
    )
    part: Part | None = pydantic.Field(
        None,
        description="share of the domain, for many sites per domain: `3/10` is the third of ten; default: as the "
        "site's name says, which is `photo-3of10`",
    )
    role: Literal["source", "held_out"] | None = pydantic.Field(None, description="the only role that the site accepts")
    allowed_plugins: tuple[DistributionName, ...] | None = pydantic.Field(
        None,
        description="distributions whose plug-ins jobs may use here, `custom` for files that jobs bring; "
        "default: all that are installed",
    )
    allowed_reports: tuple[str, ...] | None = pydantic.Field(
        None, description="what may leave the site beside its update; default: whatever a method needs"
    )
    device: Device = pydantic.Field("auto", description="where the site computes")
    workers: int = pydantic.Field(0, ge=0, le=64, description="processes that read images")
    threads: int | None = pydantic.Field(None, ge=1, le=1024, description="threads of CPU arithmetic")
    image_memory: float = pydantic.Field(
        2.0,
        ge=0,
        le=4096,
        description="GiB of decoded images that the site keeps in memory; 0: it decodes them each time",
    )
    compile: bool = pydantic.Field(
        False, description="train by code that torch compiles here first: for GPUs, on a CPU it was slower; other bits"
    )
    isolate: bool | None = pydantic.Field(
        None, description="work in a process beside FLARE's; default: yes, except under FLARE's simulator"
    )
    report_names: bool | None = pydantic.Field(
        None,
        description="reasons and the census may name the site's files and folders to the server; default: no, except "
        "reasons in a simulation or one process",
    )
    max_image_pixels: int = pydantic.Field(
        50_000_000, ge=1, le=2**31, description="pixels of the largest image that the site opens"
    )
    damaged_images: Literal["stop", "leave_out"] = pydantic.Field(
        "stop", description="an image that cannot be read stops the site, or is left out and counted in the census"
    )

    @pydantic.field_validator("part")
    @classmethod
    def _among_its_count(cls, value: str | None) -> str | None:
        if value is not None and _share(value)[0] > _share(value)[1]:
            raise ValueError("its number should be at most its count, as in 3/10")
        return value

    @pydantic.field_validator("allowed_reports")
    @classmethod
    def _declared(cls, value: tuple[str, ...] | None, info: pydantic.ValidationInfo) -> tuple[str, ...] | None:
        """Reject a report that neither this package nor an allowed plug-in declares; loads no plug-in for our own."""
        # The records are read only where a list is set: most processes of a site need none of them. A wrong list of
        # plug-ins, which is refused as well, allows none.
        if value and ALLOWED_PLUGINS in info.data:
            own = reports_of(METHODS.loaded())
            _check_declared([name for name in value if name not in own], own, info.data[ALLOWED_PLUGINS])
        return value

    @pydantic.field_validator("data_root", "dataset_file")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        if value is None:
            return value
        if not value.is_absolute():
            raise ValueError("it must be an absolute path")
        if not is_utf8(str(value)):
            raise ValueError("it must be a path in UTF-8")
        return value

    def part_of_domain(self) -> tuple[int, int] | None:
        """Return the number, from 1, and the count of the parts of the domain; None for the whole domain."""
        return None if self.part is None else _share(self.part)

    def torch_device(self) -> torch.device:
        """Return the device to compute on; raise ``SettingsError`` if this machine does not have it."""
        available = torch.cuda.is_available()
        if self.device.startswith("cuda"):
            self._check_cuda(available)
        return torch.device("cuda" if self.device == "auto" and available else self.device.replace("auto", "cpu"))

    def _check_cuda(self, available: bool) -> None:
        """Raise ``SettingsError`` if the CUDA device of the config is not there."""
        if not available:
            raise SettingsError(
                f"device is {self.device!r}, but this machine has no CUDA device that torch can use.", public=True
            )
        _, _, number = self.device.partition(":")
        count = torch.cuda.device_count()
        if number and int(number) >= count:
            owner = "CUDA_VISIBLE_DEVICES shows the site" if VISIBLE_GPUS in os.environ else "this machine has"
            raise SettingsError(f"device is {self.device!r}, but {owner} {count} CUDA devices.", public=True)


def _share(part: str) -> tuple[int, int]:
    """Return the number and the count in a text such as ``3/10``."""
    number, count = part.split("/")
    return int(number), int(count)


def read_site_config(
    site: str, path: Path | None, environment: Mapping[str, str], *, shared: bool = True
) -> SiteConfig:
    """Return the config of ``site`` from the file at ``path`` (None: no file) and the environment.

    ``shared``: several sites may share the file, so it need not have an entry for each. Raises ``SettingsError`` for an
    invalid setting, and for a file of one site that has entries and none for it, since what its operator has written
    there would not hold; ``DataError`` if the file cannot be read as JSON.
    """
    entry = {} if path is None else _entry(site, path, shared=shared)
    try:
        return SiteConfig.model_validate({**_from_environment(environment), **entry})
    except pydantic.ValidationError as error:
        name = _wrong_field(error)
        origin = f"config {FILE_NAME}" if name in entry else f"environment variable {_variable(name)}"
        problem = first_problem(error, SiteConfig.model_fields)
        raise SettingsError(f"site {site}: {origin}: {problem}", public=_public_problem(error)) from error


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a site that the environment of its process has; empty variables count as unset.

    Blanks around a value, such as the line end of a file that was written on Windows, do not count.
    """
    values: dict[str, Any] = {
        field: value for field in FROM_ENVIRONMENT if (value := environment.get(_variable(field), "").strip())
    }
    for name in {"data_root", "dataset_file"} & values.keys():
        values[name] = user_path(values[name], environment)
    return values


def _variable(field: str) -> str:
    """Return the variable that may have a setting in place of the file."""
    return f"FDG_{field.upper()}"


def read_allowed_plugins(owner: str, path: Path, *, shared: bool = True) -> Allowed:
    """Return ``allowed_plugins`` of ``owner`` from the file at ``path``, ignoring all else; None if there is no list.

    The server has such a list too, under the name ``server``. ``shared`` and errors: as :func:`read_site_config`.
    """
    entry = _entry(owner, path, shared=shared) if os.path.lexists(path) else {}
    try:
        found = SiteConfig.model_validate({ALLOWED_PLUGINS: entry.get(ALLOWED_PLUGINS)})
    except pydantic.ValidationError as error:
        raise SettingsError(f"{owner}: config {FILE_NAME}: {first_problem(error)}") from error
    return found.allowed_plugins


def _check_declared(others: Sequence[str], own: Collection[str], allowed: Allowed) -> None:
    """Raise ``ValueError`` for a report that no allowed plug-in declares; ``others`` are not in ``own``."""
    for name in others:
        known = _reports_of_plugins(allowed)
        if name not in known:
            raise ValueError(f"{shorten(name)} is unknown, {expected_one_of(name, [*own, *known])}")


def _reports_of_plugins(allowed: Allowed) -> tuple[str, ...]:
    """Return the reports that the methods of installed plug-ins declare, restricted to allowed plug-ins."""
    names = [name for name in METHODS.entries() if is_allowed("objective", name, allowed)]
    return tuple(report for name in names for report in METHODS.get(name).reports)


def update_site_config(path: Path, site: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Add settings to the entry of ``site`` in the file at ``path``, which need not be there; return the entry.

    Raises ``SettingsError``, and writes nothing, if a setting of the entry is then invalid, and ``DataError`` if the
    file cannot be read or written.
    """
    content = _content(path) if path.exists() else {}
    entry = {**_entry_in(content, site, path), **values}
    try:
        SiteConfig.model_validate(entry)
    except pydantic.ValidationError as error:
        problem = first_problem(error, SiteConfig.model_fields)
        raise SettingsError(f"site {site}: config {path}: {problem}") from error
    write_json(path, {**content, site: entry})
    return entry


def _entry(site: str, path: Path, *, shared: bool) -> dict[str, Any]:
    content = _content(path)
    entry = _entry_in(content, site, path)
    if not shared and content and site not in content:
        raise SettingsError(
            f"site {site}: config {path} has settings of {', '.join(map(shorten, content))}, expected an entry "
            f"{shorten(site)}.",
            public="its config has no entry for it.",
        )
    return entry


def _entry_in(content: Any, site: str, path: Path) -> dict[str, Any]:
    entry = content.get(site, {}) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not isinstance(entry, dict):
        raise SettingsError(
            f"site {site}: config {path} must map site names to objects of settings.",
            public="its config must map site names to objects of settings.",
        )
    return entry


def _content(path: Path) -> Any:
    try:
        return read_json(path)
    except DataError as error:
        raise DataError(str(error), public="its config cannot be read as JSON.") from error


def _wrong_field(error: pydantic.ValidationError) -> str:
    """Return the name of the first setting that is wrong or unknown."""
    return str((error.errors(include_url=False, include_input=False)[0]["loc"] or ("",))[0])


def _public_problem(error: pydantic.ValidationError) -> str:
    """Return which setting is wrong, without its value; an unknown name is not repeated, because it is arbitrary."""
    name = _wrong_field(error)
    what = (
        f"has a value of {name!r} that is not as expected"
        if name in SiteConfig.model_fields
        else "has an unknown field"
    )
    return f"its config, of file or environment, {what}."

# SPDX-License-Identifier: Apache-2.0
"""A site's own config, ``local/fdg_site.json``: the settings that its administrator controls and no job can change.

The file is keyed by site name, because all sites of a simulator share one file: ``{"photo": {"data_root":
"/data", "device": "cuda:0"}}``. Omitted fields come from the ``FDG_*`` variables of the site's process
(:data:`FROM_ENVIRONMENT`: ``FDG_DATA_ROOT``, ``FDG_DEVICE`` and so on), else from the defaults.
"""

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import torch
from pydantic import Field, StringConstraints

from fdg_plugins.errors import DataError, SettingsError, first_problem, shorten
from fdg_plugins.storage import user_path, write_json

FILE_NAME = "fdg_site.json"
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"  # set by an operator, or by FLARE for a job that asks for GPUs; numbered from 0
PATHS = ("data_root", "dataset_file")
FROM_ENVIRONMENT = (
    *(*PATHS, "device", "workers", "threads", "image_memory"),
    *("compile", "isolate", "max_image_pixels", "damaged_images"),
)

DistributionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
Part = Annotated[str, StringConstraints(pattern=r"^[1-9]\d{0,5}/[1-9]\d{0,5}$")]


class SiteConfig(pydantic.BaseModel):
    """The settings that a site controls itself."""

    model_config = pydantic.ConfigDict(use_attribute_docstrings=True, frozen=True, extra="forbid")

    data_root: Path | None = Field(None, description="folder that holds the data sets")
    dataset_file: Path | None = None
    """file about a data set of one's own; default: `dataset.toml` in the data root, if there is one"""
    domain: str | None = None
    """domain held by the site; default: the site's name, of `photo-3of10` what precedes the part"""
    part: Part | None = None
    """share of the domain, for many sites per domain: `3/10` is the third of ten; default: as the site's name says,
    which is `photo-3of10`"""
    role: Literal["source", "held_out"] | None = Field(None, description="the only role that the site accepts")
    allowed_plugins: tuple[DistributionName, ...] | None = None
    """distributions whose plug-ins jobs may use here, `custom` for files that jobs bring; default: all that are
    installed"""
    allowed_reports: tuple[str, ...] | None = None
    """what may leave the site beside its update; default: whatever a method needs"""
    evaluates: bool = True
    """the site evaluates finished models that it is sent (`fdg evaluate`); `false` forbids it"""
    least_count: int = Field(10, ge=1)
    """fewest images in a histogram of scores that leaves the site: of a finished model, others are withheld; a run that
    asks for others is refused; default in a simulation: 1"""
    device: Annotated[str, StringConstraints(pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$")] = "auto"
    """where the site computes"""
    workers: int = Field(0, ge=0, le=64, description="processes that read images")
    threads: int | None = Field(None, ge=1, le=1024)
    """most threads of CPU arithmetic; a small network has one"""
    image_memory: float = Field(2.0, ge=0, le=4096)
    """GiB of decoded images that the site keeps in memory; 0: it decodes them each time"""
    compile: bool = False
    """train by code that torch compiles here first: for GPUs, on a CPU it was slower; other bits"""
    isolate: bool | None = None
    """work in a process beside FLARE's; default: yes, except under FLARE's simulator"""
    report_names: bool | None = None
    """reasons and the census may name the site's files and folders to the server; default: no, except reasons in a
    simulation or one process"""
    max_image_pixels: int = Field(50_000_000, ge=1, le=2**31)
    """pixels of the largest image that the site opens"""
    damaged_images: Literal["stop", "leave_out"] = "stop"
    """an image that cannot be read stops the site, or is left out and counted in the census"""

    @pydantic.model_validator(mode="after")
    def _part_among_its_count(self) -> "SiteConfig":
        if (part := self.part_of_domain()) and part[0] > part[1]:
            raise ValueError(f"part is {self.part}, its number should be at most its count, as in 3/10")
        return self

    @pydantic.field_validator(*PATHS)
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("it must be an absolute path")
        return value

    def part_of_domain(self) -> tuple[int, int] | None:
        """Return the number, from 1, and the count of the parts of the domain; None for the whole domain."""
        number, _, count = (self.part or "").partition("/")
        return (int(number), int(count)) if count else None

    def torch_device(self) -> torch.device:
        """Return the device to compute on; raise ``SettingsError`` if this machine does not have it."""
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if self.device == "auto":
            return torch.device("cuda" if count else "cpu")
        _, _, number = self.device.partition(":")
        if self.device.startswith("cuda") and int(number or 0) >= count:
            owner = f"{VISIBLE_GPUS} shows the site" if VISIBLE_GPUS in os.environ else "this machine has"
            raise SettingsError(f"device is {self.device!r}, but {owner} {count} CUDA devices.", public=True)
        return torch.device(self.device)


def read_site_config(
    site: str, path: Path | None, environment: Mapping[str, str], *, shared: bool = True
) -> SiteConfig:
    """Return the config of ``site`` from the file at ``path``, if it is there, and the environment.

    ``shared``: several sites may share the file, so it need not have an entry for each; else one that has others and
    none for the site is refused, since what its operator has written there would not hold.
    """
    entry = _entry(site, _content(path), path, shared=shared) if path is not None and os.path.lexists(path) else {}
    values: dict[str, Any] = {"least_count": 1} if shared else {}  # of a simulation, nothing leaves
    values |= {field: value for field in FROM_ENVIRONMENT if (value := environment.get(_variable(field), "").strip())}
    values |= {name: user_path(values[name], environment) for name in PATHS if name in values}
    return _validated({**values, **entry}, site, entry)


def update_site_config(path: Path, site: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Add settings to the entry of ``site`` in the file at ``path``, which need not be there; return the entry.

    Raises ``SettingsError``, and writes nothing, if a setting of the entry is then invalid.
    """
    content = _content(path) if path.exists() else {}
    entry = {**_entry(site, content, path, shared=True), **values}
    _validated(entry, site, entry)
    write_json(path, {**content, site: entry})
    return entry


def _validated(values: Mapping[str, Any], site: str, entry: Mapping[str, Any]) -> SiteConfig:
    """Return the config; raise ``SettingsError`` that names the file, or the variable of what is not in ``entry``.

    Others are told only which setting is wrong: an unknown name is arbitrary, and a value may be a path.
    """
    try:
        return SiteConfig.model_validate(values)
    except pydantic.ValidationError as error:
        name = str(next(iter(error.errors(include_url=False, include_input=False)[0]["loc"]), "part"))
        where = f"config {FILE_NAME}" if name in entry else f"environment variable {_variable(name)}"
        what = f"a value of {name!r} that is not as expected" if name in SiteConfig.model_fields else "an unknown field"
        text = f"site {site}: {where}: {first_problem(error, SiteConfig.model_fields)}"
        public = f"its config, of file or environment, has {what}."
        raise SettingsError(text, public=public, field=name) from error


def _variable(field: str) -> str:
    return f"FDG_{field.upper()}"


_parsed = lru_cache(maxsize=1)(json.loads)  # the sites of a simulation, which may be thousands, share one content


def _content(path: Path) -> Any:
    try:
        return _parsed(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        text = f"file {path} cannot be read as JSON: {error}."
        raise DataError(text, public="its config cannot be read as JSON.") from error


def _entry(site: str, content: Any, path: Path, *, shared: bool) -> dict[str, Any]:
    entry = content.get(site, {}) if isinstance(content, dict) else None
    if isinstance(entry, dict) and (shared or not content or site in content):
        return entry
    found = ", ".join(map(shorten, content)) if isinstance(content, dict) else shorten(content)
    text = f"site {site}: config {path} has {found}, expected an entry {shorten(site)} with an object of settings."
    raise SettingsError(text, public="its config has no object of settings for it.", field=site)

# SPDX-License-Identifier: Apache-2.0
"""``fdg kit site``: write which domain a site holds, and where its images are, into its own config."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.flare.gpus import lend_gpus, lent_gpus
from fdg_plugins.naming import did_you_mean
from fdg_plugins.values import counted, shorten, visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fdg_plugins.flare.kits import Kit


def site_config(
    kit: Annotated[Path, typer.Option(help="The site's startup kit: the folder that holds local/ and startup/.")],
    domain: Annotated[
        str | None, typer.Option(help="Domain that the site holds; default: the site's name.", show_default=False)
    ] = None,
    data_root: Annotated[
        str | None, typer.Option(metavar="PATH", help="Folder that holds the site's data sets.", show_default=False)
    ] = None,
    dataset_file: Annotated[
        str | None, typer.Option(metavar="PATH", help="File about a data set of your own.", show_default=False)
    ] = None,
    part: Annotated[
        str | None, typer.Option(help="Share of the domain: 3/10 is the third of ten equal parts.", show_default=False)
    ] = None,
    role: Annotated[
        str | None, typer.Option(help="The only role that the site accepts: source or held_out.", show_default=False)
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where the site computes: auto, cpu, cuda or cuda:0.", show_default=False)
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(help="GPUs that the site lends to jobs; 0: none. FLARE counts them.", show_default=False),
    ] = None,
    gpu_memory: Annotated[
        float | None,
        typer.Option(metavar="GIB", help="GiB of each GPU for all jobs together.", show_default=False),
    ] = None,
) -> None:
    """Write a site's own config, local/fdg_site.json of its kit; other entries that it has are kept.

    No job can change this file, and it does not leave the site. The site reads it at the start of every task: no
    restart is needed. Its other settings (docs/security.md) are added by hand. For a site in containers, the paths are
    those that its containers have (docs/containers.md).

    --gpus and --gpu-memory are written into local/resources.json instead, for FLARE's resource manager, which reads
    them when the site starts (docs/gpus.md).

    Examples:

      fdg kit site --kit /srv/flare/site-1 --domain photo --data-root /data

      fdg kit site --kit /srv/flare/site-1 --gpus 1 --gpu-memory 16
    """
    from fdg_plugins.flare.components import SITE
    from fdg_plugins.flare.kits import read_kit, site_of_kit
    from fdg_plugins.settings.site_config import FILE_NAME, update_site_config
    from fdg_plugins.storage import read_json, write_json

    found = read_kit(kit)
    if found.end != SITE:
        raise SettingsError(f"kit {kit} is a server's, expected that of a site.")
    paths = {"data_root": data_root, "dataset_file": dataset_file}
    _check_domain(domain)
    resources = _lending(found, gpus, gpu_memory)
    texts = {"domain": domain, "part": part, "role": role, "device": device}
    given = {name: _place(name, text, found) for name, text in paths.items() if text is not None}
    given |= {name: text for name, text in texts.items() if text is not None}
    site, file = site_of_kit(kit), kit / "local" / FILE_NAME
    stored = read_json(file).get(site, {}) if file.exists() else {}
    holds = _known_domain({**stored, **given}, asked=domain is not None)
    entry = update_site_config(file, site, given)
    say(visible(f"{file}: site {site}"))
    for name, value in entry.items():
        say(visible(f"  {name}: {value}"))
    if holds:
        say(visible(holds))
    if resources is not None:
        write_json(found.target, resources)
        say(visible(f"{found.target}: lends {lent_gpus(resources, kit)} to jobs from the site's next start"))


def _check_domain(domain: str | None) -> None:
    """Raise ``SettingsError`` for a domain that no folder of images can have as its name."""
    from fdg_plugins.plugins.own_dataset import is_folder_name

    if domain is not None and not is_folder_name(domain):
        raise SettingsError(
            f"--domain is {shorten(domain)}, expected a folder's name: no '/', no control or invisible characters, no "
            "'.' in front."
        )


def _known_domain(entry: "Mapping[str, Any]", *, asked: bool) -> str:
    """Return what the data root holds of the entry's domain; empty where neither is known, as in containers.

    Raises ``SettingsError`` for a domain that is ``asked`` for and in none of the data sets that are there.
    """
    from fdg_plugins.data import DATASETS

    root, domain = Path(entry.get("data_root") or "/dev/null"), entry.get("domain")
    if not root.is_dir() or domain is None or "dataset_file" in entry:
        return ""
    found = [spec for spec in DATASETS.all() if spec.needs_data_root and (root / spec.folder).is_dir()]
    for spec in found:
        if domain in spec.domains:
            return f"domain {domain} of {spec.name}: {_num_files(root / spec.folder / domain)} below {root}"
    if (root / domain).is_dir():
        return f"domain {domain}, images of your own: {_num_files(root / domain)} below {root}"
    if found and asked:
        known = [name for spec in found for name in spec.domains]
        raise SettingsError(f"--domain is {domain!r}, which no data set in {root} has; {did_you_mean(domain, known)}")
    return ""


def _num_files(folder: Path) -> str:
    return counted(sum(path.is_file() for path in folder.rglob("*")), "file")


def _place(name: str, text: str, kit: "Kit") -> str:
    """Return the path that an option names, as the site's config has it; raise ``DataError`` if it is not there.

    A path that only the site's containers have is taken as it is, with a warning.
    """
    from fdg_plugins.flare.kits import runs_in_containers

    path, option = Path(text), f"--{name.replace('_', '-')} {text}"
    in_containers = runs_in_containers(kit.resources)
    if not text or (in_containers and not path.is_absolute()):
        where = "the absolute path in the containers of the site" if in_containers else "a path"
        raise SettingsError(f"--{name.replace('_', '-')} is {shorten(text)}, expected {where}.")
    if path.exists():
        _check_kind(option, path, is_folder=name == "data_root")
    elif in_containers:
        warning = f"Warning: {option} is not there, expected in the containers of the site."
        say(visible(warning), "yellow", on_stderr=True)
    else:
        raise DataError(f"{option} is not there.")
    return str(path if in_containers else path.resolve())  # links of this machine are not those of a container


def _check_kind(option: str, path: Path, *, is_folder: bool) -> None:
    """Raise ``DataError`` for a file where a folder is expected, and the other way round."""
    if not (path.is_dir() if is_folder else path.is_file()):
        raise DataError(f"{option} is not a {'folder' if is_folder else 'file'}, expected one.")


def _lending(kit: "Kit", gpus: int | None, memory: float | None) -> dict[str, Any] | None:
    """Return the resources of a kit that lends GPUs as the options say; None if they say nothing."""

    if gpus is None and memory is None:
        return None
    if gpus is None:
        raise SettingsError("--gpu-memory needs --gpus, expected the number of GPUs with it.")
    return lend_gpus(kit.resources, gpus, memory)

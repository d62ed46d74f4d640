# SPDX-License-Identifier: Apache-2.0
"""``fdg site-config``: write which domain a site holds, and where its images are, into its own config."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.errors import DataError, SettingsError

if TYPE_CHECKING:
    from fdg_plugins.flare.kits import Kit


def site_config(
    kit: Annotated[Path, typer.Option(help="The site's startup kit: the folder that holds local/ and startup/.")],
    domain: Annotated[
        str | None, typer.Option(help="Domain that the site holds; default: the site's name.", show_default=False)
    ] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Folder that holds the site's data sets.", show_default=False)
    ] = None,
    dataset_file: Annotated[
        Path | None, typer.Option(help="File about a data set of your own.", show_default=False)
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
    """Write a site's own config, local/fdg_site.json of its kit; what it says already stays.

    No job can change this file, and it does not leave the site. The site reads it at the start of every task: no
    restart is needed. Its other settings (docs/security.md) are added by hand. Of a site in containers, the paths are
    those that its containers have (docs/containers.md).

    --gpus and --gpu-memory are written into local/resources.json instead, for FLARE's resource manager, which reads
    them when the site starts (docs/gpus.md).

    Examples:

      fdg site-config --kit /srv/flare/site-1 --domain photo --data-root /data

      fdg site-config --kit /srv/flare/site-1 --gpus 1 --gpu-memory 16
    """
    from fdg_plugins.flare.components import SITE
    from fdg_plugins.flare.gpus import lent_gpus
    from fdg_plugins.flare.kits import read_kit, site_of_kit
    from fdg_plugins.settings.site_config import FILE_NAME, update_site_config
    from fdg_plugins.storage import write_json

    found = read_kit(kit)
    if found.end != SITE:
        raise SettingsError(f"kit {kit} is a server's, expected that of a site.")
    paths = {"data_root": data_root, "dataset_file": dataset_file}
    resources = _lending(found, gpus, gpu_memory)
    texts = {"domain": domain, "part": part, "role": role, "device": device}
    given = {name: _place(name, path, found) for name, path in paths.items() if path is not None}
    given |= {name: text for name, text in texts.items() if text is not None}
    site, file = site_of_kit(kit), kit / "local" / FILE_NAME
    entry = update_site_config(file, site, given)
    say(f"{file}: site {site}")
    for name, value in entry.items():
        say(f"  {name}: {value}")
    if resources is not None:
        write_json(found.target, resources)
        say(f"{found.target}: lends {lent_gpus(resources, kit)} to jobs from the site's next start")


def _place(name: str, path: Path, kit: "Kit") -> str:
    """Return the path that an option names, as the site's config has it; raise ``DataError`` if it is not there.

    A path that only the site's containers have is taken as it is, with a warning.
    """
    from fdg_plugins.flare.kits import runs_in_containers

    option = f"--{name.replace('_', '-')} {path}"
    if not runs_in_containers(kit.resources):
        if not path.exists():
            raise DataError(f"{option} is not there.")
        return str(path.resolve())
    if not path.is_absolute():
        raise SettingsError(f"{option} is relative, expected the absolute path in the containers of the site.")
    if not path.exists():
        say(f"Warning: {option} is not there, expected in the containers of the site.", "yellow", on_stderr=True)
    return str(path)  # links of this machine are not those of a container


def _lending(kit: "Kit", gpus: int | None, memory: float | None) -> dict[str, Any] | None:
    """Return the resources of a kit that lends GPUs as the options say; None if they say nothing."""
    from fdg_plugins.flare.gpus import lend_gpus

    if gpus is None and memory is None:
        return None
    if gpus is None:
        raise SettingsError("--gpu-memory needs --gpus, expected the number of GPUs with it.")
    return lend_gpus(kit.resources, gpus, memory)

# SPDX-License-Identifier: Apache-2.0
"""``fdg site-config``: write which domain a site holds, and where its images are, into its own config."""

from pathlib import Path
from typing import Annotated

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.errors import DataError, SettingsError


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
) -> None:
    """Write a site's own config, local/fdg_site.json of its kit; what it says already stays.

    No job can change this file, and it does not leave the site. The site reads it at the start of every task: no
    restart is needed. Its other settings (docs/security.md) are added by hand.

    Examples:

      fdg site-config --kit /srv/flare/site-1 --domain photo --data-root /data
    """
    from fdg_plugins.flare.components import SITE
    from fdg_plugins.flare.kits import read_kit, site_of_kit
    from fdg_plugins.settings.site_config import FILE_NAME, update_site_config

    if read_kit(kit).end != SITE:
        raise SettingsError(f"kit {kit} is a server's, expected that of a site.")
    paths = {"data_root": data_root, "dataset_file": dataset_file}
    for option, path in paths.items():
        if path is not None and not path.exists():
            raise DataError(f"--{option.replace('_', '-')} {path} is not there.")
    texts = {"domain": domain, "part": part, "role": role, "device": device}
    given = {name: str(path.resolve()) for name, path in paths.items() if path is not None}
    given |= {name: text for name, text in texts.items() if text is not None}
    site, file = site_of_kit(kit), kit / "local" / FILE_NAME
    entry = update_site_config(file, site, given)
    say(f"{file}: site {site}")
    for name, value in entry.items():
        say(f"  {name}: {value}")

# SPDX-License-Identifier: Apache-2.0
"""``fdg kit harden``: the policies of a cautious operator in one participant's kit."""

from pathlib import Path
from typing import Annotated

import typer

from fdg_plugins.cli.console import say


def harden(
    kit: Annotated[
        Path, typer.Option(help="The participant's startup kit: the folder that holds local/ and startup/.")
    ],
) -> None:
    """Give a server's or a site's kit the policies of a cautious operator, where it has none of its own yet.

    Writes class_allow_list with the components that jobs of this package need, turns off the streaming of a site's
    logs, lets no lead bring code, run shell commands or operate the machine, and has a server restart a running job at
    a site that comes back. It is what fdg poc start and the builder in deploy/project.yml do, for a kit that was made
    otherwise; and for one that nvflare deploy prepare has copied for Docker or Kubernetes, which drops
    local/resources.json and with it all of this.

    Other entries of local/resources.json and local/authorization.json are kept, except a longer list of components.

    Examples:

      nvflare deploy prepare /srv/flare/photo --output /srv/flare/photo-docker --config docker/site.yml

      fdg kit harden --kit /srv/flare/photo-docker
    """
    from fdg_plugins.flare.cautious_kits import AUTHORIZATION, lacks
    from fdg_plugins.flare.cautious_kits import harden as harden_kit
    from fdg_plugins.flare.kits import read_kit

    target = read_kit(kit).target
    files = (target, target.with_name(AUTHORIZATION))
    before = {file: _content(file) for file in files}
    harden_kit(kit)
    for file in files:
        say(f"{file}: {'left as it was' if _content(file) == before[file] else 'written'}")
    for lacking in lacks(read_kit(kit)):
        say(f"Warning: {target} was there before, and {lacking}.", style="yellow", on_stderr=True)
    say(f"what it permits: fdg kit check --kit {kit}")


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None

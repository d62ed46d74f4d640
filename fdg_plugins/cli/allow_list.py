# SPDX-License-Identifier: Apache-2.0
"""``fdg allow-list``: an operator allows this package's components at one participant."""

from pathlib import Path
from typing import Annotated

import typer

from fdg_plugins.cli.components import METHODS
from fdg_plugins.cli.console import say


def allow_list(
    kit: Annotated[
        Path, typer.Option(help="The participant's startup kit: the folder that holds local/ and startup/.")
    ],
    method: Annotated[
        list[str] | None,
        typer.Option(help=f"Allow only what this method needs; may be repeated. One of {', '.join(METHODS)}."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be added, and write nothing.")] = False,
) -> None:
    """Allow this package's components at one server or site, by their exact class paths.

    Merges them into class_allow_list of local/resources.json, which FLARE reads at the start of every job: no restart
    is needed. What is there stays. FLARE's own defaults are written out, because a list of one's own replaces them.

    Examples:

      fdg allow-list --kit /srv/flare/photo

      fdg allow-list --kit /srv/flare/photo --method fedomg --method fedga --dry-run
    """
    from fdg_plugins.cli.kits import merge_allow_list, read_kit

    merge = merge_allow_list(read_kit(kit), method or ())
    for entry in merge.too_wide:
        say(
            f"Warning: entry {entry!r} of class_allow_list allows every callable that can be reached below it, "
            "not only components; exact class paths are enough.",
            style="yellow",
            on_stderr=True,
        )
    if merge.added and not dry_run:
        merge.write()
    verb = "would add" if dry_run else "added"
    defaults = f" ({len(merge.defaults)} of FLARE's own defaults among them)" if merge.defaults else ""
    say(f"{merge.kit.end} kit {kit}: {verb} {len(merge.added)} of {len(merge.entries)} entries{defaults}")
    for entry in merge.added:
        if entry not in merge.defaults:
            say(f"  + {entry}")
    say(f"{merge.kit.target}: {'not written (dry run)' if dry_run else 'written' if merge.added else 'left as it was'}")

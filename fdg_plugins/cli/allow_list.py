# SPDX-License-Identifier: Apache-2.0
"""``fdg kit allow``: allow this package's components, and no others, at one participant."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.cli.plugins import PluginFiles, load_plugins

if TYPE_CHECKING:
    from fdg_plugins.flare.kits import Merge


def allow_list(
    kit: Annotated[
        Path, typer.Option(help="The participant's startup kit: the folder that holds local/ and startup/.")
    ],
    method: Annotated[
        list[str] | None,
        typer.Option(help="Allow only what this method needs, as fdg explain lists them; may be repeated."),
    ] = None,
    keep_flare_defaults: Annotated[
        bool, typer.Option("--keep-flare-defaults", help="Allow FLARE's own default components too.")
    ] = False,
    plugin: PluginFiles = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and write nothing.")] = False,
) -> None:
    """Allow this package's components at one server or site, by their exact class paths, and no others.

    Writes class_allow_list of local/resources.json, which FLARE reads at the start of every job: no restart is needed.
    The list is minimal: the components that the jobs of this package name, and those the operator has added. FLARE's
    own defaults are omitted, and removed if an earlier version wrote them, because some of them let a job send results
    past the site's filters. --keep-flare-defaults keeps them, and says what they open.

    Examples:

      fdg kit allow --kit /srv/flare/photo

      fdg kit allow --kit /srv/flare/photo --method fedomg --method fedga --dry-run
    """
    from fdg_plugins.flare.kits import merge_allow_list, read_kit

    load_plugins(plugin)
    merge = merge_allow_list(read_kit(kit), method or (), keep_flare_defaults=keep_flare_defaults)
    _warn(merge)
    if dry_run:
        verbs, outcome = ("would add", "would remove"), "not written (dry run)"
    else:
        verbs, outcome = ("added", "removed"), _write(merge)
    _show(merge, kit, verbs)
    say(f"{merge.kit.target}: {outcome}")


def _write(merge: "Merge") -> str:
    """Write the list if it changes anything; return the outcome as text."""
    if not merge.changes:
        return "left as it was"
    merge.write()
    return "written"


def _show(merge: "Merge", kit: Path, verbs: tuple[str, str]) -> None:
    counts = f"{verbs[0]} {len(merge.added)}, {verbs[1]} {len(merge.removed)}"
    say(f"{merge.kit.end} kit {kit}: {counts}; {len(merge.entries)} entries in all")
    for entry in merge.added:
        if entry not in merge.defaults:
            say(f"  + {entry}")
    for entry in merge.others:
        say(f"  kept {entry}, which is neither this package's nor FLARE's: added here")


def _warn(merge: "Merge") -> None:
    """Warn of what the list permits in addition to the components of this package."""
    from fdg_plugins.flare.allow_list import LOG_STREAMER, STREAMING, by_group

    for entry in merge.too_wide:
        _say_warning(
            f"entry {entry!r} of class_allow_list allows every callable that can be reached below it, "
            "not only components; exact class paths are enough."
        )
    if merge.streams:
        _say_warning(
            f"FLARE sends this site's logs, which name its files, to the server; the list allows {LOG_STREAMER}, which "
            f"FLARE adds to every job for that, until {STREAMING} is false in {merge.kit.target.name}."
        )
    if merge.defaults:
        _say_warning(f"the list holds {len(merge.defaults)} of FLARE's defaults that no job of this package needs:")
    for group, members in by_group(merge.defaults).items():
        say(f"  {len(members)} such as {members[0]}: {group.opens}.", style="yellow", on_stderr=True)


def _say_warning(text: str) -> None:
    say(f"Warning: {text}", style="yellow", on_stderr=True)

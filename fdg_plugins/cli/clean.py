# SPDX-License-Identifier: Apache-2.0
"""``fdg kit clean``: remove what interrupted runs have left at a participant."""

import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from fdg_plugins.cli.console import FAILED, say
from fdg_plugins.cli.tables import make_table, show
from fdg_plugins.errors import DataError
from fdg_plugins.values import visible

if TYPE_CHECKING:
    from fdg_plugins.state.leftovers import Leftover


def clean(
    kit: Annotated[
        Path,
        typer.Option(help="A participant's startup kit, or the workspace of FLARE's simulator.", show_default=False),
    ],
    older_than: Annotated[
        float, typer.Option(min=1.0, metavar="DAYS", help="Only what has not changed for so many days.")
    ] = 1.0,
    run: Annotated[
        str | None,
        typer.Option(help="Only this run, unless it has changed within an hour: the id of the job that started it."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
) -> None:
    """Remove the state of runs: below fdg_state/, one folder for each run.

    A finished run removes its state at the server; a site removes what no task has used for a month. Interrupted runs
    can be resumed (fdg resume); after this command they cannot. What has changed lately is kept, with the reason. Links
    are not followed, and nothing else is touched; folders of received tensors that a killed server left in the
    temporary folder are only named.

    Exit codes: 0 done, 1 something could not be removed, 2 there is no such kit or run.

    Examples:

      fdg kit clean --kit /srv/flare/photo --dry-run

      fdg kit clean --kit /srv/flare/server --older-than 30

      fdg kit clean --kit /srv/flare/server --run 3379af42-b0b1-4066-889e-7cf89997f720
    """
    from fdg_plugins.state.leftovers import leftovers

    found = leftovers(kit, older_than, run)
    if run is not None and not found:
        raise DataError(f"run {run} has left nothing in {kit}.")
    outcomes = [_remove(leftover, dry_run) for leftover in found]
    _show(kit, [(*_described(leftover), outcome.text) for leftover, outcome in zip(found, outcomes, strict=True)])
    _name_offload_folders(kit)
    if any(outcome.has_failed for outcome in outcomes):
        raise typer.Exit(FAILED)


class _Outcome(NamedTuple):
    text: str
    has_failed: bool = False


def _remove(leftover: "Leftover", dry_run: bool) -> _Outcome:
    """Remove a removable folder."""
    from fdg_plugins.state.folders import remove_state

    if leftover.kept_because is not None:
        return _Outcome(f"kept: {leftover.kept_because}")
    if dry_run:
        return _Outcome("would be removed")
    try:
        remove_state(leftover.path)
    except DataError as error:
        return _Outcome(f"not removed: {error}", has_failed=True)
    return _Outcome("removed")


def _show(kit: Path, rows: list[tuple[str, ...]]) -> None:
    if rows:
        show(make_table(("run", "bytes", "last change", ""), rows, ("bytes",)))
    else:
        say(visible(f"{kit}: no run has left anything"))


def _described(leftover: "Leftover") -> tuple[str, str, str]:
    changed = datetime.fromtimestamp(leftover.changed).astimezone().isoformat(sep=" ", timespec="minutes")
    return str(leftover.path), f"{leftover.num_bytes:,}", changed


def _name_offload_folders(kit: Path) -> None:
    """Name the folders of received tensors that a killed server left; a site's kit has none."""
    from fdg_plugins.state.leftovers import offload_folders

    if (kit / "startup" / "fed_client.json").exists():
        return
    temporary = Path(tempfile.gettempdir())
    if folders := offload_folders(temporary):
        say(f"\nTensors that arrived in files, of jobs that run or of a server that was killed, in {temporary}:")
        for folder in folders:
            say(visible(f"  {folder.name}"))
        say("Remove them by hand once no job with enable_tensor_disk_offload runs on this machine.")

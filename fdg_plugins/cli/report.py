# SPDX-License-Identifier: Apache-2.0
"""``fdg report``: the paper's table from finished runs; and the runs that a command's paths hold."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from rich.text import Text
from typer import Argument, Option

from fdg_plugins.cli.console import say, warn
from fdg_plugins.cli.options import PluginFiles, load_plugins
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis import RULES, Run, build_sites_table, build_table, find_runs, is_of_sites
from fdg_plugins.storage import write_bytes

Rule = Literal["last", "source_validation", "source_worst", "oracle"]
RuleOrAll = Literal["last", "source_validation", "source_worst", "oracle", "all"]
Against = Literal["paper", "fedomg", "feddg-ga", "feddim", "fediir"]
FORMS = {".txt": "terminal", ".md": "markdown", ".csv": "csv", ".tex": "latex"}

PathsArgument = Annotated[
    list[Path],
    Argument(
        help="Folders that hold runs at any depth: of a sweep, of a run, a simulator's workspace, downloaded jobs."
    ),
]
RoundsOption = Annotated[
    int | None,
    Option(
        min=1,
        metavar="N",
        help="Take federated runs as if they had ended after N rounds, also those that still go on or were stopped.",
    ),
]


def runs_below(paths: Iterable[Path], rounds: int | None = None) -> tuple[Run, ...]:
    """Return the runs below ``paths``, and warn of what is left out; raise ``DataError`` if there are none.

    ``rounds``: as :func:`~fdg_plugins.lab.analysis.runs.find_runs` takes it.
    """
    found = find_runs(paths, rounds)
    for folder, reason in found.left_out:
        warn(f"{folder} is left out: {reason}")
    if not found.runs:
        asked = "finished run" if rounds is None else f"run of {rounds} rounds"
        raise DataError(f"there is no {asked} below {', '.join(map(str, paths))}; expected at least one results.json.")
    for path in found.empty:
        warn(f"{path} holds no results.json.")
    return found.runs


def report(
    paths: PathsArgument,
    selection: Annotated[
        RuleOrAll | None,
        Option(help="Which model is reported; all: a row each.", show_default="source_validation"),
    ] = None,
    against: Annotated[Against | None, Option(help="Printed numbers beside ours; paper: of all papers.")] = None,
    to: Annotated[Path | None, Option(help="Write to this file instead: .txt, .md, .csv or .tex.")] = None,
    choose: Annotated[list[str] | None, Option(metavar="SETTING", help="Choose by source validation.")] = None,
    rounds: RoundsOption = None,
    plugin: PluginFiles = None,
) -> None:
    """Print the table of finished runs: methods by held-out domains.

    Each cell is mean ± std over seeds. Unfinished runs are named and left out; runs that differ in more than method,
    held-out domain and seed are rejected. With FedAvg among the methods, their paired differences to it follow. Runs on
    label-skewed sites give FedOMG's Tables 1 and 5 instead, always of the last model.

    Examples:

      fdg report sweeps/pacs --against paper --to pacs.md
      fdg report sweeps/kappa --choose kappa
    """
    load_plugins(plugin)
    suffix = ".txt" if to is None else to.suffix
    if suffix not in FORMS:
        raise SettingsError(field="the suffix of --to", value=suffix, expected=f"one of {', '.join(FORMS)}")
    runs = runs_below(paths, rounds)
    if is_of_sites(runs):
        if choose or selection not in (None, "last"):
            raise SettingsError(
                "label-skewed sites validate on their test images, so no model or setting can be chosen: expected "
                "neither --choose nor --selection."
            )
        table = build_sites_table(runs, against)
    else:
        rules = tuple(RULES) if selection == "all" else (selection or "source_validation",)
        table = build_table(runs, rules, against, tuple(dict.fromkeys(choose or [])))
    written = table.text(FORMS[suffix])
    if to is not None:
        write_bytes(to, written.encode())
        say(f"{to}: written")
        return
    text = Text(written)
    text.highlight_regex(r"\*\*.+?\*\*", "bold")
    Console(highlight=False, soft_wrap=True).print(text, end="")

# SPDX-License-Identifier: Apache-2.0
"""``fdg report``: the paper's table from finished runs; and the runs that a command's paths hold."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from rich.text import Text
from typer import Argument, Option

from fdg_plugins.cli.console import say, warn
from fdg_plugins.cli.options import PluginFiles, load_plugins
from fdg_plugins.errors import DataError, SettingsError, check_choice
from fdg_plugins.lab.analysis import RULES, Run, Table, build_sites_table, build_table, find_runs, is_of_sites
from fdg_plugins.record.evaluation import EvaluationResult
from fdg_plugins.record.run_files import EVALUATION_FILE
from fdg_plugins.storage import write_bytes

RuleOrAll = Literal["last", "source_validation", "source_worst", "oracle", "all"]
Against = Literal["paper", "fedomg", "feddg-ga", "feddim", "fediir"]
FORMS = {".txt": "terminal", ".md": "markdown", ".csv": "csv", ".tex": "latex"}
PAGE = ".html"

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


def runs_below(paths: Iterable[Path], rounds: int | None = None, evaluations: Collection[Path] = ()) -> tuple[Run, ...]:
    """Return the runs below ``paths``, and warn of what is left out; raise ``DataError`` if there is nothing.

    ``rounds``: as :func:`~fdg_plugins.lab.analysis.runs.find_runs` takes it; ``evaluations``: their files.
    """
    found = find_runs(paths, rounds)
    for folder, reason in found.left_out:
        warn(f"{folder} is left out: {reason}")
    if not found.runs and not evaluations:
        asked = "finished run" if rounds is None else f"run of {rounds} rounds"
        raise DataError(f"there is no {asked} below {', '.join(map(str, paths))}; expected at least one results.json.")
    for path in found.empty:
        if not any(path in file.parents for file in evaluations):
            warn(f"{path} holds no results.json.")
    return found.runs


def evaluations_below(paths: Iterable[Path]) -> dict[Path, EvaluationResult]:
    """Return the evaluations below ``paths`` by file, and warn of those that cannot be read."""
    from fdg_plugins.lab.engine.evaluation import read_result

    found: dict[Path, EvaluationResult] = {}
    for file in (file for path in paths for file in sorted(path.rglob(EVALUATION_FILE))):
        try:
            found[file] = read_result(file)
        except DataError as error:
            warn(f"{file} is left out: {error}")
    return found


def report(
    paths: PathsArgument,
    selection: Annotated[
        RuleOrAll | None,
        Option(help="Which model is reported; all: a row each.", show_default="source_validation"),
    ] = None,
    against: Annotated[Against | None, Option(help="Printed numbers beside ours; paper: of all papers.")] = None,
    to: Annotated[
        list[Path] | None,
        Option(
            "--to",
            "--html",
            metavar="FILE",
            help="Write to this file instead: .txt, .md, .csv, .tex, or .html, a page with figures that needs no other "
            "file. Repeatable.",
        ),
    ] = None,
    choose: Annotated[list[str] | None, Option(metavar="SETTING", help="Choose by source validation.")] = None,
    rounds: RoundsOption = None,
    plugin: PluginFiles = None,
) -> None:
    """Print the table of finished runs: methods by held-out domains.

    Each cell is mean ± std over seeds. Unfinished runs are named and left out; runs that differ in more than method,
    held-out domain and seed are rejected. With FedAvg among the methods, their paired differences to it follow; with
    local, what the federation gives each site. Runs on label-skewed sites give FedOMG's Tables 1 and 5 instead, always
    of the last model.

    A page also has figures, protocol, what left each site and versions, and the evaluations that lie there.

    Examples:

      fdg report sweeps/pacs --against paper --to pacs.md
      fdg report runs/fedomg --html fedomg.html
      fdg report sweeps/kappa --choose kappa
    """
    load_plugins(plugin)
    files = to or []
    for file in files:
        check_choice("the suffix of --to", file.suffix, (*FORMS, PAGE))
    evaluations = evaluations_below(paths) if any(file.suffix == PAGE for file in files) else {}
    runs = runs_below(paths, rounds, evaluations)
    table = _table(runs, selection, against, choose or []) if runs else None
    for file in files:
        if file.suffix == PAGE:
            from fdg_plugins.lab.analysis.page import make_page

            text = make_page(runs, table, list(evaluations.values()), paths)
        elif table is None:
            raise SettingsError(field="the suffix of --to", value=file.suffix, expected=f"{PAGE} for an evaluation")
        else:
            text = table.text(FORMS[file.suffix])
        write_bytes(file, text.encode())
        say(f"{file}: written")
    if table is not None and not files:
        shown = Text(table.text())
        shown.highlight_regex(r"\*\*.+?\*\*", "bold")
        Console(highlight=False, soft_wrap=True).print(shown, end="")


def _table(runs: Sequence[Run], selection: str | None, against: str | None, choose: Sequence[str]) -> Table:
    if is_of_sites(runs):
        if choose or selection not in (None, "last"):
            raise SettingsError(
                "label-skewed sites validate on their test images, so no model or setting can be chosen: expected "
                "neither --choose nor --selection."
            )
        return build_sites_table(runs, against)
    rules = tuple(RULES) if selection == "all" else (selection or "source_validation",)
    return build_table(runs, rules, against, tuple(dict.fromkeys(choose)))

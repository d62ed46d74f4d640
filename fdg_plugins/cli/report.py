# SPDX-License-Identifier: Apache-2.0
"""``fdg report``: the paper's table from finished runs."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console

from fdg_plugins.cli.console import say
from fdg_plugins.cli.found import RoundsOption, runs_below
from fdg_plugins.cli.output import check_output, write_output
from fdg_plugins.cli.plugins import PluginFiles, load_plugins
from fdg_plugins.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from fdg_plugins.lab.analysis import Run
    from fdg_plugins.lab.analysis.cells import Grid


class Selection(StrEnum):
    """The model of a run that is reported."""

    LAST = "last"
    SOURCE_VALIDATION = "source_validation"
    SOURCE_WORST = "source_worst"
    ORACLE = "oracle"
    ALL = "all"


class Format(StrEnum):
    """The output format of the table."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    CSV = "csv"
    LATEX = "latex"


class Against(StrEnum):
    """The papers whose numbers are shown next to ours."""

    PAPER = "paper"
    FEDOMG = "fedomg"
    FEDDG_GA = "feddg-ga"
    FEDDIM = "feddim"
    FEDIIR = "fediir"


PairedOption = Annotated[
    bool,
    typer.Option(
        "--paired/--no-paired",
        help="Below the table: each method's mean rank, and its paired difference to FedAvg with a standard error.",
    ),
]
ChooseOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SETTING",
        help="Take the value of a swept setting that is best on source validation, for each held-out domain. May be "
        "repeated.",
        show_default=False,
    ),
]

_SUFFIXES = {".txt": Format.TERMINAL, ".md": Format.MARKDOWN, ".csv": Format.CSV, ".tex": Format.LATEX}


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Folders that hold runs at any depth: of a sweep, of a run, a simulator's workspace, downloaded jobs.",
            show_default=False,
        ),
    ],
    selection: Annotated[
        Selection | None,
        typer.Option(
            metavar="RULE",
            help="Which model of a run is reported: last, source_validation (default), source_worst, oracle; all: "
            "every rule, side by side. For label-skewed sites: last.",
        ),
    ] = None,
    against: Annotated[
        Against | None,
        typer.Option(
            metavar="PAPER",
            help="Put the numbers of a paper beside ours: fedomg, feddg-ga, feddim, fediir; paper: of all four.",
        ),
    ] = None,
    table_format: Annotated[
        Format | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="How to write it: terminal, markdown, csv, latex; default: as the suffix of --to says, else terminal.",
        ),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="Write to this file instead: .txt, .md, .csv or .tex.")] = None,
    digits: Annotated[
        int, typer.Option(min=0, max=4, metavar="N", help="Decimals of the percentages (not in CSV).")
    ] = 1,
    paired: PairedOption = True,
    choose: ChooseOption = None,
    rounds: RoundsOption = None,
    plugin: PluginFiles = None,
) -> None:
    """Print the table of finished runs: methods by held-out domains.

    Each cell is mean ± std over seeds. Reads every results.json below the paths. Unfinished runs are named and left
    out; runs that differ in more than method, held-out domain and seed are rejected. With FedAvg among the methods,
    their paired differences to it follow. Runs on label-skewed sites give FedOMG's Tables 1 and 5 instead: methods by
    data set, skew and participation, always of the last model.

    Examples:

      fdg report sweeps/pacs

      fdg report sweeps/pacs --against paper --to pacs.md

      fdg report simulator_workspace --selection all

      fdg report sweeps/kappa --choose kappa
    """

    load_plugins(plugin)
    chosen = table_format or _format_of(to)
    runs = runs_below(paths, rounds)
    if to is not None:
        check_output(to, "--to", (run.file for run in runs if run.file))
    written = _written(_Request(runs, selection, against, choose or [], paired), _Layout(chosen, digits))
    if to is None:
        _print(written)
        return
    write_output(to, (written if isinstance(written, str) else f"{written.plain}\n").encode(), "--to")
    say(f"{to}: written")


def _format_of(file: Path | None) -> Format:
    if file is None:
        return Format.TERMINAL
    if file.suffix not in _SUFFIXES:
        raise SettingsError(
            f"file {file} (--to) has the suffix {file.suffix!r}, expected one of {', '.join(_SUFFIXES)}, or --format."
        )
    return _SUFFIXES[file.suffix]


class _Request(NamedTuple):
    """What is asked for: a table of which runs."""

    runs: "Sequence[Run]"
    selection: Selection | None
    against: Against | None
    choosing: list[str]
    paired: bool


class _Layout(NamedTuple):
    """How a table is written."""

    format: Format
    digits: int


def _written(request: _Request, layout: _Layout) -> "str | Text":
    """Return the table as the text of a file, or, for the terminal, as text with styles."""
    from fdg_plugins.lab.analysis import RULES, build_table
    from fdg_plugins.lab.analysis.grid import to_grid
    from fdg_plugins.lab.analysis.render_csv import render_csv
    from fdg_plugins.lab.analysis.sites_csv import render_sites_csv
    from fdg_plugins.lab.analysis.sites_runs import is_of_sites
    from fdg_plugins.lab.analysis.sites_table import sites_grid

    paper = request.against.value if request.against else None
    if is_of_sites(request.runs):
        _refuse_a_choice(request)
        if layout.format is Format.CSV:
            return render_sites_csv(request.runs, paper, paired=request.paired)
        return _rendered(sites_grid(request.runs, paper, layout.digits, paired=request.paired), layout.format)
    selection = request.selection or Selection.SOURCE_VALIDATION
    rules = tuple(RULES) if selection is Selection.ALL else (selection.value,)
    table = build_table(request.runs, rules, paper, tuple(dict.fromkeys(request.choosing)))
    if layout.format is Format.CSV:
        return render_csv(table, paired=request.paired)
    return _rendered(to_grid(table, layout.digits, paired=request.paired), layout.format)


def _refuse_a_choice(request: _Request) -> None:
    """Raise ``SettingsError`` if a round or a value is to be chosen where only sites' test images could do so."""
    why = "of label-skewed sites, which validate on their test images, only the last model is reported"
    if request.choosing:
        raise SettingsError(f"--choose {request.choosing[0]} cannot be: {why}.")
    if request.selection not in (None, Selection.LAST):
        raise SettingsError(f"--selection is {request.selection.value}, expected {Selection.LAST.value}: {why}.")


def _rendered(grid: "Grid", table_format: Format) -> "str | Text":
    from fdg_plugins.lab.analysis.render_latex import render_latex
    from fdg_plugins.lab.analysis.render_markdown import render_markdown
    from fdg_plugins.lab.analysis.render_text import render_text

    if table_format is Format.TERMINAL:
        return render_text(grid)
    return render_markdown(grid) if table_format is Format.MARKDOWN else render_latex(grid)


def _print(written: "str | Text") -> None:
    if isinstance(written, str):
        typer.echo(written, nl=False)
        return

    Console(highlight=False, soft_wrap=True).print(written)

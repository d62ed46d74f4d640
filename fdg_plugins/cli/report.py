# SPDX-License-Identifier: Apache-2.0
"""``fdg report``: the paper's table from finished runs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fdg_plugins.cli.console import say
from fdg_plugins.cli.found import PathsArgument, RoundsOption, runs_below
from fdg_plugins.cli.options import PluginFiles, load_plugins
from fdg_plugins.cli.output import check_output, write_output
from fdg_plugins.errors import SettingsError


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


_SUFFIXES = {".txt": Format.TERMINAL, ".md": Format.MARKDOWN, ".csv": Format.CSV, ".tex": Format.LATEX}


def report(
    paths: PathsArgument,
    selection: Annotated[
        Selection | None,
        typer.Option(
            metavar="RULE",
            help="Which model is reported: last, source_validation, source_worst, oracle; all: a row each.",
            show_default="source_validation",
        ),
    ] = None,
    against: Annotated[
        Against | None,
        typer.Option(
            metavar="PAPER",
            help="Printed numbers beside ours: paper for all papers, or fedomg, feddg-ga, feddim, fediir.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="Write to this file instead: .txt, .md, .csv or .tex.")] = None,
    paired: Annotated[
        bool,
        typer.Option(
            help="Below the table: each method's mean rank, and its paired difference to FedAvg with a standard error."
        ),
    ] = True,
    choose: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING",
            help="Take the value of a swept setting that is best on source validation, for each held-out domain. May "
            "be repeated.",
            show_default=False,
        ),
    ] = None,
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
    suffix = ".txt" if to is None else to.suffix
    if suffix not in _SUFFIXES:
        raise SettingsError(field="the suffix of --to", value=suffix, expected=f"one of {', '.join(_SUFFIXES)}")
    runs = runs_below(paths, rounds)
    if to is not None:
        check_output(to, "--to", (run.file for run in runs if run.file))
    from fdg_plugins.lab.analysis import RULES, build_sites_table, build_table, is_of_sites

    if is_of_sites(runs):
        if choose or selection not in (None, Selection.LAST):
            raise SettingsError(
                "label-skewed sites validate on their test images, so no model or setting can be chosen: expected "
                "neither --choose nor --selection."
            )
        table = build_sites_table(runs, against and against.value)
    else:
        rules = tuple(RULES) if selection is Selection.ALL else (selection or Selection.SOURCE_VALIDATION,)
        table = build_table(runs, tuple(map(str, rules)), against and against.value, tuple(dict.fromkeys(choose or [])))
    written = table.text(_SUFFIXES[suffix].value, paired=paired)
    if to is not None:
        write_output(to, written.encode(), "--to")
        say(f"{to}: written")
        return
    text = Text(written)
    text.highlight_regex(r"\*\*.+?\*\*", "bold")
    Console(highlight=False, soft_wrap=True).print(text, end="")

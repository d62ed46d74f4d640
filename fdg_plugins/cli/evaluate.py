# SPDX-License-Identifier: Apache-2.0
"""``fdg evaluate``: finished models at sites that never trained them, on this machine or as a job for a federation."""

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fdg_plugins.cli.console import say
from fdg_plugins.cli.jobs import free_target
from fdg_plugins.cli.options import introduce
from fdg_plugins.errors import SettingsError, counted
from fdg_plugins.lab.engine.evaluation import evaluate_here, find_images, read_result
from fdg_plugins.lab.engine.one_process import log_to
from fdg_plugins.recipes.job import EvaluationRecipe
from fdg_plugins.record.evaluation import read_model
from fdg_plugins.record.run_files import EVALUATION_FILE, RESULTS_FILE
from fdg_plugins.storage import write_bytes


def evaluate(
    models: Annotated[
        list[Path],
        Argument(metavar="MODEL...", help="Folders of finished runs, or .safetensors files beside their record."),
    ],
    data: Annotated[
        Path | None,
        Option(help="Your images, DIR/<domain>/<class>/<image>, or the folder that holds the models' data set."),
    ] = None,
    to: Annotated[Path | None, Option(help="A new or empty folder; default: a new one in runs/.")] = None,
    sites: Annotated[str | None, Option(metavar="A,B,C", help="Write the job for these sites, into --to.")] = None,
) -> None:
    """Evaluate finished models on domains that they were not trained on.

    Of several models, each is compared with the first on the same images. The table has 95 % intervals, by bootstrap
    from the counts of each site. The folder gets evaluation.json, a page, and figures with their numbers, for classes
    also a reliability diagram.

    With --sites, nothing is evaluated here: the job for a federation is written, which brings the models and no code.
    Submit it, and call this command with the folder of its downloaded results.

    Examples:

      fdg evaluate runs/fedavg runs/fedomg --data /data/hospital-e
      fdg evaluate runs/fedavg runs/fedomg --sites hospital-d,hospital-e --to jobs
      fdg evaluate /tmp/downloads/JOB
    """
    is_result = len(models) == 1 and data is None and sites is None and not (models[0] / RESULTS_FILE).is_file()
    if done := sorted(models[0].rglob(EVALUATION_FILE)) if is_result else []:
        if len(done) > 1:
            raise SettingsError(field="evaluations", value=len(done), expected=f"one, as in {done[0].parent}")
        show_result(done[0], to)
        return
    found = [read_model(path) for path in models]
    images = find_images(data, found[0])
    if images.own is not None:
        introduce(images.own)
    if sites is not None:
        recipe = EvaluationRecipe(found, images.dataset, [*map(str.strip, sites.split(","))])
        folder = free_target(to or Path("jobs"), recipe.name)
        recipe.export(str(folder.parent), with_note=False)
        say(f"{folder}: written; it brings {counted(len(found), 'model')} and no code")
        return
    log_to(sys.stderr)
    show_result(evaluate_here(found, images, to), None)


def show_result(file: Path, to: Path | None) -> None:
    """Print the table, and write page and figures with their numbers to the folder ``to``; None: that of the file."""
    result, to = read_result(file), to or file.parent
    from fdg_plugins.lab.analysis.figures.drawing import write_figure
    from fdg_plugins.lab.analysis.figures.evaluation import pictures_of_evaluation, sheet_of
    from fdg_plugins.lab.analysis.page import make_page
    from fdg_plugins.lab.analysis.table import TERMINAL, rendered

    say(rendered([sheet_of(result)], TERMINAL).rstrip())
    for picture in pictures_of_evaluation(result):
        say(write_figure(picture, to))
    page = to / "evaluation.html"
    write_bytes(page, make_page((), None, [result]).encode())
    say(str(page))

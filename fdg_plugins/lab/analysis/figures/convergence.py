# SPDX-License-Identifier: Apache-2.0
"""The score over rounds, on the source domains' validation splits and on the held-out domain, per method.

Such figures are Fig. 5 of the FedDIM paper and Fig. 5 and 6 of the FedIIR paper.
"""

from collections.abc import Iterator, Sequence

from fdg_plugins.lab.analysis.figures.groups import (
    Group,
    caption_of,
    checked,
    group_runs,
    origin_of,
    over_seeds,
    score_panel,
    targets_of,
)
from fdg_plugins.lab.analysis.figures.picture import Chart, Line
from fdg_plugins.lab.analysis.names import is_centralised
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.analysis.selection import judged_by_all

TARGET = "held-out domain"
SOURCES = "source validation, mean over domains"


def target_by_round(run: Run) -> dict[float, float]:
    """Return the score of the model after each round on the held-out domain, not in percent; 0 is the initial model."""
    found = {evaluation.after_round: evaluation.target for evaluation in run.record.evaluations}
    return {after: score for after, score in found.items() if score is not None}


def sources_by_round(run: Run) -> dict[float, float]:
    """Return the mean score over the source domains' validation splits, if sites of every one evaluated the model.

    A mean over fewer domains is another quantity: it would go up and down with those whose sites were drawn.
    """
    record = run.record
    domains = {record.census[site].domain for site in record.sources}
    found = {one.after_round: one.source_mean for one in record.evaluations if domains <= one.domains.keys()}
    return {after: score for after, score in found.items() if score is not None}


def _is_by_some_sites(run: Run) -> bool:
    """Return whether a shown mean over the source domains is by some sites of a domain only."""
    shown, record = sources_by_round(run), run.record
    return any(one.after_round in shown and not judged_by_all(record, one) for one in record.evaluations)


def convergence(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return one chart with a panel per held-out domain; raise ``SettingsError`` if the runs are not comparable."""
    runs, notes = checked(runs)
    groups, score = group_runs(runs), runs[0].record.score
    some = "; source validation: by the sites drawn for each round" if any(map(_is_by_some_sites, runs)) else ""
    panels = tuple(
        score_panel([run for run in runs if run.target == target], f"held out: {target}", _lines(groups, target))
        for target in targets_of(runs)
    )
    return (
        Chart(
            name="convergence",
            title=f"{score.title} of the global model after each round",
            caption=f"{caption_of(runs, [line for panel in panels for line in panel.lines])}{some}",
            origin=origin_of(runs),
            notes=notes,
            x_label="round",
            panels=panels,
            columns=4,
            quantities=(TARGET, SOURCES),
        ),
    )


def _lines(groups: Sequence[Group], target: str) -> Iterator[Line]:
    ends = [run.record.protocol.rounds for one in groups for run in one.runs if not is_centralised(run.method)]
    for group in groups:
        members = group.held_out(target)
        if ends and any(run.record.protocol.rounds > max(ends) for run in members if is_centralised(run.method)):
            # Checkpoints of another budget are no rounds: its last score is a level line.
            if points := over_seeds(members, target_by_round):
                level = points[max(points)]
                yield Line(group.label, group.look, {0: level, max(ends): level}, TARGET, is_constant=True)
            continue
        for quantity, values in ((TARGET, target_by_round), (SOURCES, sources_by_round)):
            if points := over_seeds(members, values):
                yield Line(group.label, group.look, points, quantity)

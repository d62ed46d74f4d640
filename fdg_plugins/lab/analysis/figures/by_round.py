# SPDX-License-Identifier: Apache-2.0
"""Figures over rounds: the score of the global model, and the server's numbers for each site's update.

The score is on the source domains' validation splits and on the held-out domain, per method (FedDIM paper, Fig. 5;
FedIIR paper, Fig. 5 and 6). The server's numbers are an update's cosine with the step (FedOMG paper, Fig. 5) and its
weight in the step.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from fdg_plugins.data.site_names import site_names
from fdg_plugins.lab.analysis.estimates import span
from fdg_plugins.lab.analysis.figures.material import Material, caption_of, over_seeds, score_panel, slug
from fdg_plugins.lab.analysis.figures.picture import Chart, Line, Panel
from fdg_plugins.lab.analysis.figures.style import domain_looks
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.analysis.selection import judged_by_all
from fdg_plugins.record.run_record import AggregationRecord

TARGET = "held-out domain"
SOURCES = "source validation"
WITH_DIRECTION = "with the step"
WITH_MEAN = "with the mean update"
GAMMA = "gamma, matched weight"
WEIGHT = "p, reference weight"
# The field of the record with each of the server's numbers.
FIELDS = {
    WITH_DIRECTION: "cosines_with_direction",
    WITH_MEAN: "cosines_with_mean",
    GAMMA: "gamma",
    WEIGHT: "weights",
}
SAME = 1e-6  # largest difference of cosines that differ by rounding alone


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


def convergence(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return one chart with a panel per held-out domain; raise ``SettingsError`` if the runs are not comparable."""
    material = Material(runs)
    runs, score = material.runs, material.runs[0].record.score
    steps = [run.record.method.settings["checkpoint_every"] for run in runs if run.is_reference]
    caption = caption_of(runs)
    caption += f"; {span(steps, 'step')} of a reference count as a round" if steps else ""
    if any(
        one.after_round in sources_by_round(run) and not judged_by_all(run.record, one)
        for run in runs
        for one in run.record.evaluations
    ):
        caption += "; source validation: by the sites drawn for each round"
    return (
        Chart(
            name="convergence",
            title=f"{score.title} of the global model after each round",
            caption=caption,
            origin=material.origin,
            x_label="round",
            panels=tuple(
                score_panel(
                    [run for run in runs if run.target == target],
                    f"held out: {target}",
                    _scores(material, target),
                )
                for target in material.targets
            ),
            quantities=(TARGET, SOURCES),
        ),
    )


def _scores(material: Material, target: str) -> Iterator[Line]:
    ends = [run.record.protocol.rounds for run in material.runs if not run.is_reference]
    for group, look in material.groups:
        members = group.held_out(target)
        if ends and any(run.is_reference and run.record.protocol.rounds > max(ends) for run in members):
            # Checkpoints of another budget are no rounds: its last score is a level line.
            if points := over_seeds(members, target_by_round):
                level = points[max(points)]
                yield Line(group.title, look, {0: level, max(ends): level}, TARGET, is_constant=True)
            continue
        for quantity, values in ((TARGET, target_by_round), (SOURCES, sources_by_round)):
            if points := over_seeds(members, values):
                yield Line(group.title, look, points, quantity)


def cosines(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return a chart per method: a panel per held-out domain, a line per site.

    The cosine with the mean is shown if the direction differs from the mean. Raises ``SettingsError`` if the runs are
    not comparable.
    """

    def quantities(found: Sequence[AggregationRecord]) -> tuple[str, ...]:
        pairs = [(one.cosines_with_direction, one.cosines_with_mean) for one in found]
        same = all(abs(value - mean.get(site, math.inf)) <= SAME for own, mean in pairs for site, value in own.items())
        return (WITH_DIRECTION,) if same else (WITH_DIRECTION, WITH_MEAN)

    return _charts("cosines", "Cosine of each site's update", runs, quantities, (-1.0, 1.0))


def weights(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return a chart per method: a panel per held-out domain, a line per site.

    It shows the reference weights; for a method that matches updates, gamma and the reference weights. Raises
    ``SettingsError`` if the runs are not comparable.
    """

    def quantities(found: Sequence[AggregationRecord]) -> tuple[str, ...]:
        return (GAMMA, WEIGHT) if any(one.gamma for one in found) else (WEIGHT,)

    return _charts("weights", "Weight of each site's update", runs, quantities, (0.0, 1.0))


def site_by_round(run: Run, site: str, quantity: str) -> dict[float, float]:
    """Return a site's number in each round that used its update."""
    found = {
        one.round: (getattr(one.aggregation, FIELDS[quantity]) or {}).get(site)
        for one in run.record.rounds
        if one.aggregation is not None
    }
    return {number: value for number, value in found.items() if value is not None}


def _charts(
    kind: str,
    title: str,
    runs: Sequence[Run],
    quantities_of: Callable[[Sequence[AggregationRecord]], tuple[str, ...]],
    bounds: tuple[float, float],
) -> tuple[Chart, ...]:
    material = Material(runs)
    charts: dict[str, Chart] = {}
    for group, _ in material.groups:
        quantities = quantities_of(
            [one.aggregation for run in group.runs for one in run.record.rounds if one.aggregation is not None]
        )
        name = f"{kind}-{slug(group.title)}"
        name = name if name not in charts else f"{name}-{len(charts) + 1}"  # other signs may give an equal name
        charts[name] = Chart(
            name=name,
            title=f"{title}, {group.title}{f' ({quantities[0]})' if len(quantities) == 1 else ''}",
            caption=caption_of(group.runs),
            origin=material.origin,
            x_label="round",
            panels=tuple(
                Panel(
                    f"held out: {target}",
                    kind.removesuffix("s"),
                    tuple(line for quantity in quantities for line in _sites(group.held_out(target), quantity)),
                    bounds=bounds,
                )
                for target in material.targets
            ),
            quantities=quantities,
        )
    return tuple(charts.values())


def _sites(runs: Sequence[Run], quantity: str) -> Iterator[Line]:
    """Yield the line of each site, with the look of its domain."""
    records = {site: run.record for run in runs for site in run.record.sources}
    for site, record in sorted(records.items()):
        domain = record.census[site].domain
        alike = [other for other in record.sources if record.census[other].domain == domain]
        label = domain if site_names([domain]) == (site,) else site
        label = f"{domain} ({len(alike)} sites)" if len(alike) > 1 else label
        look = domain_looks(record.protocol.dataset, (reply.domain for reply in record.census.values()))[domain]
        if points := over_seeds(runs, partial(site_by_round, site=site, quantity=quantity)):
            yield Line(label, look, points, quantity, name=site)

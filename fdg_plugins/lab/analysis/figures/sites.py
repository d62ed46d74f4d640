# SPDX-License-Identifier: Apache-2.0
"""The server's numbers for each site's update, round by round: its cosine with the step, and its weight in the step.

The first is Fig. 5 of the FedOMG paper.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fdg_plugins.data.site_names import site_names
from fdg_plugins.lab.analysis.figures.groups import (
    Group,
    caption_of,
    checked,
    group_runs,
    origin_of,
    over_seeds,
    site_look,
    targets_of,
)
from fdg_plugins.lab.analysis.figures.picture import MANY_SITES, Chart, Line, NothingToDrawError, Panel
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.record.run_record import AggregationRecord


@dataclass(frozen=True)
class Quantity:
    """A number that the server computes for each site: its name, and its field of the record."""

    name: str
    field: str


WITH_DIRECTION = Quantity("with the direction of the step", "cosines_with_direction")
WITH_MEAN = Quantity("with the weighted mean of the updates", "cosines_with_mean")
GAMMA = Quantity("gamma, weight in the matched direction", "gamma")
WEIGHT = Quantity("p, reference weight", "weights")
BOUNDS = {"cosines": (-1.0, 1.0), "weights": (0.0, 1.0)}
SAME = 1e-6  # largest difference of weights that are called constant, and of cosines that differ by rounding alone


def cosines(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return a chart per method: a panel per held-out domain, a line per site, or their spread if there are many.

    The cosine with the mean is shown if the direction differs from the mean. Raises ``SettingsError`` if the runs are
    not comparable.
    """
    runs, notes = checked(runs)
    return tuple(
        _chart("cosines", "Cosine of each site's update", "cosine", group, (WITH_DIRECTION, WITH_MEAN), notes)
        for group in group_runs(runs)
    )


def weights(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return a chart per method: a panel per held-out domain, a line per site.

    It shows the reference weights; for a method that matches updates, gamma and the reference weights. A method whose
    weights are the same in all rounds has no chart, but a note. Raises ``SettingsError`` if the runs are not
    comparable, and ``NothingToDrawError`` if no method's weights change.
    """
    runs, notes = checked(runs)
    groups = group_runs(runs)
    constant = [group for group in groups if _has_constant_weights(group)]
    if constant:
        notes = (*notes, _constant_note(constant))
    if len(constant) == len(groups):
        raise NothingToDrawError(notes[-1])
    return tuple(
        _chart("weights", "Weight of each site's update", "weight", group, _kinds_of_weights(group), notes)
        for group in groups
        if group not in constant
    )


def _has_constant_weights(group: Group) -> bool:
    """Return whether there are weights of several rounds, and every site of every run has the same one in all."""
    found = [
        [*site_by_round(run, site, quantity).values()]
        for run in group.runs
        for site in run.record.sources
        for quantity in _kinds_of_weights(group)
    ]
    return any(len(values) > 1 for values in found) and all(
        max(values) - min(values) <= SAME for values in found if values
    )


def _constant_note(groups: Sequence[Group]) -> str:
    labels = ", ".join(group.label for group in groups)
    return f"the weights of {labels} are the same in all rounds, so there is no figure of them."


def site_by_round(run: Run, site: str, quantity: Quantity) -> dict[float, float]:
    """Return a site's number in each round that used its update."""
    found = {
        finished.round: _values(finished.aggregation, quantity).get(site)
        for finished in run.record.rounds
        if finished.aggregation is not None
    }
    return {number: value for number, value in found.items() if value is not None}


def _values(aggregation: AggregationRecord, quantity: Quantity) -> Mapping[str, float]:
    return getattr(aggregation, quantity.field) or {}


def _kinds_of_weights(group: Group) -> tuple[Quantity, ...]:
    rounds = [finished for run in group.runs for finished in run.record.rounds]
    matches = any(finished.aggregation is not None and finished.aggregation.gamma for finished in rounds)
    return (GAMMA, WEIGHT) if matches else (WEIGHT,)


def _chart(
    kind: str, title: str, y_label: str, group: Group, quantities: Sequence[Quantity], notes: tuple[str, ...]
) -> Chart:
    panels = tuple(
        Panel(f"held out: {target}", y_label, tuple(_lines(group, target, quantities)), bounds=BOUNDS[kind])
        for target in targets_of(group.runs)
    )
    lines = [line for panel in panels for line in panel.lines]
    shown = [quantity.name for quantity in quantities if any(line.quantity == quantity.name for line in lines)]
    named = f" ({shown[0]})" if len(shown) == 1 else ""
    alike = [found for panel in panels for found in panel.alike().values()]
    apart = [line for found in alike if len(found) <= MANY_SITES for line in found]
    of_seeds = ", of each site's mean over seeds" if len({run.seed for run in group.runs}) > 1 else ""
    crowd = f"; median, quartiles and range over the sites of a domain{of_seeds}" if len(apart) < len(lines) else ""
    return Chart(
        name=f"{kind}-{group.slug}",
        title=f"{title}, {group.label}{named}",
        caption=f"{caption_of(group.runs, apart)}{crowd}",
        origin=origin_of(group.runs),
        notes=notes,
        x_label="round",
        panels=panels,
        columns=4,
        quantities=tuple(shown),
        legend=tuple(sorted({line.label for line in lines})),
    )


def _lines(group: Group, target: str, quantities: Sequence[Quantity]) -> Iterator[Line]:
    """Yield a line per site and quantity; a second cosine that equals the first everywhere is left out."""
    members = group.held_out(target)
    first = _lines_of(members, quantities[0])
    others = [line for quantity in quantities[1:] for line in _lines_of(members, quantity)]
    yield from first
    if quantities[0] is not WITH_DIRECTION or not _are_equal(first, others):
        yield from others


def _are_equal(lines: Sequence[Line], others: Sequence[Line]) -> bool:
    """Return whether lines have the same points of the same sites, up to rounding."""
    one, other = _values_in(lines), _values_in(others)
    return one.keys() == other.keys() and all(abs(value - other[at]) <= SAME for at, value in one.items())


def _values_in(lines: Sequence[Line]) -> dict[tuple[str, float, int], float]:
    return {
        (line.name, x, seed): value
        for line in lines
        for x, point in line.points.items()
        for seed, value in point.by_seed.items()
    }


def _lines_of(runs: Sequence[Run], quantity: Quantity) -> list[Line]:
    sites = {site: run for run in runs for site in run.record.sources}
    return [
        Line(_label(run, site), site_look(run, site), points, quantity.name, name=site)
        for site, run in sorted(sites.items())
        if (points := over_seeds(runs, partial(site_by_round, site=site, quantity=quantity)))
    ]


def _label(run: Run, site: str) -> str:
    """Return a site's label in the legend: its name, as panels spell it, or its domain if that has several sites."""
    domain = run.record.census[site].domain
    of_domain = [other for other in run.record.sources if run.record.census[other].domain == domain]
    if len(of_domain) > 1:
        return f"{domain} ({len(of_domain)} sites)"
    return domain if site_names([domain]) == (site,) else site

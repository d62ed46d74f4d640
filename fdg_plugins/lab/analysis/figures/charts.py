# SPDX-License-Identifier: Apache-2.0
"""The figures of each kind: from runs to numbers by round, by a setting, or by site and class.

Papers print such figures: scores by round (FedDIM Fig. 5, FedIIR Fig. 5 and 6), an update's cosine with the step
(FedOMG Fig. 5), and scores against kappa, server learning rate and local epochs (FedOMG Fig. 3, 4, 6) or strength and
momentum (FedDIM Fig. 6).
"""

import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from fdg_plugins.data.site_names import site_names, split_site
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.comparable import (
    Group,
    check_comparable,
    group_runs,
    value_of,
    varied_settings,
    without_repeats,
)
from fdg_plugins.lab.analysis.estimates import Estimate, average, estimate, seeds_in_words, span
from fdg_plugins.lab.analysis.facts import commonest_in_domains, described, known_domains
from fdg_plugins.lab.analysis.figures.picture import Chart, Counts, Line, Look, Panel, Scale, numbered_look
from fdg_plugins.lab.analysis.runs import Run, grouped
from fdg_plugins.lab.analysis.selection import RULES, SOURCE_VALIDATION, target_score
from fdg_plugins.plugins.own_dataset import DatasetRef

TARGET, SOURCES = "held-out domain", "source validation"
WITH_DIRECTION, WITH_MEAN = "with the step", "with the mean update"
GAMMA, WEIGHT = "gamma, matched weight", "p, reference weight"
# The field of the record with each of the server's numbers.
FIELDS = {
    WITH_DIRECTION: "cosines_with_direction",
    WITH_MEAN: "cosines_with_mean",
    GAMMA: "gamma",
    WEIGHT: "weights",
}
# What papers argue with: FedOMG's divergence of gradients, FedIIR's disagreement, FedDG-GA's variance (Eq. 2).
MEASURES = {
    "gradient divergence": "gradient_divergence",
    "classifier disagreement": "classifier_disagreement",
    "variance of gaps": "gap_variance",
}
SAME = 1e-6  # largest difference of cosines that differ by rounding alone
AVERAGE = "average of the held-out domains"
DECADE = 10.0


class Material:
    """Comparable runs by method and settings, each with a look; ``apart_from``: settings that may differ."""

    def __init__(self, runs: Sequence[Run], apart_from: Sequence[str] = ()) -> None:
        check_comparable(runs, apart_from)
        self.runs = without_repeats(runs, apart_from)
        groups = group_runs(self.runs, apart_from, beside_defaults=False)
        self.groups = [(group, numbered_look(number)) for number, group in enumerate(groups)]
        self.targets = domain_order(self.runs[0].dataset, (run.target for run in self.runs))


def stated_of(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the caption of a figure, and what its numbers repeat."""
    record = runs[0].record
    return {
        "caption": f"{described(runs)}; {seeds_in_words({run.seed for run in runs})}",
        "data": {
            "data": record.data,
            "stand_in": str(record.stand_in).lower(),
            "initial_weights": record.initial_weights.label,
        },
    }


def domain_order(dataset: DatasetRef, domains: Iterable[str]) -> tuple[str, ...]:
    """Return ``domains`` without repetitions in the order of the data set, unknown domains last."""
    known, shown = known_domains(dataset), set(domains)
    return (*(name for name in known if name in shown), *sorted(shown.difference(known)))


def over_seeds(runs: Iterable[Run], values: Callable[[Run], Mapping[float, float | None]]) -> dict[float, Estimate]:
    """Return mean and standard deviation over the runs, one per seed, at each ``x`` for which a run has a value.

    ``values`` returns a run's values by ``x``; a value that is missing or not finite is ignored.
    """
    by_x: dict[float, dict[int, float]] = {}
    for run in runs:
        for x, value in values(run).items():
            if value is not None and math.isfinite(value):
                by_x.setdefault(x, {})[run.seed] = value
    return {x: point for x in sorted(by_x) if (point := estimate(by_x[x])) is not None}


def _score_panel(runs: Sequence[Run], title: str, lines: Iterable[Line]) -> Panel:
    score, shares = runs[0].record.score, commonest_in_domains(runs).values()
    chance = statistics.fmean(shares) if shares else None
    bounds = (0.0, 1.0) if score.percent else (-math.inf, math.inf)
    return Panel(title, score.name, tuple(lines), is_fraction=score.percent, bounds=bounds, chance=chance)


# --- by round ---


def sources_by_round(run: Run) -> dict[float, float | None]:
    """Return the mean score over the source domains' validation splits, if sites of every one evaluated the model.

    A mean over fewer domains is another quantity: it would go up and down with those whose sites were drawn.
    """
    domains = {run.record.census[site].domain for site in run.record.sources}
    return {one.after_round: one.source_mean for one in run.record.evaluations if domains <= one.domains.keys()}


def convergence(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return one chart with a panel per held-out domain; raise ``SettingsError`` if the runs are not comparable."""
    material = Material(runs)
    stated, score = stated_of(runs), material.runs[0].record.score
    if steps := [run.record.method.settings["checkpoint_every"] for run in runs if run.is_pooled]:
        stated["caption"] += f"; {span(steps, 'step')} of a reference count as a round"
    by_target = {target: [run for run in material.runs if run.target == target] for target in material.targets}
    chart = Chart(
        name="convergence",
        title=f"{score.title} of the global model after each round",
        x_label="round",
        panels=tuple(
            _score_panel(members, f"held out: {target}", _scores(material, target))
            for target, members in by_target.items()
        ),
        quantities=(TARGET, SOURCES),
        **stated,
    )
    return (chart,)


def _scores(material: Material, target: str) -> Iterator[Line]:
    last = max((run.record.protocol.rounds for run in material.runs if not run.is_pooled), default=math.inf)
    for group, look in material.groups:
        members = group.held_out(target)
        points = over_seeds(members, lambda run: {one.after_round: one.target for one in run.record.evaluations})
        if points and any(run.is_pooled and run.record.protocol.rounds > last for run in members):
            # Checkpoints of another budget are no rounds: its last score is a level line.
            level = points[max(points)]
            yield Line(group.title, look, {0: level, last: level}, TARGET, is_constant=True)
            continue
        for quantity, shown in ((TARGET, points), (SOURCES, over_seeds(members, sources_by_round))):
            if shown:
                yield Line(group.title, look, shown, quantity)


def cosines(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return a chart per method of the cosines of updates with the step: a panel per held-out domain, a line per site.

    The cosine with the mean is shown if the step differs from the mean. Raises ``SettingsError`` if the runs are not
    comparable.
    """
    return _charts("cosines", "Cosine of each site's update", runs, (WITH_DIRECTION, WITH_MEAN), (-1.0, 1.0))


def weights(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return a chart per method of the reference weights: a panel per held-out domain, a line per site.

    For a method that matches updates, gamma is shown too. Raises ``SettingsError`` if the runs are not comparable.
    """
    return _charts("weights", "Weight of each site's update", runs, (GAMMA, WEIGHT), (0.0, 1.0))


def measures(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return one chart of what papers argue with: a panel per measure and held-out domain, a line per method.

    Raises ``SettingsError`` if the runs are not comparable.
    """
    material = Material(runs)

    def lines(target: str, measure: str) -> Iterator[Line]:
        for group, look in material.groups:
            if points := over_seeds(group.held_out(target), lambda run: measured_by_round(run, measure)):
                yield Line(group.title, look, points)

    every = [(target, measure) for measure in MEASURES for target in material.targets]
    panels = tuple(
        Panel(f"held out: {target}", measure, found, bounds=(0.0, math.inf))
        for target, measure in every
        if (found := tuple(lines(target, measure)))
    )
    title = "How far the sites are apart"
    return (Chart(name="measures", title=title, x_label="round", panels=panels, **stated_of(runs)),) if panels else ()


def measured_by_round(run: Run, measure: str) -> dict[float, float | None]:
    """Return one of the measures in each round; None where the method has none."""
    return {
        one.round: getattr(one, MEASURES[measure], getattr(one.aggregation, MEASURES[measure], None))
        for one in run.record.rounds
    }


def site_by_round(run: Run, site: str, quantity: str) -> dict[float, float | None]:
    """Return a site's number in each round that used its update."""
    used = {one.round: one.aggregation for one in run.record.rounds if one.aggregation is not None}
    return {number: (getattr(found, FIELDS[quantity]) or {}).get(site) for number, found in used.items()}


def _charts(
    kind: str, title: str, runs: Sequence[Run], pair: tuple[str, str], bounds: tuple[float, float]
) -> tuple[Chart, ...]:
    material = Material(runs)
    charts: dict[str, Chart] = {}
    for group, _ in material.groups:
        quantities = pair if _has_both(group, pair) else (WITH_DIRECTION if WITH_DIRECTION in pair else WEIGHT,)
        name = f"{kind}-{slug(group.title)}"
        name = name if name not in charts else f"{name}-{len(charts) + 1}"  # other signs may give an equal name
        panels = tuple(
            Panel(
                f"held out: {target}",
                kind.removesuffix("s"),
                tuple(line for quantity in quantities for line in _sites(group.held_out(target), quantity)),
                bounds=bounds,
            )
            for target in material.targets
        )
        shown = f" ({quantities[0]})" if len(quantities) == 1 else ""
        heading = f"{title}, {group.title}{shown}"
        stated = stated_of(group.runs)
        charts[name] = Chart(name=name, title=heading, x_label="round", panels=panels, quantities=quantities, **stated)
    return tuple(charts.values())


def _has_both(group: Group, pair: tuple[str, str]) -> bool:
    for one in (one for run in group.runs for one in run.record.rounds):
        first, second = (getattr(one.aggregation, FIELDS[quantity], None) or {} for quantity in pair)
        if GAMMA in pair and first:
            return True
        if any(abs(value - second.get(site, math.inf)) > SAME for site, value in first.items()):
            return True
    return False


def slug(title: str) -> str:
    """Return a title as a part of a file name: ``fedomg-kappa-0.1``."""
    return "-".join(re.sub(r"[^\w.-]", " ", title.lower()).split())


def _sites(runs: Sequence[Run], quantity: str) -> Iterator[Line]:
    """Yield the line of each site, with the look of its domain: the same in all figures of a data set."""
    records = {site: run.record for run in runs for site in run.record.sources}
    for site, record in sorted(records.items()):
        domain, dataset = record.census[site].domain, record.protocol.dataset
        domains = {*known_domains(dataset), *(reply.domain for reply in record.census.values())}
        look = numbered_look(domain_order(dataset, domains).index(domain))
        alike = sum(record.census[other].domain == domain for other in record.sources)
        label = domain if site_names([domain]) == (site,) else site
        label = f"{domain} ({alike} sites)" if alike > 1 else label
        if points := over_seeds(runs, lambda run, site=site: site_by_round(run, site, quantity)):  # type: ignore[misc]
            yield Line(label, look, points, quantity, name=site)


# --- by a setting ---


def sensitivity(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return one chart: a panel per held-out domain and, if all are present, one of their average; a line per method.

    The x axis is the setting that varies among the runs; a method without it is a level line. Raises ``SettingsError``
    unless one setting varies, and it is the method's.
    """
    varied = varied_settings(runs)
    if len(varied) != 1:
        raise SettingsError(field="the settings that vary", value=varied, expected="one, for the x axis")
    (setting,), material = varied, Material(runs, varied)
    kept, score, targets = material.runs, material.runs[0].record.score, material.targets
    values = {value for run in kept if (value := value_of(run, setting)) is not None}
    scale, categories = _scale(values)
    # On an axis of categories, a value is at the rank of its text.
    places: dict[Any, Any] = {one: categories.index(str(one)) if categories else one for one in values}
    shown: dict[str, tuple[str, ...]] = {f"held out: {target}": (target,) for target in targets}
    domains = known_domains(kept[0].dataset) or {reply.domain for reply in kept[0].record.census.values()}
    if len(targets) > 1 and {*targets} == {*domains}:
        shown[AVERAGE] = targets
    panels = tuple(
        _score_panel(
            [run for run in kept if run.target in of],
            title,
            [line for group, look in material.groups for line in _by_value(group, look, setting, places, of)],
        )
        for title, of in shown.items()
    )
    stated = stated_of(kept)
    stated["caption"] += f"; selection: {RULES[SOURCE_VALIDATION]}"
    stated |= {"name": f"sensitivity-{setting.replace(' ', '-')}", "title": f"{score.heading} against {setting}"}
    return (Chart(x_label=setting, panels=panels, scale=scale, categories=categories, **stated),)


def _scale(values: set[Any]) -> tuple[Scale, tuple[str, ...]]:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        return Scale.LINEAR, tuple(sorted(map(str, values)))
    positive = [value for value in values if value > 0]
    if min(values) < 0 or not positive or max(positive) / min(positive) <= DECADE:
        return Scale.LINEAR, ()
    return (Scale.LOG if len(positive) == len(values) else Scale.ZERO_AND_LOG), ()


def _by_value(group: Group, look: Look, setting: str, places: dict[Any, Any], targets: Sequence[str]) -> Iterator[Line]:
    """Yield the line of the runs with the setting, and the level line of those without it."""

    def of(runs: Sequence[Run], target: str) -> dict[int, float]:
        scores = {run.seed: target_score(run.record, SOURCE_VALIDATION) for run in runs if run.target == target}
        return {seed: score for seed, score in scores.items() if score is not None and math.isfinite(score)}

    found = {
        value: estimate(average({target: of(runs, target) for target in targets}))
        for value, runs in grouped(group.runs, lambda run: value_of(run, setting)).items()
    }
    points = {places[value]: score for value, score in found.items() if value is not None and score is not None}
    if points:
        yield Line(group.title, look, dict(sorted(points.items())))
    if (level := found.get(None)) is not None:
        label = f"{group.title}, {setting} unset" if points else group.title
        yield Line(label, look, dict.fromkeys(sorted(places.values()), level), is_constant=True)


# --- by site and class ---


def partition(runs: Sequence[Run]) -> tuple[Counts, ...]:
    """Return one figure for each partition among the runs; raise ``SettingsError`` if there is none.

    A run whose sites have a domain each divides none, whatever its protocol says.
    """
    found: dict[tuple[str, ...], Run] = {}
    for run in runs:
        census = [run.record.census[site] for site in run.record.sources]
        if run.record.protocol.partition != "equal" and any(reply.division is not None for reply in census):
            found[tuple(reply.split_hash for reply in census)] = run
    if not found:
        raise SettingsError(
            "no run divides a domain by its classes (partition), so its sites' classes are those of their domain."
        )
    return tuple(
        _counts(run, f"partition-{number}" if len(found) > 1 else "partition")
        for number, run in enumerate(found.values(), start=1)
    )


def _counts(run: Run, name: str) -> Counts:
    record, protocol = run.record, run.record.protocol
    domains = {site: record.census[site].domain for site in record.sources}
    sites = sorted(record.sources, key=lambda site: (domains[site], split_site(site)[1] or (0, 0), site))
    alpha = f", alpha {protocol.dirichlet_alpha:g}" if protocol.partition == "dirichlet" else ""
    counts = pd.DataFrame(
        [record.census[site].class_counts for site in sites],
        index=pd.MultiIndex.from_tuples([(domains[site], site) for site in sites]),
        columns=record.classes,
    )
    sizes = counts.sum(axis="columns")
    caption = f"{record.data}; {len(sites)} source sites of {sizes.min():,} to {sizes.max():,} images, "
    stated = {**stated_of([run]), "caption": f"{caption}median {sizes.median():,.10g}"}
    title = f"Images of each class at the sites: {protocol.partition}{alpha}"
    return Counts(name=name, title=title, counts=counts, **stated)

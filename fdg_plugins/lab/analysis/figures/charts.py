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
from functools import partial
from itertools import product
from typing import Any

import pandas as pd

from fdg_plugins.data.site_names import site_names, split_site
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.comparable import Group, comparable_groups, value_of, varied_settings
from fdg_plugins.lab.analysis.estimates import Cell, average, estimate, seeds_in_words, span
from fdg_plugins.lab.analysis.facts import commonest_in_domains, described, known_domains, line_facts
from fdg_plugins.lab.analysis.figures.picture import COLUMNS, Chart, Counts, Look, Panel, numbered_look
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
# Of each kind of figure with a line per site: its title, its two numbers, that which stands alone, and the bounds.
OF_SITES = {
    "cosines": ("Cosine of each site's update", (WITH_DIRECTION, WITH_MEAN), WITH_DIRECTION, (-1.0, 1.0)),
    "weights": ("Weight of each site's update", (GAMMA, WEIGHT), WEIGHT, (0.0, 1.0)),
}
SAME = 1e-6  # largest difference of cosines that differ by rounding alone
AVERAGE = "average of the held-out domains"
DECADE = 10.0

Row = dict[str, Any]  # of a chart's frame


class Material:
    """Comparable runs by method and settings, each with a look; ``apart_from``: settings that may differ."""

    def __init__(self, runs: Sequence[Run], apart_from: Sequence[str] = ()) -> None:
        groups = comparable_groups(runs, apart_from, beside_defaults=False)
        self.runs = [run for group in groups for run in group.runs]
        self.groups = [(group, numbered_look(number)) for number, group in enumerate(groups)]
        self.targets = domain_order(self.runs[0].dataset, (run.target for run in self.runs))


def stated_of(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the caption of a figure, and what its numbers repeat."""
    facts = line_facts(runs[:1])
    return {
        "caption": f"{described(runs)}; {seeds_in_words({run.seed for run in runs})}",
        "data": {name: facts[name] for name in ("data", "stand_in", "initial_weights")},
    }


def domain_order(dataset: DatasetRef, domains: Iterable[str]) -> tuple[str, ...]:
    """Return ``domains`` without repetitions in the order of the data set, unknown domains last."""
    known, shown = known_domains(dataset), set(domains)
    return (*(name for name in known if name in shown), *sorted(shown.difference(known)))


def over_seeds(runs: Iterable[Run], values: Callable[[Run], Mapping[float, float | None]]) -> dict[float, Cell]:
    """Return mean and standard deviation over the runs, one per seed, at each ``x`` for which a run has a value.

    ``values`` returns a run's values by ``x``; a value that is missing or not finite is ignored.
    """
    by_x: dict[float, dict[int, float]] = {}
    for run in runs:
        for x, value in values(run).items():
            if value is not None and math.isfinite(value):
                by_x.setdefault(x, {})[run.seed] = value
    return {x: estimate(by_x[x]) for x in sorted(by_x)}


def _line(panel: Panel, label: str, look: Look, points: Mapping[Any, Cell], **more: Any) -> Iterator[Row]:
    """Yield the rows of a line; ``more``: its ``line``, ``quantity`` and whether it is ``level``."""
    alike = {"panel": panel.title, "y_label": panel.y_label, "label": label, "line": label, "look": look}
    for x, point in points.items():
        yield {**alike, "quantity": panel.y_label, "level": False, **more, "x": x, **point}


def _chart(name: str, title: str, rows: Iterable[Row], runs: Sequence[Run], *told: str, **more: Any) -> Chart:
    """Return a chart of rows of some runs; ``told``: what is added to its caption."""
    stated = stated_of(runs)
    stated["caption"] = "; ".join([stated["caption"], *told])
    return Chart(name=name, title=title, frame=pd.DataFrame(rows, columns=COLUMNS, dtype=object), **stated, **more)


def _score_panel(runs: Sequence[Run], targets: Sequence[str], title: str) -> Panel:
    shares = commonest_in_domains(run for run in runs if run.target in targets).values()
    return Panel(title, runs[0].record.score.name, statistics.fmean(shares) if shares else None)


def _axis(runs: Sequence[Run]) -> dict[str, Any]:
    percent = runs[0].record.score.percent
    return {"is_fraction": percent, "bounds": (0.0, 1.0) if percent else (-math.inf, math.inf)}


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
    steps = [run.record.method.settings["checkpoint_every"] for run in runs if run.is_pooled]
    told = [f"{span(steps, 'step')} of a reference count as a round"] if steps else []
    panels = {target: _score_panel(material.runs, [target], f"held out: {target}") for target in material.targets}
    rows = [row for target, panel in panels.items() for row in _scores(material, target, panel)]
    title = f"{material.runs[0].record.score.title} of the global model after each round"
    more = {"panels": tuple(panels.values()), "quantities": (TARGET, SOURCES), **_axis(material.runs)}
    return (_chart("convergence", title, rows, runs, *told, **more),)


def _scores(material: Material, target: str, panel: Panel) -> Iterator[Row]:
    last = max((run.record.protocol.rounds for run in material.runs if not run.is_pooled), default=math.inf)
    for group, look in material.groups:
        members = group.held_out(target)
        points = over_seeds(members, lambda run: {one.after_round: one.target for one in run.record.evaluations})
        if points and any(run.is_pooled and run.record.protocol.rounds > last for run in members):
            # Checkpoints of another budget are no rounds: its last score is a level line.
            level = points[max(points)]
            yield from _line(panel, group.title, look, {0: level, last: level}, quantity=TARGET, level=True)
            continue
        for quantity, shown in ((TARGET, points), (SOURCES, over_seeds(members, sources_by_round))):
            yield from _line(panel, group.title, look, shown, quantity=quantity)


def measures(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return one chart of what papers argue with: a panel per measure and held-out domain, a line per method.

    Raises ``SettingsError`` if the runs are not comparable.
    """
    material, panels = Material(runs), dict[Panel, list[Row]]()
    for (measure, field), target in product(MEASURES.items(), material.targets):
        panel = Panel(f"held out: {target}", measure)
        for group, look in material.groups:
            points = over_seeds(group.held_out(target), partial(_by_round, field=field))
            panels.setdefault(panel, []).extend(_line(panel, group.title, look, points))
    shown = tuple(panel for panel, rows in panels.items() if rows)
    rows = [row for of in panels.values() for row in of]
    title, bounds = "How far the sites are apart", (0.0, math.inf)
    return (_chart("measures", title, rows, runs, panels=shown, bounds=bounds),)


def _by_round(run: Run, field: str, site: str = "") -> dict[float, float | None]:
    """Return a number of each round or, by site, of the updates that it used; None where there is none."""
    found: dict[float, Any] = {
        one.round: getattr(one, field, getattr(one.aggregation, field, None)) for one in run.record.rounds
    }
    return {number: (of or {}).get(site) for number, of in found.items()} if site else found


def of_sites(kind: str, runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return a chart per method of the ``cosines`` or ``weights`` of updates: a panel per held-out domain.

    It has a line per site. The cosine with the mean is shown beside that with the step if they differ, gamma beside the
    reference weight if updates are matched. Raises ``SettingsError`` if the runs are not comparable.
    """
    title, pair, alone, bounds = OF_SITES[kind]
    material = Material(runs)
    charts: dict[str, Chart] = {}
    panels = {target: Panel(f"held out: {target}", kind.removesuffix("s")) for target in material.targets}
    for group, _ in material.groups:
        quantities = pair if _has_both(group, pair) else (alone,)
        name = "-".join([kind, *re.sub(r"[^\w.-]", " ", group.title.lower()).split()])  # cosines-fedomg-kappa-0.1
        name = name if name not in charts else f"{name}-{len(charts) + 1}"  # other signs may give an equal name
        rows = [
            row
            for target, panel in panels.items()
            for quantity in quantities
            for row in _sites(group.held_out(target), quantity, panel)
        ]
        heading = f"{title}, {group.title}" + (f" ({quantities[0]})" if len(quantities) == 1 else "")
        more = {"panels": tuple(panels.values()), "quantities": quantities, "bounds": bounds}
        charts[name] = _chart(name, heading, rows, group.runs, **more)
    return tuple(charts.values())


def _has_both(group: Group, pair: tuple[str, str]) -> bool:
    for one in (one for run in group.runs for one in run.record.rounds):
        first, second = (getattr(one.aggregation, FIELDS[quantity], None) or {} for quantity in pair)
        if GAMMA in pair and first:
            return True
        if any(abs(value - second.get(site, math.inf)) > SAME for site, value in first.items()):
            return True
    return False


def _sites(runs: Sequence[Run], quantity: str, panel: Panel) -> Iterator[Row]:
    """Yield the line of each site, with the look of its domain: the same in all figures of a data set."""
    records = {site: run.record for run in runs for site in run.record.sources}
    for site, record in sorted(records.items()):
        domain, dataset = record.census[site].domain, record.protocol.dataset
        domains = {*known_domains(dataset), *(reply.domain for reply in record.census.values())}
        look = numbered_look(domain_order(dataset, domains).index(domain))
        alike = sum(record.census[other].domain == domain for other in record.sources)
        label = domain if site_names([domain]) == (site,) else site
        label = f"{domain} ({alike} sites)" if alike > 1 else label
        points = over_seeds(runs, partial(_by_round, field=FIELDS[quantity], site=site))
        yield from _line(panel, label, look, points, line=site, quantity=quantity)


# --- by a setting ---


def sensitivity(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return one chart: a panel per held-out domain and, if all are present, one of their average; a line per method.

    The x axis is the setting that varies among the runs; a method without it is a level line. Raises ``SettingsError``
    unless one setting varies, and it is the method's.
    """
    varied = varied_settings(runs)
    if len(varied) != 1:
        listed = ", ".join(varied) or "none"
        raise SettingsError(f"the settings that vary are {listed}, expected one, for the x axis.", field="settings")
    (setting,), material = varied, Material(runs, varied)
    kept, targets = material.runs, material.targets
    values = {value for run in kept if (value := value_of(run, setting)) is not None}
    scale, categories = _scale(values)
    # On an axis of categories, a value is at the rank of its text.
    places: dict[Any, Any] = {one: categories.index(str(one)) if categories else one for one in values}
    shown: dict[str, tuple[str, ...]] = {f"held out: {target}": (target,) for target in targets}
    domains = known_domains(kept[0].dataset) or {reply.domain for reply in kept[0].record.census.values()}
    if len(targets) > 1 and {*targets} == {*domains}:
        shown[AVERAGE] = targets
    panels = {_score_panel(kept, of, title): of for title, of in shown.items()}
    rows = [
        row
        for panel, of in panels.items()
        for group, look in material.groups
        for row in _by_value(group, look, panel, setting, places, of)
    ]
    name, title = f"sensitivity-{setting.replace(' ', '-')}", f"{kept[0].record.score.heading} against {setting}"
    more = {"x_label": setting, "panels": tuple(panels), "scale": scale, "categories": categories, **_axis(kept)}
    return (_chart(name, title, rows, kept, f"selection: {RULES[SOURCE_VALIDATION]}", **more),)


def _scale(values: set[Any]) -> tuple[str, tuple[str, ...]]:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        return "linear", tuple(sorted(map(str, values)))
    positive = [value for value in values if value > 0]
    if min(values) < 0 or not positive or max(positive) / min(positive) <= DECADE:
        return "linear", ()
    return ("log" if len(positive) == len(values) else "symlog"), ()


def _by_value(
    group: Group, look: Look, panel: Panel, setting: str, places: dict[Any, Any], targets: Sequence[str]
) -> Iterator[Row]:
    """Yield the line of the runs with the setting, and the level line of those without it."""

    def of(runs: Sequence[Run], target: str) -> dict[int, float]:
        scores = {run.seed: target_score(run.record, SOURCE_VALIDATION) for run in runs if run.target == target}
        return {seed: score for seed, score in scores.items() if score is not None and math.isfinite(score)}

    found = {
        value: estimate(average({target: of(runs, target) for target in targets}))
        for value, runs in grouped(group.runs, lambda run: value_of(run, setting)).items()
    }
    points = {places[value]: score for value, score in found.items() if value is not None and score}
    yield from _line(panel, group.title, look, dict(sorted(points.items())))
    if level := found.get(None):
        label = f"{group.title}, {setting} unset" if points else group.title
        yield from _line(panel, label, look, dict.fromkeys(sorted(places.values()), level), level=True)


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
    numbers = [f"-{number}" if len(found) > 1 else "" for number in range(1, len(found) + 1)]
    return tuple(_counts(run, f"partition{number}") for run, number in zip(found.values(), numbers, strict=True))


def _counts(run: Run, name: str) -> Counts:
    record, protocol = run.record, run.record.protocol
    domains = {site: record.census[site].domain for site in record.sources}
    sites = sorted(record.sources, key=lambda site: (domains[site], split_site(site)[1] or (0, 0), site))
    alpha = f", alpha {protocol.dirichlet_alpha:g}" if protocol.partition == "dirichlet" else ""
    rows = [
        {"site": site, "domain": domains[site], "class": name, "images": images}
        for site in sites
        for name, images in zip(record.classes, record.census[site].class_counts, strict=True)
    ]
    sizes = [sum(record.census[site].class_counts) for site in sites]
    caption = f"{record.data}; {len(sites)} source sites of {min(sizes):,} to {max(sizes):,} images, "
    stated = {**stated_of([run]), "caption": f"{caption}median {statistics.median(sizes):,.10g}"}
    title = f"Images of each class at the sites: {protocol.partition}{alpha}"
    return Counts(name=name, title=title, frame=pd.DataFrame(rows, dtype=object), **stated)

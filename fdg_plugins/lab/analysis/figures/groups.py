# SPDX-License-Identifier: Apache-2.0
"""The runs of one figure, grouped by method and settings; the figure's caption; means over seeds."""

import itertools
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fdg_plugins.lab.analysis.commonest import commonest_in_domains
from fdg_plugins.lab.analysis.comparable import check_comparable, without_repeats
from fdg_plugins.lab.analysis.estimates import Estimate, estimate, span_of, span_with
from fdg_plugins.lab.analysis.figures.picture import Line, Origin, Panel
from fdg_plugins.lab.analysis.figures.style import Look, domain_looks, domain_order, method_looks
from fdg_plugins.lab.analysis.names import is_centralised, method_order, settings_label
from fdg_plugins.lab.analysis.runs import Key, Run, grouped
from fdg_plugins.lab.analysis.varied import references_in_words, trained_in_words
from fdg_plugins.record.method_settings import differing, method_settings
from fdg_plugins.record.text import marks


@dataclass(frozen=True)
class Group:
    """The runs of one method with its settings.

    ``label`` distinguishes it from other groups, as does ``slug``, a part of a file name: ``fedomg-kappa-0.1``.
    """

    method: str
    label: str
    look: Look
    runs: tuple[Run, ...]
    slug: str

    def held_out(self, target: str) -> list[Run]:
        """Return the runs whose held-out domain is ``target``."""
        return [run for run in self.runs if run.target == target]


def checked(runs: Sequence[Run]) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """Return comparable runs, each once, and a note for each copy that was left out.

    Raises ``SettingsError`` if they differ in more than method, held-out domain and seed.
    """
    check_comparable(runs)
    kept, copies = without_repeats(runs)
    return kept, tuple(f"{copy.folder} repeats {first.folder} and is counted once." for copy, first in copies)


def group_runs(runs: Iterable[Run], apart_from: str = "") -> tuple[Group, ...]:
    """Return the runs grouped by method and settings, except the setting ``apart_from``, sorted as in tables."""
    members = grouped(runs, lambda run: (run.method, tuple(_settings(run, apart_from).items())))
    firsts = [found[0] for found in members.values()]
    labelled = []
    for first, found in zip(firsts, members.values(), strict=True):
        siblings = [_settings(other, apart_from) for other in firsts if other.method == first.method]
        label = settings_label(first.method, _settings(first, apart_from), differing(siblings))
        labelled.append((first.method, label, tuple(found)))
    labelled.sort(key=lambda group: (method_order(group[0]), group[1]))
    looks = method_looks([method for method, _, _ in labelled])
    slugs = _slugs([label for _, label, _ in labelled])
    return tuple(
        Group(*group[:2], look, group[2], slug) for group, look, slug in zip(labelled, looks, slugs, strict=True)
    )


def _slugs(labels: Sequence[str]) -> list[str]:
    """Return the labels as parts of file names; of equal ones, all but the first are numbered."""
    slugs: list[str] = []
    for label in labels:
        words = "".join(letter if letter.isalnum() or letter in "._-" else " " for letter in label.lower())
        slug = "-".join(words.split())
        numbered = (f"{slug}-{number}" for number in itertools.count(2))
        slugs.append(slug if slug not in slugs else next(name for name in numbered if name not in slugs))
    return slugs


def _settings(run: Run, apart_from: str) -> dict[str, Any]:
    return {name: value for name, value in method_settings(run.record).items() if name != apart_from}


def targets_of(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the held-out domains of the runs, in the data set's order."""
    return domain_order(runs[0].dataset, (run.target for run in runs))


def over_seeds(runs: Iterable[Run], values: Callable[[Run], Mapping[float, float]]) -> dict[float, Estimate]:
    """Return mean and standard deviation over the runs, one per seed, at each ``x`` for which a run has a value.

    ``values`` returns a run's values by ``x``; a value that is not finite is ignored.
    """
    by_x: dict[float, dict[int, float]] = {}
    for run in runs:
        for x, value in finite(values(run)).items():
            by_x.setdefault(x, {})[run.seed] = value
    found = {x: estimate(by_x[x]) for x in sorted(by_x)}
    return {x: point for x, point in found.items() if point is not None}


def finite(values: Mapping[Key, float]) -> dict[Key, float]:
    """Return the finite ones of ``values``."""
    return {key: value for key, value in values.items() if math.isfinite(value)}


def site_look(run: Run, site: str) -> Look:
    """Return the look of a site, which is that of its domain."""
    census = run.record.census
    return domain_looks(run.dataset, (reply.domain for reply in census.values()))[census[site].domain]


def score_panel(runs: Sequence[Run], title: str, lines: Iterable[Line]) -> Panel:
    """Return the panel of a score of ``runs``, with that of a constant answer if it is the share of right images.

    Over several held-out domains, the latter is the mean of theirs.
    """
    score, shares = runs[0].record.score, commonest_in_domains(runs).values()
    chance = statistics.fmean(shares) if shares else None
    bounds = (0.0, 1.0) if score.percent else (-math.inf, math.inf)
    return Panel(title, score.name, tuple(lines), is_fraction=score.percent, bounds=bounds, chance=chance)


def origin_of(runs: Sequence[Run]) -> Origin:
    """Return the data behind the runs."""
    record = runs[0].record
    return Origin(record.data, record.stand_in, record.initial_weights.label)


def caption_of(runs: Sequence[Run], lines: Iterable[Line] = ()) -> str:
    """Return the caption of a figure: the marks, the data, the settings of the runs, and the number of seeds.

    ``lines`` are means over seeds; if one has several, the caption explains its band.
    """
    record, protocols = runs[0].record, [run.record.protocol for run in runs]
    mark = f"[{marks(record)}] " if marks(record) else ""
    label = record.initial_weights.label
    weights = {"imagenet": ["ImageNet weights"], "from scratch": []}.get(label, [label])
    parts = [
        f"{mark}{record.data}",
        *weights,
        " or ".join(sorted({protocol.model for protocol in protocols})),
        *filter(None, [trained_in_words(runs)]),
        f"{span_of(protocol.image_size for protocol in protocols)} px",
        *_lengths(runs),
        *_thinned({protocol.max_samples_per_domain for protocol in protocols}),
        span_with((len(run.record.sources) for run in runs), "source site"),
    ]
    counts = [point.count for line in lines for point in line.points.values()]
    return f"{', '.join(parts)}; {_seeds(runs, counts)}"


def _lengths(runs: Sequence[Run]) -> list[str]:
    """Return in words how long the runs trained, and what the rounds of centralised references are."""
    federated = [run.record.protocol.rounds for run in runs if not is_centralised(run.method)]
    settings = [run.record.method.settings for run in runs if is_centralised(run.method)]
    words = [span_with(federated, "round")] if federated else []
    if settings:
        every = span_of(own["checkpoint_every"] for own in settings)
        words.append(f"{references_in_words(runs)}, of which {every} make a round here")
    return words


def _thinned(most: Collection[int | None]) -> list[str]:
    """Return in words to how many images the domains were thinned; nothing if none was."""
    found = [value for value in most if value is not None]
    some = " in some runs" if None in most else ""
    return [f"at most {span_of(found)} images per domain{some}"] if found else []


def _seeds(runs: Sequence[Run], counts: Sequence[int]) -> str:
    seeds = sorted({run.seed for run in runs})
    listed = ", ".join(map(str, seeds))
    if len(seeds) == 1:
        return f"one seed ({listed})"
    if max(counts, default=1) == 1:
        return f"seeds {listed}"
    return f"mean over {span_of(counts)} seeds ({listed}), ± standard deviation"

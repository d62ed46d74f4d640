# SPDX-License-Identifier: Apache-2.0
"""Is the federation worth it for a site: the model that it trained alone beside the federated one, on the same images.

Both are evaluated on the site's own validation split, where a method with personal models counts with the site's, and
on the held-out domain. A pair is one seed with one held-out domain. On a site's own data, pairs of one seed have the
same images and, alone, the same model; on a held-out domain, its pairs share its images. Their mean is therefore one
value of the interval, which is Student's for the mean of these values.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
from scipy.special import stdtrit

from fdg_plugins.lab.analysis.comparable import Group
from fdg_plugins.lab.analysis.pairing import LEAST_PAIRS, NONE
from fdg_plugins.lab.analysis.render import Sheet
from fdg_plugins.lab.analysis.runs import Run, grouped
from fdg_plugins.lab.analysis.selection import LAST, RULES, selected
from fdg_plugins.lab.centralised.algorithm import LocalOnly
from fdg_plugins.tasks import ScoreKind

OWN, HELD_OUT = "own data", "held out"
KINDS = ("alone", "federated", "federated_minus_alone")
NUMBERS = ("alone", "federated", "difference")
LEVEL = 0.95

Pair = tuple[str, int]  # held-out domain and seed


class Gain(NamedTuple):
    """The mean scores of a site's model ``alone`` and of a method's ``federated`` one on the same images.

    ``half``: half of the width of the interval of their difference, None if there are too few independent values;
    ``pairs``: the difference of each.
    """

    group: Group
    site: str
    on: str
    alone: float
    federated: float
    half: float | None
    pairs: dict[Pair, float]

    def texts(self, score: ScoreKind) -> Iterator[str]:
        """Yield both scores, and their difference with its interval: ``+1.2 [-0.3, +2.7]``."""
        yield from (f"{score.factor * value:.1f}" for value in (self.alone, self.federated))
        value, half = (score.factor * value for value in (self.federated - self.alone, self.half or 0.0))
        yield f"{value:+.1f}" + ("" if self.half is None else f" [{value - half:+.1f}, {value + half:+.1f}]")


@dataclass(frozen=True)
class Worth:
    """The gains of all methods and sites, under the selection ``rule``."""

    gains: tuple[Gain, ...]
    rule: str

    def sheet(self, score: ScoreKind, data: str) -> Sheet:
        """Return a line for each method and site, with both kinds of images side by side."""
        lines: dict[tuple[str, str], dict[str, str]] = {}
        for one in self.gains:
            names = {"method": one.group.label, "site": one.site}
            line = lines.setdefault((one.group.label, one.site), names)
            line |= zip((f"{one.on}: {name}" for name in NUMBERS), one.texts(score), strict=True)
        better = "higher" if score.goodness(1.0) > 0 else "lower"
        notes = [
            f"alone: the site's own model (fdg run local); federated: the method's model; {better} is better. Own "
            f"data: the site's validation split{', which both models were selected on' * (self.rule != LAST)}.",
            f"In brackets: the {LEVEL:.0%} interval of the mean difference, from one value for each seed on own data, "
            "and for each held-out domain, of one alone for each seed.",
        ]
        if any(one.half is None for one in self.gains):
            few = "No interval where there is one such value: the records have no outcomes of single images"
            notes.append(f"{few}, so more seeds are needed.")
        caption = f"Is the federation worth it for a site? {score.title}{score.unit}, {data}, selection: "
        return Sheet(f"{caption}{RULES[self.rule]}.", pd.DataFrame([*lines.values()]).fillna(NONE), 2, notes)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield label, site, images and numbers of each gain; ``values`` are ``held-out domain/seed:difference``."""
        for one in self.gains:
            names: dict[str, Any] = {"label": one.group.label, "method": one.group.method, "selection": self.rule}
            names |= {"site": one.site, "on": one.on, "pairs": len(one.pairs)}
            values = ";".join(f"{target}/{seed}:{value}" for (target, seed), value in one.pairs.items())
            gained: dict[str, Any] = {"mean": one.federated - one.alone, "interval": one.half, "values": values}
            for kind, own in zip(KINDS, ({"mean": one.alone}, {"mean": one.federated}, gained), strict=True):
                yield {**names, "kind": kind, **own}


def worth(groups: Sequence[Group], rule: str) -> Worth | None:
    """Return what each method gives each site under a selection rule; None if no pair has sites that trained alone."""
    # The records of a study have no scores of each site's model.
    local = (run for group in groups if group.method == LocalOnly.name for run in group.runs if run.record.alone)
    alone, gains = {(run.target, run.seed): site_scores(run, rule) for run in local}, list[Gain]()
    for group in (group for group in groups if alone and not group.is_reference):
        pairs: dict[tuple[str, str], dict[Pair, tuple[float, float]]] = {}
        for run in group.runs:
            theirs, ours = alone.get(pair := (run.target, run.seed), {}), site_scores(run, rule)
            for at in theirs.keys() & ours.keys():
                pairs.setdefault(at, {})[pair] = (theirs[at], ours[at])
        gains += [_gain(group, *at, pairs[at]) for at in sorted(pairs, key=lambda at: (at[0], at[1] != OWN))]
    return Worth(tuple(gains), rule) if gains else None


def site_scores(run: Run, rule: str) -> dict[tuple[str, str], float]:
    """Return the chosen model's scores by source site and images; of sites that trained alone, each has its own."""
    record, found = run.record, dict[tuple[str, str], float]()
    chosen = ((one, selected(one, rule)) for one in record.alone or [record])
    for site, model in ((site, model) for one, model in chosen if model is not None for site in one.sources):
        own = (model.personal.sites if model.personal else {}).get(site, model.sites.get(site))
        found |= {(site, OWN): own.value(record.score.name)} if own is not None else {}
        found |= {(site, HELD_OUT): model.target} if model.target is not None else {}
    return found


def _gain(group: Group, site: str, on: str, found: dict[Pair, tuple[float, float]]) -> Gain:
    by_domain = on == HELD_OUT and len({target for target, _ in found}) > 1
    clusters = grouped(found, lambda pair: pair[0] if by_domain else pair[1]).values()
    means = [[statistics.fmean(found[pair][which] for pair in pairs) for pairs in clusters] for which in (0, 1)]
    values, half = [second - first for first, second in zip(*means, strict=True)], None
    if len(values) >= LEAST_PAIRS:
        error = statistics.stdev(values) / math.sqrt(len(values))
        half = float(stdtrit(len(values) - 1, (1 + LEVEL) / 2)) * error
    pairs = {pair: ours - alone for pair, (alone, ours) in found.items()}
    return Gain(group, site, on, statistics.fmean(means[0]), statistics.fmean(means[1]), half, pairs)

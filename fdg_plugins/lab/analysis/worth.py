# SPDX-License-Identifier: Apache-2.0
"""Is the federation worth it for a site: the model that it trained alone beside the federated one, on the same images.

Both are evaluated on the site's own validation split, where a method with personal models counts with the site's, and
on the held-out domain. A pair is one seed with one held-out domain. On a site's own data, pairs of one seed have the
same images and, alone, the same model; on a held-out domain, its pairs share its images. Their mean is therefore one
value of the interval, which is Student's for the mean of these values. Of two values it would be 12.7 standard errors
to either side, which is of no use: they have the error alone.
"""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from scipy.special import stdtrit

from fdg_plugins.lab.analysis.comparable import Group
from fdg_plugins.lab.analysis.estimates import LEAST_RUNS, Cell, estimate
from fdg_plugins.lab.analysis.render import NONE, Sheet
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.analysis.selection import LAST, RULES, selected
from fdg_plugins.lab.analysis.table import Below
from fdg_plugins.lab.centralised.algorithm import LocalOnly
from fdg_plugins.tasks import ScoreKind

OWN, HELD_OUT = "own data", "held out"
ALONE, FEDERATED = "alone", "federated"
DIFFERENCE = "federated_minus_alone"
LEVEL = 0.95


def worth(groups: Sequence[Group], rule: str, data: str) -> tuple[Below, ...]:
    """Return what each method gives each site under a selection rule; none if no pair has sites that trained alone."""
    pairs = pd.DataFrame(_pairs(groups, rule))
    if pairs.empty:
        return ()
    score, lines, rows = groups[0].runs[0].record.score, list[dict[str, Any]](), dict[tuple[str, str], dict[str, str]]()
    for (label, site, on), found in pairs.groupby(["label", "site", "on"], sort=False):
        names = {name: found[name].iloc[0] for name in ("label", "method", "site", "on")}
        names |= {"selection": rule, "pairs": len(found)}
        cells = _gains(found, on)
        lines += [{**names, "kind": kind, **cell} for kind, cell in cells.items()]
        texts = {name: f"{score.factor * cells[name]['mean']:.1f}" for name in (ALONE, FEDERATED)}
        texts["difference"] = _text(cells[DIFFERENCE], score.factor)
        row = rows.setdefault((label, site), {"method": label, "site": site})
        row |= {f"{on}: {name}": text for name, text in texts.items()}
    few = any(line["kind"] == DIFFERENCE and "interval" not in line for line in lines)
    caption = f"Is the federation worth it for a site? {score.title}{score.unit}, {data}, selection: {RULES[rule]}."
    frame = pd.DataFrame([*rows.values()]).fillna(NONE)
    return (Below(Sheet(caption, frame, 2, [*_notes(score, rule, few=few)]), lines),)


def _pairs(groups: Sequence[Group], rule: str) -> Iterator[dict[str, Any]]:
    """Yield both scores of each site on the same images, by method, site, images and pair."""
    # The records of a study have no scores of each site's model.
    local = (run for group in groups if group.method == LocalOnly.name for run in group.runs if run.record.alone)
    alone = {(run.target, run.seed): site_scores(run, rule) for run in local}
    for group in (group for group in groups if alone and not group.is_reference):
        found: list[dict[str, Any]] = [
            {
                **{"label": group.label, "method": group.method, "site": site, "on": on},
                **{"target": run.target, "seed": run.seed, ALONE: theirs, FEDERATED: ours[site, on]},
            }
            for run, ours in ((run, site_scores(run, rule)) for run in group.runs)
            for (site, on), theirs in alone.get((run.target, run.seed), {}).items()
            if (site, on) in ours
        ]
        yield from sorted(found, key=lambda pair: (pair["site"], pair["on"] != OWN))


def site_scores(run: Run, rule: str) -> dict[tuple[str, str], float]:
    """Return the chosen model's scores by source site and images; of sites that trained alone, each has its own."""
    record, found = run.record, dict[tuple[str, str], float]()
    chosen = ((one, selected(one, rule)) for one in record.alone or [record])
    for site, model in ((site, model) for one, model in chosen if model is not None for site in one.sources):
        own = (model.personal.sites if model.personal else {}).get(site, model.sites.get(site))
        found |= {(site, OWN): own.value(record.score.name)} if own is not None else {}
        found |= {(site, HELD_OUT): model.target} if model.target is not None else {}
    return found


def _gains(found: pd.DataFrame, on: str) -> dict[str, Cell]:
    """Return the mean scores of both models and of their difference, over values that are independent."""
    over = "target" if on == HELD_OUT and found["target"].nunique() > 1 else "seed"
    means = found.groupby(over)[[ALONE, FEDERATED]].agg(statistics.fmean)
    alone, federated = (statistics.fmean(means[name]) for name in (ALONE, FEDERATED))
    of = estimate(dict(enumerate(means[FEDERATED] - means[ALONE])))
    pairs = (f"{row.target}/{row.seed}:{row.federated - row.alone}" for row in found.itertuples())
    gain = {"mean": federated - alone, "standard_error": of["standard_error"], "values": ";".join(pairs)}
    if of["seeds"] >= LEAST_RUNS:
        gain["interval"] = float(stdtrit(of["seeds"] - 1, (1 + LEVEL) / 2)) * of["standard_error"]
    return {ALONE: {"mean": alone}, FEDERATED: {"mean": federated}, DIFFERENCE: gain}


def _text(gain: Cell, factor: float) -> str:
    """Return a difference with its interval, ``+1.2 [-0.3, +2.7]``, or what two values or one allow."""
    value, error = factor * gain["mean"], gain["standard_error"]
    if "interval" in gain:
        half = factor * gain["interval"]
        return f"{value:+.1f} [{value - half:+.1f}, {value + half:+.1f}]"
    return f"{value:+.1f} (n=1)" if error is None else f"{value:+.1f} (n=2, SE {factor * error:.1f})"


def _notes(score: ScoreKind, rule: str, *, few: bool) -> Iterator[str]:
    better = "higher" if score.goodness(1.0) > 0 else "lower"
    yield (
        f"alone: the site's own model (fdg run local); federated: the method's model; {better} is better. Own "
        f"data: the site's validation split{', which both models were selected on' * (rule != LAST)}."
    )
    yield (
        f"In brackets: the {LEVEL:.0%} interval of the mean difference, from one value for each seed on own data, "
        "and for each held-out domain, of one alone for each seed."
    )
    if few:
        yield (
            f"With fewer than {LEAST_RUNS} such values (n) there is no interval, of two a standard error (SE): the "
            "records have no outcomes of single images, so more seeds are needed."
        )

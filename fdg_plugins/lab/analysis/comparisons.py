# SPDX-License-Identifier: Apache-2.0
"""What stands below a table: methods paired with FedAvg, and the federation with each site alone.

**FedAvg.** A cell is one seed with one held-out domain, or of label-skewed sites with one data set, skew and
participation. In it, all methods have the same images, split and initial weights, so what differs between cells, such
as a domain that is hard for all, drops out of a difference within cells.

**Alone.** The model that a site trained alone stands beside the federated one, on the same images: on the site's own
validation split, where a method with personal models counts with the site's, and on the held-out domain. A pair is one
seed with one held-out domain. On a site's own data, pairs of one seed have the same images and, alone, the same model;
on a held-out domain, its pairs share its images. Their mean is therefore one value of the interval, which is Student's
for the mean of these values. Of two values it would be 12.7 standard errors to either side, which is of no use: they
have the error alone.
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pandas as pd
from scipy.special import stdtrit

from fdg_plugins.lab.analysis.comparable import Group
from fdg_plugins.lab.analysis.estimates import LEAST_RUNS, Cell, estimate
from fdg_plugins.lab.analysis.papers import AVERAGE
from fdg_plugins.lab.analysis.runs import Run, default_settings
from fdg_plugins.lab.analysis.selection import LAST, RULES, selected
from fdg_plugins.lab.analysis.table import NONE, OURS, Below, Row, Sheet
from fdg_plugins.lab.centralised.algorithm import LocalOnly
from fdg_plugins.plugins.composition import BASE
from fdg_plugins.record.method_settings import differing, method_settings
from fdg_plugins.tasks import ScoreKind

LEAST_PAIRS = 2
SCORES = ("label", "rule", "place", "seed", "value")
OWN, HELD_OUT = "own data", "held out"
ALONE, FEDERATED = "alone", "federated"
DIFFERENCE = "federated_minus_alone"
LEVEL = 0.95


# --- paired with FedAvg ---


def base_of(groups: Sequence[Group]) -> str | None:
    """Return the label of FedAvg; of several, of that with its defaults on the data sets, apart from chosen settings.

    None if there is none, or several have or lack the defaults.
    """

    def has_defaults(group: Group) -> bool:
        pairs = [(method_settings(run.record), default_settings(run.record)) for run in group.runs]
        return all(default is None or not differing([own, default], group.chosen) for own, default in pairs)

    bases = [group for group in groups if group.method == BASE]
    bases = bases if len(bases) == 1 else list(filter(has_defaults, bases))
    return bases[0].label if len(bases) == 1 else None


def differences(scores: Iterable[tuple[str, str, str, int, float]], base: str | None, score: ScoreKind) -> pd.DataFrame:
    """Return a line per rule and method, compared with the FedAvg that is called ``base``; none without two pairs.

    ``scores`` are :data:`SCORES` by the rule, or the images, that are compared apart. ``rank`` is the mean rank over
    the ``common`` cells that all have, 1 is best and equal scores share their ranks; ``pairs`` are counted,
    ``difference`` is the mean of a score minus FedAvg's over them, ``se`` its standard error, and ``se_over`` the error
    where the mean over the cells with the same images, which the name of a place begins with, is one value; ``places``
    counts these.
    """
    found = pd.DataFrame(list(scores), columns=SCORES)
    labels, rows = list(found["label"].unique()), []
    for rule, of_rule in found.groupby("rule", sort=False) if base in labels else ():
        cells = of_rule.pivot(index=["place", "seed"], columns="label", values="value").reindex(columns=labels)
        common = cells.dropna()
        ranks = (score.goodness(1.0) * common).rank(axis="columns", ascending=False).mean()
        for label in labels:
            pairs = (cells[label] - cells[base]).dropna() if label != base else pd.Series(dtype=float)
            places = pairs.groupby([place.split("/")[0] for place, _ in pairs.index]).mean() if len(pairs) else pairs
            values = ";".join(f"{place}/{seed}:{value}" for (place, seed), value in pairs.items())
            own = {"label": label, "rule": rule, "rank": ranks[label], "common": len(common), "values": values}
            means = {"difference": pairs.mean(), "se": pairs.sem(), "se_over": places.sem()}
            rows.append({**own, **means, "places": len(places), "pairs": len(pairs)})
    return pd.DataFrame(rows if any(row["pairs"] >= LEAST_PAIRS for row in rows) else [])


def compare(
    rows: Iterable[Row],
    groups: Sequence[Group],
    data: str,
    apart: tuple[str, Mapping[str, str]],
    paired: tuple[str, str] = ("seed and held-out domain", "domain"),
    places: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Below, ...]:
    """Return the comparison with FedAvg of our rows that compete; none if no method shares two cells with it.

    The average and references are left out. ``apart``: the field of what is compared apart, and each of it in words.
    ``paired``: in words what the runs of a pair have in common, and that of which all cells have the same images.
    ``places``: the names of columns that share images, each beginning with that of the images.
    """
    base, score, labels = base_of(groups), groups[0].runs[0].record.score, [group.label for group in groups]
    ours = [row for row in rows if row.fields["kind"] == OURS]
    ours.sort(key=lambda row: labels.index(row.fields["label"]))
    found = differences(_scores(ours, apart[0], places), base, score)
    if found.empty:
        return ()
    fields = {row.fields["label"]: row.fields for row in ours}
    lines = [{**fields[line["label"]], **line, apart[0]: line["rule"], "participation": None} for line in _lines(found)]
    common, image = paired
    counts = " and ".join(dict.fromkeys(map(str, found["common"])))
    caption = (
        f"{score.title}{score.unit}, {data}, paired with {base}: mean difference over the pairs of runs with the same "
        f"{common}, its standard error (SE), and the mean rank (1 is the best) over the {counts} such cells that all "
        "methods have."
    )
    several = found["rule"].nunique() > 1
    over = f"SE over {image}s"
    frame = _texts(found, over, f"minus {base}", score.factor)
    if several:
        frame.insert(1, apart[0], [apart[1].get(rule, rule) for rule in found["rule"]])
    note = f"The SE takes the pairs as independent, though those of one {image} share its images"
    also = f"; the {over} takes the mean of each as one value" if over in frame else ""
    return (Below(Sheet(caption, frame, 1 + several, [f"{note}{also}."]), lines),)


def _scores(ours: Iterable[Row], apart: str, places: Mapping[str, str]) -> Iterator[tuple[str, str, str, int, float]]:
    for row in (row for row in ours if row.rivals is not None and not row.is_reference):
        share = row.fields.get("participation")
        for column, cell in row.cells.items():
            place = places.get(column, column) + (f"/{share:g}" if share else "")
            for seed, value in cell["by_seed"].items() if column != AVERAGE else ():
                yield row.fields["label"], row.fields[apart], place, seed, value


def _texts(found: pd.DataFrame, over: str, minus: str, factor: float) -> pd.DataFrame:
    """Return ranks and differences as text; the error ``over`` several places only if it is another one."""
    columns = {"mean rank": ("rank", "{:.2f}", 1.0), minus: ("difference", "{:+.1f}", factor)}
    columns |= {"SE": ("se", "{:.1f}", factor)}
    if (found["se_over"].notna() & (found["places"] < found["pairs"])).any():
        columns[over] = ("se_over", "{:.1f}", factor)
    texts = {
        title: (number * found[name]).map(form.format, na_action="ignore")
        for title, (name, form, number) in columns.items()
    }
    pairs = found["pairs"].replace(0, NONE).map(str)
    return pd.DataFrame({"method": found["label"], **texts, "pairs": pairs}).astype(object).fillna(NONE)


def _lines(found: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield label, rule and numbers of each mean rank and difference."""
    for row in found.astype(object).where(found.notna(), None).to_dict("records"):
        names = {name: row[name] for name in ("label", "rule")}
        if row["rank"] is not None:
            yield {**names, "kind": "mean_rank", "mean": row["rank"], "pairs": row["common"]}
        if row["pairs"]:
            numbers = {"mean": row["difference"], "standard_error": row["se"], "values": row["values"]}
            yield {**names, "kind": "paired_difference", **numbers, "pairs": row["pairs"]}


# --- beside each site alone ---


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
            f"With fewer than {LEAST_RUNS} such values (n) there is no interval, and of two a standard error (SE). fdg "
            "evaluate local_models/SITE.safetensors FEDERATED gives one from single images, which no record has."
        )

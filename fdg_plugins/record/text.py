# SPDX-License-Identifier: Apache-2.0
"""Text for the console: a line for each round and evaluation, and the final table."""

from collections.abc import Iterator, Mapping
from typing import Any

from fdg_plugins.errors import counted
from fdg_plugins.record.method_settings import method_label
from fdg_plugins.record.round_record import RoundRecord
from fdg_plugins.record.run_record import Choice, EvaluationRecord, PersonalScores, RunRecord, mean

DETAILS = " (details in the site's own log"  # then a number that is another for each site
UNDONE = "its step was undone"
TITLES = {
    "last": "last",
    "source_validation": "selected by source validation",
    "oracle": "oracle: chosen on the target, not a result",
}


def marks(record: RunRecord) -> str:
    """Return the words that must accompany every number of this run: ``STAND-IN`` and the initial weights."""
    label = record.initial_weights.label
    return ", ".join(["STAND-IN"] * record.stand_in + ["ImageNet weights" if label == "imagenet" else label])


def duration(seconds: float) -> str:
    """Return a duration as text: ``41 s``, ``3 min 20 s``, ``2 h 05 min``."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def round_line(record: RunRecord, finished: RoundRecord, received: EvaluationRecord) -> str:
    """Return the line for one round; its scores are those of the model that the round started from."""
    rounds = record.protocol.rounds
    losses = [local.epoch_losses[-1] for local in finished.local.values() if local.epoch_losses]
    parts = [
        f"round {finished.round}/{rounds}",
        f"sites {len(finished.sites)}/{len(finished.drawn)}",
        f"train loss {sum(losses) / len(losses):.4f}" if losses else "train loss missing",
        evaluation_line(record, received),
        f"{finished.seconds:.1f} s",
        f"ETA {duration(seconds_left(record, finished.round))}",
        *([f"model unchanged: {why_unchanged(finished)}"] if finished.reason is not None else []),
    ]
    return " | ".join(parts)


def why_unchanged(finished: RoundRecord) -> str:
    """Return why a round left the model as it was, and the commonest reason why sites failed in it, if any did."""
    found = _clause(finished.reason or UNDONE)
    kinds: dict[str, list[str]] = {}
    for site, reason in sorted(finished.failures.items()):
        kinds.setdefault(reason.split(DETAILS)[0], []).append(site)
    if not kinds:
        return found
    site, *others = max(kinds.values(), key=len)
    more = f" and {len(others)} more" if others else ""
    return f"{found}; {site}{more}: {_clause(finished.failures[site])}"


def unchanged(record: RunRecord) -> str | None:
    """Return how many rounds left the model unchanged, or were undone, and why the last did; None if all changed it."""
    if not (idle := record.idle_rounds()):
        return None
    count = f"{len(idle)} of {len(record.rounds)} rounds left the model unchanged"
    return f"{count}; the last, round {idle[-1].round}, because: {_clause(idle[-1].reason or UNDONE)}"


def _clause(reason: str) -> str:
    return " ".join(reason.split()).rstrip(".")


def seconds_left(record: RunRecord, after_round: int) -> float:
    """Return about how many seconds the rounds after ``after_round`` take, from the last rounds in the record."""
    recent = [done.seconds for done in record.rounds[-5:]]
    return (record.protocol.rounds - after_round) * sum(recent) / len(recent)


def evaluation_line(record: RunRecord, evaluation: EvaluationRecord) -> str:
    """Return the scores of one model in a line, with those of the sites' own models if there are any."""
    text, own = record.score.text, evaluation.personal
    model = f"model after round {evaluation.after_round}" if evaluation.after_round else "initial model"
    scores = f"source val {text(evaluation.source_mean)}, target {record.protocol.target} {text(evaluation.target)}"
    return f"{model}: {scores}" + ("" if own is None else f", personal val {text(own.source_mean)}")


def stats(record: RunRecord) -> dict[str, Any]:
    """Return a run's progress as numbers and short texts for FLARE's ``show_stats``; scores are not in percent."""
    latest = record.evaluations[-1] if record.evaluations else None
    return {
        "phase": record.status,
        "current_round": len(record.rounds),
        "num_rounds": record.protocol.rounds,
        "run": record.run,
        "marks": marks(record),
        f"source_validation_{record.score.name}": latest.source_mean if latest else None,
        f"target_{record.score.name}": latest.target if latest else None,
    }


def final_table(record: RunRecord) -> str:
    """Return a table of scores per domain, with one row for each selection rule."""
    if record.alone:
        return _own_table(record)
    evaluations = {evaluation.after_round: evaluation for evaluation in record.evaluations}
    protocol = record.protocol
    sources = sorted({record.census[site].domain for site in record.sources})
    rows = [["model", *sources, "source mean", "worst source", f"target {protocol.target}"]]
    for choice in record.choices:
        rows += _rows(record, evaluations[choice.after_round], choice, sources)
    lines = [
        f"{record.score.title} of the global model [{marks(record)}]: {_title(record)}",
        f"{method_label(record)}, {counted(len(record.rounds), 'round')}",
        *aligned(rows),
        "Sources are evaluated on validation splits, the target on all its images; it played no part in selection.",
    ]
    if record.selecting != record.score:
        lines.append(f"Models are selected by {record.selecting.title}.")
    if record.standing:
        last = record.standing[-1]
        counts = record.counts_by_domain(last.sites)
        for domain, sums in record.sums_by_domain(last.sites).items():
            if remarks := record.task.remarks(sums, counts.get(domain, {}), record.classes):
                lines.append(f"{domain}, last model: {'; '.join(remarks)}.")
    if any(evaluation.personal is not None for evaluation in record.evaluations):
        lines.append("Personal: each site's own model on its validation split. The target has none.")
    if (idle := unchanged(record)) is not None:
        lines.append(f"{idle[0].upper()}{idle[1:]}.")
    return "\n".join(lines)


def _title(record: RunRecord) -> str:
    protocol = record.protocol
    trained = f"{protocol.trained}, " if protocol.trained else ""
    return f"{record.data}, {protocol.model}, {trained}{protocol.image_size} px, seed {protocol.seed}"


def _own_table(record: RunRecord) -> str:
    """Return the scores of the model that each site has chosen for itself, at every site."""
    name, evaluations = record.score.name, {one.after_round: one for one in record.evaluations}
    rows = [["model of", *record.sources, *(f"target {site}" for site in record.held_out)]]
    for site, alone in zip(record.sources, record.alone, strict=True):
        after = next(one.after_round for one in alone.choices if one.rule == "source_validation")
        own = evaluations[after].own[site]
        values = (own[at].value(name) for at in (*record.sources, *record.held_out))
        rows.append([f"{site} (round {after})", *map(record.score.text, values)])
    return "\n".join(
        [
            f"{record.score.title} of each site's own model [{marks(record)}]: {_title(record)}",
            *aligned(rows),
            "Each site's own validation split chose its model; the target played no part in it.",
        ]
    )


def _rows(record: RunRecord, evaluation: EvaluationRecord, choice: Choice, sources: list[str]) -> Iterator[list[str]]:
    """Yield the chosen model's row and one for each score that the task derives; then those of the personal models.

    Mean and worst are missing unless all sources are in them.
    """
    target = record.protocol.target
    scores: list[tuple[str, EvaluationRecord | PersonalScores, Mapping[str, Mapping[str, float]], float | None]]
    scores = [(TITLES[choice.rule], evaluation, evaluation.derived, evaluation.target)]
    if (own := evaluation.personal) is not None:
        scores.append(("personal", own, record.derived_scores(own.sites), None))
    for title, found, derived, of_target in scores:
        judged = found.domains.keys() >= {*sources}
        summary = (found.source_mean, found.source_worst) if judged else (None, None)
        shown = (*map(found.domains.get, sources), *summary, of_target)
        yield [f"{title} (round {choice.after_round})", *map(record.score.text, shown)]
        for kind in record.task.summary_kinds:
            values = derived.get(kind.name, {})
            known = [values[domain] for domain in sources if domain in values]
            complete = found.source_mean is not None and len(known) == len(sources)
            summary = (mean(known), kind.worst(known)) if complete else (None, None)
            yield [f"  {kind.title}", *map(kind.text, (*map(values.get, sources), *summary, values.get(target)))]


def aligned(rows: list[list[str]]) -> list[str]:
    """Return the lines of a table: a head, a rule, and rows of which all but the first cell are right-aligned."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = [
        "  ".join([row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], others, strict=True))])
        for row in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]

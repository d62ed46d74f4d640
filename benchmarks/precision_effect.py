# SPDX-License-Identifier: Apache-2.0
"""What bfloat16 does to accuracy: pairs of runs that differ in nothing else, from the records of a sweep.

    fdg sweep sweeps/precision --set precision=float32,auto ...     # docs/benchmarks.md has the whole command
    python benchmarks/precision_effect.py keep sweeps/precision           # the runs into precision_effect.csv
    python benchmarks/precision_effect.py table                           # differences and their standard errors

A pair is two runs of one held-out domain and one seed, so with the same images, initial model and batches.
"""

import argparse
import csv
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fdg_plugins.record.run_record import RunRecord

RESULTS = Path(__file__).with_name("precision_effect.csv")
SCORES = {"selected": "target, selected model", "last": "target, last model", "source": "source validation, last model"}
PAIRED = ("bfloat16", "float32")


class Result(NamedTuple):
    """One run: what its sites computed in, and accuracies in [0, 1] on the target and in source validation."""

    dataset: str
    target: str
    seed: int
    precision: str
    selected: float
    last: float
    source: float


class Difference(NamedTuple):
    """Mean of bfloat16 minus float32 over ``pairs``, and its standard error; fractions."""

    mean: float
    error: float
    pairs: int


def summarise(record: RunRecord) -> Result:
    """Return the result of a finished run; raise ``ValueError`` if its sites computed in different precisions."""
    used = {reply.precision for reply in record.census.values()}
    if len(used) != 1 or None in used:
        raise ValueError(f"a run's sites computed in {sorted(map(str, used))}, expected one precision.")
    evaluations = {evaluation.after_round: evaluation for evaluation in record.evaluations}
    chosen = {choice.rule: evaluations[choice.after_round] for choice in record.choices}
    last = chosen["last"]
    return Result(
        str(record.protocol.dataset),
        record.protocol.target,
        record.protocol.seed,
        str(used.pop()),
        round(chosen["source_validation"].target or 0.0, 4),
        round(last.target or 0.0, 4),
        round(last.source_mean or 0.0, 4),
    )


def differences(results: Sequence[Result], score: str) -> list[float]:
    """Return bfloat16 minus float32 of every pair; raise ``ValueError`` for a run without its partner."""
    runs = {(one.dataset, one.target, one.seed, one.precision): float(getattr(one, score)) for one in results}
    keys = sorted({key[:3] for key in runs})
    for key in keys:
        if missing := [precision for precision in PAIRED if (*key, precision) not in runs]:
            raise ValueError(f"the run of {key[1]} with seed {key[2]} in {missing[0]} is missing.")
    return [runs[(*key, PAIRED[0])] - runs[(*key, PAIRED[1])] for key in keys]


def mean_difference(values: Sequence[float]) -> Difference:
    """Return mean and standard error of at least two paired differences."""
    return Difference(statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5, len(values))


def table(results: Sequence[Result]) -> list[str]:
    """Return the lines of a Markdown table: means of both, and the difference in percentage points."""
    lines = [
        "| accuracy, percent | float32 | bfloat16 | difference, points | pairs |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for score, title in SCORES.items():
        means = {
            precision: 100 * statistics.mean(getattr(one, score) for one in results if one.precision == precision)
            for precision in PAIRED
        }
        found = mean_difference(differences(results, score))
        change = f"{round(100 * found.mean, 1) + 0.0:+.1f} ± {100 * found.error:.1f}"  # + 0.0: no minus before a zero
        lines.append(f"| {title} | {means['float32']:.1f} | {means['bfloat16']:.1f} | {change} | {found.pairs} |")
    return lines


def read_results() -> list[Result]:
    """Return the results that are kept."""
    with RESULTS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [_result(row) for row in rows]


def _result(row: dict[str, str]) -> Result:
    texts = (row["dataset"], row["target"], int(row["seed"]), row["precision"])
    return Result(*texts, *(float(row[name]) for name in Result._fields[len(texts) :]))


def keep(folder: Path) -> None:
    """Write the results of all finished runs below ``folder``; raise ``ValueError`` if there is none."""
    records = [RunRecord.model_validate_json(file.read_bytes()) for file in sorted(folder.rglob("results.json"))]
    results = sorted(summarise(record) for record in records if record.status == "finished")
    if not results:
        raise ValueError(f"folder {folder} holds no finished run, expected those of a sweep; {RESULTS.name} is kept.")
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([Result._fields, *results])


def main(arguments: list[str] | None = None) -> None:
    """Keep the results of a sweep, or print the table of those kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("keep", help="write the runs of a sweep to the file").add_argument("folder", type=Path)
    commands.add_parser("table", help="print the table")
    options = parser.parse_args(arguments)
    if options.command == "keep":
        keep(options.folder)
    else:
        print("\n".join(table(read_results())))  # noqa: T201


if __name__ == "__main__":
    main()

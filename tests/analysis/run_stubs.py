# SPDX-License-Identifier: Apache-2.0
"""What the tests of tables share: records of finished runs on PACS, one site per domain, made in code."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fdg_plugins.controllers import RunRecord
from fdg_plugins.data.catalogue import known_images
from fdg_plugins.lab.analysis import Run, Table
from fdg_plugins.messages import CensusReply, Evaluation
from fdg_plugins.models import InitialWeights
from fdg_plugins.record.round_record import Method
from fdg_plugins.settings.protocol import Protocol
from tests.controllers import federation_stubs

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")

# Beside the defaults, that paper's protocol on PACS.
FEDOMGS: dict[str, Any] = {"rounds": 100, "keep_momentum": True, "crop_scale": 0.7}

FEDAVG = Method(aggregator="FedAvgAggregator", settings={"weighting": "samples", "server_lr": 1.0})
FEDGA = Method(aggregator="FedGAAggregator", settings={"step_size": 0.05, "normalizer": "max", "server_lr": 1.0})
FEDOMG = Method(aggregator="FedOMGAggregator", settings={"kappa": 0.5, "server_lr": 0.05, "weighting": "uniform"})


def fedomg(**settings: Any) -> Method:
    return Method(aggregator="FedOMGAggregator", settings={**FEDOMG.settings, **settings})


def census_reply(domain: str, seed: int = 0, **changes: Any) -> CensusReply:
    """Return what a site says of itself; its split follows from domain and seed, and it has all images."""
    images = next(iter(known_images(changes.get("dataset", "pacs"), domain)), 10)
    fields: dict[str, Any] = {
        "num_train": images - 2,
        "num_test": images,
        "split": f"pacs/90-10@{seed}",
        "split_hash": f"{domain} {seed}",
        "versions": {},
        **changes,
    }
    used = fields["num_train"] + fields.get("num_validation", 2)
    return federation_stubs.census_reply(domain, **{"class_counts": (used // 2, used - used // 2), **fields})


def evaluation(accuracy: float) -> Evaluation:
    return federation_stubs.evaluation(accuracy, 100, split="test")


def finished(
    method: Method = FEDAVG,
    target: str = "photo",
    seed: int = 0,
    accuracies: Sequence[float | None] = (0.5,),
    *,
    domains: Sequence[str] = DOMAINS,
    sources: Sequence[Sequence[float]] | None = None,
    protocol: dict[str, Any] | None = None,
    **changes: Any,
) -> RunRecord:
    """Return the record of a finished run, with one evaluation for each accuracy on the held-out domain.

    ``sources`` are the accuracies on the source domains in each of them; without it they rise, so that source
    validation chooses the last model. ``changes`` replace fields of the record.
    """
    names = [domain for domain in domains if domain != target]
    fields: dict[str, Any] = {
        "stand_in": False,
        "data": "PACS",
        "started": "2030-01-01T00:00:00+00:00",
        "protocol": Protocol(**{"target": target, "seed": seed, **FEDOMGS, **(protocol or {})}),
        "method": method,
        "initial_weights": InitialWeights(label="imagenet"),
        "versions": {"fdg-plugins": "0.1.0"},
        "classes": ("dog", "elephant"),
        "sources": tuple(names),
        "held_out": (target,),
        "census": {domain: census_reply(domain, seed) for domain in domains},
    }
    record = RunRecord(**{**fields, **changes})
    for after_round, accuracy in enumerate(accuracies):
        found = sources[after_round] if sources else [0.3 + 0.01 * after_round] * len(names)
        scores = {name: evaluation(value) for name, value in zip(names, found, strict=True)}
        record.add_evaluation(after_round, scores if accuracy is None else {**scores, target: evaluation(accuracy)})
    record.choices = record.choose({"last": "global_model.safetensors"})
    record.status = "finished"
    return record


def run(name: str = "run", *arguments: Any, **changes: Any) -> Run:
    """Return a finished run whose folder is called ``name``; the rest is as for :func:`finished`."""
    return Run(Path("runs") / name, finished(*arguments, **changes))


def runs_of(method: Method, accuracies: Mapping[str, Sequence[float]]) -> list[Run]:
    """Return a run for each domain and each accuracy in it, which are those of seeds 0, 1, ..."""
    return [
        run(f"{method.aggregator}-{target}-{seed}", method, target, seed, (accuracy,))
        for target, values in accuracies.items()
        for seed, accuracy in enumerate(values)
    ]


def lines(table: Table, **fields: object) -> list[dict[str, Any]]:
    """Return the lines of a table's numbers that have these fields; what is empty is None."""
    found = table.numbers().astype(object)
    every = found.where(found.notna(), None).to_dict("records")
    return [line for line in every if all(line[name] == value for name, value in fields.items())]


def means(table: Table, **fields: object) -> dict[tuple[str, str], float | None]:
    """Return our means by label and column, of the lines that have these fields."""
    found = lines(table, **{"kind": "ours", **fields})
    return {(line["label"], line["target"]): line["mean"] for line in found}


def labels(table: Table) -> list[str]:
    """Return the labels of our rows, each once."""
    return list(dict.fromkeys(line["label"] for line in lines(table, kind="ours")))


def text_rows(table: Table) -> list[list[str]]:
    """Return the cells of the first table in a table's Markdown, without header."""
    first = table.text("markdown").split("\n\n")[1]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in first.splitlines()[2:]]


def keep(run: Run, sweep: Path) -> Path:
    """Write a run's record below ``sweep``, where a sweep would; return its file."""
    file = sweep / run.folder / "results.json"
    file.parent.mkdir(parents=True)
    file.write_text(run.record.model_dump_json(), encoding="utf-8")
    return file

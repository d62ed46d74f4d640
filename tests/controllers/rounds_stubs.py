# SPDX-License-Identifier: Apache-2.0
"""Rounds with a real aggregator whose sites answer by a script, for a model of two trainable numbers."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from safetensors import safe_open

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.controllers.messenger import Request, StragglerTimeout
from fdg_plugins.controllers.rounds import Rounds
from fdg_plugins.controllers.run_files import ServerRun
from fdg_plugins.errors import ContributionError
from fdg_plugins.messages import META_REPORT, META_SAMPLES, META_SITE, TASK_TRAIN, CensusReply, TrainReport
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.objectives import Exchange
from fdg_plugins.record.run_files import RESULTS_FILE
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.training.global_model import GlobalModel
from tests.controllers.federation_stubs import DOMAINS, HELD_OUT, census_reply, evaluation, honest_report, run_record

# Two trainable numbers, a running mean and a batch counter: 8 + 4 + 8 bytes.
KINDS = {"w": "trainable", "bn.running_mean": "float_buffer", "bn.num_batches_tracked": "integer_buffer"}
MODEL_BYTES = 20
PROTOCOL = Protocol(target="sketch", rounds=2, model="convnet", lr_decay_factor=1.0)
Answer: TypeAlias = FLModel | str | None
Script: TypeAlias = Callable[[str, str, int, FLModel], Answer]
State = dict[str, torch.Tensor]


def update(w: Iterable[float], mean: float = 0.0, batches: int = 4) -> State:
    return {
        "w": torch.tensor(list(w)),
        "bn.running_mean": torch.tensor([mean]),
        "bn.num_batches_tracked": torch.tensor(batches),
    }


def report_of(site: str, accuracy: float = 0.5, **changes: Any) -> TrainReport:
    """Return what a site of ``make_rounds`` says of its training."""
    return honest_report(PROTOCOL, census_of(site), **{"received": evaluation(accuracy), **changes})


def census_of(site: str) -> CensusReply:
    return census_reply(DOMAINS[site], num_train=SAMPLES.get(site, 8), num_validation=10)


def trained(
    site: str, params: dict[str, Any], *, samples: Any = 8, accuracy: float = 0.5, report: Any = None
) -> FLModel:
    report = report if report is not None else report_of(site, accuracy).model_dump()
    meta = {META_SITE: site, META_SAMPLES: samples, META_REPORT: report}
    return FLModel(params_type=ParamsType.DIFF, params=params, meta=meta)


def judged(accuracy: float, split: str = "test") -> FLModel:
    sums = {"accuracy": {"sum": 10 * accuracy, "count": 10}}
    return FLModel(metrics={**evaluation(0.0, split=split).model_dump(), "sums": sums})


class Sites:
    """A messenger whose sites answer by a script: ``script(task, site, number of the request, model sent)``.

    A text is a failure, None is no answer. Before every request the record on disk is read, as a person might.
    """

    def __init__(self, folder: Path, script: Script, reverse: bool = False) -> None:
        self.folder = folder
        self.script = script
        self.reverse = reverse
        self.asked: list[list[Request]] = []
        self.timeouts: list[int] = []
        self.warnings: list[str] = []
        self.departed: dict[str, str] = {}
        self.not_finite: set[str] = set()

    def warning(self, text: str) -> None:
        self.warnings.append(text)

    def ask(
        self, requests: Iterable[Request], timeout: int, patience: StragglerTimeout | None = None
    ) -> dict[str, str]:
        number = len(self.asked) + 1
        self.asked.append(list(requests))
        self.timeouts.append(timeout)
        if number > 1:
            read_strictly(self.folder)
        failures = {}
        pairs = [(request, site) for request in self.asked[-1] for site in request.sites]
        for request, site in reversed(pairs) if self.reverse else pairs:
            answer = self.script(request.task, site, number, request.data)
            if not isinstance(answer, FLModel):
                failures[site] = answer or "did not answer."
                continue
            try:
                request.on_answer(site, answer)
            except ContributionError as error:
                failures[site] = str(error)
        return failures


def read_strictly(folder: Path) -> None:
    """Read ``results.json``, in which nothing may stand that JSON does not know."""
    text = (folder / RESULTS_FILE).read_text()
    RunRecord.model_validate_json(text)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def make_rounds(
    folder: Path,
    script: Script,
    aggregator: UpdateAggregator | None = None,
    *,
    reverse: bool = False,
    exchange: Exchange | None = None,
    **protocol: Any,
) -> tuple[Rounds, Sites]:
    folder.mkdir(exist_ok=True)
    sites = Sites(folder, script, reverse)
    model = GlobalModel(update([0.0, 0.0], batches=0), KINDS)
    record = run_record(**{"lr_decay_factor": 1.0, **protocol})
    record.census = {site: census_of(site) for site in DOMAINS}
    rule = aggregator or FedAvgAggregator()
    return Rounds(sites, ServerRun(record, model, rule, exchange, folder, folder / "state")), sites  # type: ignore[arg-type]


def run(rounds: Rounds, count: int) -> None:
    for number in range(1, count + 1):
        rounds.run_round(number)
    rounds.evaluate_last()
    rounds.run.record.status = "finished"
    rounds.run.save()


UPDATES = {"cartoon": update([1.0, 0.0], 1.0, 2), "photo-1": update([0.0, 4.0], 3.0, 5), "photo-2": update([4.0, 4.0])}
SAMPLES = {"cartoon": 1, "photo-1": 2, "photo-2": 1}


def all_well(source: Callable[[int], float] = lambda n: 0.5, target: Callable[[int], float] = lambda n: 0.5) -> Script:
    """Return the script of sites that do their work; accuracies are functions of the number of the request."""

    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        if task == TASK_TRAIN:
            return trained(site, UPDATES[site], samples=SAMPLES[site], accuracy=source(number))
        held_out = site in HELD_OUT
        return judged(target(number)) if held_out else judged(source(number), "validation")

    return script


def description(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return dict(file.metadata())


def spoiled(site: str, spoil: Callable[[FLModel], Answer]) -> Script:
    """Return the script in which one source's answer to training is changed by ``spoil``."""

    def script(task: str, name: str, number: int, sent: FLModel) -> Answer:
        answer = all_well()(task, name, number, sent)
        return spoil(answer) if task == TASK_TRAIN and name == site else answer

    return script

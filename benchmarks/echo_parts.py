# SPDX-License-Identifier: Apache-2.0
"""FLARE components for the cases that time what is not training: sites that do none, a server that only sends.

A module beside the package, as no job of it may name these; the benchmark's processes find it on ``PYTHONPATH``.
"""

import time
from pathlib import Path
from typing import Any, Literal

import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.workflows.model_controller import ModelController
from nvflare.app_opt.pt.decomposers import TensorDecomposer
from nvflare.fuel.utils import fobs

from fdg_plugins.core.steps import batches_per_epoch, effective_steps
from fdg_plugins.data import dataset_spec
from fdg_plugins.executors import SiteExecutor
from fdg_plugins.executors.work import Say, SiteTask, SiteWork, TaskResult
from fdg_plugins.messages import (
    META_UPDATE_BYTES,
    TASK_CENSUS,
    TASK_TRAIN,
    CensusReply,
    Evaluation,
    ScoreSum,
    TrainReport,
)
from fdg_plugins.models import build_model
from fdg_plugins.plugins.versions import OF_SITE, installed_versions
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training.loop import ShouldStop

CLASSES = 7  # PACS
POLL_S = 0.01
TIMEOUT_S = 300


def state_of(network: str) -> dict[str, torch.Tensor]:
    """Return the state dict of a network of this package, by name, drawn at random."""
    model = build_model(network, num_classes=CLASSES, seed=0)
    return {name: value.detach() for name, value in model.state_dict().items()}


class RoundTrips(ModelController):
    """Sends the state of a network to all sites and waits for their answers, again and again; logs the seconds.

    Args:
        network: name of the network, as :func:`state_of` knows it.
        arrays: whether the state goes as numpy arrays; else as tensors.
        trips: how often.
    """

    def __init__(self, network: str = "resnet18", arrays: bool = False, trips: int = 1) -> None:
        super().__init__(persistor_id="")
        self.network = network
        self.arrays = arrays
        self.trips = trips

    def set_communicator(self, communicator: Any) -> None:
        """Make FLARE's task monitor look as often as this package's workflow makes it."""
        super().set_communicator(communicator)
        communicator._task_check_period = POLL_S

    def run(self) -> None:
        """Make the trips; one that an answer is missing from ends the job."""
        fobs.register(TensorDecomposer)
        state: dict[str, Any] = dict(state_of(self.network))
        if self.arrays:
            state = {name: value.numpy() for name, value in state.items()}
        sites = [client.name for client in self.engine.get_clients()]
        for trip in range(self.trips):
            started = time.perf_counter()
            model = FLModel(params_type=ParamsType.FULL, params=state, current_round=trip, total_rounds=self.trips)
            answers = self.broadcast_model(model, targets=sites, timeout=TIMEOUT_S)
            seconds = time.perf_counter() - started
            if len(answers) < len(sites):
                self.panic(f"{len(answers)} of {len(sites)} sites answered.")
                return
            num_bytes = answers[0].meta.get(META_UPDATE_BYTES, sum(one.nbytes for one in answers[0].params.values()))
            self.info(f"trip {trip + 1} took {seconds:.4f} s and {num_bytes} bytes up")


class Echo(Executor):
    """Answers with the state that it was sent, as an update."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Teach FLARE's serializer about tensors."""
        if event_type == EventType.START_RUN:
            fobs.register(TensorDecomposer)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Return the echo."""
        return DXO(DataKind.WEIGHT_DIFF, data=from_shareable(shareable).data).to_shareable()


class InstantSite(SiteExecutor):
    """This package's executor with nothing to do: reads each task, answers it at once, notes what leaves the site."""

    def _worker(self, site: str, shared: SiteWork | None, *, isolate: bool) -> SiteWork:
        return InstantWork()


class InstantWork(SiteWork):
    """Answers as a site of the domain that it is named after would, without data and without a step."""

    def do_work(
        self, order: SiteTask, config: SiteConfig, folder: Path, should_stop: ShouldStop, say: Say
    ) -> TaskResult:
        """Return a census of one training image per class, equal scores, and an update of zeros."""
        if order.task == TASK_CENSUS:
            return TaskResult("ok", _census(order).model_dump(mode="json"))
        protocol = order.request.protocol
        judges = order.site == protocol.target
        split: Literal["test", "validation"] = "test" if judges else "validation"
        count = (2 if judges else 1) * CLASSES
        half = {"accuracy": ScoreSum(sum=count / 2, count=count)}
        score = Evaluation(split=split, loss=1.0, count=count, sums=half)
        if order.task != TASK_TRAIN:
            return TaskResult("ok", score.model_dump(mode="python"))
        steps = protocol.local_epochs * batches_per_epoch(CLASSES, protocol.batch_size)
        report = TrainReport(
            domain=order.site,
            received=score,
            local=score,
            epoch_losses=(1.0,) * protocol.local_epochs,
            steps=steps,
            effective_steps=effective_steps(steps, protocol.momentum),
            learning_rate=protocol.learning_rate_at(order.round_number),
            seconds=0.0,
        )
        update = {name: torch.zeros_like(value) for name, value in order.state.items()}
        value = {"samples": CLASSES, "report": report}
        return TaskResult("ok", value, {"update": update, "report": {}})


def _census(order: SiteTask) -> CensusReply:
    protocol = order.request.protocol
    classes = dataset_spec(protocol.dataset).classes
    return CensusReply(
        domain=order.site,
        dataset=protocol.dataset,
        stand_in=False,
        classes=classes,
        class_counts=(2,) * len(classes),
        num_train=len(classes),
        num_validation=len(classes),
        num_test=2 * len(classes),
        split="none",
        split_hash="",
        device="cpu",
        versions=installed_versions(OF_SITE),
    )

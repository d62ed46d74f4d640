# SPDX-License-Identifier: Apache-2.0
"""What the tests of the server share: replies, records and reports of a small federation, and FLARE's end of a line.

The federation: ``cartoon`` and ``photo-1`` and ``photo-2``, which share the domain photo, are sources;
``sketch`` is held out.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable
from nvflare.apis.wf_comm_spec import WFCommSpec

from fdg_plugins.controllers.reception import expectations
from fdg_plugins.messages import CensusReply, Evaluation, TrainReport
from fdg_plugins.models import InitialWeights
from fdg_plugins.record.round_record import AggregationRecord, LocalRecord, Method, RoundRecord
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.settings.protocol import Protocol

DOMAINS = {"cartoon": "cartoon", "photo-1": "photo", "photo-2": "photo", "sketch": "sketch"}
SOURCES = ("cartoon", "photo-1", "photo-2")
HELD_OUT = ("sketch",)
CLASSES = ("dog", "elephant")


def census_reply(domain: str, **changes: Any) -> CensusReply:
    """Return what a site of two classes says of itself."""
    fields: dict[str, Any] = {
        "domain": domain,
        "dataset": "pacs",
        "stand_in": False,
        "classes": CLASSES,
        "class_counts": (5, 5),
        "num_train": 8,
        "num_validation": 2,
        "num_test": 10,
        "split": "pacs/90-10@0",
        "split_hash": "0123456789abcdef",
        "device": "cpu",
        "versions": {"fdg-plugins": "0.1.0", "nvflare": "2.9.0", "torch": "2.0"},
    }
    return CensusReply(**{**fields, **changes})


def evaluation(accuracy: float, count: int = 10, *, split: str = "validation", loss: float = 1.0) -> Evaluation:
    return Evaluation.model_validate({"split": split, "loss": loss, "accuracy": accuracy, "count": count})


def scores(cartoon: float, photo_1: float, photo_2: float, sketch: float | None = None) -> dict[str, Evaluation]:
    result = {"cartoon": evaluation(cartoon), "photo-1": evaluation(photo_1), "photo-2": evaluation(photo_2)}
    return result if sketch is None else {**result, "sketch": evaluation(sketch, split="test")}


def train_report(accuracy: float = 0.5, **changes: Any) -> TrainReport:
    fields: dict[str, Any] = {
        "domain": "photo",
        "received": evaluation(accuracy),
        "local": evaluation(0.75),
        "epoch_losses": (2.0, 1.0),
        "steps": 4,
        "effective_steps": 4.0,
        "learning_rate": 0.001,
        "seconds": 0.5,
    }
    return TrainReport(**{**fields, **changes})


def honest_report(protocol: Protocol, reply: CensusReply, round_number: int = 0, **changes: Any) -> TrainReport:
    """Return a report that says what protocol and census make of a round's training, counted from 0."""
    known = expectations(protocol, {"site": reply}, round_number)["site"]
    fields: dict[str, Any] = {
        "domain": reply.domain,
        "received": evaluation(0.5, reply.num_validation),
        "local": evaluation(0.75, reply.num_validation),
        "epoch_losses": (1.0,) * protocol.local_epochs,
        "steps": known.facts.steps,
        "effective_steps": known.facts.effective_steps,
        "learning_rate": known.facts.learning_rate,
    }
    return train_report(**{**fields, **changes})


def run_record(*, stand_in: bool = False, label: str = "imagenet", **protocol: Any) -> RunRecord:
    """Return the record of a run of the small federation before its first round."""
    return RunRecord(
        stand_in=stand_in,
        data="STAND-IN for PACS" if stand_in else "PACS",
        started="2030-01-01T00:00:00+00:00",
        protocol=Protocol(**{"target": "sketch", "rounds": 2, "model": "convnet", **protocol}),
        method=Method(aggregator="FedOMGAggregator", settings={"kappa": 0.5, "server_lr": 0.05}),
        initial_weights=InitialWeights(label=label),
        versions={"torch": "2.0"},
        classes=CLASSES,
        sources=SOURCES,
        held_out=HELD_OUT,
        census={site: census_reply(domain) for site, domain in DOMAINS.items()},
    )


def round_record(number: int, **changes: Any) -> RoundRecord:
    """Return a round in which cartoon and photo-1 took part."""
    local = {
        site: LocalRecord(
            epoch_losses=(2.0, loss), local=evaluation(0.75), steps=4, learning_rate=0.001, num_samples=8, seconds=0.5
        )
        for site, loss in (("cartoon", 1.0), ("photo-1", 1.5))
    }
    by_site = {"cartoon": 0.25, "photo-1": 0.75}
    aggregation = AggregationRecord(
        weights=by_site,
        coefficients=by_site,
        update_norms={"cartoon": 3.0, "photo-1": 4.0},
        cosines_with_mean=by_site,
        cosines_with_direction=by_site,
        mean_norm=2.0,
        direction_norm=2.5,
    )
    fields: dict[str, Any] = {
        "round": number,
        "drawn": SOURCES,
        "sites": ("cartoon", "photo-1"),
        "failures": {"photo-2": "was away."},
        "local": local,
        "aggregation": aggregation,
        "seconds": 10.0,
        "aggregation_seconds": 0.25,
        "bytes_down": 400,
        "bytes_up": 200,
    }
    return RoundRecord(**{**fields, **changes})


class Cell:
    """The part of FLARE's end of the network in which it is told how to take what arrives."""

    def __init__(self) -> None:
        self.context: dict[str, Any] = {}

    def get_fobs_context(self) -> dict[str, Any]:
        return dict(self.context)

    def update_fobs_context(self, changes: Mapping[str, Any]) -> None:
        self.context.update(changes)


class Engine:
    """The part of FLARE's server engine that a workflow uses; ``events`` are those fired, with their data."""

    def __init__(self, folder: Path, sites: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.sites = sites
        self.events: list[tuple[str, Any]] = []
        self.cell = Cell()
        self.contexts = FLContextManager(self, "server", "job", public_stickers={}, private_stickers={})

    def get_workspace(self) -> SimpleNamespace:
        return SimpleNamespace(get_run_dir=lambda job_id: str(self.folder), get_root_dir=lambda: str(self.folder))

    def get_cell(self) -> Cell:
        return self.cell

    def get_clients(self) -> list[Client]:
        return [Client(site, "token") for site in self.sites]

    def get_component(self, component_id: str) -> None:
        """The job has none."""

    def register_app_command(self, topic: str, cmd_func: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing commands this process."""

    def fire_event(self, event: str, context: FLContext) -> None:
        self.events.append((event, context.get_prop(FLContextKey.EVENT_DATA)))

    def data_of(self, event: str) -> list[Any]:
        """Return the data of every event of one kind, in order."""
        return [data for fired, data in self.events if fired == event]


def context_of(engine: Engine) -> FLContext:
    """Return a new context, which knows what was made sticky in earlier ones."""
    return engine.contexts.new_context()


BUSY = Shareable()  # the answer of a site that is still at work


class Line(WFCommSpec):
    """FLARE's communicator in one process: each look at the standing tasks delivers the answer of one more site.

    ``answer(site, task, request)`` returns a site's reply, or None if it never comes: its task then times out.
    """

    def __init__(self, answer: Callable[[str, str, Shareable], Shareable | None]) -> None:
        self.answer = answer
        self.lost: set[str] = set()
        self.sent: list[tuple[str, tuple[str, ...], int]] = []
        self._pending: list[tuple[Task, str]] = []
        self._lock = threading.Lock()

    def broadcast(
        self,
        task: Task,
        fl_ctx: FLContext,
        targets: list[Any] | None = None,
        min_responses: int = 0,
        wait_time_after_min_received: int = 0,
    ) -> None:
        assert targets
        assert min_responses == 0, "a task must wait for all of its sites"
        self.sent.append((task.name, tuple(targets), task.timeout))
        self._pending += [(task, site) for site in targets]

    def get_num_standing_tasks(self) -> int:
        if self._pending:
            task, site = self._pending.pop(0)
            self._deliver(task, site)
        return len(self._pending)

    def cancel_all_tasks(self, completion_status: Any = None, fl_ctx: FLContext | None = None) -> None:
        self._pending.clear()

    def get_client_disconnect_time(self, client_name: str) -> float | None:
        return 1.0 if client_name in self.lost else None

    def _deliver(self, task: Task, site: str) -> None:
        reply = self.answer(site, task.name, task.data)
        if reply is BUSY:
            self._pending.append((task, site))
            return
        if reply is None:
            return
        client_task = ClientTask(Client(site, "token"), task)
        client_task.result = reply
        context = context_of(self.controller.engine)
        task.result_received_cb(client_task, context)

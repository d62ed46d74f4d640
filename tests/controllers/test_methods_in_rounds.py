# SPDX-License-Identifier: Apache-2.0
"""Methods that share more than updates, in whole runs of one process with the filters that their jobs name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvflare.apis.client import Client
from nvflare.apis.dxo import DataKind, from_shareable
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey, ServerCommandKey
from nvflare.apis.shareable import Shareable, make_copy

from fdg_plugins.executors import SiteExecutor
from fdg_plugins.filters import (
    ExchangeCheckFilter,
    ExchangeReceiveFilter,
    ExchangeReportFilter,
    ExchangeSendFilter,
    GapCheckFilter,
    GapReportFilter,
)
from fdg_plugins.flare.peers import ASKING_SITE_PROP
from fdg_plugins.messages import META_SITE_REPORT, TASK_PROBE, TASK_TRAIN
from fdg_plugins.record.run_files import STATE_FILE, TENSORS_FILE
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.storage import load_tensors
from fdg_plugins.testing.inputs import same_bits
from tests.controllers.federation_stubs import context_of
from tests.controllers.test_federation import PROTOCOL, Job

DIGITS: dict[str, Any] = {
    **PROTOCOL,
    "dataset": "rotateddigits",
    "target": "angle_0",
    "image_size": 16,
    "max_samples_per_domain": 20,
    "batch_size": 8,
}
# These work on the maps that a network pools. The CNN, which has none, takes a tenth of the time.
OF_POOLED_MAPS = ("rsc", "stable")
ANGLES = tuple(f"angle_{angle}" for angle in (0, 15, 30, 45, 60, 75))
FILTERS: dict[str, tuple[list[Filter], list[Filter]]] = {
    "down": ([ExchangeSendFilter()], [ExchangeReceiveFilter()]),
    "up": ([GapReportFilter(), ExchangeReportFilter()], [ExchangeCheckFilter(), GapCheckFilter()]),
}

pytestmark = pytest.mark.usefixtures("wire")


def network_for(objective: str) -> str:
    """Return the smallest network that an objective can train."""
    return "groupnorm_convnet" if objective in OF_POOLED_MAPS else "cnn"


class MethodJob(Job):
    """A job of the six angles of RotatedDigits whose messages pass the filters, as FLARE applies them.

    ``forge(site, task, answer)`` may change a site's answer before its filters.
    """

    def __init__(
        self,
        folder: Path,
        objective: Any = "erm",
        *,
        forge: Callable[[str, str, Shareable], None] = lambda site, task, answer: None,
        settings: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        folder.mkdir(exist_ok=True)
        model = network_for(objective if isinstance(objective, str) else objective["name"])
        protocol = {**DIGITS, "model": model, "objective": objective, **(settings or {})}
        super().__init__(folder, protocol=protocol, **{"aggregator": "fedavg", **arguments})
        self.forge, self.new_processes = forge, False
        self.sites = {angle: SiteExecutor() for angle in ANGLES}
        self.engine.sites = ANGLES

    def _answer(self, site: str, task: str, request: Shareable) -> Shareable | None:
        if self.new_processes:
            self.sites[site] = SiteExecutor()
        send, receive = FILTERS["down"]
        if task == TASK_TRAIN:
            request = self._filter(send, make_copy(request), site, task, at_server=True)
            request = self._filter(receive, request, site, task)
        answer = super()._answer(site, task, request)
        if answer is None or task not in (TASK_PROBE, TASK_TRAIN):
            return answer
        self.forge(site, task, answer)
        report, check = FILTERS["up"]
        answer = self._filter(report, answer, site, task)
        answer.set_header(ServerCommandKey.FL_CLIENT, Client(site, "token"))
        return self._filter(check, answer, site, task, at_server=True)

    def _filter(
        self, filters: list[Filter], shareable: Shareable, site: str, task: str, *, at_server: bool = False
    ) -> Shareable:
        context = context_of(self.engine) if at_server else self._context(site)
        context.set_prop(FLContextKey.TASK_NAME, task, private=True, sticky=False)
        if at_server:
            context.set_peer_context(self._context(site))
            context.set_prop(ASKING_SITE_PROP, site, private=True, sticky=False)
        for filter_ in filters:
            shareable = filter_.process(shareable, context)
        return shareable


def same(one: MethodJob, other: MethodJob) -> bool:
    return same_bits(one.model, other.model)


def test_a_method_learns_from_round_to_round_and_saves_what_it_learned(tmp_path: Path) -> None:
    job = MethodJob(tmp_path / "method", {"name": "iir", "strength": 0.1}).finished()
    plain = MethodJob(tmp_path / "plain").finished()
    assert not same(job, plain)
    assert job.record.method.objective["strength"] == 0.1
    assert [finished.refused_reports for finished in job.record.rounds] == [{}, {}]
    assert job.record.rounds[0].bytes_up > plain.record.rounds[0].bytes_up
    state = json.loads((job.folder / STATE_FILE).read_text())
    assert state["after_round"] == 2
    assert state["exchange"]["tensors"] == sorted(load_tensors(job.folder / TENSORS_FILE))
    assert TASK_PROBE in {task for task, _ in job.asked}
    assert not (plain.folder / TENSORS_FILE).exists()


def test_exchange_with_nothing_for_a_site(tmp_path: Path) -> None:
    # Under StableFDG a site is sent another one's style; where only its own report counts, there is none.
    def forge(site: str, task: str, answer: Shareable) -> None:
        if site != "angle_30" and META_SITE_REPORT in ((dxo := from_shareable(answer)).meta or {}):
            dxo.meta[META_SITE_REPORT].clear()

    job = MethodJob(tmp_path / "job", "stable", forge=forge).finished()
    first, *later = job.record.rounds
    for finished in job.record.rounds:
        assert (len(finished.sites), finished.failures) == (5, {})
    assert {finished.bytes_down - first.bytes_down for finished in later} == {
        4 * (2 * 2 * 64) * 4
    }  # float32 to four sites


@pytest.mark.parametrize(
    ("objective", "aggregator", "kind"), [("dim", "fedavg", DataKind.COLLECTION), ("erm", "fedga", "nonsense")]
)
def test_unreadable_answer_costs_one_round(tmp_path: Path, objective: str, aggregator: str, kind: str) -> None:
    def spoil(site: str, task: str, answer: Shareable) -> None:
        if site == "angle_30":
            answer["DXO"]["kind"] = kind

    job = MethodJob(tmp_path, objective, forge=spoil, aggregator=aggregator, settings={"rounds": 1}).finished()
    assert list(job.record.rounds[0].failures) == ["angle_30"]
    assert len(job.record.rounds[0].sites) == 4


def test_as_many_sites_as_asked_for_are_drawn_by_the_seed_and_are_in_the_record(tmp_path: Path) -> None:
    settings = {"sites_per_round": 3, "rounds": 4}
    job = MethodJob(tmp_path / "one", "dim", settings=settings).finished()
    drawn = [finished.drawn for finished in job.record.rounds]
    assert all(len(sites) == 3 and "angle_0" not in sites for sites in drawn)
    assert len(set(drawn)) > 1
    judged = [set(evaluation.sites) for evaluation in job.record.evaluations]
    assert judged == [*({*sites, "angle_0"} for sites in drawn), set(ANGLES)]


def test_every_site_is_drawn_equally_often_in_the_long_run() -> None:
    protocol = Protocol(sites_per_round=3, seed=1)
    sites = tuple(f"site-{number:02d}" for number in range(12))
    rounds = [protocol.draw_sites(sites, number) for number in range(1, 2001)]
    assert all(len(set(drawn)) == 3 and list(drawn) == sorted(drawn) for drawn in rounds)
    counts = np.array([sum(site in drawn for drawn in rounds) for site in sites])
    assert np.abs(counts - 500).max() < 5 * np.sqrt(500 * 0.75)
    assert rounds != [protocol.model_copy(update={"seed": 2}).draw_sites(sites, n) for n in range(1, 2001)]
    assert Protocol().draw_sites(sites, 1) == sites

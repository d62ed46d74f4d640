# SPDX-License-Identifier: Apache-2.0
"""What the executor returns keeps to the site's own files, whoever calls it and whichever filters there are."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.filters.exclude_vars import ExcludeVars

from fdg_plugins.executors import SiteExecutor
from fdg_plugins.executors.work import SiteTask, TaskResult
from fdg_plugins.filters import (
    DifferentialPrivacyFilter,
    ExchangeReportFilter,
    GapReportFilter,
    RoundedUpdateSendFilter,
)
from fdg_plugins.messages import HEADER_REASON, META_REPORT, META_SAMPLES, TASK_PROBE, TASK_STATISTICS, TASK_TRAIN
from fdg_plugins.privacy.ledger import Ledger, Release
from fdg_plugins.settings.protocol import Protocol
from tests.controllers.federation_stubs import evaluation, train_report
from tests.executors.sites import reason, task_request
from tests.flare_runner import run_task, send, site_context

SITE = "photo"
CANARY = 0.123456789  # measured on images: must not be found in anything that leaves
UPDATE = {"w": torch.full((400,), CANARY), "bn.num_batches_tracked": torch.tensor(17)}
LIMITS: dict[str, float] = {"clip_norm": 1.0, "noise_multiplier": 8.0, "max_epsilon": 100.0}
SCORE = evaluation(0.5, loss=CANARY)


def trained(*, with_split: bool = False, **tensors: torch.Tensor) -> TaskResult:
    """Return what came of a training, with the method's tensors."""
    split = (SCORE, SCORE) if with_split else None
    report = train_report(received=SCORE, local=SCORE, epoch_losses=(CANARY,), training_split=split)
    value = {"samples": 120, "report": report}
    update = {name: value.clone() for name, value in UPDATE.items()}
    return TaskResult("ok", value, {"update": update, "report": tensors})


class Done(SiteExecutor):
    """The executor without the work: every task has come to ``result``."""

    def __init__(self, result: TaskResult) -> None:
        super().__init__()
        self.result = result
        self.orders: list[SiteTask] = []

    def _worker(self, site: str, shared: Any, *, isolate: bool) -> Any:
        return SimpleNamespace(do_work=self._note)

    def _note(self, order: SiteTask, *_: Any, **__: Any) -> TaskResult:
        self.orders.append(order)
        return self.result


class Site:
    """A site's folder with its own files, in which an executor does a task between filters, as under FLARE's runner."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.local = folder / "local"
        self.local.mkdir()
        self.scope: tuple[Filter, ...] = ()
        self.filters: tuple[Filter, ...] = ()

    def write(self, name: str, content: Any) -> None:
        (self.local / name).write_text(json.dumps(content))

    def returned(self, result: TaskResult, task: str = TASK_TRAIN, /, **protocol: Any) -> Shareable:
        context = site_context(SITE, self.folder, scope=self.scope)
        return run_task(Done(result), task, request(**protocol), context, filters=self.filters)

    def sent(
        self, result: TaskResult, task: str = TASK_TRAIN, meanwhile: Callable[[], None] | None = None
    ) -> Shareable:
        """Return what FLARE then sends; ``meanwhile`` happens between the executor and the filters."""
        context = site_context(SITE, self.folder, scope=self.scope)
        executor = Done(result)
        reply = run_task(executor, task, request(), context, filters=self.filters)
        if meanwhile is not None:
            meanwhile()
        return send(reply, executor, task, context, self.filters)

    @property
    def releases(self) -> tuple[Release, ...]:
        return Ledger(self.local / "fdg_privacy" / "ledger.json", SITE).read().releases


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def request(**protocol: Any) -> Shareable:
    return task_request(Protocol(model="convnet", target="sketch", **protocol), round_number=4)


def dp(**limits: float) -> DifferentialPrivacyFilter:
    return DifferentialPrivacyFilter(**{**LIMITS, **limits})


def assert_noised_once(reply: Shareable, sigma: float = 8.0) -> None:
    """The release has the deviation of one noise on a clipped update: 400 values tell it from that of two."""
    assert reply.get_return_code() == ReturnCode.OK, reply.get_header(HEADER_REASON)
    dxo = from_shareable(reply)
    assert float(dxo.data["w"].float().std()) == pytest.approx(sigma, rel=0.18)
    assert int(dxo.data["bn.num_batches_tracked"]) == 0
    assert dxo.meta.keys() <= {META_SAMPLES, META_REPORT, MetaKey.FILTER_HISTORY}
    assert str(CANARY) not in str(dxo.meta)


def refusal(reply: Shareable) -> str:
    assert set(reply) == {"__headers__"}
    assert str(CANARY) not in str(dict(reply))
    return reason(reply)


@pytest.mark.parametrize(
    ("policy", "scope", "filters"),
    [
        (LIMITS, [], []),
        (None, [dp()], [dp()]),
        (LIMITS, [dp(noise_multiplier=1.0)], [dp(noise_multiplier=2.0, clip_norm=50.0)]),
        ({**LIMITS, "noise_multiplier": 1.0}, [], [dp()]),
        (None, [ExcludeVars(["nothing"]), dp()], [RoundedUpdateSendFilter()]),
        (LIMITS, [], [RoundedUpdateSendFilter(), dp()]),
        (LIMITS, [], [GapReportFilter(), dp()]),
        ({"noise_multiplier": 8.0}, [dp(noise_multiplier=0.5)], []),
    ],
)
def test_noise_is_added_once_by_the_strictest_of_all_and_entered_once(
    site: Site, policy: dict[str, float] | None, scope: list[Filter], filters: list[Filter]
) -> None:
    site.scope, site.filters = tuple(scope), tuple(filters)
    if policy is not None:
        site.write("fdg_privacy.json", policy)
    assert_noised_once(site.sent(trained()))
    assert [(one.job, one.round, one.noise_multiplier) for one in site.releases] == [("job", 4, 8.0)]


def in_place(shareable: Shareable) -> Shareable:
    from_shareable(shareable).data["w"].copy_(UPDATE["w"])
    return shareable


def another_object(shareable: Shareable) -> Shareable:
    dxo = from_shareable(shareable)
    answer = DXO(DataKind.WEIGHT_DIFF, data={**dxo.data, "w": UPDATE["w"].clone()}, meta=dxo.meta).to_shareable()
    answer.set_header(AppConstants.CURRENT_ROUND, 4)
    return answer


class Meddler(Filter):
    """A filter before the site's own that hands on something else than it was given."""

    def __init__(self, change: Callable[[Shareable], Shareable]) -> None:
        super().__init__()
        self.change = change

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        return self.change(shareable)


@pytest.mark.parametrize("change", [in_place, another_object])
def test_a_mark_does_not_cover_what_came_after_it(site: Site, change: Callable[[Shareable], Shareable]) -> None:
    site.scope = (Meddler(change), dp())
    assert_noised_once(site.sent(trained()))
    assert len(site.releases) == 2, "the first release was thrown away, the second is what leaves"


def test_limits_that_became_stricter_meanwhile_are_kept(site: Site) -> None:
    site.scope = (dp(),)
    stricter = {"noise_multiplier": 64.0}
    assert_noised_once(site.sent(trained(), meanwhile=lambda: site.write("fdg_privacy.json", stricter)), sigma=64.0)
    assert [one.noise_multiplier for one in site.releases] == [8.0, 64.0]


@pytest.mark.parametrize(
    ("task", "result", "text"),
    [
        (TASK_TRAIN, trained(class_means=torch.ones(3)), "'fdg_site_report', which differential privacy does not"),
        (TASK_PROBE, TaskResult("ok", {"count": 4}, {"report": {"g": torch.ones(3)}}), "'METRICS'"),
        (TASK_STATISTICS, TaskResult("ok", {}, {"statistics": {"bn.sums": torch.ones(3)}}), "'METRICS'"),
    ],
)
def test_what_privacy_does_not_cover_is_refused(site: Site, task: str, result: TaskResult, text: str) -> None:
    site.scope = (dp(),)
    assert text in refusal(site.returned(result, task))
    site.filters = (ExchangeReportFilter(),) if task == TASK_PROBE else ()
    assert refusal(site.sent(result, task)).startswith("site photo: differential privacy refused its answer: ")
    assert site.releases == ()


def test_an_error_leaves_without_its_reason_also_where_names_may_leave(site: Site) -> None:
    site.write("fdg_privacy.json", LIMITS)
    site.write("fdg_site.json", {SITE: {"report_names": True}})
    failed = site.sent(TaskResult("failed", reason=f"the loss was {CANARY}", public=f"it was {CANARY}", trace="t"))
    assert refusal(failed).endswith("its reason stays in the site's own log, as differential privacy demands.")


def test_a_broken_policy_stops_everything_before_any_work(site: Site) -> None:
    (site.local / "fdg_privacy.json").write_text("{")
    executor = Done(trained())
    context = site_context(SITE, site.folder)
    assert "/" not in refusal(run_task(executor, TASK_TRAIN, request(), context))
    assert executor.orders == []


def forbidden() -> Iterator[tuple[TaskResult, dict[str, Any], list[str], str]]:
    """Yield a result, the protocol's settings, the reports that are allowed, and what the refusal names."""
    means = trained(class_means=torch.ones(3))
    yield means, {"objective": {"name": "dim"}}, ["gap", "classifier_gradient"], "'class_means'"
    yield trained(g=torch.ones(3)), {"objective": {"name": "erm"}}, ["class_means"], "a report that has no name"
    yield trained(with_split=True), {}, ["class_means"], "'training_loss' or 'gap'"
    yield trained(), {"keep_local_models": True}, [], "'local_model'"
    yield trained(), {"task": "group_classification"}, ["gap"], "'group_scores'"
    sums = TaskResult("ok", {}, {"statistics": {"bn.sums": torch.ones(3)}})
    yield sums, {"batch_norm": "reestimate"}, [], "'normalization_statistics'"


@pytest.mark.parametrize(("result", "protocol", "allowed", "name"), list(forbidden()))
def test_a_report_that_the_site_forbids_is_not_returned_whatever_the_work_let_pass(
    site: Site, result: TaskResult, protocol: dict[str, Any], allowed: list[str], name: str
) -> None:
    site.write("fdg_site.json", {SITE: {"allowed_reports": allowed}})
    task = TASK_STATISTICS if "statistics" in result.tensors else TASK_TRAIN
    text = refusal(site.returned(result, task, **protocol))
    assert text.endswith(f"the site forbids {name} (allowed_reports).")
    named = name.strip("'").partition("'")[0]
    site.write("fdg_site.json", {SITE: {"allowed_reports": [named] if " " not in named else None}})
    assert site.returned(result, task, **protocol).get_return_code() == ReturnCode.OK

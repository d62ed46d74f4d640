# SPDX-License-Identifier: Apache-2.0
"""The exchange in a workflow of FLARE's own: which reports count, what is sent, and what ends the job."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import EventScope, FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from fdg_plugins.controllers.host import ExchangeHost, hosted_exchange
from fdg_plugins.filters import ExchangeCheckFilter, ExchangeReceiveFilter, ExchangeSendFilter
from fdg_plugins.filters.wire import pack, read_message
from fdg_plugins.messages import META_RECEIVED
from fdg_plugins.objectives import OBJECTIVES, make_objective
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.testing.objectives import network, report_of

STATE = {"conv.weight": torch.ones(2, 2), "fc.weight": torch.ones(3, 4), "fc.bias": torch.zeros(3)}
IIR = {"name": "iir", "ema": 0.0, "probe": "previous_round"}


class Server:
    """The events of FLARE's FedAvg around a host, and the filters of the job."""

    def __init__(self, objective: dict[str, Any], head: str = "fc", state: Any = None) -> None:
        self.host = ExchangeHost(objective, head)
        self.panics: list[str] = []
        self.host.system_panic = lambda reason, fl_ctx: self.panics.append(reason)
        self.state = STATE if state is None else state
        self.context = FLContext()
        engine = SimpleNamespace(fire_event=lambda event, fl_ctx: None)
        self.context.set_prop(ReservedKey.ENGINE, engine, private=True, sticky=False)
        self.set(FLContextKey.TASK_NAME, "train")

    def set(self, name: str, value: Any) -> None:
        self.context.set_prop(name, value, private=True, sticky=False)

    def begin(self, number: int) -> None:
        self.set(AppConstants.GLOBAL_MODEL, make_model_learnable(self.state, {}))
        self.set(AppConstants.CURRENT_ROUND, number)
        self.host.handle_event(AppEventType.ROUND_STARTED, self.context)

    def sent(self) -> dict[str, torch.Tensor]:
        """Return what a script receives beside the model."""
        task = DXO(DataKind.WEIGHTS, data=dict(STATE)).to_shareable()
        for one in (ExchangeSendFilter(), ExchangeReceiveFilter()):
            task = one.process(task, self.context)
        message = read_message(task)
        assert message is not None
        received: dict[str, torch.Tensor] = message.main.meta[META_RECEIVED]
        return received

    def answer(self, site: str, report: dict[str, torch.Tensor], number: int, accepted: bool = True) -> None:
        result = pack(DXO(DataKind.WEIGHT_DIFF, data=dict(STATE), meta={}), report, number, Shareable())
        result.set_peer_props({ReservedKey.IDENTITY_NAME: site})
        self.take(ExchangeCheckFilter().process(result, self.context), accepted)

    def take(self, result: Shareable, accepted: bool = True) -> None:
        self.set(AppConstants.TRAINING_RESULT, result)
        self.set(AppConstants.AGGREGATION_ACCEPTED, accepted)
        self.host.handle_event(AppEventType.AFTER_CONTRIBUTION_ACCEPT, self.context)

    def aggregate(self) -> None:
        self.host.handle_event(AppEventType.AFTER_AGGREGATION, self.context)


def gradient(value: float) -> dict[str, torch.Tensor]:
    return {"gradient/fc.weight": torch.full((3, 4), value), "gradient/fc.bias": torch.full((3,), value)}


def test_what_is_learned_is_sent_in_the_next_round_and_only_accepted_sites_count() -> None:
    server = Server(IIR)
    server.begin(0)
    assert server.sent() == {}
    server.answer("art", gradient(1.0), 0)
    server.answer("cartoon", gradient(3.0), 0)
    server.answer("liar", gradient(100.0), 0, accepted=False)
    server.aggregate()
    server.begin(1)
    assert torch.equal(server.sent()["gradient/fc.weight"], torch.full((3, 4), 2.0))
    assert server.panics == []


def test_an_event_of_the_workflow_that_a_site_sends_has_no_effect() -> None:
    server = Server(IIR)
    server.begin(0)
    server.answer("liar", gradient(9.0), 0)
    forged = FLContext()
    forged.set_prop(FLContextKey.EVENT_SCOPE, EventScope.FEDERATION, private=True, sticky=False)
    server.host.handle_event(AppEventType.AFTER_AGGREGATION, forged)
    server.answer("art", gradient(1.0), 0)
    server.aggregate()
    server.begin(1)
    assert torch.equal(server.sent()["gradient/fc.bias"], torch.full((3,), 5.0))
    assert server.panics == []


HOSTED = {name: class_.hosted for name, class_ in OBJECTIVES.items() if class_.hosted is not None}


@pytest.mark.parametrize("name", HOSTED)
def test_a_method_learns_in_a_workflow_of_flare_s_what_it_learns_in_ours(name: str) -> None:
    objective = make_objective({"name": name, **HOSTED[name]})
    model, sent = network(objective), []
    ours = objective.exchange(model, num_classes=3)
    assert ours is not None
    for exchange in (ours, hosted_exchange(objective, "classifier", model.state_dict())):
        exchange.begin_round(model.state_dict())
        reports = {f"site-{seed}": report_of(objective, {}, seed) for seed in (7, 8)}
        exchange.finish({site: exchange.read(site, *report) for site, report in reports.items()})
        sent.append(exchange.broadcast())
    assert exchange.report == objective.report
    assert sent[0]
    assert same_bits(*sent)


@pytest.mark.parametrize(
    ("objective", "head", "reason"),
    [
        ({"name": "iir"}, "fc", "probe is 'extra_task', expected 'previous_round'"),
        ({"name": "scaffold"}, "fc", "objective is 'scaffold', expected one that FLARE's own workflows can host"),
        (IIR, "head", "head is 'head', of which the global model has no parameters."),
        ({"name": "dim"}, "fc.bias", "'fc.bias.weight' is no linear layer of the global model."),
    ],
)
def test_a_wrong_setting_ends_the_job_with_one_sentence(objective: dict[str, Any], head: str, reason: str) -> None:
    server = Server(objective, head)
    server.begin(0)
    assert len(server.panics) == 1
    assert reason in server.panics[0]


def test_a_job_without_the_check_of_reports_ends() -> None:
    server = Server(IIR)
    server.begin(0)
    server.take(DXO(DataKind.WEIGHT_DIFF, data=dict(STATE), meta={}).to_shareable())
    assert server.panics == [
        "an update came without the check of its report: the job's server config needs ExchangeCheckFilter."
    ]

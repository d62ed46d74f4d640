# SPDX-License-Identifier: Apache-2.0
"""FLARE's own privacy filters on this package's answers, read as the server does: the table in docs/privacy.md."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.filters.exclude_vars import ExcludeVars
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.filters.svt_privacy import SVTPrivacy
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fdg_plugins.aggregators.contributions import Contribution, read_contribution
from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.errors import ContributionError
from fdg_plugins.filters import EXCHANGE_PROP, ExchangeCheckFilter, ExchangeReportFilter, ExchangeRound, GapCheckFilter
from fdg_plugins.messages import META_CHECKED_REPORTS, META_GAP, META_SAMPLES, META_SITE, META_SITE_REPORT
from fdg_plugins.models import build_model
from fdg_plugins.objectives import Exchange, make_objective, see

MODEL = build_model("convnet", num_classes=3, seed=1)
STATE = MODEL.state_dict()
FLOATS = {name: value for name, value in STATE.items() if value.is_floating_point()}

pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")


def answer(state: dict[str, torch.Tensor], meta: dict[str, Any] | None = None) -> Shareable:
    """Return a site's answer to ``train``, as it comes from its executor."""
    generator = torch.Generator().manual_seed(0)
    data: dict[str, Any] = {
        name: 0.01 * torch.randn(value.shape, generator=generator) if value.is_floating_point() else torch.tensor(5)
        for name, value in state.items()
    }
    shareable = DXO(DataKind.WEIGHT_DIFF, data=data, meta={META_SAMPLES: 100, **(meta or {})}).to_shareable()
    shareable.set_peer_props({ReservedKey.IDENTITY_NAME: "photo"})
    return shareable


@pytest.fixture
def fl_ctx() -> FLContext:
    context = FLContext()
    engine = SimpleNamespace(fire_event=lambda event, fl_ctx: None, get_component=lambda name: None)
    context.set_prop(ReservedKey.ENGINE, engine, private=True, sticky=False)
    context.set_prop(FLContextKey.TASK_NAME, "train", private=True, sticky=False)
    return context


def read(made: Filter, fl_ctx: FLContext, state: dict[str, torch.Tensor]) -> Contribution:
    """Return what the server reads of an answer that has passed a filter."""
    model = FLModelUtils.from_shareable(made.process(answer(state), fl_ctx))
    model.meta[META_SITE] = "photo"
    return read_contribution(model, ModelLayout.of(state))


def test_an_update_from_which_variables_were_excluded_is_refused_by_the_name_of_one(fl_ctx: FLContext) -> None:
    with pytest.raises(ContributionError) as caught:
        read(ExcludeVars(["classifier.bias"]), fl_ctx, STATE)
    assert "'classifier.bias'" in str(caught.value)


def test_percentile_and_svt_privacy_are_read_unless_a_counter_of_steps_became_a_fraction(fl_ctx: FLContext) -> None:
    made = PercentilePrivacy(percentile=10, gamma=0.01)
    assert read(made, fl_ctx, FLOATS).update.keys() == FLOATS.keys()
    assert read(SVTPrivacy(fraction=0.5, epsilon=10.0), fl_ctx, STATE).update.keys() == STATE.keys()
    with pytest.raises(ContributionError) as caught:
        read(made, fl_ctx, STATE)
    assert "num_batches_tracked' has shape [] and dtype torch.float" in str(caught.value)


def exchange_of(objective: str) -> tuple[Exchange, dict[str, torch.Tensor]]:
    """Return the server's half of an objective, in a round, and one site's report for it."""
    made = make_objective({"name": objective, "probe": "previous_round"} if objective == "iir" else objective)
    exchange = made.exchange(MODEL, num_classes=3)
    assert exchange is not None
    exchange.begin_round(STATE)
    batches = [(torch.rand(6, 3, 16, 16), torch.tensor([0, 1, 2, 0, 1, 2]))]
    report = made.report_trained if objective == "dim" else made.report_received
    return exchange, report(MODEL, see(MODEL, batches), 3)


@pytest.mark.parametrize(
    ("objective", "made", "refused"),
    [
        ("dim", ExcludeVars(["class_means"]), "site photo: 'class_means' is missing"),
        # gamma, the largest value that SVT lets through, is 1e-5: as counts of samples that is zero for every class.
        ("dim", SVTPrivacy(fraction=1.0, epsilon=10.0, replace=False), "site photo: 'class_counts' is zero for every"),
        ("dim", PercentilePrivacy(), "site photo: 'class_counts' has dtype torch.float32, expected whole numbers"),
        ("iir", PercentilePrivacy(), "None"),
    ],
)
def test_job_filter_changes_report_tensors(objective: str, made: Filter, refused: str, fl_ctx: FLContext) -> None:
    torch.manual_seed(0)
    exchange, report = exchange_of(objective)
    out = ExchangeReportFilter().process(answer(STATE, {META_SITE_REPORT: report, META_GAP: 0.25}), fl_ctx)
    fl_ctx.set_prop(EXCHANGE_PROP, ExchangeRound(exchange, 0), private=True, sticky=False)
    came = GapCheckFilter().process(ExchangeCheckFilter().process(made.process(out, fl_ctx), fl_ctx), fl_ctx)
    found = from_shareable(came).meta[META_CHECKED_REPORTS]
    assert str(found.refused.get(exchange.report)).startswith(refused)
    assert found["gap"] == 0.25, "a number in the meta, which no filter of FLARE's touches"

# SPDX-License-Identifier: Apache-2.0
"""A script's answer says what this package's own site says of the same model, data and training."""

from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fdg_plugins.aggregators.contributions import read_contribution
from fdg_plugins.client import LocalRound, evaluate, evaluation
from fdg_plugins.errors import SettingsError
from fdg_plugins.filters import GapReportFilter
from fdg_plugins.messages import META_GAP, META_REPORT, META_SITE
from fdg_plugins.methods.arfl import ARFLWeighting
from fdg_plugins.models import build_model
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.training.results import TrainResult
from fdg_plugins.training.session import SiteSession
from tests.controllers.jobs import PROTOCOL
from tests.flare_runner import site_context

State = dict[str, torch.Tensor]
MOMENTUM = 0.5


@pytest.fixture
def session(data_root: Path, no_fdg_variables: None) -> SiteSession:
    """This package's own site, on the small data set."""
    protocol = Protocol(**{**PROTOCOL, "batch_size": 8, "momentum": MOMENTUM})
    return SiteSession("photo", SiteConfig(device="cpu", data_root=data_root), protocol)


def script_answer(session: SiteSession, state: State, result: TrainResult) -> FLModel:
    """Return the answer of a script whose training gave the same parameters."""
    model = session.load(state)
    validation = list(session.images.unchanged(session.data.validation))
    local = LocalRound(FLModel(params=state, meta={"site_name": "photo"}))
    before = evaluate(model, validation)
    model.load_state_dict({name: value + result.update[name] for name, value in state.items()})
    optimizer = torch.optim.SGD(model.parameters(), lr=result.report.learning_rate, momentum=MOMENTUM)
    after, samples = evaluate(model, validation), len(session.data.train)
    return local.answer(model, optimizer, result.report.steps, samples, before=before, after=after)


def test_answer_is_that_of_our_own_site(session: SiteSession, tmp_path: Path) -> None:
    gaps: dict[str, list[float | None]] = {"own": [], "script": []}
    for number in range(2):
        state = build_model("convnet", len(session.data.classes), seed=number).state_dict()  # so the gap is not zero
        result = session.train(state, number)
        meta = {META_REPORT: result.report.model_dump(mode="python")}
        script = script_answer(session, state, result)
        answers = {
            "own": DXO(DataKind.WEIGHT_DIFF, data=result.update, meta=meta).to_shareable(),
            "script": FLModelUtils.to_shareable(script),
        }
        for who, answer in answers.items():
            context = site_context("photo", tmp_path, who)
            answer.set_header(AppConstants.CURRENT_ROUND, number)
            gaps[who].append(from_shareable(GapReportFilter().process(answer, context)).meta.get(META_GAP))
        script.meta[META_SITE] = "photo"
        found = read_contribution(script, None)
        assert found.training is not None
        assert result.report.received is not None
        assert (found.num_samples, found.training.domain) == (len(session.data.train), "photo")
        for name in ("steps", "effective_steps", "learning_rate"):
            assert getattr(found.training, name) == getattr(result.report, name), name
        for name, value in result.update.items():
            torch.testing.assert_close(found.update[name], value, rtol=1e-3, atol=1e-6)
        assert script.metrics.keys() == {"loss", "accuracy"}
        assert script.metrics["loss"] == pytest.approx(result.report.received.loss)
    assert gaps["own"][0] is None
    assert abs(gaps["own"][1] or 0) > 0.01
    assert gaps["script"] == [None, pytest.approx(gaps["own"][1], rel=1e-5)]


@pytest.fixture
def model() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))


def sgd(model: torch.nn.Module, **settings: Any) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, **settings})


def received_by(model: torch.nn.Module) -> FLModel:
    return FLModel(params={name: value.clone() for name, value in model.state_dict().items()})


def test_evaluation_of_all_images(model: torch.nn.Sequential) -> None:
    generator = torch.Generator().manual_seed(0)
    batches = [(torch.randn(size, 4, generator=generator), torch.arange(size) % 3) for size in (5, 3)]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    model[1].eval()
    found = evaluate(model, batches)
    assert [module.training for module in model] == [True, False, True]
    assert same_bits(model.state_dict(), before)
    model.eval()
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert found.count == 8
    assert found.loss == pytest.approx(float(torch.nn.functional.cross_entropy(model(images), labels).detach()))
    assert found.value("accuracy") == pytest.approx(float((model(images).argmax(dim=1) == labels).float().mean()))


def test_evaluations_of_the_training_split_are_what_arfl_weights_by(model: torch.nn.Module) -> None:
    weighting, contributions = ARFLWeighting(), []
    for site, loss in (("a", 0.5), ("b", 2.0)):
        pair = (evaluation(loss, 10, "train", accuracy=0.5), evaluation(0.1, 10, "train", accuracy=0.9))
        answer = LocalRound(received_by(model)).answer(model, sgd(model), 1, 10, training_split=pair)
        answer.meta[META_SITE] = site
        contributions.append(read_contribution(answer, None))
    assert weighting.report(contributions) == {"training_losses": [0.5, 2.0]}


def test_effective_steps_follow_from_plain_sgd_and_are_else_said_or_the_steps(model: torch.nn.Module) -> None:
    local, (first, *others) = LocalRound(received_by(model)), model.parameters()

    def told(optimizer: torch.optim.Optimizer, said: float | None = None) -> float:
        found: float = local.meta(optimizer, 3, 10, effective_steps=said)[META_REPORT]["effective_steps"]
        return found

    assert told(sgd(model, momentum=0.5)) == 1 + 1.5 + 1.75
    groups: list[dict[str, Any]] = [{"params": [first], "momentum": 0.9}, {"params": others}]
    for optimizer in (sgd(model, momentum=0.9, nesterov=True), torch.optim.SGD(groups, lr=0.1)):
        with pytest.raises(SettingsError):
            told(optimizer)
        assert told(optimizer, 5.0) == 5.0
    assert told(torch.optim.Adam(model.parameters())) == 3.0


def test_what_a_script_gets_wrong_is_an_error(model: torch.nn.Module) -> None:
    for name in ("fc.weight", "0.weight"):  # one that is missing, and one of another shape
        with pytest.raises(SettingsError) as refused:
            LocalRound(FLModel(params={name: torch.zeros(3, 4)})).answer(model, sgd(model), 1, 10)
        assert name in str(refused.value.field)
    for act in (
        lambda: LocalRound(received_by(model)).answer(model, sgd(model), 0, 10),
        lambda: evaluation(-1.0, 10, accuracy=0.5),
        lambda: evaluate(model, []),
    ):
        with pytest.raises(SettingsError):
            act()

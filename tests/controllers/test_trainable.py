# SPDX-License-Identifier: Apache-2.0
"""What ``trainable`` leaves out neither trains nor travels, in whole runs of one process on torchvision's classes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import DataKind, from_shareable
from nvflare.apis.shareable import Shareable
from torch import nn
from torchvision.models import ResNet
from torchvision.models.resnet import BasicBlock

from fdg_plugins.core import gram_matrix, match
from fdg_plugins.messages import TASK_TRAIN
from fdg_plugins.models import NETWORKS, Network
from fdg_plugins.objectives import build_network
from fdg_plugins.testing.inputs import same_bits
from tests.controllers.test_batch_norm_rules import RuleJob
from tests.controllers.test_methods_in_rounds import MethodJob
from tests.controllers.test_resume import ServerKilled, dying
from tests.tiny_networks import tiny_vit

pytestmark = pytest.mark.usefixtures("wire", "images_at_sites", "networks")

HEAD = {"classifier.weight", "classifier.bias"}
RANK = 2


def tiny_resnet_with_batchnorm() -> nn.Module:
    return ResNet(BasicBlock, [1, 1, 1, 1])


@pytest.fixture
def networks() -> Iterator[None]:
    built = (tiny_vit, tiny_resnet_with_batchnorm)
    for build in built:
        NETWORKS.add(Network(name=build.__name__, build=build))
    yield
    for build in built:
        NETWORKS.remove(build.__name__)


class TrainableJob(RuleJob):
    """A job that keeps the first model and all updates as they cross the wire."""

    def __init__(self, folder: Path, trainable: str | None, **settings: Any) -> None:
        given = {} if trainable is None else {"trainable": trainable, "adapter_rank": RANK}
        super().__init__(folder, forge=self._watch, **{"model": "tiny_vit", **given, **settings})
        self.first_model: dict[str, torch.Tensor] = {}
        self.updates: list[tuple[str, dict[str, torch.Tensor]]] = []

    def _watch(self, site: str, task: str, answer: Shareable) -> None:
        dxo = from_shareable(answer)
        if dxo.data_kind == DataKind.WEIGHT_DIFF:
            self.updates.append((site, {name: torch.as_tensor(value).clone() for name, value in dxo.data.items()}))

    def _answer(self, site: str, task: str, request: Shareable) -> Shareable | None:
        if task == TASK_TRAIN and not self.first_model:
            self.first_model = {name: value.clone() for name, value in from_shareable(request).data.items()}
        return super()._answer(site, task, request)


def finished(folder: Path, trainable: str | None, **settings: Any) -> TrainableJob:
    if trainable == "adapters":
        pytest.importorskip("peft")
    job = TrainableJob(folder, trainable, **settings)
    job.finished()
    return job


def trained_names(job: TrainableJob, trainable: str) -> set[str]:
    return {name for name in job.first_model if name in HEAD or (trainable == "adapters" and ".lora_" in name)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "trainable"),
    [
        ("tiny_vit", "head"),
        ("tiny_vit", "adapters"),
        ("tiny_resnet_with_batchnorm", "adapters"),
        pytest.param("tiny_resnet_with_batchnorm", "head", marks=pytest.mark.slow),
    ],
)
def test_what_is_not_trained_is_in_no_update_and_stays_as_it_was(tmp_path: Path, model: str, trainable: str) -> None:
    job = finished(tmp_path, trainable, model=model, rounds=1)
    trained = trained_names(job, trainable)
    assert (trained == HEAD) == (trainable == "head")
    assert job.updates
    assert all(update.keys() == trained for _, update in job.updates)
    assert job.model.keys() == job.first_model.keys(), "the model's file is whole"
    for name, value in job.model.items():
        assert torch.equal(value, job.first_model[name]) == (name not in trained), name


@pytest.mark.parametrize("trainable", ["head", "adapters"])
def test_the_saved_model_fits_the_network_that_the_records_protocol_describes(tmp_path: Path, trainable: str) -> None:
    job = finished(tmp_path, trainable, rounds=1)
    record = job.record
    assert (record.protocol.trainable, record.protocol.adapter_rank) == (trainable, RANK)
    model = build_network(record.protocol, len(record.classes))
    model.load_state_dict(job.model)
    assert set(job.model) == set(model.state_dict())


@pytest.mark.parametrize("trainable", ["head", "adapters"])
def test_fedomgs_gram_matrix_is_over_what_travels(tmp_path: Path, trainable: str) -> None:
    job = finished(tmp_path, trainable, rounds=1, aggregator={"name": "fedomg", "weighting": "uniform"})
    aggregation = job.record.rounds[0].aggregation
    assert aggregation is not None
    names = sorted(trained_names(job, trainable))
    updates = [torch.cat([update[name].flatten().double() for name in names]) for _, update in sorted(job.updates)]
    sites = sorted(site for site, _ in job.updates)
    for site, update in zip(sites, updates, strict=True):
        assert aggregation.update_norms[site] == pytest.approx(float(update.norm()), rel=1e-6)
    assert aggregation.gamma is not None
    share = [1 / len(sites)] * len(sites)
    expected = match(gram_matrix(torch.stack(updates)), share, kappa=job.record.method.settings["kappa"])
    assert aggregation.objective == pytest.approx(expected.objective, rel=1e-5)
    assert [aggregation.gamma[site] for site in sites] == pytest.approx(expected.weights.tolist(), abs=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("objective", "aggregator"),
    [("dim", "fedavg"), ("iir", "fedavg"), ("erm", "fedcsa"), ("erm", {"name": "fedavg", "weighting": {"name": "ga"}})],
)
def test_methods_that_read_the_head_go_with_a_fixed_extractor(
    tmp_path: Path, objective: str, aggregator: str | dict[str, Any]
) -> None:
    job = MethodJob(tmp_path, objective, aggregator=aggregator, settings={"trainable": "head", "rounds": 1}).finished()
    assert all(finished.aggregation is not None for finished in job.record.rounds)


def test_all_has_the_bits_of_a_run_that_says_nothing(tmp_path: Path) -> None:
    plain, said = (finished(tmp_path / str(given), given, model="convnet", rounds=1) for given in (None, "all"))
    assert plain.model.keys() == said.model.keys()
    assert same_bits(plain.model, said.model)
    assert plain.record.evaluations == said.record.evaluations


def test_head_is_travels_head_bit_for_bit(tmp_path: Path) -> None:
    one = finished(tmp_path / "one", "head", model="convnet", rounds=1)
    other = finished(tmp_path / "other", None, model="convnet", travels="head", rounds=1)
    assert same_bits(one.model, other.model)


def test_a_site_may_keep_a_head_of_its_own_beside_adapters_that_travel(tmp_path: Path) -> None:
    job = finished(tmp_path, "adapters", travels="extractor", rounds=1)
    assert job.updates
    assert all(update.keys() == trained_names(job, "adapters") - HEAD for _, update in job.updates)
    assert all(torch.equal(job.model[name], job.first_model[name]) for name in HEAD)


@pytest.mark.slow
@pytest.mark.parametrize("trainable", ["head", "adapters"])
def test_a_run_that_is_resumed_equals_an_unbroken_one_bit_for_bit(tmp_path: Path, trainable: str) -> None:
    unbroken = finished(tmp_path / "unbroken", trainable)
    broken = TrainableJob(tmp_path / "broken", trainable)
    broken.meddle = dying(TASK_TRAIN, 5)
    with pytest.raises(ServerKilled):
        broken.run()
    resumed = finished(tmp_path / "broken", trainable, resume="job")
    assert resumed.record.resumed_after == [1]
    assert same_bits(resumed.model, unbroken.model)


def test_a_run_does_not_resume_with_other_parameters_to_train(tmp_path: Path) -> None:
    broken = TrainableJob(tmp_path, "all")
    broken.meddle = dying(TASK_TRAIN, 5)
    with pytest.raises(ServerKilled):
        broken.run()
    job = TrainableJob(tmp_path, "head", resume="job")
    job.run()
    assert any("its setting trainable was all, but is now head." in panic for panic in job.panics), job.panics


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"trainable": "body"}, "trainable (FDG_TRAINABLE) is 'body': input should be 'all', 'head' or 'adapters'."),
    ({"adapter_rank": 0}, "setting adapter_rank (FDG_ADAPTER_RANK) is 0: input should be greater than or equal to 1."),
    ({"adapter_rank": True}, "setting adapter_rank (FDG_ADAPTER_RANK) is True: "),
    (
        {"trainable": "head", "travels": "body"},
        "travels (FDG_TRAVELS) and trainable 'head' leave no trainable parameter to share, expected at least one.",
    ),
    (
        {"trainable": "head", "travels": {"personal": ["extractor.conv_proj.bias"]}},
        "travels (FDG_TRAVELS) makes 'extractor.conv_proj.bias' personal, which trainable 'head' never trains, ",
    ),
    (
        {"trainable": "head", "objective": {"name": "scaffold"}, "momentum": 0},
        "trainable (FDG_TRAINABLE) is 'head': objective 'scaffold' needs all parameters to travel, expected 'all'.",
    ),
    (
        {"trainable": "head", "objective": {"name": "as"}},
        "trainable (FDG_TRAINABLE) is 'head': objective 'as' trains the extractor on its own, expected ",
    ),
]


@pytest.mark.parametrize(("settings", "reason"), REFUSED)
def test_what_cannot_be_followed_is_refused_before_any_site_is_asked(
    tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    job = TrainableJob(tmp_path, **{"trainable": "all", **settings})
    job.run()
    assert job.asked == []
    assert len(job.panics) == 1
    assert reason in job.panics[0]

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
from tests.controllers.test_batch_norm_rules import RuleJob
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


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"trainable": "body"}, "trainable (FDG_TRAINABLE) is 'body'"),
    ({"adapter_rank": 0}, "setting adapter_rank (FDG_ADAPTER_RANK) is 0"),
    ({"trainable": "head", "travels": "body"}, "leave no trainable parameter to share"),
    ({"trainable": "head", "travels": {"personal": ["extractor.conv_proj.bias"]}}, "never trains"),
    ({"trainable": "head", "objective": {"name": "scaffold"}, "momentum": 0}, "needs all parameters to travel"),
    ({"trainable": "head", "objective": {"name": "as"}}, "trains the extractor on its own"),
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

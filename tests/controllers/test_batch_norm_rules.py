# SPDX-License-Identifier: Apache-2.0
"""The rules of BatchNorm's running statistics, in whole runs of one process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import from_shareable
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.controllers.reception import SiteStatistics
from fdg_plugins.data import open_domain, reported_batches
from fdg_plugins.errors import ContributionError
from fdg_plugins.messages import TASK_STATISTICS, TASK_TRAIN
from fdg_plugins.models import build_model
from fdg_plugins.models.batch_norm import NormLayer, batch_norm_layers
from fdg_plugins.record.run_files import SELECTED_FILE
from fdg_plugins.state.site_memory import read_kept
from fdg_plugins.storage import load_tensors
from fdg_plugins.training.global_model import count_bytes
from tests.controllers.test_federation import PROTOCOL, Job

SOURCES = ("art_painting", "cartoon", "photo")
MEANS, BUFFERS = ".running_mean", (".running_mean", ".running_var", ".num_batches_tracked")

pytestmark = pytest.mark.usefixtures("wire", "images_at_sites")
State = dict[str, torch.Tensor]
Forge = Callable[[str, str, Shareable], None]


class RuleJob(Job):
    """A job under a rule, which keeps the models sent by task, and may ``forge`` what sites answer."""

    def __init__(self, folder: Path, rule: str | None = None, forge: Forge | None = None, **settings: Any) -> None:
        folder.mkdir(exist_ok=True)
        aggregator = settings.pop("aggregator", {"name": "fedavg"})
        protocol = {**PROTOCOL, **({} if rule is None else {"batch_norm": rule}), **settings}
        super().__init__(folder, protocol=protocol, aggregator=aggregator)
        self.forge = forge
        self.sent: dict[str, list[State]] = {}

    def _answer(self, site: str, task: str, request: Shareable) -> Shareable | None:
        if site in ("photo", "sketch"):
            model = {name: value.clone() for name, value in from_shareable(request).data.items()}
            self.sent.setdefault(f"{task} {site}", []).append(model)
        answer = super()._answer(site, task, request)
        if answer is not None and self.forge is not None:
            self.forge(site, task, answer)
        return answer

    @property
    def asked_for_statistics(self) -> int:
        return sum(task == TASK_STATISTICS for task, _ in self.asked)


def differing(one: State, other: State) -> set[str]:
    return {name for name in one if not torch.equal(one[name], other[name])}


@pytest.fixture(scope="module")
def reestimated(tmp_path_factory: pytest.TempPathFactory, data_root: Path) -> RuleJob:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("FDG_DATA_ROOT", str(data_root)), ("FDG_DEVICE", "cpu"), ("FDG_ISOLATE", "no")):
            patch.setenv(name, value)
        return RuleJob(tmp_path_factory.mktemp("reestimated"), "reestimate").finished()


def test_every_model_that_is_sent_or_judged_has_statistics_measured_anew(reestimated: RuleJob) -> None:
    job = reestimated
    assert job.asked_for_statistics == 3 * len(SOURCES), "before each of two rounds, and before the last evaluation"
    assert (TASK_STATISTICS, "sketch") not in job.asked
    assert [finished.statistics for finished in job.record.rounds] == [SOURCES, SOURCES]
    for measured, trained in zip(job.sent["statistics photo"], job.sent["train photo"], strict=False):
        changed = differing(measured, trained)
        assert changed
        assert all(name.endswith(BUFFERS[:2]) for name in changed)
    assert not differing(job.sent["evaluate sketch"][-1], job.model), "the model that is saved is the one judged"
    chosen = job.record.choices[1].after_round
    assert not differing(job.sent["evaluate sketch"][chosen], load_tensors(job.folder / SELECTED_FILE))


def test_statistics_of_the_first_layer_are_those_of_all_images_together(reestimated: RuleJob, data_root: Path) -> None:
    state = reestimated.sent["train photo"][0]
    model = build_model("convnet", 7, seed=0)
    model.load_state_dict(state)
    first = next(iter(batch_norm_layers(model)))
    convolution = model.get_submodule("extractor.0")
    seen = []
    for domain in SOURCES:
        data = open_domain(data_root, "pacs", domain, seed=0)
        batches = reported_batches(data, image_size=16, batch_size=64, seed=0, scope=(domain,))
        seen += [convolution(images).detach().double() for images, _ in batches]
    inputs = torch.cat(seen)
    torch.testing.assert_close(state[f"{first}.running_mean"].double(), inputs.mean((0, 2, 3)), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(state[f"{first}.running_var"].double(), inputs.var((0, 2, 3)), rtol=1e-5, atol=1e-6)


NONE, ONE = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("sums", "squares", "count"),
    [(None, ONE, 12), (torch.nan * ONE, ONE, 12), (ONE, ONE, 24), (NONE, -ONE, 12), (4 * ONE, ONE, 12)],
)
def test_statistics_that_cannot_be_are_refused_by_name(sums: Any, squares: torch.Tensor, count: int) -> None:
    found = SiteStatistics({"bn": NormLayer(2, positions=4)}, {"photo": 3})
    found.take("photo", FLModel(metrics={"bn.sums": 3 * ONE, "bn.squares": ONE, "bn.count": torch.tensor([12])}))
    told = {"bn.sums": sums, "bn.squares": squares, "bn.count": torch.tensor([count])}
    with pytest.raises(ContributionError) as caught:
        found.take("photo", FLModel(metrics={name: value for name, value in told.items() if value is not None}))
    assert str(caught.value).startswith("site photo: ")


def test_statistics_that_stand_out_are_refused_and_their_bytes_count(tmp_path: Path) -> None:
    came: dict[tuple[str, str], int] = {}

    def forge(site: str, task: str, answer: Shareable) -> None:
        if (site, task) == ("photo", TASK_STATISTICS):
            from_shareable(answer).data["extractor.1.squares"].mul_(1e6)
        if task in (TASK_STATISTICS, TASK_TRAIN):
            came.setdefault((site, task), count_bytes(from_shareable(answer).data))

    finished = RuleJob(tmp_path, "reestimate", forge, rounds=1).finished().record.rounds[0]
    assert finished.statistics == ("art_painting", "cartoon")
    assert finished.sites == SOURCES
    assert finished.bytes_up == sum(came.values())
    assert list(finished.failures) == ["photo"]


def test_a_site_that_claims_negative_variances_does_not_take_those_of_the_others(tmp_path: Path) -> None:
    def forge(site: str, task: str, answer: Shareable) -> None:
        if (site, task) == ("photo", TASK_TRAIN):
            for name, value in from_shareable(answer).data.items():
                if name.endswith(".running_var"):
                    value.fill_(-3.0)  # the received variances are one, so the site's own would be minus two

    job = RuleJob(tmp_path, "average", forge, rounds=1).finished()
    assert job.record.rounds[0].sites == SOURCES
    assert min(float(value.min()) for name, value in job.model.items() if name.endswith(".running_var")) > 0.1


def test_frozen_statistics_are_those_of_the_initial_model_and_in_no_update(tmp_path: Path) -> None:
    updates: list[set[str]] = []

    def watch(site: str, task: str, answer: Shareable) -> None:
        if task == TASK_TRAIN:
            updates.append(set(from_shareable(answer).data))

    job = RuleJob(tmp_path, "frozen", watch).finished()
    initial = build_model("convnet", 7, seed=0).state_dict()
    frozen = {name for name in initial if name.endswith(BUFFERS)}
    assert all(torch.equal(job.model[name], initial[name]) for name in frozen)
    assert updates
    assert all(sent == initial.keys() - frozen for sent in updates)


def test_each_site_uses_statistics_of_its_own_and_the_model_has_their_mean(tmp_path: Path) -> None:
    kept: dict[str, list[State]] = {site: [] for site in SOURCES}

    def watch(site: str, task: str, answer: Shareable) -> None:
        if task == TASK_TRAIN:
            folder = next((job.folder / "sites" / site).rglob("fdg_trained_*.safetensors")).parent
            kept[site].append(dict(read_kept(folder, 99).personal))

    job = RuleJob(tmp_path, "local", watch, aggregator={"name": "fedavg", "weighting": "uniform"})
    job.finished()
    last = [kept[site][-1] for site in SOURCES]
    assert last[0].keys() == {name for name in job.model if name.endswith(BUFFERS)}
    for name in (name for name in last[0] if name.endswith(MEANS)):
        assert not torch.equal(last[0][name], last[1][name])
        mean = torch.stack([own[name] for own in last]).mean(dim=0)
        torch.testing.assert_close(job.model[name], mean, rtol=1e-4, atol=1e-5)

# SPDX-License-Identifier: Apache-2.0
"""Models of the sites' own beside the global one: judged, recorded and kept by site, in whole runs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import from_shareable
from nvflare.apis.shareable import Shareable

from fdg_plugins.controllers.channel import TENSORS_FILE
from fdg_plugins.messages import META_REPORT, TASK_TRAIN
from fdg_plugins.record.run_record import EvaluationRecord
from fdg_plugins.record.text import evaluation_line, final_table
from fdg_plugins.storage import load_tensors
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.training.session import SiteSession
from tests.controllers.test_methods_in_rounds import ANGLES, MethodJob, same
from tests.controllers.test_resume import ServerKilled, dying

pytestmark = pytest.mark.usefixtures("wire")

SOURCES = [angle for angle in ANGLES if angle != "angle_0"]
BABU = {"name": "babu", "fine_tune_epochs": 2}
BODY = {"travels": "body"}


def run(folder: Path, objective: Any, **settings: Any) -> MethodJob:
    return MethodJob(folder, objective, settings={"momentum": 0.0, **settings}).finished()


def personal_sites(evaluation: EvaluationRecord) -> list[str]:
    return [] if evaluation.personal is None else list(evaluation.personal.sites)


def test_every_source_judges_its_own_model_too_and_the_held_out_site_has_none(tmp_path: Path) -> None:
    record = run(tmp_path / "job", "rod").record
    for evaluation in record.evaluations:
        own = evaluation.personal
        assert own is not None
        assert list(own.sites) == SOURCES
        assert own.sites.keys() <= evaluation.sites.keys()
        assert "angle_0" in evaluation.sites
        sums = [score.sums["accuracy"] for score in own.sites.values()]
        assert own.pooled == sum(one.sum for one in sums) / sum(one.count for one in sums)
        assert own.source_mean == pytest.approx(sum(own.domains.values()) / len(SOURCES))
    assert final_table(record).count("personal (round ") == len(record.choices)
    assert "Personal: each site's own model on its validation split." in final_table(record)
    assert ", personal val " in evaluation_line(record, record.evaluations[-1])


@pytest.mark.slow
def test_own_models_leave_the_federation_as_it_is(tmp_path: Path) -> None:
    job = run(tmp_path / "tuned", BABU, **BODY)
    not_tuned = run(tmp_path / "not_tuned", {**BABU, "fine_tune_epochs": 0}, **BODY)
    assert same(job, not_tuned)
    for one, other in zip(job.record.evaluations, not_tuned.record.evaluations, strict=True):
        assert one.sites == other.sites
        assert other.personal is not None
        assert other.personal.sites == {site: other.sites[site] for site in SOURCES}
    assert job.record.evaluations != not_tuned.record.evaluations


@pytest.mark.slow
def test_a_head_of_a_site_survives_rounds_without_it_and_torn_down_processes(tmp_path: Path) -> None:
    settings = {"rounds": 3, "sites_per_round": 2, "validate_all": True}
    stays = run(tmp_path / "stays", "rod", **settings)
    torn = MethodJob(tmp_path / "torn", "rod", settings={"momentum": 0.0, **settings})
    torn.new_processes = True
    torn.finished()
    assert same(stays, torn)
    assert stays.record.evaluations == torn.record.evaluations
    assert all(personal_sites(evaluation) == SOURCES for evaluation in torn.record.evaluations)
    first, last = torn.record.evaluations[0], torn.record.evaluations[-1]
    assert first.personal is not None
    assert last.personal is not None
    assert first.personal.sites == {site: first.sites[site] for site in SOURCES}, "no site has trained yet"
    trained = {site for finished in torn.record.rounds for site in finished.sites}
    assert any(last.personal.sites[site].loss != last.sites[site].loss for site in trained)
    assert all(last.personal.sites[site] == last.sites[site] for site in set(SOURCES) - trained)


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "weighting"), [("rod", "samples"), ("pac", "samples"), ("as", "as")])
def test_a_run_that_is_resumed_judges_the_models_of_an_unbroken_one(
    tmp_path: Path, objective: str, weighting: str
) -> None:
    said: dict[str, Any] = {
        "aggregator": {"name": "fedavg", "weighting": weighting},
        "settings": {"momentum": 0.0, "rounds": 4, "sites_per_round": 2, "validate_all": True},
    }
    broken = MethodJob(tmp_path / "broken", objective, **said)
    broken.meddle = dying(TASK_TRAIN, 6)  # in the third round, in which a site has trained and another has not
    with pytest.raises(ServerKilled):
        broken.run()
    resumed = MethodJob(tmp_path / "broken", objective, **said, resume="job").finished()
    unbroken = MethodJob(tmp_path / "unbroken", objective, **said).finished()
    assert resumed.record.resumed_after == [2]
    assert same_bits(resumed.model, unbroken.model)
    assert resumed.record.evaluations == unbroken.record.evaluations


def test_a_site_receives_its_own_mixture_of_heads_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: dict[str, list[dict[str, torch.Tensor]]] = {}
    train = SiteSession.train

    def spy(self: SiteSession, *arguments: Any) -> Any:
        came.setdefault(self.site, []).append(dict(arguments[4]))
        return train(self, *arguments)

    monkeypatch.setattr(SiteSession, "train", spy)
    job = run(tmp_path / "job", "pac", rounds=3)
    published = load_tensors(job.folder / TENSORS_FILE)
    assert sorted(published) == ["present", "prototypes"]  # a site's mixture of heads is not for whoever downloads
    heads = [received[2]["head/classifier.weight"] for received in came.values()]
    assert all(received[0] == {} for received in came.values())
    assert all(
        len([name for name in one if "weight" in name]) == 1 for received in came.values() for one in received[1:]
    )
    assert not any(torch.equal(heads[0], other) for other in heads[1:])
    mean = torch.stack(heads).mean(dim=0)
    assert all(bool(head.isfinite().all()) and not torch.equal(head, mean) for head in heads)


def test_a_false_score_of_an_own_model_is_refused_by_name(tmp_path: Path) -> None:
    lies: dict[str, dict[str, Any]] = {"angle_30": {"split": "train"}, "angle_45": {"count": 10_000}}

    def forge(site: str, task: str, answer: Shareable) -> None:
        if site in lies and task == TASK_TRAIN:
            report = from_shareable(answer).meta[META_REPORT]
            report["personal"] = {**report["received"], **lies[site]}

    job = MethodJob(tmp_path / "job", "rod", forge=forge, settings={"rounds": 1}).finished()
    failures = job.record.rounds[0].failures
    assert failures.keys() == lies.keys()
    assert "split of an evaluation is 'train', expected 'validation'" in failures["angle_30"]
    assert "count of an evaluation is 10000" in failures["angle_45"]
    assert personal_sites(job.record.evaluations[0]) == [site for site in SOURCES if site not in lies]


def test_a_score_of_an_own_model_that_the_method_does_not_have_is_refused(tmp_path: Path) -> None:
    def forge(site: str, task: str, answer: Shareable) -> None:
        if (site, task) == ("angle_30", TASK_TRAIN):
            report = from_shareable(answer).meta[META_REPORT]
            report["personal"] = report["received"]

    job = MethodJob(tmp_path / "job", "erm", forge=forge, settings={"rounds": 1}).finished()
    said = job.record.rounds[0].failures["angle_30"]
    assert "sent the score of a personal model, which this method does not have" in said
    assert all(evaluation.personal is None for evaluation in job.record.evaluations)
    assert '"personal"' not in (job.folder / "results.json").read_text()
    assert "personal" not in final_table(job.record).lower()

# SPDX-License-Identifier: Apache-2.0
"""Scores that are asked for: exact however images are shared, refused where they cannot be, and used to select."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from fdg_plugins.controllers.reception import expectations
from fdg_plugins.errors import ContributionError, SettingsError
from fdg_plugins.lab.analysis import Run, build_table
from fdg_plugins.messages import Evaluation
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import final_table
from fdg_plugins.settings.protocol import Protocol, make_protocol
from fdg_plugins.tasks import (
    CLASSIFICATION,
    GROUP_CLASSIFICATION,
    MULTILABEL,
    SEGMENTATION,
    Accumulator,
    ScoreKind,
    Task,
)
from fdg_plugins.training.results import evaluation_of
from tests.controllers.federation_stubs import DOMAINS, census_reply, run_record

CPU = torch.device("cpu")
ALL = ("auroc", "auprc", "f1", "balanced_accuracy", "calibration_error", "sensitivity_at_90")
IMAGES, CLASSES = 60, 2


def batch(task: Task, seed: int = 0, skill: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    present = torch.randint(2, (IMAGES, CLASSES), generator=generator)
    labels, attributes = present.unbind(dim=1)
    one_hot = torch.nn.functional.one_hot(labels, CLASSES)
    logits = torch.randn(IMAGES, CLASSES, generator=generator) + skill * (present if task is MULTILABEL else one_hot)
    targets: dict[Task, torch.Tensor] = {
        MULTILABEL: present.float(),
        GROUP_CLASSIFICATION: torch.stack([labels, attributes], dim=1),
    }
    return logits, targets.get(task, labels)


def evaluated(task: Task, logits: torch.Tensor, targets: torch.Tensor, split: Any = "test") -> Evaluation:
    found = Accumulator(task, CPU)
    for part in torch.arange(len(logits)).split(17):
        found.add(logits[part], targets[part])
    return evaluation_of(split, found.score())


def record_of(task: Task, **protocol: Any) -> RunRecord:
    return run_record(task=task.name, scores=protocol.pop("scores", ALL), **protocol)


@pytest.mark.parametrize("task", [CLASSIFICATION, GROUP_CLASSIFICATION, MULTILABEL])
def test_scores_pooled_over_sites_are_those_of_all_images_to_their_bounds(task: Task) -> None:
    logits, targets = batch(task)
    asked, record = task.asked(ALL), record_of(task)
    parts = {"photo-1": slice(0, 11), "photo-2": slice(11, IMAGES)}
    scores = {site: evaluated(asked, logits[part], targets[part]) for site, part in parts.items()}
    counts, sums = record.counts_by_domain(scores)["photo"], record.sums_by_domain(scores)["photo"]
    found = asked.summary(sums, counts)
    chances = (logits.sigmoid() if task is MULTILABEL else logits.softmax(dim=1)).double().numpy()
    labels = targets[:, 0] if task is GROUP_CLASSIFICATION else targets
    members = targets.numpy() if task is MULTILABEL else np.eye(CLASSES)[labels]
    given = chances >= 0.5 if task is MULTILABEL else np.eye(CLASSES)[chances.argmax(axis=1)]
    for number in range(CLASSES):
        for name, exact in (("auroc", roc_auc_score), ("auprc", average_precision_score)):
            one = found[f"{name}_{number}"]
            assert one.lowest <= exact(members[:, number], chances[:, number]) <= one.highest
            assert one.highest - one.lowest < 0.05
        assert found[f"f1_{number}"].value == pytest.approx(f1_score(members[:, number], given[:, number]))
    assert found["f1"].value == pytest.approx(np.mean([found[f"f1_{number}"].value for number in range(CLASSES)]))
    derived = {name: by_domain["photo"] for name, by_domain in record.derived_scores(scores).items()}
    assert derived == {name: one.value for name, one in found.items() if name != task.score.name}
    few = asked.read_counts(scores["photo-1"].counts, CLASSES)
    assert any("fewer than 30 images" in one for one in asked.remarks(sums, few, ("a", "b")))


def test_hausdorff_distances_are_over_the_images_that_have_the_class_in_both() -> None:
    masks = torch.zeros(3, 32, 32, dtype=torch.long)
    masks[:2, 4:10, 4:10] = 1
    found = masks.roll(3, dims=2)
    found[1] = 0
    task = SEGMENTATION.asked(("hausdorff_95",))
    score = Accumulator(task, CPU)
    score.add(torch.nn.functional.one_hot(found, 2).float(), masks)
    sums = dict(score.score().sums)
    assert sums["hausdorff_95_1"] == (3.0, 1)
    dice = task.summary(sums, {})["dice"]
    assert dice.error == pytest.approx(np.std([0.5, 0.0, 1.0], ddof=1) / np.sqrt(3))
    assert dice.value == 0.5
    assert task.summary(sums, {})["hausdorff_95"] == (3.0, 3.0, 3.0, None)
    assert task.remarks(sums, {}, ("background", "vessel")) == ("Hausdorff distance over 1 of vessel of 3 images",)
    assert task.complaint(sums, 3, 2) is None
    assert task.complaint({**sums, "hausdorff_95_1": (3.0, 4)}, 3, 2)
    assert SEGMENTATION.complaint(sums, 3, 2), "nobody asked for it"


def test_a_score_that_the_task_does_not_have_is_refused() -> None:
    for task, name in ((CLASSIFICATION, "auc"), (CLASSIFICATION, "sensitivity_at_100"), (SEGMENTATION, "f1")):
        with pytest.raises(SettingsError) as caught:
            task.asked((name,))
        assert (caught.value.field, caught.value.value) == ("scores", name)
    for text in ("auroc, f1", "auroc+f1", ["auroc", "f1"]):
        assert make_protocol([{"scores": text}]).learned.scores == ("auroc", "f1")


def test_nothing_is_sent_unless_it_is_asked_for() -> None:
    plain = evaluated(CLASSIFICATION, *batch(CLASSIFICATION))
    assert "counts" not in plain.model_dump()
    asked = evaluated(CLASSIFICATION.asked(("f1",)), *batch(CLASSIFICATION))
    assert asked.model_dump()["counts"].keys() == {"confusion"}
    assert Evaluation.model_validate_json(asked.model_dump_json()) == asked


@pytest.mark.parametrize("changes", [{"title": 3}, {"percent": "yes"}, {"lowest": 1.0}, {"highest": np.nan}])
def test_a_score_is_refused_with_a_wrong_field(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        ScoreKind(**{"name": "mine", "title": "Mine", **changes})


Counts = dict[str, tuple[int, ...]]


@pytest.mark.parametrize(
    "forge",
    [
        lambda counts: {},
        lambda counts: {**counts, "more": (1,)},
        lambda counts: {**counts, "confusion": counts["confusion"][:-1]},
        lambda counts: {**counts, "confusion": (-(10**15),)},
        lambda counts: {**counts, "confusion": (2**53, *counts["confusion"][1:])},
        lambda counts: {**counts, "confusion": (IMAGES, -3)},  # other images of a class
        lambda counts: {**counts, "confidence": (IMAGES, -1023)},  # other images that are right
        lambda counts: {**counts, "probabilities": (IMAGES, -2047)},  # no image in a histogram
    ],
)
def test_counts_of_a_site_that_contradict_each_other_are_refused(forge: Callable[[Counts], Counts]) -> None:
    protocol, reply = Protocol(target="sketch", scores=ALL), census_reply("photo", num_validation=IMAGES)
    expected = expectations(protocol, {"photo": reply}, 0)["photo"]
    honest = evaluated(CLASSIFICATION.asked(ALL), *batch(CLASSIFICATION), split="validation")
    expected.check_score(honest, "validation")
    forged = honest.model_copy(update={"counts": forge(dict(honest.counts))})
    with pytest.raises(ContributionError):
        expected.check_score(forged, "validation")
    with pytest.raises(ContributionError):
        expected.check_score(honest, "validation", counted=False)


@pytest.mark.parametrize("selection", ["mean", "median"])
def test_a_model_is_selected_by_the_score_that_the_protocol_names(selection: str) -> None:
    scores = ("calibration_error", "f1")
    record = record_of(CLASSIFICATION, scores=scores, selected_by=scores[0], selection=selection)
    for number, factor in enumerate((4.0, 0.7, 8.0)):
        logits, labels = batch(CLASSIFICATION, seed=5)
        found = {site: evaluated(record.task, factor * logits, labels) for site in DOMAINS}
        record.add_evaluation(number, found)
    errors = [one.derived["calibration_error"]["sketch"] for one in record.evaluations]
    assert min(errors) == errors[1]
    record.choices = record.choose({})
    chosen = {choice.rule: choice.after_round for choice in record.choices}
    assert chosen == {"last": 2, "source_validation": 1, "oracle": 1}
    assert len({one.source_mean for one in record.evaluations}) == 1, "accuracy cannot tell them apart"
    assert record.source_score(1) == pytest.approx(errors[1])
    again = RunRecord.model_validate_json(record.model_dump_json())
    assert again.choose({}) == record.choices
    assert "Calibration error within 0.10" in final_table(record)
    assert "selected by Calibration error" in final_table(record)
    table = build_table([Run(Path("run"), record)])
    assert "source validation by Calibration error" in table.caption
    assert {*scores, "f1_0"} <= set(table.numbers()["kind"])
    assert any("fewer than 30 images of" in note for note in table.notes)

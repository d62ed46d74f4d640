# SPDX-License-Identifier: Apache-2.0
"""The server takes no scores that contradict the census, each other, or those of an earlier model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.controllers.evaluation import take_scores
from fdg_plugins.core.bootstrap import GAINS
from fdg_plugins.errors import ContributionError, DataError
from fdg_plugins.lab.analysis.figures.drawing import draw
from fdg_plugins.lab.analysis.figures.evaluation import pictures_of_evaluation, scores_of, sheet_of
from fdg_plugins.lab.analysis.table import TERMINAL, rendered
from fdg_plugins.lab.engine.evaluation import read_result
from fdg_plugins.record.evaluation import EvaluatedModel, EvaluationResult, SiteScores
from fdg_plugins.storage import write_json
from fdg_plugins.tasks.counts import pack, unpack
from tests.controllers.federation_stubs import CLASSES, census_reply

REPLY = census_reply("sketch", num_test=10, class_counts=(6, 4))
Change = Callable[[dict[str, Any]], None]


def honest(right: tuple[int, int], pairs: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return what a site of 6 and 4 images of two classes tells, of which so many are classified correctly."""
    confusion = np.array([[right[0], 6 - right[0]], [4 - right[1], right[1]]])
    histograms = np.zeros((2, 2, 512), dtype=int)
    histograms[0, :, 100] = histograms[1, ::-1, 200] = (4, 6)
    confidence = np.zeros((2, 512), dtype=int)
    confidence[:, 300] = (10 - sum(right), sum(right))
    counts = {"confusion": confusion, "probabilities": histograms, "confidence": confidence}
    sums = {"accuracy": {"sum": float(sum(right)), "count": 10}}
    return {"count": 10, "sums": sums, "counts": {name: pack(one) for name, one in counts.items()}, "pairs": pairs}


@pytest.fixture
def result() -> EvaluationResult:
    """The result of a site that has evaluated the first of two models."""
    names = ("first", "second")
    made = EvaluationResult(
        job="job",
        started="2030-01-01T00:00:00+00:00",
        task="classification",
        scores=("auroc", "f1", "calibration_error"),
        data="PACS",
        stand_in=False,
        classes=CLASSES,
        models=tuple(
            EvaluatedModel(name=name, sha256="0", method="FedAvg", trained_on="PACS", sources=()) for name in names
        ),
        sites={"sketch": SiteScores(domain="sketch", images=10)},
        left_out={"cartoon": "was not connected."},
        versions={},
    )
    take(made, 0, honest((4, 1), {}))
    return made


def take(result: EvaluationResult, number: int, told: dict[str, Any]) -> None:
    take_scores(number, result, {"sketch": REPLY}, "sketch", FLModel(metrics=told))


def test_an_honest_answer_is_taken_and_the_table_has_the_difference(result: EvaluationResult) -> None:
    take(result, 1, honest((6, 2), {"0": (4, 1, 4, 1)}))
    table = rendered([sheet_of(result)], TERMINAL)
    assert "50.0 [20.0, 80.0]" in table
    assert "+30.0" in table
    assert "not evaluated: cartoon" in table


def test_a_pair_with_a_model_that_the_server_could_not_use_is_left_out(result: EvaluationResult) -> None:
    del result.sites["sketch"].models["first"]
    take(result, 1, honest((6, 2), {"0": (4, 1, 4, 1)}))
    assert result.sites["sketch"].models["second"].pairs == {}
    assert "minus first" in rendered([sheet_of(result)], TERMINAL)


def test_a_class_of_few_images_may_be_withheld(result: EvaluationResult) -> None:
    told = honest((6, 2), {"0": (4, 1, 4, 1)})
    for name in ("confusion", "probabilities"):
        shape = (2, 2, 512) if name == "probabilities" else (2, 2)
        counts = unpack(told["counts"][name], shape)
        counts[1] = 0
        told["counts"][name] = pack(counts)
    take(result, 1, told | {"withheld": (1,)})
    assert "without the scores by class of elephant" in rendered([sheet_of(result)], TERMINAL)
    found = scores_of(result).set_index("model")["f1"]  # what the elephants were taken for is not known
    assert list(found.isna()) == [False, True]


LIES: dict[str, Change] = {
    "another number of images": lambda told: told.update(count=9),
    "more right than images": lambda told: told["sums"]["accuracy"].update(sum=11.0),
    "right images of a pair": lambda told: told.update(pairs={"0": (4, 1, 3, 2)}),
    "no pair": lambda told: told.update(pairs={}),
    "a pair of a pair": lambda told: told.update(pairs={"0": (4, 1, 4)}),
    "a pair with a model to come": lambda told: told["pairs"].update({"57": (4, 1, 4, 1)}),
    "a forged number": lambda told: told.update(pairs={"../x": (4, 1, 4, 1)}),
    "no histograms": lambda told: told["counts"].pop("probabilities"),
    "a histogram of other images": lambda told: told["counts"].update(probabilities=pack(np.eye(2, 1024))),
    "a matrix of another size": lambda told: told["counts"].update(confusion=(1, 2)),
    "classes that are there and withheld": lambda told: told.update(withheld=(1,)),
    "a class that is not there": lambda told: told.update(withheld=(7,)),
    "a class twice": lambda told: told.update(withheld=(1, 1)),
    "a loss": lambda told: told.update(loss=0.5),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_contradiction_is_refused(lie: str, result: EvaluationResult) -> None:
    told = honest((6, 2), {"0": (4, 1, 4, 1)})
    LIES[lie](told)
    with pytest.raises(ContributionError):
        take(result, 1, told)
    assert result.sites["sketch"].models.keys() == {"first"}


def label_accuracies(total: float, pairs: dict[str, tuple[int, ...]], count: int = 10) -> dict[str, Any]:
    """Return what a site tells of its images, each of which has several classes."""
    return {"count": count, "sums": {"label_accuracy": {"sum": total, "count": count}}, "counts": {}, "pairs": pairs}


@pytest.mark.parametrize("pair", [{200: 5, 300: 5}, {200: 4, 300: 6}, {200: 5, 300: 4}, {}], ids=str)
def test_gains_of_images_fit_the_scores_of_both_models(pair: dict[int, int], result: EvaluationResult) -> None:
    """From one model with 6 of 10 to one with 8.5: five images gain a half, five nothing."""
    multilabel = result.model_copy(update={"task": "multilabel", "scores": ()})
    multilabel.sites["sketch"].models.clear()
    with pytest.raises(ContributionError):  # of fewer images than the census has
        take(multilabel, 0, label_accuracies(6.0, {}, 9))
    take(multilabel, 0, label_accuracies(6.0, {}))
    gains = tuple(pair.get(step, 0) for step in range(len(GAINS))) if pair else (4, 1, 4, 1)
    told = label_accuracies(8.5, {"0": gains})
    if pair == {200: 5, 300: 5}:
        take(multilabel, 1, told)
        assert "+25.0 [+10.0, +40.0]" in rendered([sheet_of(multilabel)], TERMINAL)
    else:
        with pytest.raises(ContributionError):
            take(multilabel, 1, told)


def test_a_diagram_counts_an_image_of_several_classes_once(result: EvaluationResult) -> None:
    multilabel = result.model_copy(update={"task": "multilabel", "scores": ("calibration_error",)})
    multilabel.sites["sketch"].models.clear()
    histograms = np.zeros((2, 2, 512), dtype=int)
    histograms[:, 0, 100], histograms[:, 1, 200] = 6, 4
    take(multilabel, 0, label_accuracies(6.0, {}) | {"counts": {"probabilities": pack(histograms)}})
    _, diagram = pictures_of_evaluation(multilabel)
    assert draw(diagram).axes[0].get_title() == "sketch, 10 images"


@pytest.mark.parametrize(
    ("field", "value"),
    [("counts", {"confusion": [1]}), ("pairs", {"0": [1, 2, 3, 5]}), ("sums", {}), ("withheld", [7])],
)
def test_a_strangers_file_that_contradicts_itself_is_refused(
    field: str, value: Any, result: EvaluationResult, tmp_path: Path
) -> None:
    told = result.model_dump(mode="json")
    write_json(tmp_path / "evaluation.json", told)
    assert read_result(tmp_path / "evaluation.json") == result
    told["sites"]["sketch"]["models"]["first"][field] = value
    write_json(tmp_path / "evaluation.json", told)
    with pytest.raises(DataError):
        read_result(tmp_path / "evaluation.json")

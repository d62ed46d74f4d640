# SPDX-License-Identifier: Apache-2.0
"""Scores from counts: the intervals hold the scores of the probabilities themselves, and counts add up."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score, roc_curve

from fdg_plugins.tasks import ScoreKind, counts
from fdg_plugins.tasks.counts import BINS, CALIBRATION_BOUND, WIDE_BINS, Bounded

KIND = ScoreKind("auroc", "AUROC")
ROUNDING = 1e-9
EDGES = st.integers(0, BINS).map(lambda edge: edge / BINS)
PROBABILITY = st.floats(0, 1, width=32) | EDGES | st.floats(0.5, 0.5078125, width=32)
IMAGES = st.lists(st.tuples(PROBABILITY, st.booleans()), min_size=1, max_size=80)


def counted(images: list[tuple[float, bool]]) -> np.ndarray:
    probabilities, members = zip(*images, strict=True)
    return counts.histograms(torch.tensor([probabilities]).T, torch.tensor([members]).T)[0].numpy()


def split(images: list[tuple[float, bool]]) -> tuple[np.ndarray, np.ndarray]:
    probabilities, members = zip(*images, strict=True)
    return np.array(members), np.array(probabilities, dtype=np.float32).astype(float)


def holds(score: Bounded | None, exact: float) -> bool:
    assert score is not None
    assert score.lowest <= score.value + ROUNDING
    assert score.value <= score.highest + ROUNDING
    return score.lowest - ROUNDING <= exact <= score.highest + ROUNDING


@given(IMAGES, st.integers(1, 99))
def test_one_against_the_rest_is_in_its_interval(images: list[tuple[float, bool]], percent: int) -> None:
    histogram, (members, probabilities) = counted(images), split(images)
    if members.all() or not members.any():
        assert (
            counts.roc_area(histogram)
            is counts.precision_area(histogram)
            is counts.sensitivity_at(histogram, percent)
            is None
        )
        return
    assert holds(counts.roc_area(histogram), float(roc_auc_score(members, probabilities)))
    assert holds(counts.precision_area(histogram), float(average_precision_score(members, probabilities)))
    false, true, _ = roc_curve(members, probabilities, drop_intermediate=False)
    others = int((~members).sum())
    allowed = 100 * (others - np.round(false * others)) >= percent * others
    assert holds(counts.sensitivity_at(histogram, percent), float(true[allowed].max()))


@given(st.permutations(range(BINS)), st.integers(1, BINS - 1))
def test_probabilities_in_bins_of_their_own_lose_nothing(order: list[int], members: int) -> None:
    images = [((number + 0.5) / BINS, rank < members) for rank, number in enumerate(order)]
    area = counts.roc_area(counted(images))
    assert area is not None
    assert area.lowest == area.highest == pytest.approx(roc_auc_score(*split(images)))


def test_the_standard_error_of_the_area_is_that_of_other_images() -> None:
    generator = np.random.default_rng(0)

    def area(images: int) -> Bounded:
        members = np.arange(images) % 3 == 0
        chances = 1 / (1 + np.exp(-generator.normal(size=images) - members))
        found = counts.roc_area(counted(list(zip(chances.tolist(), members.tolist(), strict=True))))
        assert found is not None
        return found

    drawn = [area(120) for _ in range(200)]
    assert np.mean([one.error for one in drawn]) == pytest.approx(np.std([one.value for one in drawn]), rel=0.15)
    mean = float(np.mean([one.value for one in drawn]))
    within = [low <= mean <= high for one in drawn for low, high in [one.interval_in(KIND) or (1.0, 0.0)]]
    assert 0.9 < np.mean(within) <= 1.0
    assert counts.roc_area(counted([(0.2, False), (0.7, True)])) == (1.0, 1.0, 1.0, None)
    assert list(Bounded(0.9, 0.9, 0.9, 0.2).interval_in(KIND) or ()) == pytest.approx([0.508, 1.0])


@given(IMAGES)
def test_the_calibration_error_is_exact_to_half_a_bin(images: list[tuple[float, bool]]) -> None:
    correct, confidence = split(images)
    bins = np.minimum((confidence * WIDE_BINS).astype(int), WIDE_BINS - 1)
    gaps = [abs(correct[bins == one].sum() - confidence[bins == one].sum()) for one in range(WIDE_BINS)]
    score, exact = counts.calibration_error(counted(images)), sum(gaps) / len(images)
    assert holds(score, exact)
    assert score is not None
    assert abs(score.value - exact) <= CALIBRATION_BOUND + ROUNDING
    assert [one.images for one in counts.reliability(counted(images))] == [n for n in np.bincount(bins).tolist() if n]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_scores_of_a_confusion_matrix_are_exact(images: list[tuple[int, int]]) -> None:
    labels, predicted = zip(*images, strict=True)
    matrix = counts.confusion(torch.tensor(labels), torch.tensor(predicted), 4).numpy()
    seen = sorted({*labels, *predicted})
    f1, balanced = counts.mean_of(counts.f1_scores(matrix)), counts.mean_of(counts.recalls(matrix))
    assert f1 is not None
    assert balanced is not None
    assert f1.value == pytest.approx(f1_score(labels, predicted, labels=seen, average="macro", zero_division=0))
    by_class = [np.mean([found == one for label, found in images if label == one]) for one in {*labels}]
    assert balanced.value == pytest.approx(np.mean(by_class))


@given(IMAGES)
def test_histograms_of_labels_give_the_scores_of_their_predictions(images: list[tuple[float, bool]]) -> None:
    members, probabilities = split(images)
    found = counted(images)[np.newaxis]
    f1, balanced = counts.f1_scores(found)[0], counts.balanced_accuracies(found)[0]
    predicted = probabilities >= 0.5
    assert (f1 is None) == (not (members | predicted).any())
    assert f1 is None or f1.value == pytest.approx(f1_score(members, predicted))
    assert (balanced is None) == (members.all() or not members.any())
    if balanced is not None:
        assert balanced.value == pytest.approx((predicted[members].mean() + (~predicted[~members]).mean()) / 2)


@given(IMAGES, IMAGES)
def test_counts_add_up_and_come_back_as_they_were_packed(
    first: list[tuple[float, bool]], second: list[tuple[float, bool]]
) -> None:
    total = counted(first) + counted(second)
    assert np.array_equal(total, counted(first + second))
    packed = counts.pack(total)
    assert np.array_equal(counts.unpack(packed, total.shape), total)
    assert len(packed) <= 4 * len(first + second) + 2


@pytest.mark.parametrize("packed", [(), (1, 2), (-5,), (-(10**18),), (1, -3, 1)])
def test_a_message_of_another_size_is_refused_before_anything_is_made(packed: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected 4"):
        counts.unpack(packed, (2, 2))

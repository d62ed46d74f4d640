# SPDX-License-Identifier: Apache-2.0
"""Reliability diagrams of runs: the histograms of the selected models, of all seeds together."""

import numpy as np
import pytest

from fdg_plugins.errors import DataError
from fdg_plugins.lab.analysis.figures import make_pictures
from fdg_plugins.lab.analysis.figures.picture import Picture
from fdg_plugins.messages import Evaluation
from fdg_plugins.tasks.counts import pack
from tests.analysis.run_stubs import DOMAINS, FEDAVG, FEDGA
from tests.figures.figure_stubs import figure_run


def evaluated(right: int, images: int = 40) -> Evaluation:
    """Return a score of predictions with a confidence of a quarter, or of three quarters for all but ten."""
    histogram = np.zeros((1, 2, 512), dtype=int)
    histogram[0, :, 128] = (5, 5)
    histogram[0, :, 384] = (images - 5 - right, right - 5)
    sums = {"accuracy": {"sum": float(right), "count": images}}
    told = {"split": "validation", "loss": 1.0, "count": images, "sums": sums}
    return Evaluation.model_validate({**told, "counts": {"confidence": pack(histogram)}})


def diagram() -> Picture:
    protocol = {"scores": ("calibration_error",)}
    runs = [
        figure_run(one, seed=seed, scores=[dict.fromkeys(DOMAINS, evaluated(right + seed))] * 2, protocol=protocol)
        for one, right in ((FEDAVG, 20), (FEDGA, 30))
        for seed in (0, 1)
    ]
    (picture,) = make_pictures("reliability", runs)
    return picture


def test_bins_are_those_of_all_seeds_and_runs_without_histograms_have_none() -> None:
    picture = diagram()
    assert "seeds 0, 1 together" in picture.caption
    table = picture.numbers()
    first, second = (table[table["line"] == line] for line in ("FedAvg", "FedDG-GA"))
    assert set(table["panel"]) == {"held out: photo"}
    assert set(first["histograms"]) == {2}
    assert list(first["few"]) == ["true", "false"]  # 10 and 30 images of a model
    bins = first[["images", "confidence", "correct"]].to_numpy(float)
    assert bins.tolist() == [pytest.approx([20, 0.25, 0.5], abs=1e-3), pytest.approx([60, 0.75, 31 / 60], abs=1e-3)]
    (error,), (other,) = (set(of["calibration_error"]) for of in (first, second))
    assert error == pytest.approx((20 * 0.25 + 60 * (0.75 - 31 / 60)) / 80, abs=1e-3)
    assert other < error
    assert table.groupby("line")["images"].sum().tolist() == [80, 80]
    with pytest.raises(DataError) as caught:
        make_pictures("reliability", [figure_run()])
    assert "scores" in str(caught.value)

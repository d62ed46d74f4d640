# SPDX-License-Identifier: Apache-2.0
"""The Gaussian mechanism on an update: what is clipped, what noise is added, and where the noise comes from."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core.privacy import SENSITIVITY, privatize


def silence(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.float64)


def seeded_noise(seed: int) -> Callable[[int], torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return lambda count: torch.randn(count, generator=generator, dtype=torch.float64)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.floats(1e-3, 1e3))
def test_without_noise_the_release_is_the_nearest_point_of_the_ball(values: list[float], clip_norm: float) -> None:
    update = {"a": torch.tensor(values[:1], dtype=torch.float64), "b": torch.tensor(values[1:], dtype=torch.float64)}
    release = privatize(update, clip_norm, 1.0, noise=silence)
    before, after = (torch.cat([part["a"], part["b"]]) for part in (update, release))
    assert float(after.norm()) <= clip_norm * (1 + 1e-12)
    expected = before if float(before.norm()) <= clip_norm else before * (clip_norm / before.norm())
    torch.testing.assert_close(after, expected, rtol=1e-12, atol=0)


def test_any_two_updates_are_released_within_the_sensitivity_of_each_other_which_opposite_ones_attain() -> None:
    far = {"a": torch.full((4,), 100.0, dtype=torch.float64)}
    opposite = {"a": -far["a"]}
    distance = (privatize(far, 3.0, 1.0, silence)["a"] - privatize(opposite, 3.0, 1.0, silence)["a"]).norm()
    assert float(distance) == pytest.approx(SENSITIVITY * 3.0)


def test_the_noise_has_the_deviation_of_sigma_times_the_clip_norm_whatever_the_update_is() -> None:
    for scale in (0.0, 1e-8, 1e8):
        update = {"w": torch.full((100, 200), scale), "b": torch.zeros(5)}
        release = privatize(update, 0.5, 3.0, seeded_noise(1))
        assert float((release["w"] - release["w"].mean()).std()) == pytest.approx(1.5, rel=0.03)


def test_no_two_releases_share_their_noise_whatever_seeds_are_set() -> None:
    update = {"w": torch.zeros(8)}
    torch.manual_seed(0)
    np.random.seed(0)
    first = privatize(update, 1.0, 1.0)["w"]
    torch.manual_seed(0)
    np.random.seed(0)
    assert not torch.equal(first, privatize(update, 1.0, 1.0)["w"])


def test_dtypes_and_shapes_stay_and_what_does_not_fit_becomes_the_largest_value() -> None:
    cases: list[torch.dtype] = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    for dtype in cases:
        update = {"scalar": torch.tensor(1.0, dtype=dtype), "none": torch.zeros(0, 3, dtype=dtype)}
        release = privatize(update, 1e300, 1.0, noise=lambda count: torch.full((count,), 1.0, dtype=torch.float64))
        assert {name: (value.dtype, value.shape) for name, value in release.items()} == {
            name: (value.dtype, value.shape) for name, value in update.items()
        }
        largest = min(1e300, torch.finfo(dtype).max)
        assert float(release["scalar"]) == pytest.approx(largest)
        negative = privatize(update, 1e300, 1.0, noise=lambda count: torch.full((count,), -1.0, dtype=torch.float64))
        assert float(negative["scalar"]) == pytest.approx(-largest)
        assert float(update["scalar"]) == 1.0, "what came in is unchanged"

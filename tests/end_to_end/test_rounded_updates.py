# SPDX-License-Identifier: Apache-2.0
"""A job whose sites add noise for privacy and then round their updates, as FLARE's processes run it."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from fdg_plugins.filters import DifferentialPrivacyFilter
from fdg_plugins.recipes import FDGRecipe

from .conftest import Simulator

pytestmark = pytest.mark.slow

PROTOCOL: dict[str, Any] = {
    "model": "convnet",
    "image_size": 16,
    "rounds": 2,
    "local_epochs": 1,
    "learning_rate": 0.02,
    "target": "sketch",
    "server_lr": 1.0,
}


def test_updates_arrive_in_half_of_their_bytes_noise_included(simulator: Simulator, data_root: Path) -> None:
    recipe = FDGRecipe("fedomg", update_precision="bfloat16", **PROTOCOL)
    noise = {"clip_norm": 1.0, "noise_multiplier": 0.01, "max_epsilon": 1e9}
    recipe.add_client_output_filter(DifferentialPrivacyFilter(**noise), tasks=["train"])
    recipe.export(str(simulator.folder / "made"))
    done = simulator.run(
        f"made/{recipe.name}", "-t", "4", settings={"FDG_DATA_ROOT": str(data_root), "FDG_THREADS": "1"}
    )
    assert done.returncode == 0, done.log
    record = done.record()
    model = load_file(done.folder / "global_model.safetensors")
    counters = sum(value.nbytes for value in model.values() if not value.is_floating_point())
    wide = sum(value.nbytes for value in model.values())
    for finished in record.rounds:
        assert (finished.sites, finished.failures) == (record.sources, {})
        assert finished.bytes_up == 3 * ((wide - counters) // 2 + counters)
        assert finished.bytes_down == 4 * wide
    assert all(value.isfinite().all() for value in model.values())
    assert len(done.lines("released with noise")) == 6

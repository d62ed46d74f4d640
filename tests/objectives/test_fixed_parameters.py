# SPDX-License-Identifier: Apache-2.0
"""Every local objective under ``trainable``: it moves head and adapters, and nothing else."""

import pytest
import torch

from fdg_plugins.models.adapters import adapter_names
from fdg_plugins.objectives import OBJECTIVES, build_network, make_objective
from fdg_plugins.objectives.network import fixed_names
from fdg_plugins.settings.protocol import make_protocol
from fdg_plugins.testing.objectives import CLASSES, make_batches, site_round, train

# The others need everything to travel, and a job that says otherwise ends before any site is asked.
NAMES = [name for name in OBJECTIVES if make_objective(name).needs_shared != "everything"]


@pytest.mark.parametrize("trainable", ["head", pytest.param("adapters", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_an_objective_moves_head_and_adapters_alone(name: str, trainable: str) -> None:
    if trainable == "adapters":
        pytest.importorskip("peft")
    protocol = make_protocol([{"model": "convnet", "image_size": 16, "objective": name, "trainable": trainable}])
    model = build_network(protocol, CLASSES)
    fixed = fixed_names(model, protocol)
    for part in OBJECTIVES[name].needs_trained:
        if all(one in fixed for one, _ in model.named_parameters() if one.startswith(f"{part}.")):
            pytest.skip(f"refused: it trains the {part} on its own")
    model.hold(fixed)
    objective = make_objective(protocol.objective)
    done = train(model, objective.local({}, model, site_round()), make_batches(sizes=(8, 8)))
    moved = {entry for entry, value in done.update.items() if bool(value.any())}
    assert moved.isdisjoint(fixed)
    assert {*model.last_layer_names, *adapter_names(model)} <= moved
    assert all(bool(torch.isfinite(value).all()) for value in done.update.values())

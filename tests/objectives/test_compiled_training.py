# SPDX-License-Identifier: Apache-2.0
"""Every method trains by compiled code as it does without: hooks, swapped parameters and penalties still hold.

torch's own stages of compiling run everywhere: capturing the graph ("eager"), and its backward pass ("aot_eager").
Generating code ("inductor") needs a C++ compiler, and rounds in another way.
"""

from typing import Any

import pytest
import torch

from fdg_plugins.objectives import OBJECTIVES, make_objective
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.testing.objectives import bits, make_batches, network, received_by, site_round, train

SPECS: list[dict[str, Any]] = [
    *({"name": name} for name in sorted(OBJECTIVES)),
    {"name": "dim", "strength": 1.0},
    {"name": "iir", "strength": 1.0, "frozen_batchnorm": True},
    {"name": "am", "probability": 1.0},
    {"name": "rsc", "variant": "feature"},
]
AT_ONCE = ("mosam",)  # a step of its own, by what the server sends; the rest by night


@pytest.fixture(autouse=True)
def _compile_anew() -> None:
    """Every test compiles for itself."""
    torch.compiler.reset()


def trained_both_ways(spec: dict[str, Any], backend: str) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return the states after a round that follows one of two other sites, without compiling and with."""
    objective = make_objective(spec)
    sent = received_by(objective)
    states = []
    for compiles in (False, True):
        model = network(objective)
        if compiles:
            model.compile_for_training(backend)
        train(model, objective.local(sent, model, site_round()), make_batches())
        states.append(bits(model))
    return states[0], states[1]


@pytest.mark.parametrize(
    "spec",
    [pytest.param(spec, marks=[] if spec["name"] in AT_ONCE else pytest.mark.nightly) for spec in SPECS],
    ids=str,
)
def test_captured_graphs_train_to_the_same_bits(spec: dict[str, Any]) -> None:
    plain, compiled = trained_both_ways(spec, "eager")
    assert same_bits(compiled, plain)
    assert not any("_orig_mod" in name for name in compiled)


class Counting:
    """A backend that runs what it is given as it is, and counts how often it was given something and ran it."""

    def __init__(self) -> None:
        self.compiled = 0
        self.ran = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        self.compiled += 1

        def run(*arguments: Any) -> Any:
            self.ran += 1
            return graph(*arguments)

        return run


def test_only_training_runs_compiled_code() -> None:
    backend, model = Counting(), network(make_objective("erm"))
    model.compile_for_training(backend)
    (images, _), *_ = make_batches()
    model.eval()
    with torch.no_grad():
        model(images)
    model.train()
    model.feature_map(images)
    assert backend.compiled == 0
    model(images)
    assert (backend.compiled, backend.ran) == (1, 1)

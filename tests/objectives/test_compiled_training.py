# SPDX-License-Identifier: Apache-2.0
"""Every method trains by compiled code as it does without: hooks, swapped parameters and penalties still hold.

torch's own stages of compiling run everywhere: capturing the graph ("eager"), and its backward pass ("aot_eager").
Generating code ("inductor") needs a C++ compiler, and rounds in another way.
"""

import copy
import os
import shutil
from typing import Any

import pytest
import torch

from fdg_plugins.objectives import OBJECTIVES, make_objective
from tests.objectives.local_steps import copy_of, same, train_steps
from tests.objectives.objective_batches import CLASSES, make_batches
from tests.objectives.second_round import Sent, after_a_round, network, train

SPECS: list[dict[str, Any]] = [
    *({"name": name} for name in sorted(OBJECTIVES)),
    {"name": "dim", "strength": 1.0},
    {"name": "iir", "strength": 1.0, "frozen_batchnorm": True},
    {"name": "am", "probability": 1.0},
    {"name": "rsc", "variant": "feature"},
]
AT_ONCE = ("erm", "dim", "mosam")  # a loss, a penalty by what the server sends, a step of its own; the rest by night
needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX") or "g++") is None, reason="generating code needs a C++ compiler"
)


@pytest.fixture(autouse=True)
def _compile_anew() -> None:
    """Every test compiles for itself."""
    torch.compiler.reset()


def trained_both_ways(spec: dict[str, Any], backend: str) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return the states after a second round, without compiling and with."""
    objective = make_objective(spec)
    sent = after_a_round(objective)
    assert objective.exchange(network(objective), CLASSES) is None or objective.reports_weight or sent.received
    states = []
    for compiles in (False, True):
        model = network(objective)
        if compiles:
            model.compile_for_training(backend)
        train(objective, model, sent)
        states.append(copy_of(model))
    return states[0], states[1]


@pytest.mark.parametrize(
    "spec",
    [pytest.param(spec, marks=[] if spec["name"] in AT_ONCE else pytest.mark.nightly) for spec in SPECS],
    ids=str,
)
def test_captured_graphs_train_to_the_same_bits(spec: dict[str, Any]) -> None:
    plain, compiled = trained_both_ways(spec, "eager")
    assert same(compiled, plain)
    assert not any("_orig_mod" in name for name in compiled)


@pytest.mark.nightly
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_captured_backward_passes_train_alike(spec: dict[str, Any]) -> None:
    plain, compiled = trained_both_ways(spec, "aot_eager")
    assert compiled.keys() == plain.keys()
    for name, value in plain.items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-4, atol=1e-5)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("spec", [{"name": "iir", "strength": 1.0}, {"name": "rsc"}, {"name": "mosam"}], ids=str)
def test_generated_code_trains_alike(spec: dict[str, Any]) -> None:
    plain, compiled = trained_both_ways(spec, "inductor")
    for name, value in plain.items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-3, atol=1e-4)


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


def test_a_new_model_every_round_is_not_compiled_anew() -> None:
    backend, objective = Counting(), make_objective("erm")
    counts = []
    for number in range(12):  # more often than torch compiles one piece of code
        model = network(objective)
        model.compile_for_training(backend)
        train(objective, model, Sent({}, {}), number)
        counts.append(backend.compiled)
    assert 0 < counts[0] == counts[-1]
    assert backend.ran == 12 * 4, "compiled code ran in every step"


def test_a_last_batch_that_is_smaller_trains_to_the_same_bits() -> None:
    objective = make_objective("erm")
    states = []
    for compiles in (False, True):
        model = network(objective)
        if compiles:
            model.compile_for_training("eager")
        batches = make_batches(model, (5, 5, 3))
        train_steps(model, objective.local({}, model), [batches, batches])
        states.append(copy_of(model))
    assert same(*states)


def test_only_training_runs_compiled_code() -> None:
    backend, model = Counting(), network(make_objective("erm"))
    model.compile_for_training(backend)
    (images, _), *_ = make_batches(model)
    model.eval()
    with torch.no_grad():
        model(images)
    model.train()
    model.feature_map(images)
    assert backend.compiled == 0
    model(images)
    assert (backend.compiled, backend.ran) == (1, 1)


def test_feature_maps_are_those_of_the_images_in_every_call() -> None:
    model = network(make_objective("rsc")).train()
    plain = copy.deepcopy(model)
    model.compile_for_training("eager")
    for images, _ in make_batches(model):
        model(images)  # compiled by now
        plain(images)
        assert torch.equal(model.feature_map(images), plain.feature_map(images))

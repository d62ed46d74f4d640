# SPDX-License-Identifier: Apache-2.0
"""Every local objective by name, on every kind of network, with a part of it fixed, and by compiled code.

torch's own stages of compiling run everywhere: capturing the graph ("eager"), and its backward pass ("aot_eager").
Generating code ("inductor") needs a C++ compiler, and rounds in another way.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from typing import Any

import pytest
import torch

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import NETWORKS, Network, build_model
from fdg_plugins.models.adapters import adapter_names
from fdg_plugins.objectives import OBJECTIVES, build_network, make_objective
from fdg_plugins.objectives.network import fixed_names
from fdg_plugins.settings.protocol import make_protocol
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.testing.objectives import CLASSES, make_batches, network, received_by, site_round, train
from tests.tiny_networks import POOLED, TINY

LARGE = ("resnet18", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny", "vit_b_16")
NOT_POOLED = ("mobilenet_v3_small", "convnext_tiny", "vit_b_16", *(name for name in TINY if name not in POOLED))
REFUSED = {"rsc": NOT_POOLED, "stable": (*NOT_POOLED, "tiny_efficientnet")}  # of which all maps have one size


@pytest.fixture(autouse=True, scope="module")
def _tiny_networks() -> Iterator[None]:
    for name, build in TINY.items():
        NETWORKS.add(Network(name=name, build=build))
    yield
    for name in TINY:
        NETWORKS.remove(name)


def trains(objective_name: str, name: str, size: int) -> None:
    """Train two epochs on two batches; every shared parameter moves and stays finite."""
    objective = make_objective(objective_name)
    model = build_model(name, CLASSES, seed=1, image_size=size)
    objective.check_network(model, (3, size, size))
    model = objective.adapt(model, (3, size, size), 1)
    batches = [
        (torch.nn.functional.interpolate(images, (size, size)), labels) for images, labels in make_batches(sizes=(4,))
    ]
    trained = train(model, objective.local({}, model, site_round()), batches)
    assert trained.update.keys() == model.state_dict().keys()
    assert all(bool(value.isfinite().all()) for value in trained.update.values())
    assert all(bool(trained.update[name].any()) for name in model.last_layer_names)
    exchange = objective.exchange(model, CLASSES, num_sites=2)
    if exchange is not None:
        exchange.begin_round(model.state_dict())


# Each network with plain training and with what refuses some of them, and each objective on a transformer; the contract
# has each on a convolutional network. By night, torchvision's own with an objective that reads features and last layer.
CHECKED = [
    *((*pair, 16) for pair in sorted({*product(("erm", *REFUSED), TINY), *product(OBJECTIVES, ("tiny_vit",))})),
    *(pytest.param(*pair, 32, marks=pytest.mark.nightly) for pair in product(("erm", "iir", "rsc"), LARGE)),
]


@pytest.mark.parametrize(("objective", "name", "size"), CHECKED)
def test_it_trains_every_kind_of_network_or_says_why_not(objective: str, name: str, size: int) -> None:
    refused = name in REFUSED.get(objective, ())
    outcome: AbstractContextManager[Any] = pytest.raises(SettingsError) if refused else nullcontext()
    with outcome:
        trains(objective, name, size)


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


SPECS: list[dict[str, Any]] = [
    *({"name": name} for name in sorted(OBJECTIVES)),
    {"name": "dim", "strength": 1.0},
    {"name": "iir", "strength": 1.0, "frozen_batchnorm": True},
    {"name": "am", "probability": 1.0},
    {"name": "rsc", "variant": "feature"},
]
AT_ONCE = ("mosam",)  # a step of its own, by what the server sends; the rest by night


@pytest.mark.parametrize(
    "spec",
    [pytest.param(spec, marks=[] if spec["name"] in AT_ONCE else pytest.mark.nightly) for spec in SPECS],
    ids=str,
)
def test_captured_graphs_train_to_the_same_bits(spec: dict[str, Any]) -> None:
    """After a round that follows one of two other sites."""
    torch.compiler.reset()
    objective = make_objective(spec)
    sent = received_by(objective)
    plain, compiled = network(objective), network(objective)
    compiled.compile_for_training("eager")
    for model in (plain, compiled):
        train(model, objective.local(sent, model, site_round()), make_batches())
    assert same_bits(compiled.state_dict(), plain.state_dict())
    assert not any("_orig_mod" in name for name in compiled.state_dict())


def test_only_training_runs_compiled_code() -> None:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    model = network(make_objective("erm"))
    model.compile_for_training(backend)
    (images, _), *_ = make_batches()
    with torch.no_grad():
        model.eval()(images)
    model.train().feature_map(images)
    assert graphs == []
    model(images)
    assert len(graphs) == 1


@pytest.mark.parametrize("spec", ["median", "", {}, {"name": ["erm"]}, None, 0.5, {"name": "erm", "strength": 1}])
def test_an_unknown_objective_or_setting_is_refused(spec: Any) -> None:
    with pytest.raises(SettingsError):
        make_objective(spec)

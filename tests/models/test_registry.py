# SPDX-License-Identifier: Apache-2.0
"""Every model of the registry goes through the same properties."""

import doctest

import pytest
import torch
from torch import nn

import fdg_plugins.models
from fdg_plugins.errors import SettingsError
from fdg_plugins.models import ExtractorClassifier, build_model, model_names, parameter_kinds

SMALL = ("convnet", "resnet18")  # resnet50 takes a second to build, and shares all its code with resnet18


@pytest.fixture(scope="module", params=model_names())
def model(request: pytest.FixtureRequest) -> ExtractorClassifier:
    return build_model(request.param, 7, seed=1).eval()


def same_bits(first: nn.Module, second: nn.Module) -> bool:
    one, two = first.state_dict(), second.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def test_the_package_example_holds() -> None:
    assert doctest.testmod(fdg_plugins.models).failed == 0


def test_logits_are_the_classifier_of_the_features(model: ExtractorClassifier) -> None:
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    features = model.features(images)
    assert features.shape == (2, model.feature_size)
    assert model(images).shape == (2, 7)
    expected = features @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(model(images), expected)


def test_every_entry_has_the_kind_that_its_type_says(model: ExtractorClassifier) -> None:
    kinds = parameter_kinds(model)
    state = model.state_dict()
    assert list(kinds) == list(state)
    assert {name for name, kind in kinds.items() if kind == "trainable"} == {
        name for name, _ in model.named_parameters()
    }
    for name, kind in kinds.items():
        if name.endswith(("running_mean", "running_var")):
            assert kind == "float_buffer"
        if name.endswith("num_batches_tracked"):
            assert kind == "integer_buffer"
        assert state[name].is_floating_point() == (kind != "integer_buffer")


def test_frozen_shared_and_boolean_entries_have_kinds_too() -> None:
    module = nn.Module()
    module.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
    module.tied = module.frozen
    module.register_buffer("mask", torch.zeros(2, dtype=torch.bool))
    module.register_buffer("unsaved", torch.zeros(2), persistent=False)
    assert parameter_kinds(module) == {"frozen": "trainable", "tied": "trainable", "mask": "integer_buffer"}


def test_resnet18_has_the_known_number_of_parameters_and_buffers() -> None:
    model = build_model("resnet18", 1000, seed=0)
    assert sum(parameter.numel() for parameter in model.parameters()) == 11_689_512  # torchvision's documentation
    kinds = list(parameter_kinds(model).values())
    assert (kinds.count("float_buffer"), kinds.count("integer_buffer")) == (40, 20)  # 20 batch normalisations


@pytest.mark.parametrize("name", SMALL)
def test_the_seed_alone_decides_the_bits(name: str) -> None:
    first = build_model(name, 7, seed=3)
    torch.rand(5)
    assert same_bits(first, build_model(name, 7, seed=3))
    assert not same_bits(first, build_model(name, 7, seed=4))
    assert same_bits(first.extractor, build_model(name, 2, seed=3).extractor)


def test_building_leaves_the_global_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    build_model("convnet", 7, seed=0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("size", [16, 17, 32, 100])
def test_the_convnet_trains_on_two_small_images_of_any_size(size: int) -> None:
    model = build_model("convnet", 3, seed=0).train()
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    nn.functional.cross_entropy(model(images), torch.tensor([0, 2])).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_convnet_is_small() -> None:
    assert 100_000 < sum(p.numel() for p in build_model("convnet", 7, seed=0).parameters()) < 400_000


def test_unknown_names_and_impossible_sizes_are_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"model 'os\.system' is unknown; expected one of: convnet, resnet18, resnet50"
    ):
        build_model("os.system", 7, seed=0)
    with pytest.raises(SettingsError, match="num_classes is 0 for model convnet; expected at least 1"):
        build_model("convnet", 0, seed=0)

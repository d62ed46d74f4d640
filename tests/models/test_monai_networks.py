# SPDX-License-Identifier: Apache-2.0
"""MONAI's networks: definition and module agree, features are dense, parameters unique, pretrained files fit."""

import copy
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.models import (
    NETWORKS,
    ExtractorClassifier,
    build_model,
    check_features,
    load_pretrained,
    parameter_kinds,
)
from fdg_plugins.models.monai_networks import monai_definition
from fdg_plugins.plans.plans import make_plans
from fdg_plugins.settings.families import dataset_protocol

DENSE = ("monai_unet", "monai_basic_unet", "monai_dynunet")
NAMES = (*DENSE, "monai_densenet121")


def made(name: str = "monai_unet", **given: Any) -> ExtractorClassifier:
    return build_model(name, 2, seed=1, **given)


def test_the_network_is_monais_own_by_its_definition() -> None:
    for norm in ["default", "batch", "instance"]:
        for name in NAMES:
            path, settings = monai_definition(name, channels=1, dims=2, norm=norm)
            nets = pytest.importorskip("monai.networks.nets")
            theirs = getattr(nets, path.removeprefix("monai.networks.nets."))(**settings)
            state = {
                key.removeprefix("network."): value
                for key, value in made(name, channels=1, norm=norm).extractor.state_dict().items()
            }
            missing, unexpected = theirs.load_state_dict(state, strict=False)
            assert not unexpected
            assert all(key.startswith(("skip_layers.", "class_layers.out.")) for key in missing)
            images = torch.rand(2, 1, 32, 32)
            if name in DENSE:
                model = made(name, channels=1, norm=norm).eval()
                assert torch.equal(model.features(images), theirs.eval()(images).movedim(1, -1))
            norms = {type(module).__name__ for module in theirs.modules() if "Norm" in type(module).__name__}
            assert norms == {"BatchNorm2d"} if norm == "batch" else norms <= {"InstanceNorm2d", "BatchNorm2d"}


def test_group_normalization_has_no_running_statistics() -> None:
    for name in NAMES:
        with torch.device("meta"):
            model = made(name, norm="group")
            features = model.features(torch.empty(2, 3, 32, 32))
        assert features.shape[-1] == model.feature_size
        assert list(model.buffers()) == []
        assert any(isinstance(module, torch.nn.GroupNorm) for module in model.modules())


@pytest.mark.parametrize("name", DENSE)
def test_volumes_have_features_for_every_voxel(name: str) -> None:
    model = made(name, channels=1, dims=3, norm="batch")
    check_features(model, 1, 16, dims=3, dense=True)
    with pytest.raises(SettingsError, match=r"\[2, 16, 16, 16, 16\], expected \[2, 16\]: one vector per image"):
        check_features(model, 1, 16, dims=3)


def test_every_parameter_has_one_entry_and_a_copy_computes_the_same() -> None:
    for name in NAMES:
        model = made(name, norm="batch").train()
        state = model.state_dict()
        assert len({value.data_ptr() for value in state.values() if value.numel()}) == len(state)
        assert sum(kind == "trainable" for kind in parameter_kinds(model).values()) == len(list(model.parameters()))
        images = torch.rand(2, 3, 32, 32)
        twin = copy.deepcopy(model)
        with torch.no_grad():
            next(twin.parameters()).mul_(2)
        model(images).sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        assert not torch.equal(model.eval()(images), twin.eval()(images))
        twin.load_state_dict(model.state_dict())
        assert torch.equal(model(images), twin(images))


# --- pretrained files -------------------------------------------------------------------------------


def of_monai(outputs: int, seed: int = 7) -> nn.Module:
    nets = pytest.importorskip("monai.networks.nets")
    torch.manual_seed(seed)
    _, settings = monai_definition("monai_unet", channels=3, dims=2, norm="batch")
    return nets.UNet(**{**settings, "out_channels": outputs})


def test_a_file_of_monais_network_is_taken_without_a_head_that_does_not_fit(tmp_path: Path) -> None:
    for suffix in [".pth", ".safetensors"]:
        for outputs in [16, 2]:
            path, theirs, model = tmp_path / f"weights{suffix}", of_monai(outputs).state_dict(), made(norm="batch")
            own = {key: value.clone() for key, value in model.state_dict().items()}
            (torch.save if suffix == ".pth" else safetensors.torch.save_file)(theirs, path)
            record = load_pretrained(model, "monai_unet", "auto", path)
            assert (record.label, record.file) == ("pretrained file", path.name)
            for key, value in model.state_dict().items():
                name = key.removeprefix("extractor.network.")
                kept = key.startswith("classifier") or (outputs == 2 and name.startswith("model.2."))
                assert torch.equal(value, own[key] if kept else theirs[name]), key


def test_a_file_of_a_whole_network_is_taken_too(tmp_path: Path) -> None:
    other, model = build_model("monai_unet", 5, seed=9, norm="batch"), made(norm="batch")
    torch.save(other.state_dict(), tmp_path / "model.pth")
    load_pretrained(model, "monai_unet", "auto", tmp_path / "model.pth")
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in other.state_dict().items() if "ext" in key)


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    model, theirs = made(norm="batch"), of_monai(2).state_dict()
    first = "model.0.conv.unit0.conv.weight"
    torch.save({**theirs, first: torch.zeros(16, 1, 3, 3)}, tmp_path / "weights.pth")
    with pytest.raises(DataError, match=rf"network\.{first} of shape \[16, 1, 3, 3\]; expected \[16, 3, 3, 3\]"):
        load_pretrained(model, "monai_unet", "auto", tmp_path / "weights.pth")
    with pytest.raises(SettingsError, match="model monai_unet has no ImageNet weights"):
        load_pretrained(model, "monai_unet", "imagenet", tmp_path / "weights.pth")
    assert load_pretrained(model, "monai_unet", "auto").label == "from scratch"


# --- the plan ---------------------------------------------------------------------------------------


def test_the_vessels_have_the_protocol_of_segmentation() -> None:
    job = {"dataset": "vessels", "target": "drive", **dataset_protocol("vessels").protocol}
    protocol = make_plans(job, {}, {}, []).real.protocol
    assert (protocol.task, protocol.model, protocol.normalization, protocol.optimizer) == (
        "segmentation", "monai_unet", "batch", "adam",
    )  # fmt: skip
    assert (protocol.momentum, protocol.image_size % NETWORKS.get(protocol.model).multiple) == (0.0, 0)
    assert dataset_spec("vessels").task == "segmentation"


@pytest.mark.parametrize(
    ("name", "norm", "smallest", "below"),
    [("monai_basic_unet", "default", 32, 16), ("monai_densenet121", "instance", 61, 60)],
)
def test_images_on_which_instance_normalization_cannot_train_are_refused_with_the_smallest_that_it_can(
    name: str, norm: str, smallest: int, below: int
) -> None:
    model = made(name, norm=norm, image_size=smallest)
    assert model.train().features(torch.rand(2, 3, smallest, smallest)).shape[0] == 2
    with pytest.raises(ValueError, match="more than 1 spatial element"):
        model.features(torch.rand(2, 3, below, below))
    with pytest.raises(SettingsError, match=f"is {below}, expected at least {smallest} for model '{name}' with"):
        made(name, norm=norm, image_size=below)


def test_a_network_that_does_not_fit_is_refused_before_any_site_is_asked() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"model": "monai_densenet121", "image_size": 28},
            "image_size (FDG_IMAGE_SIZE) is 28, expected at least 29 for model 'monai_densenet121'.",
        ),
        (
            {"model": "groupnorm_convnet", "dataset": "rotateddigits", "target": "angle_0", "normalization": "batch"},
            "normalization (FDG_NORMALIZATION) is 'batch', expected 'default': model 'groupnorm_convnet' has no other.",
        ),
        (
            {"model": "monai_unet"},
            "which has one feature vector per pixel, but task 'classification' needs one per image.",
        ),
        (
            {"dataset": "vessels", "target": "drive", "task": "segmentation"},
            "which has one feature vector per image, but task 'segmentation' needs one per pixel.",
        ),
        (
            {"dataset": "vessels", "target": "drive", "task": "segmentation", "model": "monai_unet", "image_size": 100},
            "image_size (FDG_IMAGE_SIZE) is 100, expected a multiple of 16 for model 'monai_unet'.",
        ),
        (
            {"model": "resnet18", "normalization": "instance"},
            "is 'instance', expected 'default' or 'batch' or 'group': model 'resnet18' has no other.",
        ),
    ]
    for job, message in cases:
        with pytest.raises(SettingsError) as caught:
            make_plans(job, {}, {}, [])
        assert message in str(caught.value)
        assert NETWORKS.get(job.get("model", "resnet18"))

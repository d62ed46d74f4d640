# SPDX-License-Identifier: Apache-2.0
"""MONAI's networks: definition and module agree, features are dense, parameters unique, pretrained files fit."""

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from fdg_plugins.models import ExtractorClassifier, build_model, load_pretrained
from fdg_plugins.models.monai_networks import monai_definition

DENSE = ("monai_unet", "monai_basic_unet", "monai_dynunet")
NAMES = (*DENSE, "monai_densenet121")


def made(name: str = "monai_unet", **given: Any) -> ExtractorClassifier:
    return build_model(name, 2, seed=1, **given)


def test_the_network_is_monais_own_by_its_definition() -> None:
    for norm in ["default", "batch"]:
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

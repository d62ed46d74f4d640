# SPDX-License-Identifier: Apache-2.0
"""Pretrained weights: what is loaded is what was in the file, and no other file than the announced one is used."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.models.pretrained import load_pretrained
from fdg_plugins.testing.inputs import same_bits
from tests.test_storage import Trap

CACHE_NAME = "resnet18-f37072fd.pth"


@pytest.fixture(scope="module")
def source() -> ExtractorClassifier:
    """A network in the place of the published one; its counters and running means are not those of a new one."""
    model = build_model("resnet18", 7, seed=99)
    for key, value in model.extractor.state_dict().items():
        if key.endswith("running_mean"):
            value += 0.5
    return model


@pytest.fixture
def model() -> ExtractorClassifier:
    return build_model("resnet18", 7, seed=1)


@pytest.fixture
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """torchvision's cache, moved to an empty folder."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    folder = tmp_path / "torch" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


def published(source: ExtractorClassifier) -> dict[str, torch.Tensor]:
    """Return the state as torchvision publishes it: with ``fc``, without the counters of batch normalisation."""
    state = {k: v for k, v in source.extractor.state_dict().items() if not k.endswith("num_batches_tracked")}
    return {**state, "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_file_fills_the_extractor(tmp_path: Path, model: ExtractorClassifier, source: ExtractorClassifier) -> None:
    for suffix, mode in ((".pth", "imagenet"), (".safetensors", "auto")):
        path = tmp_path / f"weights{suffix}"
        save = torch.save if suffix == ".pth" else safetensors.torch.save_file
        save(published(source), path)
        classifier = {key: value.clone() for key, value in model.classifier.state_dict().items()}
        record = load_pretrained(model, "resnet18", mode, path, digest(path).upper())
        assert same_bits(model.extractor.state_dict(), source.extractor.state_dict())
        assert same_bits(model.classifier.state_dict(), classifier)
        label = {"imagenet": "imagenet", "auto": "pretrained file"}[mode]
        assert (record.label, record.file, record.sha256) == (label, path.name, digest(path))


def test_tampered_file_is_refused(tmp_path: Path, model: ExtractorClassifier, source: ExtractorClassifier) -> None:
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(published(source), path)
    announced = digest(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(DataError, match=rf"weights\.safetensors have SHA-256 {digest(path)}; expected {announced}"):
        load_pretrained(model, "resnet18", "auto", path, announced)
    assert same_bits(model.state_dict(), before)


def test_without_a_file(checkpoints: Path, model: ExtractorClassifier) -> None:
    assert load_pretrained(model, "resnet18", "auto").label == "from scratch"
    with pytest.raises(DataError):
        load_pretrained(model, "resnet18", "imagenet")
    assert list(checkpoints.iterdir()) == []


def test_a_file_in_the_cache_must_match_the_digits_in_its_name(
    checkpoints: Path, model: ExtractorClassifier, source: ExtractorClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = checkpoints / CACHE_NAME
    torch.save(published(source), path)
    with pytest.raises(DataError, match=f"{CACHE_NAME} have SHA-256 {digest(path)}; expected f37072fd"):
        load_pretrained(model, "resnet18", "auto")
    honest = path.rename(checkpoints / f"resnet18-{digest(path)[:8]}.pth")
    monkeypatch.setattr("fdg_plugins.models.pretrained.imagenet_file_name", lambda *_: honest.name)
    record = load_pretrained(model, "resnet18", "auto")
    assert (record.label, record.file) == ("imagenet", honest.name)
    with pytest.raises(DataError):
        load_pretrained(model, "resnet18", "auto", None, "0" * 64)


def test_bad_numbers_are_refused(tmp_path: Path, model: ExtractorClassifier, source: ExtractorClassifier) -> None:
    cases: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = [
        ("conv1.weight", lambda value: value.flatten().index_fill(0, torch.tensor(3), float("nan")).view_as(value)),
        ("bn1.bias", lambda value: value.double().index_fill(0, torch.tensor(3), 1e300)),
        ("conv1.weight", lambda value: value.to(torch.int32)),
        ("bn1.weight", lambda value: value > 0),
        ("bn1.weight", lambda value: value.to_sparse()),
        ("bn1.weight", lambda value: value[:-1]),
    ]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for key, change in cases:
        state = published(source)
        state[key] = change(state[key])
        torch.save(state, tmp_path / "weights.pth")
        with pytest.raises(DataError, match=rf"weights\.pth have {re.escape(key)} ") as caught:
            load_pretrained(model, "resnet18", "imagenet", tmp_path / "weights.pth")
        assert same_bits(model.state_dict(), before)
        assert str(tmp_path) not in caught.value.public


@pytest.mark.parametrize("zipped", [True, False])
def test_what_is_no_state_or_lacks_a_parameter_is_refused_and_no_code_is_run(
    tmp_path: Path, model: ExtractorClassifier, source: ExtractorClassifier, zipped: bool
) -> None:
    path, (first, *rest) = tmp_path / "weights.pth", published(source).items()
    for content in ([first[1]], {first[0]: 1}, dict(rest), {first[0]: Trap(tmp_path / "proof")}):
        torch.save(content, path, _use_new_zipfile_serialization=zipped)
        whole = path.read_bytes()
        for found in (whole, whole[:-100]):
            path.write_bytes(found)
            with pytest.raises(DataError) as caught:
                load_pretrained(model, "resnet18", "imagenet", path)
            assert "\n" not in str(caught.value)
    assert not (tmp_path / "proof").exists()
    with pytest.raises(SettingsError):
        load_pretrained(model, "resnet18", "imagenet", path, "f37072fd")

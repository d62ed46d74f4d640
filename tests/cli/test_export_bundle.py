# SPDX-License-Identifier: Apache-2.0
"""``fdg export bundle``: MONAI alone executes the bundle and writes the mask that the run's own network predicts."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import interpolate
from typer.testing import Result

import fdg_plugins
from fdg_plugins.data import dataset_spec
from fdg_plugins.data.catalogue import DATASETS
from fdg_plugins.data.decoding import PairForm
from fdg_plugins.data.specs import SegmentationSpec
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis import bundle
from fdg_plugins.lab.analysis.bundle import bundle_weights, inference
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.messages import Evaluation, ScoreSum
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.models.monai_networks import DEFINED
from fdg_plugins.objectives import build_network
from fdg_plugins.storage import save_tensors
from tests.analysis.run_stubs import FEDAVG, census_reply, finished, keep
from tests.cli.commands import check_refusal, fdg
from tests.finished_runs import record_in

nibabel = pytest.importorskip("nibabel")
if find_spec("monai") is None:  # importing it takes seconds, in each of pytest's workers
    pytest.skip("MONAI is not installed (extra medical)", allow_module_level=True)

SIDE = 32
NAMES = ("true_positives_1", "false_positives_1", "false_negatives_1")
SCANS = SegmentationSpec(
    name="deep_scans",
    folder="deep_scans",
    title="Drawn scans of 16 bits",
    reference="none",
    domains=("a", "b", "c"),
    classes=("background", "organ"),
    mask_values=((0,), (500, 2)),
    channels=1,
    preset="photo_patches",
)


def judged(score: str) -> Evaluation:
    sums = {score: ScoreSum(sum=1.0, count=2), **{name: ScoreSum(sum=1, count=4) for name in NAMES}}
    return Evaluation(split="test", loss=1.0, count=2, sums=sums)


def finished_run(folder: Path, dataset: str = "vessels", **changes: Any) -> ExtractorClassifier:
    """Write the record and the model of a finished run to ``folder``; return the model."""
    settings = {"task": "segmentation", "model": "monai_unet", "normalization": "instance", "crop_scale": 1.0}
    domains = DATASETS.get(dataset).domains
    protocol = {"dataset": dataset, "image_size": SIDE, **settings, **changes}
    classes = ("background", "organ")
    replies = {domain: census_reply(domain, dataset=dataset, classes=classes) for domain in domains}
    record = finished(
        FEDAVG, domains[0], 3, (), domains=domains, protocol=protocol, data="drawn", classes=classes, census=replies
    )
    record.add_evaluation(0, {domain: judged(record.score.name) for domain in domains})
    record.choices = record.choose({"source_validation": "global_model_selected.safetensors"})
    keep(Run(Path(), record), folder)
    made = record.protocol
    if made.model not in DEFINED and made.task == "segmentation":
        made = made.model_copy(update={"model": "monai_unet"})
    model = build_network(made, 2).eval()
    with torch.no_grad():  # neither class everywhere
        model.last_layer.weight.mul_(50)
    save_tensors(folder / "global_model_selected.safetensors", model.state_dict())
    return model


def preprocessed(folder: Path, spec: SegmentationSpec, file: Path, *, nifti: bool = False) -> np.ndarray:
    """Return an image as a bundle of the run in ``folder`` reads it."""
    from monai.bundle import ConfigParser

    written = inference(Run(folder, record_in(folder)), spec, nifti=nifti)
    config = {name: written[name] for name in ("imports", "preprocessing")}
    parsed = ConfigParser(config).get_parsed_content("preprocessing")({"image": str(file)})
    return np.asarray(parsed["image"].as_tensor())


def export(run: Path, bundle: Path) -> Result:
    return fdg("export", "bundle", run, bundle)


def drawn(height: int, width: int) -> np.ndarray:
    """Return an image uint8 ``[H, W, 3]`` without any symmetry."""
    rows, columns = np.mgrid[:height, :width]
    noise = np.random.default_rng(0).integers(0, 60, (height, width, 3))
    return (noise + (rows * 3 + columns)[..., None] % 190).astype(np.uint8)


@pytest.mark.slow
def test_monai_executes_the_bundle_and_the_mask_is_that_of_the_run(tmp_path: Path) -> None:
    model = finished_run(tmp_path / "run")
    result = export(tmp_path / "run", tmp_path / "bundle")
    assert (result.exit_code, result.stdout.strip()) == (0, f"{tmp_path / 'bundle'}: written")
    pixels = drawn(40, 56)
    (tmp_path / "images").mkdir()
    Image.fromarray(pixels).save(tmp_path / "images" / "one.png")

    command = [sys.executable, "-m", "monai.bundle", "run", "--config_file", "configs/inference.json"]
    command += ["--meta_file", "configs/metadata.json", "--dataset_dir", str(tmp_path / "images")]
    subprocess.run(command, cwd=tmp_path / "bundle", check=True, timeout=900)
    (mask,) = (path for path in (tmp_path / "bundle" / "masks").rglob("*") if path.is_file())

    whole = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
    with torch.no_grad():
        small = interpolate(whole, (SIDE, SIDE), mode="bilinear", antialias=True)
        logits = interpolate(model(small).movedim(-1, 1), whole.shape[2:], mode="bilinear")
    found = np.asarray(Image.open(mask))
    assert found.shape == (40, 56)
    assert set(np.unique(found)) == {0, 255}
    assert (found == 255 * logits.argmax(dim=1)[0].numpy()).mean() > 0.999


@pytest.mark.parametrize("mode", ["I;16", "RGB", "P", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_bundle_reads_an_image_as_training_does(tmp_path: Path, mode: str, channels: int) -> None:
    spec = replace(SCANS, channels=channels)
    picture = Image.fromarray(drawn(40, 56))
    if mode == "I;16":
        picture = Image.fromarray(np.random.default_rng(0).integers(0, 2**16, (40, 56)).astype(np.uint16))
    file = tmp_path / f"one{'.tif' if mode == 'CMYK' else '.png'}"
    options: dict[str, Any] = {"transparency": b"\x00\x80"} if mode == "P" else {}
    picture.convert(mode).save(file, **options)
    finished_run(tmp_path / "run")
    found = preprocessed(tmp_path / "run", spec, file)
    assert np.array_equal(np.rint(found * 255), PairForm(spec).image(file))


@pytest.mark.parametrize(("dims", "channels", "shape"), [(2, 3, (8, 6, 1)), (2, 3, (8, 6, 3)), (3, 2, (8, 6, 5, 2))])
def test_a_bundle_reads_nifti_of_any_number_of_channels_as_training_does(
    tmp_path: Path, dims: int, channels: int, shape: tuple[int, ...]
) -> None:
    spec = replace(SCANS, channels=channels, dims=dims, preset="ct_patches")
    file = tmp_path / "one.nii.gz"
    values = np.random.default_rng(0).uniform(-175, 250, shape).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(values, np.diag([-0.5, 0.75, 2.0, 1.0])), file)
    finished_run(tmp_path / "run", preset="ct_patches")
    found = preprocessed(tmp_path / "run", spec, file, nifti=True)
    np.testing.assert_allclose(found * 425 - 175, PairForm(spec, oriented=True).image(file), atol=1e-3)


def test_the_bundle_describes_itself_and_keeps_its_weights_as_plain_tensors(tmp_path: Path) -> None:
    finished_run(tmp_path / "run")
    export(tmp_path / "run", tmp_path / "bundle")
    weights = torch.load(tmp_path / "bundle" / "models" / "model.pt", weights_only=True)
    assert weights["1.weight"].shape == (2, 16, 1, 1)
    metadata = json.loads((tmp_path / "bundle" / "configs" / "metadata.json").read_text())
    assert metadata["description"].startswith("trained by fedavg on drive, hrf, stare; held out: chase_db1; ")
    assert metadata["task"] == "segmentation of vessel in drawn"
    assert metadata["network_data_format"]["outputs"]["pred"]["channel_def"] == {"0": "background", "1": "vessel"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"dataset": "pacs", "task": "classification", "model": "convnet", "normalization": "default"},
            "expected 'segmentation'",
        ),
        ({"model": "own_unet"}, "model is 'own_unet', expected one of monai_unet"),
        ({"head": "two_layer"}, "head is 'two_layer', expected 'linear' for a bundle."),
        ({"travels": {"personal": ["*running_*"]}, "normalization": "batch"}, "leaves no parameter to each site"),
        ({"trainable": "adapters"}, "trainable is 'adapters', expected MONAI's network as it is for a bundle."),
    ],
)
def test_what_has_no_bundle_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    finished_run(tmp_path / "run", **changes)
    check_refusal(export(tmp_path / "run", tmp_path / "bundle"), message)
    finished_run(tmp_path / "other")
    check_refusal(export(tmp_path, tmp_path / "bundle"), "there are 2 finished runs")
    check_refusal(export(tmp_path / "other", tmp_path), "exists")
    (tmp_path / "other" / "global_model_selected.safetensors").unlink()
    check_refusal(export(tmp_path / "other", tmp_path / "bundle"), "kept no")
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("name", ["$__import__('os').getpid()", "@bundle_root"])
def test_a_class_whose_name_monai_would_evaluate_has_no_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    named = replace(dataset_spec("vessels"), classes=("background", name))
    monkeypatch.setattr(bundle, "dataset_spec", lambda dataset: named)
    finished_run(tmp_path / "run")
    check_refusal(export(tmp_path / "run", tmp_path / "bundle"), "which MONAI would evaluate")
    assert not (tmp_path / "bundle").exists()


def test_a_network_that_a_method_has_changed_is_refused() -> None:
    with pytest.raises(SettingsError):
        bundle_weights({"normalization.amplitude": torch.zeros(1)}, "monai_unet", 2)


def test_no_module_of_the_package_reads_a_bundle() -> None:
    """A bundle's expressions are code: nothing imports MONAI's reader of bundles, or has the name of one."""
    reads = re.compile(r"^\s*(from|import) monai\.bundle|ConfigParser|ConfigWorkflow|BundleWorkflow", re.MULTILINE)
    files = Path(fdg_plugins.__file__).parent.rglob("*.py")
    assert [path.name for path in files if reads.search(path.read_text(encoding="utf-8"))] == []

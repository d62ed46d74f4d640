# SPDX-License-Identifier: Apache-2.0
"""The page on medical images: its data set is complete, its tables and its refusal are those of the code."""

import json
import re
from pathlib import Path

import nibabel
import numpy as np
import pytest
from typer.testing import CliRunner

from fdg_plugins.cli.main import app
from fdg_plugins.data.presets import PRESETS
from fdg_plugins.errors import SettingsError
from fdg_plugins.models import build_model
from fdg_plugins.models.networks import NETWORKS
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.target import load_target
from fdg_plugins.recipes import make_recipe

PAGE = (Path(__file__).parents[2] / "docs" / "medical.md").read_text(encoding="utf-8")
SCANNERS = ("scanner_a", "scanner_b", "scanner_c")


def first_block(language: str) -> str:
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return found[0]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "prostate.py"
    path.write_text(first_block("python"), encoding="utf-8")
    return path


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """A data root with a data list per scanner, two volumes each."""
    folder = tmp_path / "data" / "prostate"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for scanner in SCANNERS:
        entries = []
        for number in range(2):
            names = {"image": f"{scanner}-{number}.nii.gz", "label": f"{scanner}-{number}-label.nii.gz"}
            image, label = generator.random((8, 8, 4), dtype=np.float32), generator.integers(0, 3, (8, 8, 4))
            for name, values in zip(names.values(), (image, label.astype(np.uint8)), strict=True):
                nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), folder / name)
            entries.append(names)
        (folder / f"{scanner}.json").write_text(json.dumps({"training": entries}), encoding="utf-8")
    return folder.parent


def test_the_commands_take_the_data_set_of_the_file(file: Path, scans: Path, tmp_path: Path) -> None:
    checked = CliRunner().invoke(app, ["data", "check", "prostate", "--data-root", str(scans), "--plugin", str(file)])
    assert checked.exit_code == 0, checked.output
    assert all(scanner in checked.stdout for scanner in SCANNERS)
    asked = ["--method", "fedavg", "--dataset", "prostate", "--plugin", str(file), "--to", str(tmp_path / "jobs")]
    made = CliRunner().invoke(app, ["export", "job", *asked])
    assert made.exit_code == 0, made.output
    config = tmp_path / "jobs" / "prostate_fedavg" / "app_server" / "config" / "config_fed_server.json"
    protocol = json.loads(config.read_text(encoding="utf-8"))["workflows"][0]["args"]["protocol"]
    expected = {"task": "segmentation", "model": "monai_unet", "image_size": 64, "batch_size": 2, "rounds": 40}
    assert {name: protocol[name] for name in expected} == expected


def test_every_preset_and_network_is_in_its_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert set(rows) == {*PRESETS, *(name for name in NETWORKS.own() if name.startswith("monai_"))}


@pytest.mark.parametrize("name", [name for name in NETWORKS.own() if name.startswith("monai_")])
def test_the_numbers_of_parameters_are_those_of_the_networks(name: str) -> None:
    (row,) = re.findall(rf"^\| `{name}` \|.*$", PAGE, re.MULTILINE)
    models = [build_model(name, 2, seed=0, channels=3, dims=dims) for dims in (2, 3)]
    counts = [sum(parameter.numel() for parameter in model.parameters()) / 1e6 for model in models]
    assert f"| {counts[0]:.1f}, {counts[1]:.1f} |" in row


def test_every_method_is_in_the_table_and_those_that_need_labelled_images_are_refused() -> None:
    rows = re.findall(r"^\| ((?:\[?\w.*?)) \| ((?:is|its|unchanged|aligns|\*\*).*?) \|$", PAGE, re.MULTILINE)
    said = {name.strip("[").partition("]")[0]: what for names, what in rows for name in names.split(", ")}
    refused = {name for name, what in said.items() if what == "**refused**"}
    methods = METHODS.own().values()
    assert set(said) == {method.title for method in methods}
    labelled = [one.title for one in methods if one.objective and load_target(one.objective).needs_labelled_images]
    assert refused == set(labelled)


@pytest.mark.parametrize("method", ["rsc", "fedsr"])
def test_the_refusal_is_what_a_user_reads(method: str) -> None:
    with pytest.raises(SettingsError) as caught:
        make_recipe(method, "vessels")
    assert str(caught.value).replace("'sr'", "'rsc'") == first_block("text").strip()

# SPDX-License-Identifier: Apache-2.0
"""Variables, data roots and weights as users have them: found, missing in part, misspelt."""

from pathlib import Path

import pytest
import torch

from fdg_plugins.data import CELEBA, DATASETS, PACS, ROTATED_MNIST, AttributeSpec, dataset_spec
from fdg_plugins.data.folders import LOCK
from fdg_plugins.data.specs import files_of
from fdg_plugins.data.stand_in import MARKER
from fdg_plugins.lab.doctor import setup
from fdg_plugins.lab.doctor.finding import Finding, Status
from fdg_plugins.lab.doctor.setup import check_data, check_variables, check_weights
from fdg_plugins.models.torchvision_networks import imagenet_file_name


def by_check(findings: "list[Finding]") -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FDG_ROUNDS", "20"),
        ("FDG_KAPPA", "0.25"),
        ("FDG_WEIGHTING", "samples"),
        ("FDG_STRENGTH", "0.1"),
        ("FDG_STEP_SIZE", "0.1"),
        ("FDG_NORMALIZER", "max_abs"),
        ("FDG_WEIGHTING", '{"name": "ga", "step_size": 0.1}'),
        ("FDG_PROBE", "previous_round"),
        ("FDG_OBJECTIVE", '{"name": "dim", "target": "feature"}'),
        ("FDG_DATASET", "rotatedmnist"),
        ("FDG_THREADS", "2"),
        ("FDG_DATA_ROOT", "data"),
        ("FDG_SITES_PER_ROUND", "none"),
    ],
)
def test_a_variable_that_a_job_takes_is_ok(name: str, value: str) -> None:
    (found,) = check_variables({name: value, "PWD": "/", "HOME": "/root"})
    assert found == Finding(name, Status.OK, f"is {value!r}")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("FDG_KAPA", "1", "there is no setting 'kapa'; did you mean 'kappa'?"),
        ("FDG_THREAD", "1", "did you mean 'threads'?"),
        ("FDG_XYZZY", "1", "there is no setting 'xyzzy'; known are"),
        ("FDG_ROUNDS", "x", "setting rounds (FDG_ROUNDS) is 'x'"),
        ("FDG_KAPPA", "-1", "kappa is -1.0, expected a finite number of at least 0.0"),
        ("FDG_RESCALE", "maybe", "rescale is 'maybe', expected true or false"),
        ("FDG_STRENGTH", "-1", "strength is -1.0, expected a finite number of at least 0"),
        ("FDG_STEP_SIZE", "much", "step_size is 'much', expected a number"),
        ("FDG_PROBE", "never", "probe is 'never', expected one of extra_task, previous_round"),
        ("FDG_OBJECTIVE", "dum", "objective is 'dum', did you mean 'dim'"),
        ("FDG_MODEL", "vgg", "model 'vgg' is unknown"),
        ("FDG_DATASET", "pax", "data set 'pax' is unknown, "),
        ("FDG_THREADS", "0", "threads is '0', but input should be greater than or equal to 1"),
        ("FDG_DEVICE", "gpu", "device is 'gpu'"),
        ("FDG_STATSD", "localhost", "FDG_STATSD is 'localhost', expected HOST:PORT"),
        ("FDG_TRACKING", "mlfow", "tracking is 'mlfow', expected one of"),
    ],
)
def test_a_variable_that_stops_a_job_is_a_problem(name: str, value: str, sentence: str) -> None:
    (found,) = check_variables({name: value})
    assert (found.check, found.status) == (name, Status.PROBLEM)
    assert sentence in found.text


@pytest.mark.parametrize(
    ("device", "gpus", "status"),
    [
        ("cpu", 0, Status.OK),
        ("auto", 0, Status.OK),
        ("cuda", 1, Status.OK),
        ("cuda:0", 1, Status.OK),
        ("cuda:1", 1, Status.PROBLEM),
        ("cuda", 0, Status.PROBLEM),
    ],
)
def test_a_device_that_is_not_there_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, device: str, gpus: int, status: Status
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    (found,) = check_variables({"FDG_DEVICE": device})
    assert (found.check, found.status) == ("FDG_DEVICE", status)


def test_variables_are_judged_one_by_one_and_empty_ones_are_unset() -> None:
    found = by_check(list(check_variables({"FDG_B": "1", "FDG_SEED": "3", "FDG_ROUNDS": " "})))
    assert {name: finding.status for name, finding in found.items()} == {
        "FDG_B": Status.PROBLEM,
        "FDG_SEED": Status.OK,
    }
    (nothing,) = check_variables({"PATH": "/bin"})
    assert nothing == Finding("variables", Status.OK, "no FDG_* variable is set")


def test_no_data_root_means_the_stand_in() -> None:
    (found,) = check_data({"FDG_DATA_ROOT": " "})
    assert found.status is Status.WARNING
    assert "STAND-IN" in found.text


def test_the_domains_that_are_there_are_counted(data_root: Path, own_data_root: Path) -> None:
    (found,) = check_data({"FDG_DATA_ROOT": str(data_root)})
    assert found == Finding("data, pacs", Status.OK, f"4 of 4 domains in {data_root / 'pacs'}")
    (found,) = check_data({"FDG_DATA_ROOT": str(own_data_root)})
    assert found.status is Status.WARNING
    assert found.text.startswith("1 of 4 domains")
    assert "art_painting, cartoon, sketch missing" in found.text


IN_FOLDERS = [spec.name for spec in DATASETS.all() if spec.needs_data_root and not isinstance(spec, AttributeSpec)]


@pytest.mark.parametrize("name", IN_FOLDERS)
def test_every_data_set_of_the_catalogue_is_found(tmp_path: Path, name: str) -> None:
    spec = dataset_spec(name)
    for domain in spec.domains:
        (tmp_path / spec.folder / domain).mkdir(parents=True)
    for file in files_of(ROTATED_MNIST):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    found = by_check(list(check_data({"FDG_DATA_ROOT": str(tmp_path)})))
    assert found[f"data, {name}"].status is Status.OK


def test_of_images_with_lists_both_lists_and_the_folder_are_needed(tmp_path: Path) -> None:
    (tmp_path / CELEBA.folder).mkdir()

    def found() -> Finding:
        return by_check(list(check_data({"FDG_DATA_ROOT": str(tmp_path)})))["data, celeba"]

    assert found().status is Status.PROBLEM
    assert found().text.endswith(f"{CELEBA.image_folder} is missing")
    (tmp_path / CELEBA.folder / CELEBA.image_folder).mkdir()
    assert found().text.endswith(f"lacks {', '.join(CELEBA.lists)}")
    for name in CELEBA.lists:
        (tmp_path / name).touch()
    assert found().status is Status.OK


def test_a_preparation_that_has_not_ended_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / PACS.folder).mkdir()
    (tmp_path / PACS.folder / LOCK).touch()
    (found,) = check_data({"FDG_DATA_ROOT": str(tmp_path)})
    assert found.status is Status.PROBLEM
    assert found.text.endswith("has not ended; fdg data prepare pacs goes on with it")


def test_drawings_are_called_by_their_name(tmp_path: Path) -> None:
    (tmp_path / PACS.folder).mkdir()
    (tmp_path / MARKER).touch()
    (found,) = check_data({"FDG_DATA_ROOT": str(tmp_path)})
    assert found.status is Status.WARNING
    assert "STAND-IN" in found.text


def test_files_of_mnist_that_are_missing_are_named(tmp_path: Path) -> None:
    first, *others = files_of(ROTATED_MNIST)
    (tmp_path / first).parent.mkdir(parents=True)
    (tmp_path / first).touch()
    found = by_check(list(check_data({"FDG_DATA_ROOT": str(tmp_path)})))[f"data, {ROTATED_MNIST.name}"]
    assert found.status is Status.PROBLEM
    assert first not in found.text
    assert all(file in found.text for file in others)


def test_a_data_root_that_is_no_folder_or_empty_is_a_problem(tmp_path: Path) -> None:
    (found,) = check_data({"FDG_DATA_ROOT": "gone", "PWD": str(tmp_path)})
    assert found.status is Status.PROBLEM
    assert f"FDG_DATA_ROOT is 'gone', but {tmp_path / 'gone'} is not a folder" in found.text
    (found,) = check_data({"FDG_DATA_ROOT": str(tmp_path)})
    assert found.status is Status.PROBLEM
    assert "holds no data set, expected one of pacs/, " in found.text


def test_weights_are_looked_for_where_the_server_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "cache_folder", lambda: tmp_path)
    assert check_weights({}).status is Status.WARNING
    demanded = check_weights({"FDG_PRETRAINED": "imagenet"})
    assert demanded.status is Status.PROBLEM
    name = imagenet_file_name("resnet18")
    assert name is not None
    assert name in demanded.text
    (tmp_path / name).touch()
    found = check_weights({"FDG_PRETRAINED": "imagenet"})
    assert found == Finding("ImageNet weights", Status.OK, f"resnet18 ({name}) in {tmp_path}")


def test_weights_that_are_named_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "weights.pth").touch()
    environment = {"FDG_PRETRAINED_FILE": "weights.pth", "PWD": str(tmp_path)}
    assert check_weights(environment).status is Status.OK
    missing = check_weights({**environment, "FDG_PRETRAINED_FILE": "other.pth"})
    assert missing.status is Status.PROBLEM
    assert f"{tmp_path / 'other.pth'} is not a file" in missing.text


def test_the_cache_is_the_one_that_is_named(tmp_path: Path) -> None:
    named = setup.cache_folder_of({"FDG_CACHE": "own", "PWD": str(tmp_path)})
    assert named == tmp_path / "own"
    assert setup.cache_folder_of({}) != named

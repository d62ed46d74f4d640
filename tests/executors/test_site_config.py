# SPDX-License-Identifier: Apache-2.0
"""A site's own config: its file wins over the environment, and every mistake is named with the site."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fdg_plugins.data.decoding import MOST_PIXELS
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.executors import SiteConfig, read_site_config
from fdg_plugins.settings.protocol import OTHER_VARIABLES

ENVIRONMENT = {"FDG_DATA_ROOT": "/env", "FDG_DEVICE": "cpu", "FDG_WORKERS": "2", "FDG_THREADS": "3"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fdg_site.json"


def write(file: Path, content: Any) -> Path:
    file.write_text(json.dumps(content))
    return file


def test_without_file_and_environment_a_site_takes_the_defaults() -> None:
    config = read_site_config("photo", None, {})
    assert config == SiteConfig(data_root=None, domain=None, role=None, device="auto", workers=0, threads=None)


def test_the_environment_is_read_and_its_empty_variables_are_not() -> None:
    config = read_site_config("photo", None, ENVIRONMENT)
    assert (config.data_root, config.device, config.workers, config.threads) == (Path("/env"), "cpu", 2, 3)
    assert read_site_config("photo", None, dict.fromkeys(ENVIRONMENT, " ")) == SiteConfig()


def test_blanks_and_line_ends_around_a_variable_do_not_count() -> None:
    config = read_site_config("photo", None, {name: f" {value}\r\n" for name, value in ENVIRONMENT.items()})
    assert (config.data_root, config.device, config.workers, config.threads) == (Path("/env"), "cpu", 2, 3)


def test_what_a_site_does_about_images_and_names_can_be_said_in_its_environment() -> None:
    environment = {"FDG_MAX_IMAGE_PIXELS": "1000", "FDG_DAMAGED_IMAGES": "leave_out", "FDG_REPORT_NAMES": "yes"}
    config = read_site_config("photo", None, environment)
    assert (config.max_image_pixels, config.damaged_images, config.report_names) == (1000, "leave_out", True)
    assert environment.keys() <= OTHER_VARIABLES.keys()
    assert SiteConfig().max_image_pixels == MOST_PIXELS


def test_the_environment_of_the_server_and_the_job_says_nothing_about_a_site() -> None:
    assert read_site_config("photo", None, {"FDG_DOMAIN": "sketch", "FDG_ROLE": "source"}) == SiteConfig()


def test_the_file_wins_over_the_environment_field_by_field(file: Path) -> None:
    write(file, {"photo": {"data_root": "/file", "workers": 0, "domain": "sketch", "role": "held_out"}})
    config = read_site_config("photo", file, ENVIRONMENT)
    assert (config.data_root, config.workers, config.domain, config.role) == (Path("/file"), 0, "sketch", "held_out")
    assert (config.device, config.threads) == ("cpu", 3)


def test_the_entry_of_another_site_is_ignored_even_if_it_is_wrong(file: Path) -> None:
    write(file, {"sketch": {"data_root": "/sketch", "device": "abacus", "nonsense": 1}, "cartoon": None})
    assert read_site_config("photo", file, {}) == SiteConfig()
    with pytest.raises(SettingsError, match="site sketch"):
        read_site_config("sketch", file, {})


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"dataroot": "/data"}, r"unknown field 'dataroot': did you mean 'data_root'\?$"),
        ({"colour": "/data"}, r"unknown field 'colour': known are data_root, dataset_file, .*, damaged_images\.$"),
        ({"device": "abacus"}, "device is 'abacus', but it should be auto, cpu, cuda, or a GPU by its number, such as"),
        ({"part": "11/"}, "part is '11/', but it should be two numbers from 1 to 999999, such as 3/10"),
        ({"device": "cuda:x"}, "device is 'cuda:x', but "),
        ({"device": "cpu\n"}, "device is 'cpu.n', but "),
        ({"workers": -1}, "workers is -1, but input should be greater than or equal to 0"),
        ({"threads": 0}, "threads is 0, but "),
        ({"image_memory": -1}, "image_memory is -1, but "),
        ({"image_memory": float("nan")}, "image_memory is nan, but "),
        ({"role": "judge"}, "role is 'judge', but "),
        ({"domain": 3}, "domain is 3, but "),
        ({"max_image_pixels": 0}, "max_image_pixels is 0, but "),
        ({"damaged_images": "skip"}, "damaged_images is 'skip', but "),
        ({"device": "cuda:99999999999"}, "device is 'cuda:99999999999', but "),
        ({"workers": 10**400}, "workers is 1000000000.*, but "),
    ],
)
def test_a_wrong_entry_is_refused_by_site_file_and_field(file: Path, entry: dict[str, Any], problem: str) -> None:
    write(file, {"photo": entry})
    with pytest.raises(SettingsError, match=rf"^site photo: config fdg_site\.json: {problem}"):
        read_site_config("photo", file, {})


@pytest.mark.parametrize(
    "text", ['{"photo": {"role": "source"}, "photo": {}}', '{"photo": {"role": "source", "role": null}}']
)
def test_what_is_said_twice_is_refused_since_one_of_the_two_would_be_lost(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(
        DataError, match=r"fdg_site\.json is not valid JSON: an object has '(photo|role)' twice\.$"
    ) as caught:
        read_site_config("photo", file, {})
    assert caught.value.public == "its config cannot be read as JSON."


def test_a_wrong_variable_is_refused_by_its_name_and_a_wrong_entry_beside_it_by_the_file(file: Path) -> None:
    said = r"^site photo: environment variable FDG_WORKERS: workers is 'many', but "
    with pytest.raises(SettingsError, match=said):
        read_site_config("photo", None, {"FDG_WORKERS": "many"})
    write(file, {"photo": {"device": "cpu"}})
    with pytest.raises(SettingsError, match=said):
        read_site_config("photo", file, {"FDG_WORKERS": "many"})
    write(file, {"photo": {"workers": "few"}})
    with pytest.raises(SettingsError, match=r"^site photo: config fdg_site\.json: workers is 'few', but "):
        read_site_config("photo", file, {"FDG_WORKERS": "many"})


@pytest.mark.parametrize("content", [[], "photo", 3, None, {"photo": []}, {"photo": "/data"}, {"photo": None}])
def test_a_file_of_another_form_is_refused(file: Path, content: Any) -> None:
    write(file, content)
    with pytest.raises(SettingsError, match=r"site photo: config .*fdg_site\.json must map site names to objects"):
        read_site_config("photo", file, {})


def test_a_file_that_is_not_json_is_refused_by_name(file: Path) -> None:
    file.write_text("{'photo': {}}")
    with pytest.raises(DataError, match=r"fdg_site\.json is not valid JSON"):
        read_site_config("photo", file, {})


# --- device -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_cuda")
def test_auto_is_the_cpu_where_there_is_no_cuda() -> None:
    assert SiteConfig().torch_device() == SiteConfig(device="cpu").torch_device() == torch.device("cpu")


def test_auto_is_cuda_where_there_is_one_and_a_name_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert SiteConfig().torch_device() == torch.device("cuda")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert SiteConfig(device="cuda:1").torch_device() == torch.device("cuda:1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(SettingsError, match="device is 'cuda:2', but this machine has 2 CUDA devices"):
        SiteConfig(device="cuda:2").torch_device()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    with pytest.raises(SettingsError, match="but CUDA_VISIBLE_DEVICES shows the site 2 CUDA devices"):
        SiteConfig(device="cuda:2").torch_device()
    assert SiteConfig(device="cpu").torch_device() == torch.device("cpu")


@pytest.mark.usefixtures("no_cuda")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_cuda_is_refused_on_a_machine_without(device: str) -> None:
    with pytest.raises(SettingsError, match=f"device is '{device}', but this machine has no CUDA device"):
        SiteConfig(device=device).torch_device()


def test_a_relative_root_in_the_environment_is_relative_to_the_users_own_folder(tmp_path: Path) -> None:
    environment = {"FDG_DATA_ROOT": "data/pacs-root", "PWD": str(tmp_path)}
    assert read_site_config("photo", None, environment).data_root == tmp_path / "data" / "pacs-root"


def test_a_relative_root_in_the_sites_config_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fdg_site.json"
    path.write_text('{"photo": {"data_root": "data"}}')
    with pytest.raises(SettingsError, match=r"site photo.*data_root.*absolute"):
        read_site_config("photo", path, {})

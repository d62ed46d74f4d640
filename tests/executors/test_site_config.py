# SPDX-License-Identifier: Apache-2.0
"""A site's own config: its file wins over the environment, and every mistake is named with the site."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fdg_plugins.errors import SettingsError
from fdg_plugins.settings import site_config
from fdg_plugins.settings.protocol import OTHER_VARIABLES
from fdg_plugins.settings.site_config import FROM_ENVIRONMENT, SiteConfig, read_site_config, update_site_config

ENVIRONMENT = {"FDG_DATA_ROOT": "/env", "FDG_DEVICE": "cpu", "FDG_WORKERS": "2", "FDG_THREADS": "3"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fdg_site.json"


def write(file: Path, content: Any) -> Path:
    file.write_text(json.dumps(content))
    return file


def test_the_environment_is_read_and_its_empty_variables_are_not(tmp_path: Path) -> None:
    config = read_site_config("photo", None, {name: f" {value}\r\n" for name, value in ENVIRONMENT.items()})
    assert (config.data_root, config.device, config.workers, config.threads) == (Path("/env"), "cpu", 2, 3)
    assert read_site_config("photo", None, dict.fromkeys(ENVIRONMENT, " ")) == SiteConfig(least_count=1)
    assert {f"FDG_{name.upper()}" for name in FROM_ENVIRONMENT} <= OTHER_VARIABLES.keys()
    relative = {"FDG_DATA_ROOT": "data/pacs-root", "PWD": str(tmp_path)}
    assert read_site_config("photo", None, relative).data_root == tmp_path / "data" / "pacs-root"


def test_the_file_wins_over_the_environment_field_by_field(file: Path) -> None:
    write(file, {"photo": {"data_root": "/file", "workers": 0, "domain": "sketch", "role": "held_out"}})
    config = read_site_config("photo", file, ENVIRONMENT)
    assert (config.data_root, config.workers, config.domain, config.role) == (Path("/file"), 0, "sketch", "held_out")
    assert (config.device, config.threads) == ("cpu", 3)


def test_the_entry_of_another_site_is_ignored_even_if_it_is_wrong(file: Path) -> None:
    write(file, {"sketch": {"data_root": "/sketch", "device": "abacus", "nonsense": 1}, "cartoon": None})
    assert read_site_config("photo", file, {}) == SiteConfig(least_count=1)
    with pytest.raises(SettingsError):
        read_site_config("photo", file, {}, shared=False)


def test_the_thousands_of_sites_of_one_file_parse_it_once_until_it_changes(file: Path) -> None:
    write(file, {"photo": {"workers": 1}, "sketch": {"workers": 2}})
    before = site_config._parsed.cache_info().misses
    assert [read_site_config(site, file, {}).workers for site in ("photo", "sketch")] == [1, 2]
    assert site_config._parsed.cache_info().misses == before + 1
    write(file, {"sketch": {"workers": 3, "domain": "sketch"}})
    assert read_site_config("sketch", file, {}).workers == 3


@pytest.mark.parametrize(
    "entry",
    [
        {"data_root": "some/folder"},
        {"device": "cpu\n"},
        {"device": "cuda:99999999999"},
        {"part": "11/10"},
        {"image_memory": float("nan")},
        {"allowed_plugins": ["a b"]},
    ],
)
def test_a_wrong_entry_is_refused_by_site_file_and_field(file: Path, entry: dict[str, Any]) -> None:
    write(file, {"photo": entry})
    with pytest.raises(SettingsError) as caught:
        read_site_config("photo", file, {})
    (name,) = entry
    assert str(caught.value).startswith("site photo: config fdg_site.json: ")
    assert caught.value.field == name
    assert str(entry[name]) not in caught.value.public


def test_a_wrong_variable_is_refused_by_its_name(file: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        read_site_config("photo", write(file, {"photo": {"device": "cpu"}}), {"FDG_WORKERS": "many"})
    assert str(caught.value).startswith("site photo: environment variable FDG_WORKERS: ")


@pytest.mark.parametrize("content", [[], {"photo": []}, {"photo": None}])
def test_a_file_of_another_form_is_refused(file: Path, content: Any) -> None:
    with pytest.raises(SettingsError):
        read_site_config("photo", write(file, content), {})


def test_an_entry_is_updated_and_a_wrong_one_is_not_written(file: Path) -> None:
    write(file, {"photo": {"domain": "photo"}, "sketch": {}})
    assert update_site_config(file, "photo", {"device": "cpu"}) == {"domain": "photo", "device": "cpu"}
    before = file.read_text()
    with pytest.raises(SettingsError):
        update_site_config(file, "photo", {"device": "abacus"})
    assert file.read_text() == before


@pytest.mark.parametrize("gpus", [0, 2])
def test_device_auto_and_missing_gpu(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    assert SiteConfig().torch_device() == torch.device("cuda" if gpus else "cpu")
    assert SiteConfig(device="cpu").torch_device() == torch.device("cpu")
    with pytest.raises(SettingsError) as caught:
        SiteConfig(device=f"cuda:{gpus}").torch_device()
    assert f"device is 'cuda:{gpus}'" in str(caught.value)
    if gpus:
        assert SiteConfig(device="cuda:1").torch_device() == torch.device("cuda:1")

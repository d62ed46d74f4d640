# SPDX-License-Identifier: Apache-2.0
"""``fdg kit site`` on the files of a kit: what it writes, what it leaves, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fdg_plugins.cli.main import app
from fdg_plugins.flare.gpus import lent_gpus
from fdg_plugins.settings.site_config import FILE_NAME, read_site_config


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """The kit of a site that FLARE calls site-1."""
    for name in ("startup", "local"):
        (tmp_path / "kit" / name).mkdir(parents=True)
    (tmp_path / "kit" / "startup" / "fed_client.json").write_text(json.dumps({"client": {"fqsn": "site-1"}}))
    (tmp_path / "kit" / "local" / "resources.json").write_text("{}")
    return tmp_path / "kit"


def run(kit: Path, *arguments: object) -> Result:
    return CliRunner().invoke(app, ["kit", "site", "--kit", str(kit), *map(str, arguments)])


def written(kit: Path) -> Any:
    return json.loads((kit / "local" / FILE_NAME).read_text())


def test_the_site_then_holds_the_domain(kit: Path, tmp_path: Path) -> None:
    result = run(kit, "--domain", "photo", "--data-root", tmp_path, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "site site-1" in result.stdout
    config = read_site_config("site-1", kit / "local" / FILE_NAME, {})
    assert (config.domain, config.data_root, config.device) == ("photo", tmp_path, "cpu")


def test_a_domain_of_a_known_data_set_is_confirmed_and_a_misspelt_one_refused(kit: Path, tmp_path: Path) -> None:
    images = tmp_path / "data" / "pacs" / "sketch" / "dog"
    images.mkdir(parents=True)
    (images / "1.png").touch()
    result = run(kit, "--domain", "sketch", "--data-root", tmp_path / "data")
    assert "domain sketch of pacs: 1 file" in result.stdout
    result = run(kit, "--domain", "sketchh")
    assert result.exit_code == 2
    assert "'sketch'" in result.stderr
    assert written(kit)["site-1"]["domain"] == "sketch"


def test_what_the_file_says_already_stays(kit: Path) -> None:
    before = {"site-1": {"threads": 3, "domain": "photo"}, "site-2": {"threads": 1}}
    (kit / "local" / FILE_NAME).write_text(json.dumps(before))
    assert run(kit, "--domain", "sketch").exit_code == 0
    assert written(kit) == {"site-1": {"threads": 3, "domain": "sketch"}, "site-2": {"threads": 1}}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--role", "boss"], "role"),
        (["--device", "tpu"], "device"),
        (["--part", "0/3"], "part"),
        (["--part", "5/3"], "part is '5/3', but its number should be at most its count, as in 3/10."),
        (["--data-root", "/nowhere/at/all"], "--data-root /nowhere/at/all is not there."),
        (["--data-root", ""], "--data-root is '', expected a path."),
        (["--data-root", "/dev/null"], "--data-root /dev/null is not a folder, expected one."),
        (["--dataset-file", "/"], "--dataset-file / is not a file, expected one."),
        (["--domain", ""], "--domain is '', expected a folder's name"),
        (["--domain", ".."], "--domain is '..', expected a folder's name"),
        (["--domain", "/dev/null"], "--domain is '/dev/null', expected a folder's name"),
    ],
)
def test_what_is_invalid_is_named_and_nothing_is_written(kit: Path, arguments: list[str], told: str) -> None:
    result = run(kit, *arguments)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())
    assert not (kit / "local" / FILE_NAME).exists()


@pytest.mark.parametrize("launcher", ["docker_launcher", "k8s_launcher"])
def test_a_path_that_only_the_sites_containers_have_is_written_with_a_warning(kit: Path, launcher: str) -> None:
    (kit / "local" / "resources.json").write_text(json.dumps({"components": [{"id": launcher}]}))
    result = run(kit, "--data-root", "/data/default/images")
    assert result.exit_code == 0, result.output
    assert "--data-root /data/default/images is not there" in " ".join(result.stderr.split())
    assert written(kit)["site-1"]["data_root"] == "/data/default/images"
    result = run(kit, "--data-root", "images")
    assert result.exit_code == 2
    assert "--data-root is 'images', expected the absolute path in the containers" in " ".join(result.stderr.split())


def test_gpus_are_written_for_flares_manager_and_nothing_else_changes(kit: Path) -> None:
    resources = kit / "local" / "resources.json"
    resources.rename(default := kit / "local" / "resources.json.default")
    default.write_text('{"allow_log_streaming": false}')
    result = run(kit, "--gpus", 2, "--gpu-memory", 16)
    assert result.exit_code == 0, result.output
    assert "lends 2 x 16 GiB to jobs from the site's next start" in " ".join(result.stdout.split())
    content = json.loads(resources.read_text())
    assert lent_gpus(content, kit) == (2, 16.0)
    assert content["allow_log_streaming"] is False
    assert default.read_text() == '{"allow_log_streaming": false}', "FLARE's own file stays"
    assert run(kit, "--gpus", 0).exit_code == 0
    assert lent_gpus(json.loads(resources.read_text()), kit) == (0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--gpus", "1"], "gpus is 1 without gpu_memory"),
        (["--gpu-memory", "8"], "--gpu-memory needs --gpus"),
        (["--gpus", "-1"], "gpus is -1, expected an integer"),
        (["--gpus", "1", "--gpu-memory", "nan"], "gpu_memory is nan"),
    ],
)
def test_gpus_that_flare_could_not_count_are_refused_and_nothing_is_written(
    kit: Path, arguments: list[str], told: str
) -> None:
    result = run(kit, "--domain", "photo", *arguments)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())
    assert not (kit / "local" / FILE_NAME).exists()
    assert (kit / "local" / "resources.json").read_text() == "{}"


def test_only_the_kit_of_a_site_has_one(kit: Path) -> None:
    (kit / "startup" / "fed_client.json").rename(kit / "startup" / "fed_server.json")
    assert "is a server's, expected that of a site" in " ".join(run(kit, "--domain", "photo").stderr.split())
    (kit / "startup" / "fed_server.json").rename(kit / "startup" / "fed_client.json")
    (kit / "startup" / "fed_client.json").write_text('{"client": {}}')
    assert "expected the name of the site" in " ".join(run(kit, "--domain", "photo").stderr.split())

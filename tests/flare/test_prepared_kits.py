# SPDX-License-Identifier: Apache-2.0
"""Kits that ``nvflare deploy prepare`` has copied for Docker and Kubernetes permit what the original permits."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fdg_plugins.cli.main import app
from fdg_plugins.flare.components import SERVER, SITE, class_paths
from fdg_plugins.lab.poc.kits import provision_kits
from fdg_plugins.storage import read_json

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "deploy" / "project.yml"
K8S = {"runtime": "k8s", "namespace": "fdg", "parent": {"docker_image": "fdg-site:0.2.0", "workspace_pvc": "fdg"}}
CONFIGS: dict[str, dict[str, Path | None]] = {
    "docker": {name: ROOT / "docker" / f"{name}.yml" for name in (SERVER, SITE)},
    "k8s": {SERVER: None, SITE: None},
}


def project() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(PROJECT.read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kits of ``deploy/project.yml``, not to be written to."""
    return provision_kits(project(), tmp_path_factory.mktemp("kits"))


def prepare(kit: Path, output: Path, config: Path | None) -> Path:
    """Prepare a copy of ``kit`` by FLARE's own command, for Kubernetes without a ``config``."""
    copy = output / "kit"
    shutil.copytree(kit, copy)
    if config is None:
        config = output / "k8s.yml"
        config.write_text(yaml.safe_dump(K8S), encoding="utf-8")
    script = Path(sys.executable).with_name("nvflare")
    prepared = output / "prepared"
    command = [str(word) for word in (script, "deploy", "prepare", copy, "--output", prepared, "--config", config)]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return prepared


def name_of(end: str) -> str:
    server = next(one["name"] for one in project()["participants"] if one["type"] == "server")
    site = next(one["name"] for one in project()["participants"] if one["type"] == "client")
    return str(server if end == SERVER else site)


@pytest.mark.slow
@pytest.mark.parametrize("end", [SERVER, SITE])
@pytest.mark.parametrize("runtime", ["docker", "k8s"])
def test_a_prepared_kit_is_hardened_again_with_the_launcher_in_it(
    kits: Path, tmp_path: Path, runtime: str, end: str
) -> None:
    original = kits / name_of(end)
    prepared = prepare(original, tmp_path, CONFIGS[runtime][end])
    assert not (prepared / "local" / "resources.json").exists(), "FLARE's command drops it, and the list in it"

    said = CliRunner().invoke(app, ["kit", "harden", "--kit", str(prepared)])
    assert said.exit_code == 0, said.output
    resources = read_json(prepared / "local" / "resources.json")
    assert sorted(resources["class_allow_list"]) == sorted(class_paths(end))
    components = [one["id"] for one in resources["components"]]
    assert f"{runtime}_launcher" in components
    if end == SITE:
        assert resources["allow_log_streaming"] is False
        place = ["--data-root", "/data/default/images"]
        said = CliRunner().invoke(app, ["kit", "site", "--kit", str(prepared), *place])
        assert said.exit_code == 0, said.output
    else:
        assert "returning_sites" in components
        storage = resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"]
        assert storage.startswith("/var/tmp/nvflare/workspace/"), "where the container has the kit"
    rights = (prepared / "local" / "authorization.json").read_bytes()
    assert rights == (original / "local" / "authorization.json").read_bytes()

    again = CliRunner().invoke(app, ["kit", "harden", "--kit", str(prepared)])
    assert again.output.count("left as it was") == 2

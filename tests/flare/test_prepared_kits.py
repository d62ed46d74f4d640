# SPDX-License-Identifier: Apache-2.0
"""Kits that ``nvflare deploy prepare`` has copied for Docker and Kubernetes permit what the original permits."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from nvflare.apis.workspace import Workspace
from typer.testing import CliRunner

from fdg_plugins.audit.auditor import audit_path
from fdg_plugins.cli.main import app
from fdg_plugins.flare.components import SERVER, SITE, class_paths
from fdg_plugins.lab.poc.kits import provision_kits
from fdg_plugins.state.folders import state_folder
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


def test_the_images_of_a_site_and_its_jobs_are_one_and_of_this_version() -> None:
    from fdg_plugins import __version__

    runtime = yaml.safe_load((ROOT / "docker" / "study_runtime.yaml").read_text(encoding="utf-8"))
    image = runtime["studies"]["default"]["container"]["image"]
    prepared = {end: yaml.safe_load((ROOT / "docker" / f"{end}.yml").read_text("utf-8")) for end in (SERVER, SITE)}
    images = {end: config["parent"]["docker_image"] for end, config in prepared.items()}
    assert images == {end: f"fdg-{end}:{__version__}" for end in (SERVER, SITE)}
    assert image == images[SITE]
    for path in (*(ROOT / "docker").iterdir(), ROOT / "docs" / "containers.md"):
        if path.is_file():
            named = re.findall(r"fdg-(?:server|site):\S+\d", path.read_text(encoding="utf-8"))
            assert set(named) <= set(images.values()), path


def test_what_a_site_s_jobs_keep_lies_in_folders_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = yaml.safe_load((ROOT / "docker" / "study_runtime.yaml").read_text(encoding="utf-8"))
    study = runtime["studies"]["default"]
    for name, value in study["env"].items():
        monkeypatch.setenv(name, value.replace("/data/default", str(tmp_path)))
    for folder in ("startup", "local"):
        (tmp_path / "workspace" / folder).mkdir(parents=True)
    workspace = Workspace(str(tmp_path / "workspace"), site_name="photo")
    context: Any = SimpleNamespace(get_engine=lambda: SimpleNamespace(get_workspace=lambda: workspace))
    kept = {"state": state_folder(workspace, "0f6f0d3c"), "audit": audit_path(context)}
    for name, path in kept.items():
        assert study["datasets"][name]["mode"] == "rw"
        assert path.is_relative_to(tmp_path / name)


@pytest.mark.parametrize(
    ("end", "lacks"),
    [
        (
            SITE,
            "lets FLARE send the site's logs, which name its files, to the server: set allow_log_streaming to false.",
        ),
        (SERVER, "has no component fdg_plugins.server.rejoin.ReturningSites: a site that comes back waits"),
    ],
)
def test_what_a_list_written_before_keeps_harden_from_is_told(kits: Path, end: str, lacks: str, tmp_path: Path) -> None:
    kit = Path(shutil.copytree(kits / name_of(end), tmp_path / "kit"))
    (kit / "local" / "resources.json").unlink()
    assert CliRunner().invoke(app, ["kit", "allow", "--kit", str(kit)]).exit_code == 0
    said = CliRunner().invoke(app, ["kit", "harden", "--kit", str(kit)])
    assert said.exit_code == 0, said.output
    assert lacks in " ".join(said.stderr.split())


def test_harden_refuses_a_folder_that_is_no_kit(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["kit", "harden", "--kit", str(tmp_path)])
    assert said.exit_code != 0


def test_harden_names_a_folder_that_has_the_name_of_its_file(kits: Path, tmp_path: Path) -> None:
    kit = Path(shutil.copytree(kits / name_of(SITE), tmp_path / "kit"))
    policy = kit / "local" / "authorization.json"
    policy.unlink()
    policy.mkdir()
    said = CliRunner().invoke(app, ["kit", "harden", "--kit", str(kit)])
    assert said.exit_code == 2
    assert f"path {policy} cannot be used: Is a directory." in " ".join(said.stderr.split())

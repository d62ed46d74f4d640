# SPDX-License-Identifier: Apache-2.0
"""Kits of ``deploy/``, by FLARE's provisioning in one place and by its distributed one, and copied for containers."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from nvflare.fuel.sec.authz import AuthzContext, Person
from nvflare.security.security import COMMAND_CATEGORIES, FLAuthorizer

from fdg_plugins.flare.cautious_kits import harden
from fdg_plugins.flare.components import SERVER, SITE, class_paths
from fdg_plugins.lab.poc.kits import provision_kits
from fdg_plugins.storage import read_json
from tests.cli.commands import fdg, printed
from tests.processes import NVFLARE, printed_by

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
K8S = {"runtime": "k8s", "namespace": "fdg", "parent": {"docker_image": "fdg-site:0.3.0", "workspace_pvc": "fdg"}}
PROJECT: dict[str, Any] = yaml.safe_load((DEPLOY / "project.yml").read_text(encoding="utf-8"))
# Each key takes a while: these are enough.
NAMES = ("server.fdg.example", "hospital-a", "hospital-c", "admin@fdg.example", "lead@fdg.example")
PROJECT["participants"] = [one for one in PROJECT["participants"] if one["name"] in NAMES]


def members(kind: str) -> list[dict[str, Any]]:
    return [one for one in PROJECT["participants"] if one["type"] == kind]


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kits of the project's participants, not to be written to."""
    return provision_kits(PROJECT, tmp_path_factory.mktemp("deploy"))


def check_policies(kit: Path, end: str) -> None:
    """Assert what a cautious operator's kit permits."""
    resources = read_json(kit / "local" / "resources.json")
    assert sorted(resources["class_allow_list"]) == sorted(class_paths(end))
    rights = read_json(kit / "local" / "authorization.json")["permissions"]
    assert {role: of["byoc"] for role, of in rights.items() if "byoc" in of} == dict.fromkeys(
        ("project_admin", "org_admin", "lead"), "none"
    )
    assert (rights["project_admin"]["submit_job"], rights["lead"]["submit_job"]) == ("any", "any")
    assert (rights["lead"]["shell_commands"], rights["org_admin"]["shell_commands"]) == ("none", "o:site")
    config = read_json(kit / "startup" / f"fed_{'server' if end == SERVER else 'client'}.json")
    assert config["require_signed_jobs"] is True
    if end == SITE:
        assert resources["allow_log_streaming"] is False
        assert config["client"]["connection_security"] == "mtls"
    else:
        assert "returning_sites" in [one["id"] for one in resources["components"]]


def test_every_kit_has_the_policies_of_a_cautious_operator(kits: Path) -> None:
    (server,) = members("server")
    check_policies(kits / server["name"], SERVER)
    assert len(members("client")) == 2
    for site in members("client"):
        check_policies(kits / site["name"], SITE)


@pytest.mark.parametrize("whole", [True, False])
def test_a_lead_operates_no_machine_not_even_of_its_own_organisation(kits: Path, tmp_path: Path, whole: bool) -> None:
    (server,) = members("server")
    kit = kits / server["name"]
    if not whole:  # as fdg poc and fdg kit harden make them
        kit = Path(shutil.copytree(kit, tmp_path / "kit"))
        (kit / "local" / "authorization.json").unlink()
        harden(kit)
    flare = FLAuthorizer(server["org"], read_json(kit / "local" / "authorization.json"))

    def may(role: str) -> set[str]:
        person = Person("anna", server["org"], role)
        return {right for right in COMMAND_CATEGORIES if flare.authorize(AuthzContext(right, person, person))[0]}

    operating = {right for right, category in COMMAND_CATEGORIES.items() if category == "operate"}
    shell = {right for right, category in COMMAND_CATEGORIES.items() if category == "shell_commands"}
    assert {"shutdown", "restart", "remove_client", "disable_client", "report_env"} <= operating
    assert not may("lead") & (operating | shell)
    assert {"abort_job", "download_job", "check_status", "list_jobs"} <= may("lead")
    assert operating <= may("org_admin")
    assert operating <= may("project_admin")


def nvflare(folder: Path, *arguments: object) -> str:
    """Run FLARE's command in ``folder``, with a home there; return what it printed, once it has succeeded."""
    return printed_by(NVFLARE, *arguments, folder=folder, HOME=str(folder))


@pytest.mark.slow
def test_a_kit_that_its_owner_packages_has_the_same_policies_and_a_key_that_never_left(tmp_path: Path) -> None:
    coordinator, owner = tmp_path / "coordinator", tmp_path / "owner"
    for folder in (coordinator, owner):
        folder.mkdir()
    nvflare(coordinator, "cert", "init", "--profile", DEPLOY / "profile.yml", "-o", "ca")
    nvflare(owner, "cert", "request", "-p", DEPLOY / "hospital.yml", "--out", "request")
    (request,) = (owner / "request").glob("*.request.zip")
    signed = owner / "kit.signed.zip"
    profile = ("--profile", DEPLOY / "profile.yml")
    nvflare(coordinator, "cert", "approve", request, "-c", "ca", *profile, "--out", signed)
    (key,) = (owner / "request").glob("*.key")
    assert key.read_bytes() not in request.read_bytes() + signed.read_bytes()
    fingerprint = read_json(coordinator / "ca" / "ca.json")["rootCA_fingerprint"]
    nvflare(owner, "package", signed, "--request-dir", "request", "--fingerprint", fingerprint)
    (kit,) = (owner / "workspace" / "fdg" / "prod_00").iterdir()
    check_policies(kit, SITE)
    (private,) = (kit / "startup").glob("*.key")
    assert private.read_bytes() == key.read_bytes()
    assert private.stat().st_mode & 0o077 == 0
    paths = (*(kit / "startup").glob("*.crt"), kit / "startup" / "rootCA.pem")
    own, root = (x509.load_pem_x509_certificate(path.read_bytes()) for path in paths)
    own.verify_directly_issued_by(root)  # not so after cert init --org


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "end"), [("docker", SERVER), ("docker", SITE), ("k8s", SITE)])
def test_prepared_kit_is_hardened_again(kits: Path, tmp_path: Path, runtime: str, end: str) -> None:
    kit = kits / members("server" if end == SERVER else "client")[0]["name"]
    shutil.copytree(kit, tmp_path / "kit")
    config = ROOT / "docker" / f"{end}.yml"
    if runtime == "k8s":
        config = tmp_path / "k8s.yml"
        config.write_text(yaml.safe_dump(K8S), encoding="utf-8")
    nvflare(tmp_path, "deploy", "prepare", "kit", "--output", "prepared", "--config", config)
    prepared = tmp_path / "prepared"
    assert not (prepared / "local" / "resources.json").exists(), "FLARE's command drops it, and the list in it"

    printed("kit", "harden", prepared)
    resources = read_json(prepared / "local" / "resources.json")
    assert sorted(resources["class_allow_list"]) == sorted(class_paths(end))
    components = [one["id"] for one in resources["components"]]
    assert f"{runtime}_launcher" in components
    if end == SITE:
        assert resources["allow_log_streaming"] is False
        printed("kit", "site", prepared, "--data-root", "/data/default/images")
    else:
        assert "returning_sites" in components
        storage = resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"]
        assert storage.startswith("/var/tmp/nvflare/workspace/"), "where the container has the kit"
    rights = (prepared / "local" / "authorization.json").read_bytes()
    assert rights == (kit / "local" / "authorization.json").read_bytes()
    assert fdg("kit", "harden", prepared).output.count("left as it was") == 2

# SPDX-License-Identifier: Apache-2.0
"""The project of a federation on one machine, and its startup kits: provisioned by FLARE, then configured."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
import yaml

from fdg_plugins.data.site_names import split_site
from fdg_plugins.errors import DataError, FDGError, SettingsError
from fdg_plugins.flare.cautious_kits import harden
from fdg_plugins.messages import Checked
from fdg_plugins.settings.site_config import FILE_NAME, update_site_config
from fdg_plugins.storage import make_private_folder, read_json, write_json

PROJECT_FILE = Path(__file__).with_name("project.yml")
STATE_FILE = "federation.json"
PROVISION = "provision.d"  # beside the kits: FLARE allows no dot in the name of a site

HEARTBEAT_TIMEOUT_S = 30  # FLARE's own is 600: a lost machine would be noticed after ten minutes

Port = Annotated[int, pydantic.Field(ge=1, le=65535)]


class State(Checked, extra="ignore"):
    """What the folder of a federation remembers: its ports and its sites."""

    version: Literal[1] = 1
    ports: tuple[Port, Port]
    sites: tuple[str, ...] | None = None  # folders of version 0.1.0 have no entry


class Project(NamedTuple):
    """The project as FLARE's provisioning takes it, and who is in it."""

    content: dict[str, Any]
    server: dict[str, Any]
    sites: tuple[str, ...]
    people: tuple[str, ...]

    @property
    def ports(self) -> tuple[int, int]:
        """Port of the sites, port of the people."""
        return int(self.server["fed_learn_port"]), int(self.server["admin_port"])


def read_project(port: int | None = None, admin_port: int | None = None, sites: Sequence[str] | None = None) -> Project:
    """Return ``project.yml``, with other ports and sites where they are given."""
    content = yaml.safe_load(PROJECT_FILE.read_text(encoding="utf-8"))
    if sites is not None:  # they belong to the organisations of those in the file, in turn
        others = [member for member in content["participants"] if member["type"] != "client"]
        orgs = cycle([member["org"] for member in content["participants"] if member["type"] == "client"])
        clients = ({"name": site, "type": "client", "org": org} for site, org in zip(sites, orgs, strict=False))
        content["participants"] = [*others, *clients]
    members: dict[str, list[dict[str, Any]]] = {"server": [], "client": [], "admin": []}
    for participant in content["participants"]:
        members[participant["type"]].append(participant)
    (server,) = members["server"]
    if port is not None:
        server["fed_learn_port"], server["admin_port"] = port, admin_port or port + 1
    names = {kind: tuple(member["name"] for member in found) for kind, found in members.items()}
    return Project(content, server, names["client"], names["admin"])


def known_project(folder: Path, port: int | None = None, sites: Sequence[str] | None = None) -> Project:
    """Return the project that was provisioned into ``folder``.

    Raises ``DataError`` if there is none, ``SettingsError`` for another port or other sites than it has.
    """
    file = folder / STATE_FILE
    if not file.exists():
        raise DataError(f"folder {folder} holds no federation, expected one that start has made.")
    state = State.read(read_json(file), f"file {file} cannot be used", DataError)
    project = read_project(*state.ports, state.sites)
    for name, wanted, fixed in (("port", port, state.ports[0]), ("sites", sites and {*sites}, {*project.sites})):
        if wanted not in (None, fixed):
            expected = f"{fixed}, for which {folder} was provisioned; others need another folder"
            raise SettingsError(field=name, value=wanted, expected=expected)
    return project


def provision_kits(project: Mapping[str, Any], folder: Path) -> Path:
    """Provision a project, as its YAML file says it, below ``folder``; return the folder that holds the kits.

    Raises ``FDGError`` with what FLARE says if it fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "project.yml"
    file.write_text(json.dumps(project), encoding="utf-8")  # which is YAML, too
    command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(file), "-w", str(folder), "--force"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    made = sorted(folder.glob("*/prod_*"))
    if done.returncode != 0 or not made:
        raise FDGError(f"folder {folder}: FLARE's provisioning failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return made[-1]


def provision(project: Project, folder: Path) -> None:
    """Make certificates and startup kits with FLARE's provisioning; the kits lie directly in ``folder``."""
    taken = [name for name in (project.server["name"], *project.sites, *project.people) if (folder / name).exists()]
    if taken:
        raise DataError(f"folder {folder} holds {taken[0]}, but no {STATE_FILE}: expected an empty folder.")
    make_private_folder(folder / PROVISION)  # it holds the private key of the certificate authority
    kits = provision_kits(project.content, folder / PROVISION)
    for kit in sorted(kits.iterdir()):
        shutil.move(kit, folder / kit.name)
    kits.rmdir()
    write_json(folder / STATE_FILE, State(ports=project.ports, sites=project.sites).model_dump(mode="json"))


def configure(
    project: Project,
    folder: Path,
    domains: Mapping[str, str] = MappingProxyType({}),
    root: Path | None = None,
    file: Path | None = None,
) -> None:
    """Write every participant's local policy and config; what an operator has added there stays.

    ``domains``: the domain of each site, as far as known. ``root``: the data root of all sites. ``file``: the file that
    describes the images, if it is not in the data root.
    """
    server, paths = folder / project.server["name"], {"data_root": root, "dataset_file": file}
    of_all = {name: str(path.resolve()) for name, path in paths.items() if path is not None}

    def adjust(resources: dict[str, Any]) -> None:
        resources["servers"][0]["heart_beat_timeout"] = HEARTBEAT_TIMEOUT_S
        store_below(server, resources)

    harden(server, adjust)
    for site in project.sites:
        harden(folder / site)
        path, domain = folder / site / "local" / FILE_NAME, domains.get(site)
        part = None if domain in (None, site) else split_site(site)[1]
        own: dict[str, Any] = {} if path.exists() else {"domain": site, "device": "auto", "threads": 1}
        own |= {} if domain is None else {"domain": domain}
        own |= {} if part is None else {"part": "/".join(map(str, part))}
        if own | of_all:
            update_site_config(path, site, own | of_all)


def store_below(server: Path, resources: dict[str, Any]) -> None:
    """Have a server with these resources keep its jobs in its own folder ``server``.

    FLARE's default is one folder under ``/tmp`` for all federations of the machine.
    """
    for component in [*resources["components"], resources["snapshot_persistor"]]:
        arguments = component.get("args", {})
        if component.get("id") == "job_manager":
            arguments["uri_root"] = str(server / "jobs-storage")
        if "storage" in arguments:
            arguments["storage"]["args"]["root_dir"] = str(server / "snapshot-storage")

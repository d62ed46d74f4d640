# SPDX-License-Identifier: Apache-2.0
"""The startup kits of a federation on one machine: provisioned by FLARE, with the policies of cautious operators."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fdg_plugins.errors import DataError, FDGError, SettingsError
from fdg_plugins.flare.cautious_kits import harden
from fdg_plugins.lab.poc.project import STATE_FILE, Project, State
from fdg_plugins.settings.site_config import FILE_NAME, update_site_config
from fdg_plugins.storage import make_private_folder, write_json

PROVISION = "provision.d"  # beside the kits: FLARE allows no dot in the name of a site

HEARTBEAT_TIMEOUT_S = 30  # FLARE's own is 600: a lost machine would be noticed after ten minutes


class SiteData(NamedTuple):
    """Where the images of the sites are.

    ``domains``: the domain of each site, as far as known. ``root``: the data root of all sites.
    ``file``: the file that describes the images, if it is not in the data root.
    """

    domains: Mapping[str, str] = {}
    root: Path | None = None
    file: Path | None = None

    def entry(self, site: str) -> dict[str, str]:
        """Return what the options say about a site's data, in the form of its config."""
        paths = {"data_root": self.root, "dataset_file": self.file}
        known = {name: str(path.resolve()) for name, path in paths.items() if path is not None}
        return {**({"domain": self.domains[site]} if site in self.domains else {}), **known}


def check_folder(folder: Path) -> None:
    """Raise ``SettingsError`` for a path that FLARE's start scripts would split: they do not quote it."""
    if any(sign.isspace() or sign in "\"'\\*?[]$`&;|<>()#" for sign in str(folder)):
        expected = "a path without blanks and shell characters, for FLARE's start scripts"
        raise SettingsError(field="folder", value=folder, expected=expected)


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


def configure(project: Project, folder: Path, data: SiteData) -> None:
    """Write every participant's local policy and config; what an operator has added there stays."""
    server = folder / project.server["name"]

    def adjust(resources: dict[str, Any]) -> None:
        resources["servers"][0]["heart_beat_timeout"] = HEARTBEAT_TIMEOUT_S
        store_below(server, resources)

    harden(server, adjust)
    for site in project.sites:
        harden(folder / site)
        path = folder / site / "local" / FILE_NAME
        first = {} if path.exists() else {"domain": site, "device": "auto", "threads": 1}
        if asked := {**first, **data.entry(site)}:
            update_site_config(path, site, asked)


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

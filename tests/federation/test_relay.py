# SPDX-License-Identifier: Apache-2.0
"""``deploy/project.yml`` in real processes on one machine: two sites reach the server through a relay, and jobs must be
signed. Its hospitals are called as the domains of PACS here, and their hosts are this machine."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from nvflare.fuel.hci.client import file_transfer

from fdg_plugins.lab.poc.kits import Project, configure, provision, store_below
from fdg_plugins.lab.poc.processes import launched, participant_environment, start_participant
from fdg_plugins.lab.sweep.machine import ONE_PROCESS
from fdg_plugins.recipes import make_recipe
from fdg_plugins.record.run_files import LAST_FILE
from tests.federation.conftest import PROTOCOL, ROOT, Federation, edit_json, free_ports, own_settings
from tests.finished_runs import same_models
from tests.processes import printed_by

pytestmark = pytest.mark.nightly  # in a federation of its own

RELAY = "relay-north"
DOMAINS = {"hospital-a": "photo", "hospital-b": "art_painting", "hospital-d": "cartoon", "hospital-e": "sketch"}


def local_project(ports: tuple[int, int], relay_port: int) -> Project:
    """Return the project of ``deploy/project.yml`` with all hosts here, and its hospitals called as domains of PACS."""
    content = yaml.safe_load((ROOT / "deploy" / "project.yml").read_text(encoding="utf-8"))
    kept = []
    for one in content["participants"]:
        if one["type"] == "server":
            here = {"default_host": "localhost", "host_names": ["localhost", "127.0.0.1"]}
            one |= {"name": "server", "fed_learn_port": ports[0], "admin_port": ports[1], **here}
        elif one["type"] == "relay":
            one["listening_host"] |= {"default_host": "localhost", "host_names": ["localhost"], "port": relay_port}
        elif one["type"] == "client":
            one.pop("capacity", None)
            one["name"] = DOMAINS.get(one["name"], "")
        if one["name"]:
            kept.append(one)
    content["participants"] = kept
    names = {kind: tuple(one["name"] for one in kept if one["type"] == kind) for kind in ("client", "admin")}
    return Project(content, kept[0], names["client"], names["admin"])


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory, data_root: Path) -> Iterator[Federation]:
    """The federation of the project, whose relay was started first."""
    folder = tmp_path_factory.mktemp("deploy") / "federation"
    ports, (relay_port, _) = free_ports(), free_ports()
    project = local_project(ports, relay_port)
    provision(project, folder)
    configure(project, folder, root=data_root)
    server = folder / "server"
    edit_json(server / "local" / "resources.json", partial(store_below, server))
    for site in project.sites:
        edit_json(folder / site / "local" / "fdg_site.json", own_settings(site, isolate=False))
    found = Federation(folder, ports, data_root)
    start_participant(folder, RELAY)
    with launched(project, folder):
        try:
            yield found
        finally:
            found.close()


def in_one_process(folder: Path, data_root: Path, **settings: Any) -> Path:
    """Run FedOMG by the one-process engine; return the folder with what it leaves."""
    recipe = make_recipe("fedomg", "pacs", **settings)
    recipe.export(str(folder))
    given = {**participant_environment(folder), "FDG_DATA_ROOT": str(data_root), "FDG_THREADS": "1"}
    printed_by(*ONE_PROCESS, folder / recipe.name, folder / "workspace", **given)
    return folder / "workspace"


def test_sites_behind_a_relay_train_the_same_bits(relayed: Federation, tmp_path: Path) -> None:
    recipe = make_recipe("fedomg", "pacs", **PROTOCOL)
    recipe.export_for_submission(tmp_path)
    job = relayed.session("lead").submit_job(str(tmp_path / recipe.name))
    record = relayed.record_of(job, tmp_path / "results")
    assert [len(done.sites) for done in record.rounds] == [3, 3]
    (results,) = (tmp_path / "results").rglob(LAST_FILE)
    (reference,) = in_one_process(tmp_path / "reference", relayed.data_root, **PROTOCOL).rglob(LAST_FILE)
    assert same_models(results.parent, reference.parent, LAST_FILE)


def test_unsigned_job_is_not_run(relayed: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = make_recipe("fedavg", "pacs", **PROTOCOL)
    recipe.export_for_submission(tmp_path)
    monkeypatch.setattr(file_transfer, "sign_folders", lambda *_: None)
    job = relayed.session("lead").submit_job(str(tmp_path / recipe.name))
    ended = relayed.wait_for(job)
    assert ended.status != "FINISHED:COMPLETED"
    assert "unsigned job rejected" in relayed.log()

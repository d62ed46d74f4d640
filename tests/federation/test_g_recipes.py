# SPDX-License-Identifier: Apache-2.0
"""Recipes in a federation: ``ProdEnv`` in a provisioned one; ``PocEnv`` and ``nvflare poc`` in FLARE's own.

FLARE's POC is in a folder of the test's own, with a home of its own; its ports are FLARE's, 8002 and 8003.
"""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from fdg_plugins.controllers import RunRecord
from fdg_plugins.recipes import FDGRecipe, ProdEnv, results_file
from tests.cli.commands import fdg
from tests.finished_runs import record_in
from tests.processes import command_line, printed_by

from .conftest import JOB_ID, JOB_TIMEOUT_S, LOGIN_TIMEOUT_S, PROTOCOL, Federation

SITES = ("site-1", "site-2", "site-3")
DOMAINS = ("angle_0", "angle_15", "angle_30")
TINY = {"rounds": 1, "local_epochs": 1, "image_size": 16, "max_samples_per_domain": 20}
SCRIPT = f"""
from fdg_plugins.recipes import FDGRecipe, PocEnv, results_file

if __name__ == "__main__":
    recipe = FDGRecipe("fedomg", "rotateddigits", sites=list({DOMAINS}), **{TINY})
    env = PocEnv(num_clients=len(recipe.sites), clients=recipe.sites)
    try:
        run = recipe.execute(env)
        print("record:", results_file(run.get_result(clean_up=False)).read_text(encoding="utf-8").replace("\\n", " "))
    finally:
        env.stop()
"""


class OwnPoc:
    """FLARE's POC in a folder of a test's own: its workspace, and commands with its environment."""

    def __init__(self, folder: Path) -> None:
        self.folder, workspace = folder, folder / "poc"
        self.kits = workspace / "example_project" / "prod_00"
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        own = {"HOME": str(folder / "home"), "NVFLARE_POC_WORKSPACE": str(workspace), "PATH": programs}
        tiny = {f"FDG_{name.upper()}": str(value) for name, value in TINY.items()}
        self.environment = {**own, "FDG_THREADS": "1", **tiny}
        (folder / "home").mkdir()

    def run(self, program: str, *arguments: object) -> str:
        """Run a program of this Python's environment in the folder; return what it printed, once it has succeeded."""
        return printed_by(Path(sys.executable).with_name(program), *arguments, folder=self.folder, **self.environment)

    def end(self) -> None:
        """Kill every process that has the folder in its command line, should a command have failed."""
        for process in psutil.process_iter():
            if process.pid != os.getpid() and str(self.folder) in command_line(process):
                with suppress(psutil.NoSuchProcess):
                    process.kill()


@pytest.fixture
def own_poc(tmp_path: Path) -> Iterator[OwnPoc]:
    for port in (8002, 8003):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                pytest.skip(f"port {port}, which FLARE's POC uses, is taken on this machine")
    found = OwnPoc(tmp_path)
    yield found
    found.end()


def test_recipe_runs_in_a_provisioned_federation(federation: Federation) -> None:
    kit = federation.folder / "lead@fdg.example"
    recipe = FDGRecipe("fedavg", "pacs", target="sketch", **PROTOCOL)
    env = ProdEnv(startup_kit_location=str(kit), username=kit.name, login_timeout=LOGIN_TIMEOUT_S)
    run = recipe.execute(env)
    record = RunRecord.model_validate_json(results_file(run.get_result(timeout=JOB_TIMEOUT_S)).read_bytes())
    assert (record.status, record.held_out, len(record.rounds)) == ("finished", ("sketch",), PROTOCOL["rounds"])
    assert run.get_status() == "FINISHED:COMPLETED"


@pytest.mark.nightly
def test_a_recipe_runs_in_flares_own_poc(own_poc: OwnPoc) -> None:
    script = own_poc.folder / "recipe.py"
    script.write_text(SCRIPT, encoding="utf-8")
    printed = own_poc.run("python", script)
    (line,) = [line for line in printed.splitlines() if line.startswith("record:")]
    record = RunRecord.model_validate_json(line.removeprefix("record:"))
    assert (record.status, record.held_out, record.sources) == ("finished", DOMAINS[:1], DOMAINS[1:])


@pytest.mark.nightly
def test_sites_with_names_of_flares_own_are_told_their_domains(own_poc: OwnPoc) -> None:
    own_poc.run("nvflare", "poc", "prepare", "-n", len(SITES))
    for site, domain in zip(SITES, DOMAINS, strict=True):
        told = fdg("kit", "site", own_poc.kits / site, "--domain", domain)
        assert told.exit_code == 0, told.output
    FDGRecipe("fedomg", "rotateddigits", sites=list(SITES)).export(str(own_poc.folder / "jobs"))
    own_poc.run("nvflare", "poc", "start", "--timeout", 300)
    try:
        submitted = JOB_ID.search(own_poc.run("nvflare", "job", "submit", "-j", "jobs/rotateddigits_fedomg"))
        assert submitted is not None
        own_poc.run("nvflare", "job", "wait", submitted[0])
        own_poc.run("nvflare", "job", "download", submitted[0], "-o", "results")
    finally:
        own_poc.run("nvflare", "poc", "stop", "--no-wait")  # FLARE waits 30 s and then fails; the fixture ends the rest
    record = record_in(own_poc.folder / "results")
    assert {site: reply.domain for site, reply in record.census.items()} == dict(zip(SITES, DOMAINS, strict=True))
    assert (record.status, record.held_out) == ("finished", SITES[:1])

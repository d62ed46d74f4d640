# SPDX-License-Identifier: Apache-2.0
"""Recipes in a federation: ``ProdEnv`` in a provisioned one; ``nvflare poc``, FLARE's own.

FLARE's POC is in a folder of the test's own, with a home of its own; its ports are FLARE's, 8002 and 8003.
"""

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from fdg_plugins.controllers import RunRecord
from fdg_plugins.recipes import FDGRecipe, ProdEnv, results_file
from tests.cli.commands import printed
from tests.federation.conftest import JOB_ID, JOB_TIMEOUT_S, LOGIN_TIMEOUT_S, PROTOCOL, Federation
from tests.finished_runs import record_in
from tests.processes import NVFLARE, command_line, printed_by

SITES = ("site-1", "site-2", "site-3")
DOMAINS = ("angle_0", "angle_15", "angle_30")
TINY = {"rounds": 1, "local_epochs": 1, "image_size": 16, "max_samples_per_domain": 20}


@pytest.fixture
def nvflare(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """FLARE's command with POC and home in the test's folder, whose processes are killed in the end."""
    for port in (8002, 8003):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                pytest.skip(f"port {port}, which FLARE's POC uses, is taken on this machine")
    (tmp_path / "home").mkdir()
    own = {"HOME": str(tmp_path / "home"), "NVFLARE_POC_WORKSPACE": str(tmp_path / "poc"), "FDG_THREADS": "1"}
    own["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    tiny = {f"FDG_{name.upper()}": str(value) for name, value in TINY.items()}
    yield partial(printed_by, NVFLARE, folder=tmp_path, **own, **tiny)
    for process in psutil.process_iter():
        if process.pid != os.getpid() and str(tmp_path) in command_line(process):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def test_recipe_runs_in_a_provisioned_federation(federation: Federation) -> None:
    kit = federation.folder / "lead@fdg.example"
    recipe = FDGRecipe("fedavg", "pacs", target="sketch", **PROTOCOL)
    env = ProdEnv(startup_kit_location=str(kit), username=kit.name, login_timeout=LOGIN_TIMEOUT_S)
    run = recipe.execute(env)
    record = RunRecord.model_validate_json(results_file(run.get_result(timeout=JOB_TIMEOUT_S)).read_bytes())
    assert (record.status, record.held_out, len(record.rounds)) == ("finished", ("sketch",), PROTOCOL["rounds"])
    assert run.get_status() == "FINISHED:COMPLETED"


@pytest.mark.nightly
def test_sites_with_names_of_flares_own_are_told_their_domains(nvflare: Callable[..., str], tmp_path: Path) -> None:
    nvflare("poc", "prepare", "-n", len(SITES))
    for site, domain in zip(SITES, DOMAINS, strict=True):
        printed("kit", "site", tmp_path / "poc" / "example_project" / "prod_00" / site, "--domain", domain)
    FDGRecipe("fedomg", "rotateddigits", sites=list(SITES)).export(str(tmp_path / "jobs"))
    nvflare("poc", "start", "--timeout", 300)
    try:
        submitted = JOB_ID.search(nvflare("job", "submit", "-j", "jobs/rotateddigits_fedomg"))
        assert submitted is not None
        nvflare("job", "wait", submitted[0])
        nvflare("job", "download", submitted[0], "-o", "results")
    finally:
        nvflare("poc", "stop", "--no-wait")  # FLARE waits 30 s and then fails; the fixture ends the rest
    record = record_in(tmp_path / "results")
    assert {site: reply.domain for site, reply in record.census.items()} == dict(zip(SITES, DOMAINS, strict=True))
    assert (record.status, record.held_out) == ("finished", SITES[:1])

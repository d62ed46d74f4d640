# SPDX-License-Identifier: Apache-2.0
"""Sites that lend a GPU to jobs, in a federation of real processes with FLARE's resource manager; the GPU is listed
by an ``nvidia-smi`` of the test's."""

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fdg_plugins.recipes import make_recipe
from tests.cli.commands import fdg
from tests.fake_gpus import fake_nvidia_smi
from tests.processes import WORKER

from .conftest import JOB_TIMEOUT_S, PROTOCOL, Federation, free_ports


@pytest.fixture(scope="module")
def gpu_federation(tmp_path_factory: pytest.TempPathFactory, data_root: Path) -> Iterator[Federation]:
    """A federation whose sites share a GPU of 16 GiB, of which each lends 12."""
    folder = tmp_path_factory.mktemp("gpus")
    found = Federation(folder / "federation", free_ports(), data_root)
    found.plugins["PATH"] = fake_nvidia_smi(folder / "bin", [16384])
    try:
        assert found.start().returncode == 0
        for site in found.sites:
            lent = fdg("kit", "site", found.folder / site, "--set", "gpus=1", "--set", "gpu_memory=12")
            assert lent.exit_code == 0, lent.output
        assert found.control("stop").returncode == 0
        started = found.start()
        assert started.returncode == 0, started.stdout
        yield found
    finally:
        found.close()
        assert found.control("stop").returncode == 0


def submit(federation: Federation, folder: Path, **need: object) -> str:
    recipe = make_recipe("fedomg", "pacs", **{**PROTOCOL, **need})
    recipe.export_for_submission(folder)
    return federation.session("lead").submit_job(str(folder / recipe.name))


def visible_to_workers(federation: Federation) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for process in federation.processes():
        try:
            for child in process.children():
                if WORKER in child.cmdline():
                    words = " ".join(process.cmdline())
                    (site,) = {name for name in federation.sites if str(federation.folder / name) in words}
                    found[site] = child.environ().get("CUDA_VISIBLE_DEVICES")
        except psutil.Error:
            continue
    return found


@pytest.mark.nightly
def test_two_jobs_share_the_gpu(gpu_federation: Federation, tmp_path: Path) -> None:
    first = submit(gpu_federation, tmp_path / "first", gpus=1, gpu_memory=8)
    gpu_federation.wait_until_running(first, "round")
    second = submit(gpu_federation, tmp_path / "second", gpus=1, gpu_memory=8)
    seen: dict[str, str | None] = {}
    waited = False
    deadline = time.monotonic() + JOB_TIMEOUT_S
    while not gpu_federation.meta(first)["status"].startswith("FINISHED"):
        seen |= visible_to_workers(gpu_federation)
        history = " ".join(gpu_federation.meta(second).get("schedule_history", []))
        waited = waited or "not enough sites have enough resources" in history
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert gpu_federation.wait_for(first).status == "FINISHED:COMPLETED"
    assert seen == dict.fromkeys(gpu_federation.sites, "0")
    assert waited, "8 and 8 of 12 GiB: the second job waits for the first"
    assert gpu_federation.wait_for(second).status == "FINISHED:COMPLETED"

# SPDX-License-Identifier: Apache-2.0
"""GPUs of provisioned sites, by FLARE's own resource manager and consumer: what kits lend, and what jobs ask for."""

import math
import os
from pathlib import Path
from typing import Any

import pytest
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.resource_consumers.gpu_resource_consumer import GPUResourceConsumer
from nvflare.app_common.resource_managers.gpu_resource_manager import GPUResourceManager
from nvflare.app_common.resource_managers.list_resource_manager import ListResourceManager
from nvflare.utils.job_launcher_utils import get_resource_manager_spec, validate_portable_resource_spec

from fdg_plugins.errors import SettingsError
from fdg_plugins.flare.gpus import Lent, lend_gpus, lent_gpus, resource_spec
from tests.fake_gpus import fake_nvidia_smi

SITES = ["art_painting", "cartoon", "photo", "site-4"]


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs of 16 GiB, as far as FLARE can see."""
    monkeypatch.setenv("PATH", fake_nvidia_smi(tmp_path / "bin", [16384, 16384]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "")  # which FLARE's consumer sets


def manager_of(resources: dict[str, Any]) -> GPUResourceManager:
    """Return the manager that FLARE builds of the resources of a kit."""
    (entry,) = [one for one in resources["components"] if one["id"] == "resource_manager"]
    assert entry["path"] == f"{GPUResourceManager.__module__}.{GPUResourceManager.__name__}"
    return GPUResourceManager(**entry["args"])


def need_of(site: str, gpus: int, memory: float) -> dict[str, Any]:
    """Return what FLARE's server asks of ``site`` for a job with these GPUs at every site."""
    spec = resource_spec(SITES, gpus, memory)
    validate_portable_resource_spec(spec)
    need: dict[str, Any] = get_resource_manager_spec({"resource_spec": spec}, site)
    return need


@pytest.mark.usefixtures("two_gpus")
def test_jobs_share_a_gpu_until_its_memory_is_promised_and_the_next_one_waits() -> None:
    manager, context = manager_of(lend_gpus({}, 1, 16)), FLContext()
    need = need_of("photo", 1, 8)
    tokens = [manager.check_resources(need, context) for _ in range(3)]
    assert [enough for enough, _ in tokens] == [True, True, False], "8 and 8 of 16 GiB, and nothing for a third"
    held = [manager.allocate_resources(need, token, context) for _, token in tokens[:2]]
    assert held == [{0: 8.0}, {0: 8.0}], "both on the one GPU"
    manager.free_resources(held[0], tokens[0][1], context)
    assert manager.check_resources(need, context)[0], "the job that ended has made room"


@pytest.mark.usefixtures("two_gpus")
def test_a_job_for_two_gpus_gets_both_or_waits() -> None:
    for lent, enough in ((1, False), (2, True)):
        manager = manager_of(lend_gpus({}, lent, 16))
        assert manager.check_resources(need_of("photo", 2, 16), FLContext())[0] is enough


@pytest.mark.usefixtures("two_gpus")
def test_what_flare_grants_is_what_the_sites_processes_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")  # the site's operator gives FLARE the second GPU only
    manager, context = manager_of(lend_gpus({}, 1, 16)), FLContext()
    need = need_of("photo", 1, 8)
    _, token = manager.check_resources(need, context)
    GPUResourceConsumer().consume(manager.allocate_resources(need, token, context))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_a_gpu_that_another_program_has_filled_fails_the_start_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", fake_nvidia_smi(tmp_path / "bin", [16384], free=[4096]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "")
    manager, context = manager_of(lend_gpus({}, 1, 16)), FLContext()
    need = need_of("photo", 1, 8)
    enough, token = manager.check_resources(need, context)
    assert enough, "what is lent is counted, not measured"
    with pytest.raises(RuntimeError, match="GPU free mem is not enough"):
        GPUResourceConsumer().consume(manager.allocate_resources(need, token, context))


def test_a_site_that_lends_none_starts_and_refuses_only_jobs_that_need_one() -> None:
    manager, context = manager_of(lend_gpus({}, 0, None)), FLContext()
    assert not manager.check_resources(need_of("photo", 1, 8), context)[0]
    assert manager.check_resources(get_resource_manager_spec({"resource_spec": {}}, "photo"), context)[0]


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("number", "memory"), [(3, 16), (1, 17)])
def test_flare_itself_refuses_to_lend_more_than_the_machine_has(number: int, memory: float) -> None:
    with pytest.raises(ValueError, match="exceeds available"):
        manager_of(lend_gpus({}, number, memory))


def test_the_other_resources_of_a_kit_stay_and_lending_again_replaces() -> None:
    launcher = {"id": "process_launcher", "path": "a.b.Launcher", "args": {}}
    manager = {"id": "resource_manager", "path": "x.Other", "args": {"ignore_host": True, "num_of_gpus": 0}}
    before = {"allow_log_streaming": False, "components": [manager, launcher]}
    once = lend_gpus(before, 1, 16)
    assert once["allow_log_streaming"] is False
    assert launcher in once["components"]
    assert sorted(one["id"] for one in once["components"]) == [
        "process_launcher",
        "resource_consumer",
        "resource_manager",
    ]
    assert next(one["args"] for one in once["components"] if one["id"] == "resource_manager")["ignore_host"] is True
    assert lent_gpus(once, "kit") == Lent(1, 16)
    assert lend_gpus(once, 1, 16) == once
    assert lent_gpus(lend_gpus(once, 2, 8.5), "kit") == Lent(2, 8.5)
    assert before["components"] == [manager, launcher], "the input is unchanged"


def test_a_kit_without_flares_manager_lends_none() -> None:
    other = {"id": "resource_manager", "path": f"{ListResourceManager.__module__}.ListResourceManager", "args": {}}
    for components in (None, [], "text", [other], [3]):
        assert lent_gpus({"components": components}, "kit") == Lent(0, 0)


@pytest.mark.parametrize("arguments", [None, {}, {"num_of_gpus": "1", "mem_per_gpu_in_GiB": 8}, {"num_of_gpus": True}])
def test_a_manager_with_which_flare_would_not_start_is_named(arguments: Any) -> None:
    resources = lend_gpus({}, 1, 8)
    resources["components"][0]["args"] = arguments
    with pytest.raises(SettingsError, match=r"^kit a: resource_manager has num_of_gpus .*, expected a number of GPUs"):
        lent_gpus(resources, "kit a")


def test_a_job_asks_every_site_but_those_without() -> None:
    spec = resource_spec(SITES, 2, 7.5, ["cartoon", "site-4"])
    assert spec == {site: {"num_of_gpus": 2, "mem_per_gpu_in_GiB": 7.5} for site in ("art_painting", "photo")}
    assert resource_spec(SITES, 0, None) == {}


@pytest.mark.parametrize(
    ("gpus", "memory", "without", "told"),
    [
        (-1, 8, [], "gpus is -1, expected an integer from 0 to 1024."),
        (True, 8, [], "gpus is True, expected an integer"),
        (1.5, 8, [], "gpus is 1.5, expected an integer"),
        (1, None, [], "gpus is 1 without gpu_memory, expected the GiB of each GPU."),
        (0, 8, [], "gpu_memory is 8, but gpus is 0, expected at least one GPU with it."),
        (1, 0, [], "gpu_memory is 0, expected GiB, above 0"),
        (1, math.nan, [], "gpu_memory is nan, expected GiB, above 0"),
        (1, math.inf, [], "gpu_memory is inf, expected GiB, above 0"),
        (1, "8", [], "gpu_memory is '8', expected GiB, above 0"),
        (1, 8, ["scanner"], "without_gpu has 'scanner', expected sites of the job: art_painting"),
        (1, 8, "photo", "without_gpu is 'photo', expected a list of sites."),
        (0, None, ["photo"], "without_gpu has 'photo', but gpus is 0"),
    ],
)
def test_a_wrong_need_is_refused_in_one_sentence(gpus: Any, memory: Any, without: Any, told: str) -> None:
    with pytest.raises(SettingsError) as refused:
        resource_spec(SITES, gpus, memory, without)
    assert str(refused.value).startswith(told)
    assert str(refused.value).count(". ") == 0


def test_a_site_whose_name_submission_would_distort_cannot_be_asked() -> None:
    with pytest.raises(SettingsError, match=r"^gpus cannot be asked of site 'clinic\.example'"):
        resource_spec(["clinic.example"], 1, 8)
    assert resource_spec(["clinic.example"], 0, None) == {}, "a job without GPUs may have it"

# SPDX-License-Identifier: Apache-2.0
"""GPUs of provisioned sites, by FLARE's own resource manager and consumer: what kits lend, and what jobs ask for."""

import math
import os
from typing import Any

import pytest
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.resource_consumers.gpu_resource_consumer import GPUResourceConsumer
from nvflare.app_common.resource_managers.gpu_resource_manager import GPUResourceManager
from nvflare.fuel.utils import gpu_utils
from nvflare.utils.job_launcher_utils import get_resource_manager_spec, validate_portable_resource_spec

from fdg_plugins.errors import SettingsError
from fdg_plugins.flare.gpus import Lent, lend_gpus, resource_spec

# What nvidia-smi says of two GPUs of 16 GiB, by FLARE's query.
MEMORY = ["memory [MiB]", "16384 MiB", "16384 MiB"]
SAID = {"index": ["index", "0", "1"], "memory.total": MEMORY, "memory.free": MEMORY}
SITES = ["art_painting", "cartoon", "photo", "site-4"]


def test_jobs_share_a_gpu_until_its_memory_is_promised_and_the_next_one_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_utils, "use_nvidia_smi", SAID.__getitem__)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "")  # which FLARE's consumer sets
    (entry,) = [one for one in lend_gpus({}, Lent(1, 16.0))["components"] if one["id"] == "resource_manager"]
    assert entry["path"] == f"{GPUResourceManager.__module__}.{GPUResourceManager.__name__}"
    manager, context = GPUResourceManager(**entry["args"]), FLContext()  # as FLARE builds it
    spec = resource_spec(SITES, 1, 8)
    validate_portable_resource_spec(spec)
    need: dict[str, Any] = get_resource_manager_spec({"resource_spec": spec}, "photo")
    tokens = [manager.check_resources(need, context) for _ in range(3)]
    assert [enough for enough, _ in tokens] == [True, True, False], "8 and 8 of 16 GiB, and nothing for a third"
    held = [manager.allocate_resources(need, token, context) for _, token in tokens[:2]]
    assert held == [{0: 8.0}, {0: 8.0}], "both on the one GPU"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # which FLARE's consumer sets, too
    GPUResourceConsumer().consume(held[0])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    manager.free_resources(held[0], tokens[0][1], context)
    assert manager.check_resources(need, context)[0], "the job that ended has made room"


@pytest.mark.parametrize(
    ("gpus", "memory", "without", "field"),
    [
        (-1, 8, [], "gpus"),
        (1, None, [], "gpu_memory"),
        (1, math.nan, [], "gpu_memory"),
        (1, 8, ["scanner"], "without_gpu"),
        (1, 8, "photo", "without_gpu"),
        (0, None, ["photo"], "without_gpu"),
    ],
)
def test_a_wrong_need_is_refused_by_its_field(gpus: Any, memory: Any, without: Any, field: str) -> None:
    with pytest.raises(SettingsError) as refused:
        resource_spec(SITES, gpus, memory, without)
    assert refused.value.field == field
    with pytest.raises(SettingsError):
        resource_spec(["site.1"], 1, 8)

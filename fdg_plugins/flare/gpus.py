# SPDX-License-Identifier: Apache-2.0
"""GPUs of a provisioned site: how many its kit lends to jobs, and how many a job asks of each site.

FLARE's resource manager at a site counts GPUs and their memory. A job states in ``resource_spec`` of its ``meta.json``
what it needs at each site, and is not started before every such site has it free. FLARE then sets
``CUDA_VISIBLE_DEVICES`` for the site's job process. It does not measure what a job takes: memory is a promise.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from fdg_plugins.errors import SettingsError
from fdg_plugins.flare.kits import declared_components
from fdg_plugins.plugins.fields import check_value

NUMBER = "num_of_gpus"
MEMORY = "mem_per_gpu_in_GiB"
MANAGER_ID, CONSUMER_ID = "resource_manager", "resource_consumer"
MANAGER = "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager"
CONSUMER = "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"
# Seconds for which FLARE keeps what was free when a job was scheduled, until it starts; as in FLARE's kits.
EXPIRATION_S = 300
MOST_GPUS, MOST_MEMORY = 1024, 4096.0  # GiB
UNSAFE = frozenset(".@$:*[]")  # nvflare job submit distorts keys that have one of them


class Lent(NamedTuple):
    """What a site lends to jobs: a number of GPUs, and of each as much memory, in GiB, to all jobs together."""

    number: int
    memory: float

    def __str__(self) -> str:
        return f"{self.number} x {self.memory:g} GiB" if self.number else "no GPU"


def lend_gpus(resources: Mapping[str, Any], lent: Lent) -> dict[str, Any]:
    """Return the resources of a site's kit with FLARE's manager and consumer of GPUs, which lend ``lent``.

    All else stays.
    """
    own = {NUMBER: lent.number, MEMORY: lent.memory, "expiration_period": EXPIRATION_S}
    declared = declared_components(resources)
    kept = next((one.get("args") for one in declared if one.get("id") == MANAGER_ID), None) or {}
    components = [
        {"id": MANAGER_ID, "path": MANAGER, "args": {**kept, **own}},
        {"id": CONSUMER_ID, "path": CONSUMER, "args": {}},
    ]
    rest = [one for one in declared if one.get("id") not in (MANAGER_ID, CONSUMER_ID)]
    return {**resources, "components": [*components, *rest]}


def resource_spec(
    sites: Sequence[str], gpus: int, memory: float | None, without: Sequence[str] = ()
) -> dict[str, dict[str, float]]:
    """Return a job's ``resource_spec``: ``gpus`` GPUs with ``memory`` GiB free of each, at every site but ``without``.

    Empty for 0 GPUs. Raises ``SettingsError`` for a wrong value, a site that the job does not have, or a name that
    FLARE's command line would distort.
    """
    asked = checked_gpus(gpus, memory)
    if isinstance(without, str) or (without and not asked.number) or not set(without) <= set(sites):
        expected = f"sites of the job, if the others have gpus: {', '.join(sites)}"
        raise SettingsError(field="without_gpu", value=without, expected=expected)
    if not asked.number:
        return {}
    if unsafe := [site for site in sites if not UNSAFE.isdisjoint(site)]:
        expected = "letters, digits, '_' and '-', since nvflare job submit distorts other names in resource_spec"
        raise SettingsError(field="name of a site with gpus", value=unsafe[0], expected=expected)
    return {site: {NUMBER: asked.number, MEMORY: asked.memory} for site in sites if site not in without}


def checked_gpus(number: Any, memory: Any) -> Lent:
    """Return a number of GPUs and the GiB of each, of a kit or of a job; raise ``SettingsError`` for a wrong value.

    ``memory`` is None exactly for 0 GPUs: FLARE counts memory alone, and without it a GPU is free for any job.
    """
    check_value("gpus", number, Annotated[int, Field(ge=0, le=MOST_GPUS)])
    check_value("gpu_memory", memory, Annotated[float, Field(gt=0, le=MOST_MEMORY)] if number else None)
    return Lent(number, float(memory or 0))

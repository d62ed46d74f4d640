# SPDX-License-Identifier: Apache-2.0
"""GPUs of a provisioned site: how many its kit lends to jobs, and how many a job asks of each site.

FLARE's resource manager at a site counts GPUs and their memory. A job states in ``resource_spec`` of its ``meta.json``
what it needs at each site, and is not started before every such site has it free. FLARE then sets
``CUDA_VISIBLE_DEVICES`` for the site's job process. It does not measure what a job takes: memory is a promise.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fdg_plugins.errors import SettingsError, is_number
from fdg_plugins.flare.resources import declared_component, declared_components

NUMBER = "num_of_gpus"
MEMORY = "mem_per_gpu_in_GiB"
MANAGER_ID = "resource_manager"
MANAGER = "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager"
CONSUMER_ID = "resource_consumer"
CONSUMER = "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"
# Seconds for which FLARE keeps what was free when a job was scheduled, until it starts; as in FLARE's kits.
EXPIRATION_S = 300
MOST_GPUS = 1024
MOST_MEMORY = 4096.0  # GiB
UNSAFE = frozenset(".@$:*[]")  # nvflare job submit distorts keys that have one of them


class Lent(NamedTuple):
    """What a site lends to jobs: a number of GPUs, and of each as much memory, in GiB, to all jobs together."""

    number: int
    memory: float

    def __str__(self) -> str:
        return f"{self.number} x {self.memory:g} GiB" if self.number else "no GPU"


def lent_gpus(resources: Mapping[str, Any], owner: object) -> Lent:
    """Return what the resources of a site's kit lend, no GPU if they declare no manager of GPUs.

    Raises ``SettingsError``, naming ``owner``, if FLARE would not start with the manager's arguments.
    """
    manager = declared_component(resources, MANAGER_ID)
    if manager is None or manager.get("path") != MANAGER:
        return Lent(0, 0.0)
    arguments = manager.get("args")
    arguments = arguments if isinstance(arguments, dict) else {}
    number: Any = arguments.get(NUMBER)
    memory: Any = arguments.get(MEMORY)
    if not (_is_count(number) and is_number(memory) and 0 <= memory <= MOST_MEMORY):
        came = {NUMBER: number, MEMORY: memory}
        raise SettingsError(field=MANAGER_ID, value=came, expected="a number of GPUs and GiB", site=str(owner))
    return Lent(int(number), float(memory))


def lend_gpus(resources: Mapping[str, Any], number: int, memory: float | None) -> dict[str, Any]:
    """Return the resources of a site's kit with FLARE's manager and consumer of GPUs, which lend ``number`` GPUs.

    ``memory``: GiB of each GPU for all jobs together; not needed for 0 GPUs. All else stays. Raises ``SettingsError``
    for a wrong value.
    """
    asked = checked_gpus(number, memory)
    taken = {MANAGER_ID, CONSUMER_ID}
    arguments = {NUMBER: asked.number, MEMORY: asked.memory, "expiration_period": EXPIRATION_S}
    kept = (declared_component(resources, MANAGER_ID) or {}).get("args")
    others = {key: value for key, value in kept.items() if key not in arguments} if isinstance(kept, dict) else {}
    own = [
        {"id": MANAGER_ID, "path": MANAGER, "args": {**others, **arguments}},
        {"id": CONSUMER_ID, "path": CONSUMER, "args": {}},
    ]
    rest = [one for one in declared_components(resources) if one.get("id") not in taken]
    return {**resources, "components": [*own, *rest]}


def resource_spec(
    sites: Sequence[str], gpus: int, memory: float | None, without: Sequence[str] = ()
) -> dict[str, dict[str, float]]:
    """Return a job's ``resource_spec``: ``gpus`` GPUs with ``memory`` GiB free of each, at every site but ``without``.

    Empty for 0 GPUs. Raises ``SettingsError`` for a wrong value, a site that the job does not have, or a name that
    FLARE's command line would distort.
    """
    asked = checked_gpus(gpus, memory)
    _check_sites(sites, asked, without)
    if not asked.number:
        return {}
    return {site: {NUMBER: asked.number, MEMORY: asked.memory} for site in sites if site not in without}


def _check_sites(sites: Sequence[str], asked: Lent, without: Sequence[str]) -> None:
    if isinstance(without, str) or (without and not asked.number) or not set(without) <= set(sites):
        expected = f"sites of the job, if the others have gpus: {', '.join(sites)}"
        raise SettingsError(field="without_gpu", value=without, expected=expected)
    for site in sites if asked.number else ():
        if not UNSAFE.isdisjoint(site):
            raise SettingsError(
                f"gpus cannot be asked of site {site!r}: nvflare job submit distorts such a name in resource_spec, "
                "expected letters, digits, '_' and '-'."
            )


def checked_gpus(number: Any, memory: Any) -> Lent:
    """Return a number of GPUs and the GiB of each, of a kit or of a job; raise ``SettingsError`` for a wrong value.

    ``memory`` is None exactly for 0 GPUs: FLARE counts memory alone, and without it a GPU is free for any job.
    """
    if not _is_count(number):
        raise SettingsError(field="gpus", value=number, expected=f"an integer from 0 to {MOST_GPUS}")
    if number == 0 and memory is None:
        return Lent(0, 0.0)
    if number == 0 or not (is_number(memory) and 0 < memory <= MOST_MEMORY):
        expected = f"GiB of each GPU, above 0 and at most {MOST_MEMORY:g}" if number else "none, as gpus is 0"
        raise SettingsError(field="gpu_memory", value=memory, expected=expected)
    return Lent(int(number), float(memory))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_GPUS

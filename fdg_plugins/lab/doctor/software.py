# SPDX-License-Identifier: Apache-2.0
"""Which software is installed, whether the versions are supported, and which GPUs torch can use."""

import platform
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from fdg_plugins.lab.doctor.finding import Finding, Status, gibibytes, ok, problem, warning

PACKAGE = "fdg-plugins"
NAMED = ("nvflare", "torch", "torchvision")  # shown even if all is well
DRIVER = Path("/dev/nvidiactl")


class Gpu(NamedTuple):
    """One GPU: its id as ``-gpu`` takes it, name, and bytes of memory, all and free."""

    id: str
    name: str
    total: int
    free: int


def check_versions() -> Iterator[Finding]:
    """Yield Python, this package and what it needs; a problem for what is missing or not in the supported range."""
    yield ok("python", platform.python_version())  # an older one than pip takes cannot even import this module
    try:
        yield ok(PACKAGE, version(PACKAGE))
    except PackageNotFoundError:
        yield warning(PACKAGE, "not installed, so that versions cannot be compared: pip install -e .")
        return
    yield from check_requirements(_requirements_here())


def _requirements_here() -> list[Requirement]:
    """Return what this package needs on this platform, without its extras."""
    requirements = map(Requirement, requires(PACKAGE) or [])
    return [one for one in requirements if one.marker is None or one.marker.evaluate()]


def check_requirements(requirements: list[Requirement]) -> Iterator[Finding]:
    """Yield a finding for each requirement that is shown always, or is not met; one for all others together."""
    others = 0
    for finding in map(_check_requirement, requirements):
        if finding.status == Status.OK and finding.check not in NAMED:
            others += 1
        else:
            yield finding
    yield ok("other packages", f"{others} installed in versions that are supported")


def _check_requirement(requirement: Requirement) -> Finding:
    name, wanted = requirement.name, requirement.specifier
    try:
        found = version(name)
    except PackageNotFoundError:
        return problem(name, f"not installed, expected {wanted or 'any version'}")
    if not wanted.contains(found, prereleases=True):
        return problem(name, f"{found}, expected {wanted}")
    return ok(name, f"{found} ({wanted})")


def read_gpus(environment: Mapping[str, str]) -> list[Gpu]:
    """Return the GPUs that torch can use, with their ids on the machine.

    Asking for their memory makes a context on each, for as long as this process lives.
    """
    from torch import cuda

    gpus = []
    for number, name in enumerate(gpu_ids(cuda.device_count() if cuda.is_available() else 0, environment)):
        free, total = cuda.mem_get_info(number)
        gpus.append(Gpu(name, cuda.get_device_name(number), total, free))
    return gpus


def gpu_ids(count: int, environment: Mapping[str, str]) -> list[str]:
    """Return the ids of the ``count`` GPUs that torch sees, which ``CUDA_VISIBLE_DEVICES`` may have renumbered."""
    visible = [name.strip() for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",")][:count]
    known = len(visible) == count and all(map(str.isdecimal, visible))
    return visible if known else [str(number) for number in range(count)]


def check_gpus(gpus: list[Gpu]) -> Iterator[Finding]:
    """Yield each GPU; if there is none, whether there seems to be one that torch cannot use."""
    import torch

    built = f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch is built without CUDA"
    for gpu in gpus:
        yield ok(f"gpu {gpu.id}", f"{gpu.name}, {gibibytes(gpu.free)} free of {gibibytes(gpu.total)}, {built}")
    if not gpus:
        yield _check_no_gpu(built)


def _check_no_gpu(built: str) -> Finding:
    """Return that there is no GPU, or why torch can use none; ``built`` says what torch is built for."""
    from torch import cuda

    if not DRIVER.exists():
        return ok("gpu", f"none, sites compute on the CPU; {built}")
    with warnings.catch_warnings(record=True) as caught:  # torch says why as a warning
        warnings.simplefilter("always")
        cuda.is_available()
    reason = " ".join(str(caught[0].message).split()) if caught else f"{built}; is the driver too old, or hidden?"
    return warning("gpu", f"the driver is there, but torch can use none: {reason}")

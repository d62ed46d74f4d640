# SPDX-License-Identifier: Apache-2.0
"""The installed software, whether its versions are supported, and the GPUs that torch can use."""

import platform
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from fdg_plugins.doctor.finding import Finding, Status, gibibytes

PACKAGE = "fdg-plugins"
NAMED = ("nvflare", "torch", "torchvision")  # shown even if their versions are supported
OLDEST_PYTHON = (3, 11)
DRIVER = Path("/dev/nvidiactl")


@dataclass(frozen=True)
class Gpu:
    """One GPU: its id for ``-gpu``, its name, and its bytes of memory, total and free."""

    id: str
    name: str
    total: int
    free: int


def check_versions() -> Iterator[Finding]:
    """Yield Python, this package and its requirements; a problem for what is missing or not supported."""
    supported = sys.version_info >= OLDEST_PYTHON
    wanted = "" if supported else f", expected {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer"
    yield Finding("python", Status.OK if supported else Status.PROBLEM, platform.python_version() + wanted)
    try:
        yield Finding(PACKAGE, Status.OK, version(PACKAGE))
        needed = requires(PACKAGE) or []
    except PackageNotFoundError:
        yield Finding(PACKAGE, Status.WARNING, "not installed, so that versions cannot be compared: pip install -e .")
        return
    requirements = [Requirement(text) for text in needed]
    yield from check_requirements([one for one in requirements if one.marker is None or one.marker.evaluate()])


def check_requirements(requirements: list[Requirement]) -> Iterator[Finding]:
    """Yield a finding for each requirement that is always shown or not met, and one for all others together."""
    others = 0
    for requirement in requirements:
        finding = check_requirement(requirement)
        if requirement.name in NAMED or finding.status is not Status.OK:
            yield finding
        else:
            others += 1
    yield Finding("other packages", Status.OK, f"{others} installed in versions that are supported")


def check_requirement(requirement: Requirement) -> Finding:
    """Return the installed version of one package, and whether it is supported."""
    wanted = f"expected {requirement.specifier}" if requirement.specifier else "expected any version"
    try:
        found = version(requirement.name)
    except PackageNotFoundError:
        return Finding(requirement.name, Status.PROBLEM, f"not installed, {wanted}")
    if not requirement.specifier.contains(found, prereleases=True):
        return Finding(requirement.name, Status.PROBLEM, f"{found}, {wanted}")
    return Finding(requirement.name, Status.OK, f"{found} ({requirement.specifier})")


def read_gpus(environment: Mapping[str, str]) -> list[Gpu]:
    """Return the GPUs that torch can use, with their ids on the machine.

    Querying their memory creates a context on each, which persists as long as this process.
    """
    import torch

    if not torch.cuda.is_available():
        return []
    count = torch.cuda.device_count()
    gpus = []
    for number, name in enumerate(gpu_ids(count, environment)):
        free, total = torch.cuda.mem_get_info(number)
        gpus.append(Gpu(name, torch.cuda.get_device_name(number), total, free))
    return gpus


def gpu_ids(count: int, environment: Mapping[str, str]) -> list[str]:
    """Return the ids of the ``count`` GPUs that torch sees, which ``CUDA_VISIBLE_DEVICES`` may have renumbered."""
    visible = [name.strip() for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    numbers = visible[:count] if len(visible) >= count and all(name.isdecimal() for name in visible[:count]) else None
    return numbers or [str(number) for number in range(count)]


def check_gpus(gpus: list[Gpu]) -> Iterator[Finding]:
    """Yield each GPU; if there is none, whether there seems to be one that torch cannot use."""
    import torch

    built = f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch is built without CUDA"
    for gpu in gpus:
        text = f"{gpu.name}, {gibibytes(gpu.free)} free of {gibibytes(gpu.total)}, {built}"
        yield Finding(f"gpu {gpu.id}", Status.OK, text)
    if gpus:
        return
    if not DRIVER.exists():
        yield Finding("gpu", Status.OK, f"none, sites compute on the CPU; {built}")
        return
    with warnings.catch_warnings(record=True) as caught:  # torch gives the reason as a warning
        warnings.simplefilter("always")
        torch.cuda.is_available()
    reason = " ".join(str(caught[0].message).split()) if caught else f"{built}; is the driver too old, or hidden?"
    yield Finding("gpu", Status.WARNING, f"the driver is there, but torch can use none: {reason}")


def check_device(environment: Mapping[str, str], gpus: list[Gpu]) -> Iterator[Finding]:
    """Yield a problem if ``FDG_DEVICE`` names a GPU that does not exist."""
    device = environment.get("FDG_DEVICE", "").strip()
    if not device.startswith("cuda"):
        return
    number = device.partition(":")[2] or "0"
    if number.isdecimal() and int(number) >= len(gpus):
        have = f"{len(gpus)} that torch can use" if gpus else "none that torch can use"
        yield Finding("device", Status.PROBLEM, f"FDG_DEVICE is {device!r}, but of GPUs this machine has {have}")

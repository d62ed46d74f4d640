# SPDX-License-Identifier: Apache-2.0
"""All checks, one after another; a check that fails is itself a finding and does not affect the others."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fdg_plugins.doctor import machine, software
from fdg_plugins.doctor.advice import Advice, recommend
from fdg_plugins.doctor.finding import Finding, Status, worst
from fdg_plugins.errors import FDGError

# Exceptions of loading a broken torch, torchvision or driver, and of this package.
FAILURES = (FDGError, ImportError, OSError, RuntimeError)


@dataclass(frozen=True)
class Examination:
    """The findings, and how to start a simulation on this machine."""

    findings: tuple[Finding, ...]
    sites: int
    advice: Advice

    @property
    def status(self) -> Status:
        """The worst status of all findings."""
        return worst(self.findings)


def examine(environment: Mapping[str, str], sites: int) -> Examination:
    """Return the findings on this machine, and the recommended command for a job of ``sites`` sites."""
    cores, memory = machine.read_cores(), machine.read_memory()
    gpus: list[software.Gpu] = []

    def look_at_gpus() -> Iterator[Finding]:
        gpus.extend(software.read_gpus(environment))
        yield from software.check_gpus(gpus)
        yield from software.check_device(environment, gpus)

    findings = [
        *guarded("versions", software.check_versions),
        *guarded("gpu", look_at_gpus),
        machine.check_cores(cores),
        machine.check_memory(memory, sites),
        *guarded("disk", lambda: _check_disks(environment)),
        *guarded("set-up", lambda: _check_setup(environment)),
        machine.check_ports(),
    ]
    advice = recommend(cores.usable, [gpu.id for gpu in gpus], sites, memory.processes)
    return Examination(tuple(findings), sites, advice)


def guarded(check: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of ``look``; if it fails, those before the failure, and the failure as a problem."""
    findings: list[Finding] = []
    try:
        for finding in look():
            findings.append(finding)  # one by one, to keep those before a failure
    except FAILURES as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        findings.append(Finding(check, Status.PROBLEM, f"cannot be checked: {type(error).__name__}: {reason}"))
    return findings


def _check_disks(environment: Mapping[str, str]) -> Iterator[Finding]:
    from fdg_plugins.doctor.setup import cache_folder_of  # loads torch, which may be broken

    yield from machine.check_disks(cache_folder_of(environment))


def _check_setup(environment: Mapping[str, str]) -> Iterator[Finding]:
    from fdg_plugins.doctor import setup  # loads torch

    yield from setup.check_data(environment)
    yield setup.check_weights(environment)
    yield from setup.check_variables(environment)

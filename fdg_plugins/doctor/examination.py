# SPDX-License-Identifier: Apache-2.0
"""All checks, one after another; one that cannot be made is a finding itself and costs no other."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fdg_plugins.doctor import machine, software
from fdg_plugins.doctor.advice import Advice, recommend
from fdg_plugins.doctor.finding import Finding, guarded


class Examination(NamedTuple):
    """What was found, and how to start a simulation on this machine."""

    findings: tuple[Finding, ...]
    sites: int
    advice: Advice


def examine(environment: Mapping[str, str], sites: int) -> Examination:
    """Return what is found on this machine, and what to type for a job of ``sites`` sites."""
    cores, memory = machine.read_cores(), machine.read_memory()
    gpus: list[software.Gpu] = []

    def look_at_gpus() -> Iterator[Finding]:
        gpus.extend(software.read_gpus(environment))
        yield from software.check_gpus(gpus)

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


def _check_disks(environment: Mapping[str, str]) -> Iterator[Finding]:
    from fdg_plugins.doctor.setup import cache_folder_of  # loads torch, which may be what is broken

    return machine.check_disks(cache_folder_of(environment))


def _check_setup(environment: Mapping[str, str]) -> Iterator[Finding]:
    from fdg_plugins.doctor import setup  # loads torch

    yield from setup.check_data(environment)
    yield setup.check_weights(environment)
    yield from setup.check_variables(environment)

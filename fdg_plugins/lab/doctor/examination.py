# SPDX-License-Identifier: Apache-2.0
"""All checks, one after another; one that cannot be made is a finding itself and costs no other."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fdg_plugins.errors import FDGError
from fdg_plugins.lab.doctor import machine, software
from fdg_plugins.lab.doctor.advice import Advice, recommend
from fdg_plugins.lab.doctor.finding import Finding, guarded

SITES_OF_PACS = 4
OWN_REASONS = (
    "a site for each domain; --target NAME holds out another than the first",
    "fdg run chooses how many sites compute at a time, and with how many threads",
)


class Examination(NamedTuple):
    """What was found, and how to start a simulation on this machine."""

    findings: tuple[Finding, ...]
    sites: int
    advice: Advice


def examine(environment: Mapping[str, str], sites: int | None, data: Path | None = None) -> Examination:
    """Return what is found on this machine, and what to type for a job of ``sites`` sites.

    ``data``: the user's own images, or the file that describes them, if they are asked about. By default (None), there
    are as many sites as they have domains, or as PACS has.
    """
    if sites is None:
        sites = SITES_OF_PACS if data is None else _domains_of(data)
    cores, memory = machine.read_cores(), machine.read_memory()
    gpus: list[software.Gpu] = []

    def look_at_gpus() -> Iterator[Finding]:
        gpus.extend(software.read_gpus(environment))
        yield from software.check_gpus(gpus)

    findings = [
        *guarded("versions", software.check_versions),
        *guarded("gpu", look_at_gpus),
        *guarded("precision", lambda: _check_precision(environment)),
        machine.check_cores(cores),
        machine.check_memory(memory, sites),
        *guarded("disk", lambda: _check_disks(environment)),
        *guarded("set-up", lambda: _check_setup(environment, data)),
        machine.check_ports(),
    ]
    advice = recommend(cores.usable, [gpu.id for gpu in gpus], sites, memory.processes)
    if data is not None:
        advice = advice._replace(data=str(data), reasons=OWN_REASONS)
    return Examination(tuple(findings), sites, advice)


def _domains_of(data: Path) -> int:
    """Return how many domains a folder of the user's own has; as many as PACS if it cannot be read, a finding then."""
    from fdg_plugins.data.own_folder import own_data  # loads torch, which may be what is broken

    try:
        return len(own_data(data).dataset.domains)
    except FDGError:
        return SITES_OF_PACS


def _check_disks(environment: Mapping[str, str]) -> Iterator[Finding]:
    from fdg_plugins.lab.doctor.setup import cache_folder_of  # loads torch, which may be what is broken

    return machine.check_disks(cache_folder_of(environment))


def _check_precision(environment: Mapping[str, str]) -> Iterator[Finding]:
    from fdg_plugins.lab.doctor.setup import check_precision  # loads torch

    yield check_precision(environment)


def _check_setup(environment: Mapping[str, str], data: Path | None) -> Iterator[Finding]:
    from fdg_plugins.lab.doctor import setup  # loads torch

    yield from setup.check_data(environment) if data is None else setup.check_own_data(data)
    yield setup.check_weights(environment)
    yield from setup.check_variables(environment)

# SPDX-License-Identifier: Apache-2.0
"""The recommendation: properties that hold on every machine, and that FLARE's simulator takes what is recommended."""

import argparse
import shlex
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvflare.private.fed.app.simulator.simulator import define_simulator_parser
from nvflare.private.fed.utils.fed_utils import split_gpus

from fdg_plugins.lab.doctor.advice import Advice, recommend

REPEATABLE = settings(derandomize=True, deadline=None)
CORES = st.integers(1, 256)
SITES = st.integers(1, 200)
PROCESSES = st.integers(0, 400)
GPUS = st.lists(st.integers(0, 15).map(str), unique=True, max_size=8)


@REPEATABLE
@given(CORES, GPUS, SITES, PROCESSES)
def test_no_more_is_alive_than_there_are_sites_and_memory_for(
    cores: int, gpus: list[str], sites: int, processes: int
) -> None:
    advice = recommend(cores, gpus, sites, processes)
    assert 1 <= advice.alive <= sites
    assert advice.alive <= max(1, processes)
    assert advice.alive <= 2 * cores


@REPEATABLE
@given(CORES, GPUS, SITES, PROCESSES)
def test_threads_and_readers_never_outnumber_the_cores(cores: int, gpus: list[str], sites: int, processes: int) -> None:
    advice = recommend(cores, gpus, sites, processes)
    assert advice.threads >= 1
    assert advice.threads == 1 or advice.alive * advice.threads <= cores
    assert advice.threads == 1 or advice.alive < cores, "one thread where sites outnumber cores"
    assert advice.workers == 0 or (gpus and advice.alive * (advice.workers + 1) <= cores)


@REPEATABLE
@given(CORES, GPUS, SITES, PROCESSES)
def test_every_site_that_is_alive_has_a_gpu_and_the_gpus_are_shared_evenly(
    cores: int, gpus: list[str], sites: int, processes: int
) -> None:
    advice = recommend(cores, gpus, sites, processes)
    assert len(advice.gpus) == (advice.alive if gpus else 0)
    assert set(advice.gpus) <= set(gpus)
    loads = [Counter(advice.gpus)[gpu] for gpu in gpus]
    assert max(loads, default=0) - min(loads, default=0) <= 1


@REPEATABLE
@given(CORES, SITES, PROCESSES)
def test_more_cores_or_more_memory_never_keep_fewer_sites_alive(cores: int, sites: int, processes: int) -> None:
    alive = recommend(cores, (), sites, processes).alive
    assert recommend(cores + 1, (), sites, processes).alive >= alive
    assert recommend(cores, (), sites, processes + 1).alive >= alive


@REPEATABLE
@given(CORES, GPUS, SITES, PROCESSES)
def test_every_value_has_its_reason(cores: int, gpus: list[str], sites: int, processes: int) -> None:
    advice = recommend(cores, gpus, sites, processes)
    assert len(advice.reasons) == 4 + bool(gpus)
    text = "\n".join(advice.reasons)
    assert f"FDG_THREADS={advice.threads}" in text
    assert f"FDG_WORKERS={advice.workers}" in text
    assert ("-gpu" in text) == bool(gpus)
    assert ("every site stays alive" in text) == (advice.alive == sites)


@REPEATABLE
@given(CORES, GPUS, SITES, PROCESSES)
def test_flares_simulator_reads_the_command_as_it_is_meant(
    cores: int, gpus: list[str], sites: int, processes: int
) -> None:
    advice = recommend(cores, gpus, sites, processes)
    threads, workers, nvflare, simulator, *arguments = shlex.split(advice.command)
    assert (nvflare, simulator) == ("nvflare", "simulator")
    assert (threads, workers) == (f"FDG_THREADS={advice.threads}", f"FDG_WORKERS={advice.workers}")
    parser = argparse.ArgumentParser()
    define_simulator_parser(parser)
    options = parser.parse_args(arguments)
    assert options.n_clients is None
    if gpus:
        assert tuple(split_gpus(options.gpu)) == advice.gpus, "FLARE runs one process for each entry"
        assert options.threads is None
    else:
        assert options.threads == advice.alive


@pytest.mark.parametrize(
    ("machine", "alive", "threads"),
    [
        ((2, (), 4, 8), 4, 1),  # two cores: as the measured run of the README
        ((1, (), 4, 8), 1, 1),
        ((16, (), 4, 80), 4, 4),
        ((16, (), 4, 2), 2, 8),  # little memory
        ((2, (), 50, 80), 2, 1),
        ((4, (), 1, 8), 1, 4),
        ((8, (), 4, 0), 1, 8),
    ],
)
def test_on_machines_as_there_are(machine: tuple[int, tuple[str, ...], int, int], alive: int, threads: int) -> None:
    advice = recommend(*machine)
    assert (advice.alive, advice.threads, advice.workers) == (alive, threads, 0)


def test_gpus_of_a_machine() -> None:
    def gpus(advice: Advice) -> str:
        return ",".join(advice.gpus)

    assert gpus(recommend(16, ["0"], 4, 80)) == "0,0,0,0"
    assert gpus(recommend(16, ["2", "3"], 5, 80)) == "2,3,2,3,2"
    assert gpus(recommend(16, ["0", "1", "2"], 2, 80)) == "0,1"
    assert recommend(16, ["0"], 4, 80).workers == 3
    assert recommend(4, ["0"], 4, 80).workers == 0

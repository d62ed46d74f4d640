# SPDX-License-Identifier: Apache-2.0
"""The cases that run FLARE's commands: what they make of a log, what they run, and that both sides do the same."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import CASES, bare_command, flare, round_overhead, whole_job, wire
from cases.flare import Run, interval, simulate, times, write_job
from cases.measure import Row
from echo_parts import Echo, state_of
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.fuel.utils.class_utils import instantiate_class

from fdg_plugins.cli.jobs import check_job
from fdg_plugins.controllers import RunRecord
from fdg_plugins.lab.sweep.processes import processes_below
from fdg_plugins.storage import read_json

LOG = """\
2026-01-02 03:04:05,500 - FederationController - INFO - [wf=federation] - STAND-IN | round 1/4 | sites 2/2
  a traceback's line with | round 2/4 |
2026-01-02 03:04:06,000 - FederationController - INFO - [wf=federation] - STAND-IN | round 2/4 | sites 2/2
2026-01-02 03:04:06,100 - ScatterAndGather - INFO - Round 7 started.
2026-01-02 03:04:06,250 - FederationController - INFO - [wf=federation] - STAND-IN | round 3/4 | sites 2/2
2026-01-02 03:04:09,250 - FederationController - INFO - [wf=federation] - STAND-IN | round 4/4 | sites 2/2
"""


@pytest.fixture
def log_of_rounds() -> str:
    """A log in which a round of ours takes 0.25 s, and one of FLARE's 2 s."""
    ours = [f"2026-01-02 03:04:{second:06.3f}".replace(".", ",") for second in (1, 1.25, 1.5, 1.75, 2)]
    flares = [f"2026-01-02 03:05:{second:02},000" for second in (10, 12, 14, 16, 18)]
    lines = [f"{at} - F - INFO - | round {number}/5 |" for number, at in enumerate(ours)]
    return "\n".join([*lines, *(f"{at} - S - INFO - Round {number} started." for number, at in enumerate(flares))])


# --- logs ---


def test_the_times_of_a_log_are_those_of_the_lines_that_match_and_have_one() -> None:
    found = times(LOG, round_overhead.OURS)
    assert [at - found[0] for at in found] == pytest.approx([0, 0.5, 0.75, 3.75])
    assert len(times(LOG, round_overhead.FLARES)) == 1


def test_the_interval_is_the_median_without_the_first_ones() -> None:
    assert interval(LOG, round_overhead.OURS, skipped=0) == pytest.approx(0.5)
    assert interval(LOG, round_overhead.OURS, skipped=1) == pytest.approx((0.25 + 3) / 2)
    with pytest.raises(RuntimeError, match=r"has 4 lines with .*, expected more than 4"):
        interval(LOG, round_overhead.OURS, skipped=3)


def test_of_the_round_trips_the_first_only_warms_up() -> None:
    lines = (
        "trip 1 took 9.0 s and 5 bytes up",
        "x",
        "trip 2 took 0.5 s and 6 bytes up",
        "trip 3 took 0.7 s and 6 bytes up",
    )
    trip = wire.read_trip("\n".join(lines))
    assert trip == pytest.approx(wire.Trip(0.6, 6))
    with pytest.raises(RuntimeError, match="has 1 round trips"):
        wire.read_trip(lines[0])


# --- commands ---


def test_a_command_sees_no_fdg_variable_but_those_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDG_ROUNDS", "7")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    found = flare.environment({"FDG_THREADS": "1"})
    assert {name: value for name, value in found.items() if name.startswith("FDG_")} == {"FDG_THREADS": "1"}
    assert found["PYTHONPATH"].split(os.pathsep) == [str(flare.BENCHMARKS), "/elsewhere"]


def test_a_command_that_fails_is_no_measurement(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)ended with 3, expected 0:\nthe reason"):
        flare.run_command(["sh", "-c", "echo the reason; exit 3"], tmp_path)
    assert flare.run_command(["true"], tmp_path) > 0


def test_a_command_that_falls_silent_is_ended_with_the_processes_that_it_started(tmp_path: Path) -> None:
    hangs = "echo begun; setsid sleep 600 & setsid sleep 600 & wait"
    with pytest.raises(flare.SilentError, match=r"printed nothing for 0\.5 s, expected its end"):
        flare.run_command(["sh", "-c", hangs], tmp_path, quiet_s=0.5)
    assert processes_below(tmp_path) == []


def test_a_simulation_that_falls_silent_is_begun_anew_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    silent = [True, False, True, True]
    log = tmp_path / flare.WORKSPACE / "server" / "log.txt"

    def run(*_: Any) -> float:
        assert not log.exists(), "the workspace of the attempt before"
        log.parent.mkdir(parents=True)
        log.write_text("its log")
        if silent.pop(0):
            raise flare.SilentError
        return 1.5

    monkeypatch.setattr(flare, "run_command", run)
    assert simulate(tmp_path / "job", 2) == Run(1.5, "its log")
    with pytest.raises(flare.SilentError):
        simulate(tmp_path / "job", 2)
    assert silent == []


@pytest.mark.parametrize("mode", ["simulator", "POC"])
def test_flare_s_job_is_stock_and_as_ours_is_for_the_same_sites(mode: str, tmp_path: Path) -> None:
    ours, flares = round_overhead.our_job(tmp_path, 3), round_overhead.flares_job(tmp_path, 4)
    if mode == "POC":
        flare.without_custom(ours)
    assert list(ours.glob("*/custom")) == [] or mode == "simulator"
    assert check_job(ours)["deploy_map"] == check_job(flares)["deploy_map"]
    server = read_json(flares / "app_server" / "config" / "config_fed_server.json")
    site = read_json(flares / "app_site" / "config" / "config_fed_client.json")
    parts = [*server["workflows"], *server["components"], *(entry["executor"] for entry in site["executors"])]
    assert all(part["path"].startswith("nvflare.") for part in parts)
    made = [type(instantiate_class(part["path"], part["args"])).__name__ for part in parts]
    assert (made[0], made[-1]) == ("ScatterAndGather", "NPTrainer")
    assert server["workflows"][0]["args"]["num_rounds"] == 4
    assert server.keys() == {"format_version", "workflows", "components"}, "FLARE's defaults"


def test_an_empty_custom_folder_lets_the_simulator_build_any_component(tmp_path: Path) -> None:
    job = flare.with_custom(write_job(tmp_path / "job", ["a"], {"workflows": []}, {"executors": []}))
    assert {path.parent.name for path in job.glob("*/custom")} == {"app_server", "app_site"}
    assert list(flare.without_custom(job).glob("*/custom")) == []


@pytest.mark.parametrize("form", [wire.TENSORS, wire.ROUNDED, wire.ARRAYS])
def test_the_jobs_of_round_trips_differ_in_form_chunks_and_filters_alone(form: str, tmp_path: Path) -> None:
    job = wire.echo_job(tmp_path, "convnet", form, 3)
    server = read_json(job / "app_server" / "config" / "config_fed_server.json")
    site = read_json(job / "app_site" / "config" / "config_fed_client.json")
    assert [server["workflows"][0]["path"], site["executors"][0]["executor"]["path"]] == list(wire.COMPONENTS)
    assert server["workflows"][0]["args"] == {"network": "convnet", "arrays": form == wire.ARRAYS, "trips": 3}
    assert server["server"] == {"task_request_interval": 0.05}
    for config in (server, site):
        assert config.get("tensor_download_chunk_size") == (None if form == wire.ARRAYS else 16 * 2**20)
        assert ("task_result_filters" in config) is (form == wire.ROUNDED)
        for chain in config.get("task_result_filters", []):
            for part in chain["filters"]:
                module, _, name = part["path"].rpartition(".")
                assert name in vars(import_module(module))


def test_an_echo_is_the_state_as_an_update() -> None:
    state = state_of("convnet")
    sent = DXO(DataKind.WEIGHTS, data=dict(state)).to_shareable()
    answer = from_shareable(Echo().execute("train", sent, FLContext(), Signal()))
    assert answer.data_kind == DataKind.WEIGHT_DIFF
    assert all(answer.data[name] is value for name, value in state.items())


# --- rows ---


def fake_runs(monkeypatch: pytest.MonkeyPatch, module: Any, run: Callable[[Path], Run]) -> list[str]:
    """Let ``module`` run nothing; return the names of the jobs that it would have run, and where."""
    ran: list[str] = []

    def simulated(job: Path, threads: int, settings: Mapping[str, str] | None = None) -> Run:
        ran.append(f"{job.name} in the simulator, {threads}")
        return run(job)

    class Poc:
        def allow(self, *paths: str) -> None:
            ran.append("allowed " + ", ".join(paths))

        def allow_job(self, job: Path) -> None:
            ran.append(f"allowed the components of {job.name}")

        def run(self, job: Path) -> Run:
            ran.append(f"{job.name} in a federation")
            assert list(job.glob("*/custom")) == []
            return run(job)

    @contextmanager
    def started(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Poc]:
        yield Poc()

    monkeypatch.setattr(module, "simulate", simulated)
    monkeypatch.setattr(module, "federation", started, raising=False)
    return ran


def assert_well_formed(rows: list[Row]) -> None:
    assert len({row.case for row in rows}) == len(rows) > 0
    assert all(row.ours > 0 and (row.reference is None or row.reference > 0) for row in rows)
    assert all((row.reached is None) is (row.goal is None) for row in rows)


def test_a_round_is_compared_in_both_modes(monkeypatch: pytest.MonkeyPatch, log_of_rounds: str) -> None:
    ran = fake_runs(monkeypatch, round_overhead, lambda job: Run(1.0, log_of_rounds))
    rows = round_overhead.rows()
    assert_well_formed(rows)
    assert [row.ours for row in rows] == pytest.approx([0.25] * 4)
    assert [row.reference for row in rows] == pytest.approx([2.0] * 4)
    assert [row.reached for row in rows] == [True, None, False, None]  # an eighth, and more than a fifteenth
    assert ran == [
        *("flares in the simulator, 3", "ours in the simulator, 3", "ours in the simulator, 3"),
        *("allowed echo_parts.InstantSite", "allowed the components of flares"),
        *("flares in a federation", "ours in a federation", "ours in a federation"),
    ]


def test_round_trips_are_compared_in_time_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(job: Path) -> Run:
        rounded = job.name.endswith(wire.ROUNDED)
        seconds, num_bytes = (0.5, 60) if rounded else (0.8, 100)
        line = f"took {1.0 if job.name.endswith(wire.ARRAYS) else seconds} s and {num_bytes} bytes up"
        return Run(9.0, "\n".join(f"trip {number} {line}" for number in (1, 2, 3)))

    ran = fake_runs(monkeypatch, wire, run)
    rows = wire.rows()
    assert_well_formed(rows)
    assert [row.ratio for row in rows[:3]] == pytest.approx([0.8, 0.5, 0.6])
    assert rows[0].reached
    assert ran[0] == "allowed echo_parts.RoundTrips, echo_parts.Echo"
    assert len(ran) == 1 + 2 * 3


def test_whole_jobs_are_run_with_one_thread_two_and_one_per_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FDG_DATA_ROOT", raising=False)
    monkeypatch.setattr(whole_job, "find_data_root", lambda *_: None)
    monkeypatch.setattr(whole_job, "run_command", lambda *_: 10.0)
    ran = fake_runs(monkeypatch, whole_job, lambda job: Run(11.0, ""))
    rows = whole_job.rows()
    assert_well_formed(rows)
    assert [row.reached for row in rows] == [True, False, None]
    assert [name.rpartition(", ")[2] for name in ran] == ["1", "2", "4"]
    monkeypatch.setenv("FDG_DATA_ROOT", "/data")
    assert len(whole_job.rows()) == 6


def test_a_turn_and_the_imports_in_it_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [
        f"2026-01-02 03:04:{second:02},000 - R - INFO - Simulate Run client: a on GPU" for second in (1, 9, 12, 15)
    ]
    ran = fake_runs(monkeypatch, bare_command, lambda job: Run(20.0, "\n".join(turns)))
    monkeypatch.setattr(bare_command, "import_laps", lambda: dict.fromkeys(bare_command.STEPS, 0.5))
    rows = bare_command.rows()
    assert_well_formed(rows)
    assert rows[1].ours == pytest.approx(3.0)
    assert [name.rpartition(", ")[2] for name in ran] == ["3", "1", "3"]


# --- for real ---


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("case", ["whole_job", "round_overhead", "wire", "one_process", "bare_command"])
def test_a_case_that_runs_commands_gives_well_formed_rows(case: str) -> None:
    assert_well_formed(CASES[case](True))


@pytest.mark.slow
@pytest.mark.nightly
def test_the_loop_and_the_job_end_at_the_same_accuracy(tmp_path: Path) -> None:
    settings = {**whole_job.QUICK, "rounds": 2, "local_epochs": 2, "model": "convnet", "pretrained": "none"}
    settings |= {"max_samples_per_domain": 70, "learning_rate": 0.03}
    environment = {"FDG_CACHE": str(tmp_path / "cache"), "FDG_DEVICE": "cpu", "FDG_THREADS": "1"}
    job = whole_job.export(tmp_path / "jobs", settings)
    simulate(job, 4, environment)
    results = tmp_path / "jobs" / "workspace" / "server" / "simulate_job" / "results.json"
    last = RunRecord.model_validate_json(results.read_bytes()).evaluations[-1]
    loop = subprocess.run(
        whole_job.loop_command(tmp_path, settings),
        env={**flare.environment(environment), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    source, target = map(float, loop.stdout.split())
    assert last.source_mean == pytest.approx(source)
    assert last.target == pytest.approx(target)
    assert target > 0


def test_the_loop_s_mean_is_that_of_the_job_s_server() -> None:
    from plain_loop import mean

    states = [
        {"w": torch.tensor([1.0, 2.0]), "n": torch.tensor(3)},
        {"w": torch.tensor([3.0, 6.0]), "n": torch.tensor(5)},
    ]
    assert mean(states)["w"].tolist() == [2.0, 4.0]
    assert int(mean(states)["n"]) == 5


def test_the_loop_s_protocol_is_the_job_s(tmp_path: Path) -> None:
    settings = {**whole_job.QUICK, "learning_rate": 0.03, "server_lr": 1.0}
    job = whole_job.export(tmp_path / "jobs", settings)
    *_, file, cache = whole_job.loop_command(tmp_path, settings)
    protocol = json.loads(Path(file).read_text())
    workflow = read_json(job / "app_server" / "config" / "config_fed_server.json")["workflows"][0]["args"]
    assert {name: protocol[name] for name in workflow["protocol"]} == workflow["protocol"]
    assert workflow["aggregator"] == {"name": "fedavg", "server_lr": 1.0, "weighting": "uniform"}
    assert cache == str(tmp_path / "cache")

# SPDX-License-Identifier: Apache-2.0
"""The soak's analysis on series made up here: what is flat, what is not, and what is left out."""

import math
import os
from pathlib import Path

import numpy as np
import pytest
import soak
from soak_parts import faults, flatness
from soak_parts.drawing import draw, picture_of
from soak_parts.faults import AWAY_S, Faults, killed_after
from soak_parts.federation import Options
from soak_parts.flatness import LIMITS, SHORTEST, WARM_UP, Finding, Key, Series, findings, growth, split
from soak_parts.progress import Progress
from soak_parts.rows import DiskRow, FaultRow, ProcessRow, RoundRow, Soak, parse, render
from soak_parts.sampling import kind_of, role_of, sample_disk
from soak_parts.tables import machine_line, table

ROUNDS = 300
MIB = 2**20


def process_rows(
    pss_per_round: float = 0.0, files_every: int = 0, cpu_per_round: float = 0.2, pid: int = 7, first: int = 1
) -> list[ProcessRow]:
    """One process of ``ROUNDS`` rounds, which gains memory, and a descriptor every so many rounds."""
    generator = np.random.default_rng(0)
    return [
        ProcessRow(
            number,
            "server",
            "job",
            pid,
            round(400 * MIB + pss_per_round * number + generator.normal(0, MIB)),
            20 + (number // files_every if files_every else 0),
            30,
            cpu_per_round * number,
        )
        for number in range(first, first + ROUNDS)
    ]


def made_up(rows: list[ProcessRow] | None = None, logs_per_round: int = 1000) -> Soak:
    rounds = [RoundRow(number, 1.5 * number, 1.0, "cartoon photo", "", 0.05, 0.1) for number in range(1, ROUNDS + 1)]
    disk = [
        DiskRow(number, name, logs_per_round * number, 0, 10 * number, 0, 5 * MIB, 40)
        for number in range(1, ROUNDS + 1)
        for name in ("server", "photo", "temporary")
    ]
    done = [FaultRow(50, 75.0, "killed", "photo"), FaultRow(50, 76.0, "started", "photo")]
    return Soak(
        rounds, process_rows() if rows is None else rows, disk, done, {"machine": ["two cores"], "resumed_after": []}
    )


def broken(soak_: Soak) -> set[str]:
    return {finding.series.key.quantity for finding in findings(soak_) if not finding.holds}


def test_a_soak_survives_its_files(tmp_path: Path) -> None:
    expected = made_up()
    expected.write(tmp_path)
    found = Soak.read(tmp_path)
    assert found.rounds == expected.rounds
    assert found.disk == expected.disk
    assert (found.faults, found.about) == (expected.faults, expected.about)
    assert [row._replace(cpu_seconds=0.0) for row in found.processes] == [
        row._replace(cpu_seconds=0.0) for row in expected.processes
    ]


def test_the_end_of_a_round_that_nobody_saw_survives_as_no_number() -> None:
    (row,) = parse(render([RoundRow(3, math.nan, 1.0, "", "photo", math.nan, math.nan)], RoundRow), RoundRow)
    assert math.isnan(row.at)
    seen = [
        RoundRow(number, math.nan if number == 90 else 2.0 * number, 1.0, "", "", 0.05, 0.1)
        for number in range(1, ROUNDS)
    ]
    (series,) = flatness.round_series(seen)
    assert 90 not in series.rounds
    assert set(series.values) == {2.0}


def test_what_does_not_grow_is_flat() -> None:
    assert broken(made_up()) == set()


@pytest.mark.parametrize(
    ("rows", "quantity"),
    [
        (process_rows(pss_per_round=0.3 * MIB), "pss"),
        (process_rows(files_every=60), "files"),
    ],
)
def test_a_leak_is_found_whatever_the_noise(rows: list[ProcessRow], quantity: str) -> None:
    assert broken(made_up(rows)) == {quantity}


def test_a_leak_below_its_limit_is_not_one() -> None:
    per_round = 0.5 * LIMITS["pss"] * 400 * MIB / (ROUNDS - WARM_UP)
    assert broken(made_up(process_rows(pss_per_round=per_round))) == set()


def test_more_bytes_per_round_than_allowed_are_found() -> None:
    assert broken(made_up(logs_per_round=100_000)) == {"logs"}


def test_rounds_that_cost_more_and_more_are_found() -> None:
    rows = [row._replace(cpu_seconds=0.2 * row.round + 0.0005 * row.round**2) for row in process_rows()]
    assert broken(made_up(rows)) == {"cpu_seconds"}


def test_the_slope_is_that_of_the_line_although_a_fifth_of_the_rounds_is_disturbed() -> None:
    points = np.random.default_rng(1)
    rounds = np.arange(100, 300)
    values = 50.0 + 0.25 * rounds + points.normal(0, 0.1, rounds.size)
    values[points.choice(rounds.size, 40, replace=False)] += 500.0
    series = Series(Key("seconds", "all"), tuple(map(int, rounds)), tuple(map(float, values)))
    assert series.slope == pytest.approx(0.25, abs=0.02)
    assert growth([series]) == pytest.approx(199 * series.slope / np.median(values))


def test_a_series_of_zeros_grows_by_nothing_and_one_above_a_median_of_zero_without_bound() -> None:
    rounds = tuple(range(100))
    assert growth([Series(Key("rest", "photo"), rounds, (0.0,) * 100)]) == 0.0
    steep = (*[0.0] * 51, *[float(number) for number in range(49)])
    assert growth([Series(Key("rest", "photo"), rounds, steep)]) == math.inf


def test_the_warm_up_of_each_process_is_left_out_and_what_is_too_short_after_it() -> None:
    points = [(Key("files", "photo", "job", 1), number, 1.0) for number in range(1, 1 + WARM_UP + SHORTEST)]
    points += [(Key("files", "photo", "job", 2), number, 1.0) for number in range(300, 300 + WARM_UP + SHORTEST - 1)]
    (series,) = split(points)
    assert series.key.generation == 1
    assert series.rounds == tuple(range(1 + WARM_UP, 1 + WARM_UP + SHORTEST))


def test_the_processes_of_a_participant_are_judged_together_by_what_happens_within_each() -> None:
    low, high = (
        Series(Key("threads", "photo", "job", number), tuple(range(100)), (level,) * 100)
        for number, level in ((1, 10.0), (2, 90.0))
    )
    assert growth([low, high]) == 0.0
    rising = Series(Key("threads", "photo", "job", 3), tuple(range(300)), tuple(10.0 + 0.1 * one for one in range(300)))
    assert growth([low, rising]) == pytest.approx(299 * 0.1 / np.median([*low.values, *rising.values]))


def test_a_process_that_was_started_again_begins_another_series() -> None:
    rows = [*process_rows(pid=7), *process_rows(pid=8, first=ROUNDS + 1)]
    found = flatness.process_series(rows)
    assert {(one.key.quantity, one.key.generation) for one in found} == {
        (quantity, pid) for quantity in ("pss", "files", "threads", "cpu_seconds") for pid in (7, 8)
    }
    assert all(one.slope == pytest.approx(0, abs=1e-9) for one in found if one.key.quantity == "cpu_seconds")


def test_the_table_has_the_worst_of_each_kind_and_names_it() -> None:
    rows = [*process_rows(), *(row._replace(pid=8) for row in process_rows(pss_per_round=MIB))]
    lines = table(findings(made_up(rows))).splitlines()
    memory = next(line for line in lines if line.startswith("| memory (PSS) | server, job | 1 |"))
    assert memory.endswith("| +10.0 % | above: server |")
    assert "| disk: logs | sites | 1 | 0.2 MiB | 1,000 bytes per round | 65,536 bytes per round | holds |" in lines


def test_a_value_at_its_limit_holds() -> None:
    series = Series(Key("files", "photo", "job", 1), (1, 2), (1.0, 1.0))
    assert Finding(series, 0.05, 0.05).holds
    assert not Finding(series, 0.0501, 0.05).holds
    assert not Finding(series, math.nan, 0.05).holds


def test_sites_are_killed_in_turn_but_not_after_the_last_round() -> None:
    sites = ("a", "b", "c")
    killed = {number: site for number in range(1, 251) if (site := killed_after(number, sites, 50, 250)) is not None}
    assert killed == {50: "a", 100: "b", 150: "c", 200: "a"}
    assert killed_after(50, sites, 0, 250) is None


def test_every_second_site_stays_away_and_the_server_is_started_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, str]] = []
    monkeypatch.setattr(faults, "kill_participant", lambda folder, name: done.append(("kill", name)))
    monkeypatch.setattr(faults, "start_participant", lambda folder, name: done.append(("start", name)))
    now = [0.0]
    plan = Faults(Path("federation"), "server", ("a", "b"), 100, every=10, restart_at=15, clock=lambda: now[0])
    for number in (1, 9, 10, 12, 16, 20):  # the ends of some rounds are seen together with those of the next
        plan.after(number)
    assert done == [("kill", "a"), ("start", "a"), ("kill", "server"), ("start", "server"), ("kill", "b")]
    now[0] = AWAY_S - 0.1
    plan.look(21)
    assert len(done) == 5
    now[0] = AWAY_S
    plan.look(22)
    plan.look(23)
    assert done[5:] == [("start", "b")]
    assert plan.done[-1] == FaultRow(22, AWAY_S, "started", "b")


def test_rounds_are_read_from_the_logs_of_all_jobs_and_no_line_before_it_is_whole(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    assert progress.new_round() is None
    first, second = (tmp_path / f"{number}-4e3b-4c1f-9d5c-0123456789ab" / "log.txt" for number in (1, 2))
    for log in (first, second):
        log.parent.mkdir()
    first.write_bytes(b"... - round 4/500 | sites 3/3 | ...\nround 5/500 | si")
    assert progress.new_round() == 4
    assert progress.new_round() is None
    with first.open("ab") as file:
        file.write(b"tes 3/3\n")
    assert progress.new_round() == 5
    second.write_bytes(b"run 1 goes on after round 5\nround 6/500 | sites 2/3\nround 7/500 | sites 2/3\n")
    assert progress.new_round() == 7


def test_files_are_told_apart_by_their_names_and_count_once(tmp_path: Path) -> None:
    kinds = {"log.txt.1": "logs", "console.log": "logs", "fdg_audit.jsonl": "audit", "audit.log": "audit"}
    kinds |= {"events.out.tfevents.1": "events", "results.json": "record", "checkpoint_before.safetensors": "record"}
    kinds |= {"global_model.safetensors": "rest"}
    assert {name: kind_of(Path(name)) for name in kinds} == kinds
    kit = tmp_path / "photo" / "local"
    kit.mkdir(parents=True)
    (kit / "checkpoint.safetensors").write_bytes(b"x" * 100)
    os.link(kit / "checkpoint.safetensors", kit / "checkpoint_before.safetensors")
    (kit / "other").write_bytes(b"x" * 7)
    assert sample_disk(tmp_path, "photo", 3) == DiskRow(3, "photo", 0, 0, 0, 100, 7, 2)


def test_a_process_has_the_role_of_the_module_that_it_runs() -> None:
    assert role_of(["python3", "-u", "-m", "nvflare.private.fed.app.client.client_train", "-m", "/kit"]) == "parent"
    assert role_of(["python3", "-m", "nvflare.private.fed.app.server.runner_process"]) == "job"
    assert role_of(["python", "-P", "-u", "-m", "fdg_plugins.executors.worker", "12"]) == "training"
    assert role_of(["bash", "/kit/startup/sub_start.sh"]) is None


def test_the_figure_has_a_panel_for_each_quantity_and_a_line_for_each_fault() -> None:
    found = made_up()
    figure = draw(picture_of(found), found)
    assert [axes.get_title() for axes in figure.axes] == [
        "memory (PSS), MiB",
        "file descriptors",
        "threads",
        "processor seconds per round",
        "seconds per round",
        "disk, MiB: server in full lines, photo dotted",
    ]
    for axes in figure.axes:
        assert [50, 50] in [np.asarray(line.get_xdata()).tolist() for line in axes.lines]


def test_check_says_by_its_exit_code_whether_all_is_flat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_up().write(tmp_path / "flat")
    made_up(process_rows(files_every=30)).write(tmp_path / "leak")
    assert soak.main(["check", "--from", str(tmp_path / "flat")]) == 0
    assert soak.main(["check", "--from", str(tmp_path / "leak")]) == 1
    assert "| above: server |" in capsys.readouterr().out


def test_what_a_killed_server_leaves_is_no_growth_per_round() -> None:
    rows = [row._replace(rest=row.rest + 2 * MIB * (row.round > 212)) for row in made_up().disk]
    stepped = made_up()._replace(disk=rows)
    assert broken(stepped) == {"rest"}
    assert broken(stepped._replace(about={**stepped.about, "resumed_after": [212]})) == set()


def test_rounds_with_a_fault_or_without_a_site_are_not_compared_with_others() -> None:
    found = made_up()
    away = {120, 121, 122}
    rounds = [row._replace(failures="sketch") if row.round in away else row for row in found.rounds]
    assert flatness.disturbed(found._replace(rounds=rounds)) == {51, 52, *away, 123}
    (series,) = flatness.round_series(found.rounds, left_out={150, 200})
    assert {150, 200} & set(series.rounds) == set()


def test_a_machine_that_becomes_slower_makes_no_process_more_expensive() -> None:
    found = made_up()
    slower = {row.round: 1 + row.round / ROUNDS for row in found.rounds}
    rounds = [row._replace(work_cpu=0.05 * slower[row.round]) for row in found.rounds]
    used = np.cumsum([0.2 * slower[row.round] for row in found.rounds])
    rows = [row._replace(cpu_seconds=float(used[row.round - 1])) for row in process_rows()]
    assert broken(found._replace(processes=rows)) == {"cpu_seconds"}, "at a pace that does not change"
    assert broken(found._replace(processes=rows, rounds=rounds)) == set()


def test_the_line_on_the_machine_has_its_pace_at_the_begin_and_at_the_end() -> None:
    rounds = [row._replace(work_seconds=0.1 if row.round <= 100 else 0.4) for row in made_up().rounds]
    assert machine_line(rounds) == (
        "the same work took 50 ms of the processor in 100 ms in the first fifth of the rounds, "
        "50 ms of the processor in 400 ms in the last"
    )


@pytest.mark.slow
def test_the_tables_and_the_figure_of_the_page_are_those_of_its_numbers(tmp_path: Path) -> None:
    page = soak.FIGURES.with_suffix(".md").read_text(encoding="utf-8")
    found = Soak.read(soak.FIGURES)
    assert table(findings(found)) in page, "run: python benchmarks/soak.py check"
    soak.write_figure(found, tmp_path)
    assert (tmp_path / "soak.svg").read_bytes() == (soak.FIGURES / "soak.svg").read_bytes()
    assert len(found.rounds) == Options().rounds
    assert table(findings(Soak.read(soak.FIGURES / "undisturbed"))) in page

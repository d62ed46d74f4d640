# SPDX-License-Identifier: Apache-2.0
"""Every case runs at its quick size and gives well-formed rows, and both sides of a row compute the same thing."""

import math
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import bench
import numpy as np
import pytest
import torch
from cases import (
    CASES,
    bare_command,
    compiled,
    dim_bytes,
    dim_penalty,
    flower,
    guard,
    iir_step,
    images,
    local_step,
    memory,
    method_steps,
    one_process,
    precision,
    round_overhead,
    scale,
    server_step,
    solver,
    whole_job,
    wire,
)
from cases.measure import MIB, Goal, Row, added_peak, in_new_process, interleave, lap, process_peak, tensor_peak
from cases.released_solver import released_weights
from cases.rounds import Form, accept_all, arrivals, context_of, fedomg, flare_mean, network_state, step_of
from cases.training import random_batch, training_step

from fdg_plugins.core import insight_penalty, match, matching_objective
from fdg_plugins.core.layout import ModelLayout, ParameterKind
from fdg_plugins.objectives.erm import LocalRisk

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="the peak memory is read as Linux gives it")


def assert_well_formed(rows: list[Row]) -> None:
    assert rows
    assert len({row.case for row in rows}) == len(rows)
    for row in rows:
        values = [row.ours] if row.reference is None else [row.ours, row.reference]
        assert all(math.isfinite(value) for value in values), row
        assert row.unit not in ("s", "B") or all(value > 0 for value in values), row
        assert (row.reached is None) is (row.goal is None)


# --- each case, at its quick size ---


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which(os.environ.get("CXX") or "g++") is None, reason="compiling needs a C++ compiler")
def test_the_compiled_case_gives_well_formed_rows_and_compiles_in_the_first_pass_alone() -> None:
    later, first = compiled.rows(quick=True)
    assert_well_formed([later, first])
    assert first.ours > 10 * later.ours


@pytest.mark.parametrize(
    "case", ["server_step", "guard", "solver", "iir_step", "method_steps", "local_step", "precision"]
)
def test_a_case_gives_well_formed_rows(case: str) -> None:
    assert_well_formed(CASES[case](True))


def test_fedomg_without_a_radius_and_flare_make_the_same_step() -> None:
    state, sites = network_state(quick=True), 3
    context = context_of(state)
    steps = []
    for aggregator in (fedomg(kappa=0.0, weighting="samples"), flare_mean(context, sites)):
        accept_all(aggregator, arrivals(state, sites), context)
        steps.append(step_of(aggregator.aggregate(context)))
    ours, reference = steps
    averaged = [name for name, entry in ModelLayout.of(state).items() if entry.kind is not ParameterKind.INTEGER_BUFFER]
    assert ours.keys() == reference.keys() == state.keys()
    for name in averaged:
        torch.testing.assert_close(ours[name], reference[name], rtol=1e-4, atol=1e-8)
    assert any(bool(ours[name].any()) for name in averaged)


@pytest.mark.parametrize("form", server_step.FORMS)
def test_two_passes_sum_what_the_sites_sent(form: Form) -> None:
    state = {"weight": torch.zeros(5)}
    messages = list(arrivals(state, 4, form))
    mean = np.mean([np.asarray(step_of(message)["weight"]) for message in messages], axis=0)
    np.testing.assert_allclose(server_step.two_passes(messages)["weight"].numpy(), mean, rtol=1e-5)


def test_the_end_of_a_step_is_part_of_it() -> None:
    state = {"weight": torch.zeros(5)}
    laps = server_step.step_laps(fedomg(), list(arrivals(state, 3)), context_of(state))
    assert 0 < laps[server_step.END] < laps[server_step.WHOLE]


def test_a_round_in_which_an_update_is_refused_is_not_measured() -> None:
    state = {"weight": torch.zeros(5)}
    twice = [*arrivals(state, 2), *arrivals(state, 1)]
    with pytest.raises(RuntimeError, match="FedOMGAggregator refused an update"):
        accept_all(fedomg(), twice, context_of(state))


@needs_linux
def test_the_peak_of_a_step_is_counted_beyond_that_of_holding_the_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    model = {"weight": torch.zeros(MIB)}
    peaks = {
        memory.peak_of_step: 900 * MIB,
        memory.peak_of_holding: 897 * MIB,
        memory.write_updates: None,
        memory.peak_of_step_with_offload: 17 * MIB,
    }
    monkeypatch.setattr(memory, "in_new_process", lambda task, *_: peaks[task])
    monkeypatch.setattr(memory, "network_state", lambda quick: model)
    rows = memory.rows(quick=True)
    assert_well_formed(rows)
    in_memory = rows[: len(memory.FORMS)]
    assert [(row.ours, row.reference) for row in in_memory] == [(11 * MIB, 8 * MIB)] * len(memory.FORMS)
    assert rows[0].reached  # 8.8 MiB and one model of 4 MiB are allowed
    assert [(row.ours, row.reference) for row in rows[len(memory.FORMS) :]] == [(17 * MIB, 4 * MIB)] * 2
    assert not rows[-1].reached  # four models of 4 MiB are allowed


@needs_linux
def test_the_processes_of_the_memory_case_do_what_they_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "in_new_process", lambda task, *arguments: task(*arguments))
    assert_well_formed(memory.rows(quick=True))


@pytest.mark.parametrize("sites", [3, 10])
def test_the_released_solver_lowers_the_objective_and_the_exact_one_is_not_worse(sites: int) -> None:
    gram = solver.gram_of(sites)
    uniform = torch.full((sites,), 1 / sites, dtype=torch.float64)
    released = released_weights(gram, solver.KAPPA)
    assert released.min() >= 0
    assert float(released.sum()) == pytest.approx(1)
    start, end = (matching_objective(gram, uniform, solver.KAPPA, weights) for weights in (uniform, released))
    exact = match(gram, uniform, solver.KAPPA).objective
    assert 0 < exact <= end * (1 + solver.ROUNDING)
    assert end < start


def test_both_penalties_of_feddim_have_the_same_value_and_gradients() -> None:
    batch = dim_penalty.random_features(6, 10, 4)
    partly = batch._replace(present=torch.tensor([True, True, False, True]))
    for inputs in (batch, partly):
        torch.testing.assert_close(insight_penalty(*inputs), dim_penalty.naive_penalty(*inputs))
        ours = dim_penalty.gradients(insight_penalty, inputs)
        torch.testing.assert_close(ours, dim_penalty.gradients(dim_penalty.naive_penalty, inputs))
        of_a_round = dim_penalty.gradients(dim_penalty.penalty_of_a_round(inputs), inputs)
        torch.testing.assert_close(of_a_round, ours)


def test_the_penalty_case_gives_well_formed_rows() -> None:
    rows = dim_penalty.rows(quick=True)
    assert_well_formed(rows)
    assert rows[1].reference is not None
    assert rows[1].reference > 3 * 4 * 4 * 512 * 7  # float32 [B, D, Y]: insight, target, difference


def test_the_report_of_feddim_has_the_bytes_of_means_and_counts() -> None:
    rows = dim_bytes.rows(quick=True)
    assert_well_formed(rows)
    row = rows[0]
    assert row.ours == 65 * 512 * 4 + 65 * 8
    assert row.reference == 65 * 512 * 65 * 4


def test_the_step_of_fediir_is_that_of_cross_entropy_but_for_its_penalty() -> None:
    batch = random_batch(2, 32, iir_step.CLASSES)
    states = []
    for strength in (None, 1e-12, 10.0):
        model = iir_step.two_layer_network()
        training_step(model, iir_step.alignment(model, strength) if strength else LocalRisk(), *batch)()
        states.append(model.state_dict()["classifier.0.weight"])
    plain, hardly, strongly = states
    torch.testing.assert_close(hardly, plain)
    assert not torch.allclose(strongly, plain)


def test_the_scale_case_gives_two_rows_for_each_size_and_four_slopes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "step_seconds", lambda sites, parameters: (sites**2 * parameters, sites))
    monkeypatch.setattr(scale, "in_new_process", lambda task, *arguments: task(*arguments))
    monkeypatch.setattr(scale, "step_bytes", lambda side, sites, parameters: parameters * sites ** (side == "ours"))
    rows = scale.rows()
    slopes = [row for row in rows if row.unit == "exponent"]
    assert_well_formed(rows)
    assert len(rows) == 2 * (len(scale.SITES) + len(scale.PARAMETERS) - 1) + len(slopes)
    assert [row.ours for row in slopes] == pytest.approx([2.0, 1.0, 1.0, 1.0])
    assert [row.reference for row in slopes] == pytest.approx([1.0, 0.0, 0.0, 1.0], abs=1e-12)
    assert all(row.ratio is None for row in slopes)


def test_a_step_is_timed_on_both_sides() -> None:
    assert min(scale.step_seconds(3, 10)) > 0


@pytest.mark.slow
@pytest.mark.nightly
@needs_linux
def test_fedomg_holds_every_update_and_flares_mean_does_not() -> None:
    update = 40 * MIB  # so large that the memory is given back at once
    few, many = 3, 6
    ours, reference = (
        [in_new_process(scale.step_bytes, side, sites, update // 4) for sites in (few, many)]
        for side in ("ours", "reference")
    )
    assert ours[1] - ours[0] == pytest.approx((many - few) * update, rel=0.2)
    # One update more or less may still wait for the collector.
    assert abs(reference[1] - reference[0]) < (many - few) * update / 2


# --- how it is measured ---


def test_tasks_take_turns_and_warm_ups_do_not_count() -> None:
    order: list[str] = []
    first, second = iter([100.0, 1.0, 2.0, 9.0]), iter([100.0, 5.0, 4.0, 3.0])

    def task(name: str, values: Iterator[float]) -> dict[str, float]:
        order.append(name)
        return {name: next(values)}

    assert interleave([lambda: task("a", first), lambda: task("b", second)], 3) == {"a": 2.0, "b": 4.0}
    assert order == ["a", "b"] * 4


def test_a_lap_runs_its_task_once() -> None:
    calls: list[int] = []
    assert lap("name", lambda: calls.append(1))["name"] > 0
    assert calls == [1]


def test_the_peak_of_tensors_counts_what_lives_at_the_same_time() -> None:
    def together() -> None:
        kept = [torch.zeros(MIB // 4) for _ in range(3)]
        del kept

    def one_after_the_other() -> None:
        for _ in range(3):
            torch.zeros(MIB // 4)

    assert tensor_peak(together) == 3 * MIB
    assert tensor_peak(one_after_the_other) == MIB


@pytest.mark.slow
@needs_linux
def test_the_peak_of_a_process_stays_when_memory_is_given_back() -> None:
    before = process_peak()
    more = torch.ones((before + 64 * MIB) // 4)  # alone more than ever was resident
    del more
    assert before + 64 * MIB <= process_peak() < 2 * before + 128 * MIB


@pytest.mark.slow
@needs_linux
def test_the_added_peak_is_that_of_the_task_alone() -> None:
    # In a process without a past: memory that this one was given back by others would be used again, and add nothing.
    assert in_new_process(_peak_of_40_mib_after_more) == pytest.approx(40 * MIB, rel=0.1)


def _peak_of_40_mib_after_more() -> int:
    more = torch.ones(120 * MIB // 4)
    del more  # an earlier peak
    kept = torch.ones(80 * MIB // 4)
    added = added_peak(lambda: torch.ones(40 * MIB // 4))
    assert kept.any()
    return added


@pytest.mark.slow
def test_a_new_process_has_the_threads_of_this_one() -> None:
    assert in_new_process(torch.get_num_threads) == torch.get_num_threads()


# --- the table ---


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1.2345, "1.23"), (0.01234, "0.0123"), (20013, "20000"), (9.999, "10.0"), (1.234e-8, "1.23e-08")],
)
def test_numbers_have_three_significant_digits(value: float, text: str) -> None:
    assert bench.number(value) == text


def test_a_goal_is_held_against_the_ratio_or_our_own_quantity() -> None:
    of_ratio, of_ours = Goal("ratio", 1.5, "ratio ≤ 1.5"), Goal("ours", 0.02, "ours ≤ 0.02 s")
    assert Row("a", 3.0, 2.0, goal=of_ratio).reached
    assert not Row("a", 3.1, 2.0, goal=of_ratio).reached
    assert Row("a", 0.02, 0.001, goal=of_ours).reached
    assert not Row("a", 0.03, 1.0, goal=of_ours).reached
    assert not Row("a", 0.03, goal=of_ratio).reached


@needs_linux
def test_the_script_prints_and_writes_one_table_and_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(bench, "in_new_process", lambda task, *arguments: task(*arguments))
    file = tmp_path / "table.md"
    bench.main(["--quick", "--only", "dim_bytes", "--threads", "1", "--to", str(file)])
    text = file.read_text()
    assert capsys.readouterr().out == text
    lines = text.splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    assert [len(row) for row in rows] == [len(bench.COLUMNS)] * 4
    assert rows[2][1:5] == ["0.127 MiB", "8.25 MiB", "0.0154", "ratio ≤ 1/60: reached"]
    assert "1 torch threads" in lines[-2]
    assert f"torch {torch.__version__.split('+')[0]}" in lines[-1]


def test_every_case_can_be_asked_for() -> None:
    modules = {dim_bytes, dim_penalty, flower, guard, iir_step, images, local_step, memory, scale, server_step, solver}
    modules |= {bare_command, compiled, method_steps, one_process, precision, round_overhead, whole_job, wire}
    assert {module.__name__.removeprefix("cases."): module.rows for module in modules} == CASES

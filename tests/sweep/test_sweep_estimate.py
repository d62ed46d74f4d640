# SPDX-License-Identifier: Apache-2.0
"""How long runs take: counted work, and the rate that finished runs or a few steps have shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweep_stubs import planned

from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.sweep.estimate import Forecast, rate_of_run
from fdg_plugins.sweep.execute import Active
from fdg_plugins.sweep.jobs import ROUND_S, START_S, federated_work
from fdg_plugins.sweep.machine import Machine
from fdg_plugins.sweep.measure import time_an_image
from fdg_plugins.sweep.run_process import Position
from fdg_plugins.sweep.work import Kind, Work

IMAGES = {"photo": 100, "sketch": 200, "cartoon": 300}
SMALL = Kind("convnet", "linear", 32, 16, "float32", False, processes=4)
LARGE = SMALL._replace(image_size=224)
FEDAVG, FEDOMG, FEDDIM = (planned(0, method) for method in ("fedavg", "fedomg", "feddim"))
PLAN = (FEDAVG, FEDOMG, FEDDIM)


def protocol(**changes: object) -> Protocol:
    return Protocol.model_validate({"target": "photo", "rounds": 10, "local_epochs": 2, **changes})


def test_work_is_counted_image_by_image() -> None:
    # 500 images of sources: 450 to train on, twice; 50 to judge, twice; 100 of the held-out domain, by a third.
    assert federated_work(protocol(), IMAGES).images == pytest.approx(10 * (2 * 450 + (2 * 50 + 100) / 3))


def test_what_is_limited_drawn_or_reported_changes_the_work() -> None:
    def images(**changes: object) -> float:
        return federated_work(protocol(**changes), IMAGES).images

    assert images(max_samples_per_domain=100) == pytest.approx(10 * (2 * 180 + (2 * 20 + 100) / 3))
    assert images(sites_per_round=1) == pytest.approx(10 * (2 * 225 + (50 + 100) / 3))
    assert images(objective="dim") == pytest.approx(images() + 10 * 450 / 3)
    assert images(gap_split="train") == pytest.approx(images() + 10 * 2 * 450 / 3)


def work(rounds: int = 10, images: float = 1000.0, kind: Kind = SMALL) -> Work:
    return Work(kind, images, START_S, ROUND_S * rounds)


def forecast(rates: dict[Kind, float] | None = None, **works: Work) -> Forecast:
    work_of = {run.name: works.get(run.method, work()) for run in PLAN}
    return Forecast(PLAN, work_of, rates)


@given(st.floats(1, 1e4), st.integers(1, 500), st.floats(1, 1e7))
def test_a_run_like_a_finished_one_takes_as_long(seconds: float, rounds: int, images: float) -> None:
    known = forecast(fedavg=work(rounds, images))
    known.learn(FEDAVG.name, seconds)
    assert known.expected(FEDAVG.name) == pytest.approx(seconds)


def test_twice_the_work_takes_twice_the_arithmetic_and_the_same_start() -> None:
    known = forecast(fedomg=work(20, 2000.0))
    known.learn(FEDAVG.name, START_S + 10 * ROUND_S + 60)
    assert known.expected(FEDOMG.name) == pytest.approx(START_S + 20 * ROUND_S + 120)


def test_a_method_is_judged_by_its_own_runs_where_there_are_any() -> None:
    known = forecast()
    known.learn(FEDAVG.name, 100.0)
    known.learn(FEDOMG.name, 200.0)
    assert known.expected(FEDOMG.name) == pytest.approx(200.0)
    assert 100.0 < (known.expected(FEDDIM.name) or 0.0) < 200.0


def test_what_was_measured_counts_until_a_run_of_the_kind_has_finished() -> None:
    known = forecast({SMALL: 0.1, LARGE: 5.0}, fedomg=work(kind=LARGE))
    overhead = START_S + 10 * ROUND_S
    assert known.expected(FEDAVG.name) == pytest.approx(overhead + 100.0)
    known.learn(FEDAVG.name, overhead + 50.0)
    assert known.expected(FEDDIM.name) == pytest.approx(overhead + 50.0)
    assert known.expected(FEDOMG.name) == pytest.approx(overhead + 5000.0)


def test_nothing_known_is_said_as_such() -> None:
    assert forecast().expected(FEDAVG.name) is None
    assert forecast().remaining((), PLAN, 1) is None
    assert forecast().remaining((Active(FEDAVG, 10.0, Position()),), (), 1) is None
    assert forecast().remaining((), (), 1) == 0.0


def test_a_run_that_goes_on_tells_how_long_the_others_take() -> None:
    halfway = Active(FEDAVG, START_S + 50.0, Position(5, 10))
    assert forecast().remaining((halfway,), (), 1) == pytest.approx(50.0)
    assert forecast().remaining((halfway,), (FEDOMG,), 1) == pytest.approx(50.0 + START_S + 100.0)


@given(st.integers(1, 8), st.integers(0, 3))
def test_more_runs_at_a_time_never_take_longer(parallel: int, waiting: int) -> None:
    known = forecast()
    known.learn(FEDAVG.name, 100.0)
    one = known.remaining((), PLAN[:waiting], parallel)
    assert one == pytest.approx(100.0 * waiting / parallel)
    assert (known.remaining((), PLAN[:waiting], parallel + 1) or 0.0) <= one


def test_a_kind_without_its_own_measurement_or_runs_is_not_said_to_be_known() -> None:
    alone = SMALL._replace(processes=1)
    known = forecast({SMALL: 0.1}, fedomg=work(kind=alone))
    assert known.expected(FEDAVG.name) is not None
    assert known.expected(FEDOMG.name) is None, "one process, and four that share the cores, are two kinds"


def test_a_run_that_was_quick_to_start_does_not_promise_to_end_at_once() -> None:
    left = forecast().remaining((Active(FEDAVG, START_S / 2, Position(1, 100)),), (), 1)
    assert left is not None
    assert left > START_S


def test_the_longest_run_that_goes_on_is_waited_for() -> None:
    known = forecast()
    known.learn(FEDDIM.name, 100.0)
    active = (Active(FEDAVG, 10.0, Position()), Active(FEDOMG, 99.0, Position()))
    assert known.remaining(active, (), 4) == pytest.approx(90.0)


def test_sites_share_cores_and_runs_share_a_gpu() -> None:
    two_cores = Machine(cores=2, gpus=(None,))
    assert rate_of_run(1.0, two_cores, processes=4, on_gpu=False) == 0.5
    assert rate_of_run(1.0, Machine(2, (None, None)), processes=4, on_gpu=False) == 1.0
    assert rate_of_run(1.0, Machine(16, (None,), threads=1), processes=4, on_gpu=False) == 1 / 16
    assert rate_of_run(1.0, Machine(16, ("0", "0", "1")), processes=4, on_gpu=True) == 2.0
    assert rate_of_run(1.0, Machine(16, (None,) * 2), processes=1, on_gpu=False) == 1 / 8, "alone, with threads"


def test_an_image_is_timed_on_the_data_itself() -> None:
    own = Protocol(dataset="rotateddigits", target="angle_0", model="groupnorm_convnet", image_size=16, batch_size=8)
    measured = time_an_image(own, {"FDG_DEVICE": "cpu"})
    assert 0 < measured.seconds_per_image < 10
    assert measured.device == "cpu"

# SPDX-License-Identifier: Apache-2.0
"""How long runs take: as long as finished ones like them, and nothing is said before there are any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdg_plugins.lab.sweep.estimate import Forecast, estimate
from fdg_plugins.lab.sweep.execute import Active
from fdg_plugins.lab.sweep.run_process import Position
from tests.sweep.sweep_stubs import planned

FEDAVG, FEDOMG, FEDDIM, ERM = PLAN = tuple(planned(0, method) for method in ("fedavg", "fedomg", "feddim", "erm"))
LONG = FEDAVG._replace(name="long", settings={"rounds": 400})
FEDERATED = PLAN[:3]


def forecast() -> Forecast:
    return Forecast((*PLAN, LONG, planned(1), planned(2)))


def test_a_run_takes_as_long_as_those_that_differ_in_seed_and_domain_then_as_its_method_then_as_its_kind() -> None:
    known = forecast()
    known.learn(FEDOMG.name, 300.0)
    assert known.expected(LONG) == known.expected(FEDAVG) == 300.0
    known.learn(planned(1).name, 100.0)
    known.learn(planned(2).name, 200.0)
    assert known.expected(FEDAVG) == known.expected(LONG) == 150.0
    known.learn(LONG.name, 4000.0)
    assert (known.expected(FEDAVG), known.expected(LONG)) == (150.0, 4000.0)
    assert known.expected(FEDDIM) == pytest.approx((300 + 100 + 200 + 4000) / 4)
    assert known.expected(ERM) is None, "no reference has finished"


def test_nothing_is_said_before_a_run_of_each_kind_has_finished() -> None:
    known = forecast()
    assert known.remaining((), FEDERATED, 1) is None
    assert known.remaining((Active(FEDAVG, 10.0, Position(5, 10)),), (), 1) is None
    assert known.remaining((), (), 1) == 0.0
    known.learn(FEDAVG.name, 100.0)
    assert known.remaining((), FEDERATED, 1) == 300.0
    assert known.remaining((), PLAN, 1) is None


@given(st.integers(1, 8), st.integers(0, 3))
def test_more_runs_at_a_time_never_take_longer(parallel: int, waiting: int) -> None:
    known = forecast()
    known.learn(FEDAVG.name, 100.0)
    one = known.remaining((), FEDERATED[:waiting], parallel)
    assert one == pytest.approx(100.0 * waiting / parallel)
    more = known.remaining((), FEDERATED[:waiting], parallel + 1)
    assert one is not None
    assert more is not None
    assert more <= one


def test_the_longest_run_that_goes_on_is_waited_for_and_one_that_takes_longer_counts_as_ending() -> None:
    known = forecast()
    known.learn(FEDDIM.name, 100.0)
    active = (Active(FEDAVG, 10.0, Position()), Active(FEDOMG, 999.0, Position()))
    assert known.remaining(active, (), 4) == pytest.approx(90.0)


def test_the_estimate_is_one_line() -> None:
    known = forecast()
    unknown = "how long that takes can be said once a run of each kind has finished"
    assert estimate(known, (), 2) == "nothing is left to do"
    assert estimate(known, FEDERATED, 2) == f"to do: 3 runs, 2 at a time; {unknown}"
    known.learn(FEDAVG.name, 60.0)
    said = estimate(known, FEDERATED[1:2], 2)
    assert said == "to do: 1 run, 2 at a time; about 1 min 00 s, judging by the 1 that finished here"

# SPDX-License-Identifier: Apache-2.0
"""What a person sees while a sweep runs: a bar at a terminal, a line per event elsewhere."""

import io

from rich.console import Console

from fdg_plugins.lab.sweep.estimate import Forecast
from fdg_plugins.lab.sweep.execute import Active
from fdg_plugins.lab.sweep.progress import SweepDisplay
from fdg_plugins.lab.sweep.run_process import Position
from tests.sweep.sweep_stubs import planned

ONE, TWO, THREE = (planned(seed) for seed in range(3))


def forecast() -> Forecast:
    return Forecast((ONE, TWO, THREE))


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=150, highlight=False)


def written(at: Console) -> str:
    assert isinstance(at.file, io.StringIO)
    return at.file.getvalue()


def test_where_output_is_kept_there_is_one_plain_line_per_event() -> None:
    kept = console(terminal=False)
    with SweepDisplay(3, 0, 1, forecast(), kept) as display:
        display.started(ONE)
        display.show([Active(ONE, 10.0, Position(1, 4))], [TWO, THREE])
        display.show([], [TWO, THREE])
        display.finished(ONE, 100.0)
        display.started(TWO)
        display.show([], [THREE])
        display.failed(TWO, "site photo [red]: its disk is full.")
    assert written(kept).splitlines() == [
        "[0/3] fedavg-photo-seed0 started",
        "[1/3, about 3 min 20 s left] fedavg-photo-seed0 finished after 1 min 40 s",
        "[1/3, about 3 min 20 s left] fedavg-photo-seed1 started",
        "[1/3, 1 failed, about 1 min 40 s left] fedavg-photo-seed1 FAILED: site photo [red]: its disk is full.",
    ]


def test_at_a_terminal_a_bar_names_what_goes_on_and_how_far_it_is() -> None:
    terminal = console(terminal=True)
    with SweepDisplay(3, 1, 2, forecast(), terminal) as display:
        display.started(TWO)
        display.show([Active(TWO, 30.0, Position(2, 4)), Active(THREE, 1.0, Position())], [])
    shown = written(terminal)
    assert "1/3" in shown
    assert "fedavg-photo-seed1 round 2/4, fedavg-photo-seed2 starting" in shown
    assert "started" not in shown


def test_the_bar_says_what_failed_above_itself() -> None:
    terminal = console(terminal=True)
    with SweepDisplay(3, 0, 1, forecast(), terminal) as display:
        display.failed(TWO, "its disk is full.")
        display.show([], [THREE])
    assert "fedavg-photo-seed1 FAILED: its disk is full." in written(terminal)
    assert "1 failed" in written(terminal)
    assert "ETA ?" in written(terminal), "nothing has finished that would tell"

# SPDX-License-Identifier: Apache-2.0
"""The figure of a soak: memory, file descriptors, threads, seconds and disk by round, and when faults happened."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator, StrMethodFormatter

from fdg_plugins.lab.analysis.figures.drawing import new_figure, style
from fdg_plugins.lab.analysis.figures.picture import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILLION,
    Picture,
)
from soak_parts.rows import ProcessRow, Soak
from soak_parts.sampling import TEMPORARY
from soak_parts.tables import owner_of

SERVER = "server"
COLOURS = {
    "server, parent": BLUE,
    "server, job": VERMILLION,
    "sites, parent": GREEN,
    "sites, job": ORANGE,
    "sites, training": BLACK,
    "person, submit": PURPLE,
}
KINDS = {"logs": BLUE, "audit": GREEN, "record": VERMILLION, "events": ORANGE, "rest": BLACK}
MIB = 2**20
WIDTH, HEIGHT = 8.4, 7.2


def picture_of(soak: Soak) -> Picture:
    """Return headline and caption."""
    sites = {row.participant for row in soak.disk} - {SERVER, TEMPORARY}
    machine = soak.about["machine"]
    where = "; ".join(machine) if isinstance(machine, list) else str(machine)
    return Picture(
        name="soak",
        title=f"A federation of {len(sites)} sites over {len(soak.rounds)} rounds",
        caption="One line per process. Grey: a site is killed; dashed: the server is killed, and the run goes on in "
        f"another job. {where}.",
    )


def draw(picture: Picture, soak: Soak) -> Figure:
    """Return the figure."""
    handles = [Line2D([], [], color=colour, label=who) for who, colour in COLOURS.items()]
    with style():
        figure = new_figure(picture, WIDTH, HEIGHT, handles)
        axes = list(figure.subplots(3, 2, sharex="all", squeeze=False).flat)
        _draw_processes(axes[0], soak, "memory (PSS), MiB", lambda rows: _points(rows, "pss", MIB))
        _draw_processes(axes[1], soak, "file descriptors", lambda rows: _points(rows, "files"))
        _draw_processes(axes[2], soak, "threads", lambda rows: _points(rows, "threads"))
        _draw_processes(axes[3], soak, "processor seconds per round", _processor_seconds)
        _log_scale(axes[3])
        _draw_seconds(axes[4], soak)
        _draw_disk(axes[5], soak)
        for panel in axes:
            _mark_faults(panel, soak)
        for panel in axes[4:]:
            panel.set_xlabel("round")
    return figure


def _draw_processes(
    axes: Axes, soak: Soak, title: str, points: Callable[[Sequence[ProcessRow]], tuple[list[int], list[float]]]
) -> None:
    processes: dict[tuple[str, str, int], list[ProcessRow]] = defaultdict(list)
    for row in soak.processes:
        processes[row.participant, row.role, row.pid].append(row)
    for (participant, role, _), rows in processes.items():
        axes.plot(*points(sorted(rows)), color=COLOURS[owner_of(participant, role)], linewidth=0.8)
    axes.set_title(title)


def _points(rows: Iterable[ProcessRow], quantity: str, unit: int = 1) -> tuple[list[int], list[float]]:
    return [row.round for row in rows], [getattr(row, quantity) / unit for row in rows]


def _processor_seconds(rows: Sequence[ProcessRow]) -> tuple[list[int], list[float]]:
    """Return the seconds between samples that differ: a process may use less than the clock's hundredth."""
    pairs = [(before, after) for before, after in pairwise(rows) if after.cpu_seconds > before.cpu_seconds]
    seconds = [(after.cpu_seconds - before.cpu_seconds) / (after.round - before.round) for before, after in pairs]
    return [after.round for _, after in pairs], seconds


def _draw_seconds(axes: Axes, soak: Soak) -> None:
    axes.plot([row.round for row in soak.rounds], [row.seconds for row in soak.rounds], ".", color=BLACK, markersize=2)
    _log_scale(axes)
    axes.set_title("seconds per round")


def _log_scale(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _draw_disk(axes: Axes, soak: Soak) -> None:
    """Draw the disk of the server in full lines, and that of the site with the most in dotted ones."""
    by_participant = {name: [row for row in soak.disk if row.participant == name] for name in _disk_participants(soak)}
    largest = max(by_participant, key=lambda name: sum(by_participant[name][-1][2:-1]) if name != SERVER else 0)
    for kind, colour in KINDS.items():
        for name, line in ((SERVER, "-"), (largest, ":")):
            rows = by_participant[name]
            values = [getattr(row, kind) / MIB for row in rows]
            label = kind if name == SERVER else None
            axes.plot([row.round for row in rows], values, line, color=colour, linewidth=0.8, label=label)
    axes.legend(loc="upper left")
    axes.set_title(f"disk, MiB: server in full lines, {largest} dotted")


def _disk_participants(soak: Soak) -> list[str]:
    return sorted({row.participant for row in soak.disk})


def _mark_faults(axes: Axes, soak: Soak) -> None:
    for fault in soak.faults:
        if fault.what == "killed":
            is_server = fault.participant == SERVER
            look = {"color": BLACK, "linestyle": "--"} if is_server else {"color": GREY, "alpha": 0.4}
            axes.axvline(fault.round, linewidth=0.6, zorder=0, **look)

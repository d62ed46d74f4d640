# SPDX-License-Identifier: Apache-2.0
"""Limits of control groups of either version, disks, ports and memory, on files and sockets of the tests' own."""

import os
import socket
from pathlib import Path

import pytest

from fdg_plugins.lab.doctor import machine
from fdg_plugins.lab.doctor.finding import Status
from fdg_plugins.lab.doctor.machine import Cores, Memory, check_cores, check_disk, check_memory, check_ports

GIB = 2**30


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="ascii")


@pytest.fixture
def membership(tmp_path: Path) -> Path:
    """The file in which a process finds its control groups, of both versions."""
    path = tmp_path / "membership"
    put(path, "4:memory:/pod/box\n2:cpu,cpuacct:/pod/box\n0::/pod/box")
    return path


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"pod/box/cpu.max": "max 100000"}, None),
        ({"pod/box/cpu.max": "150000 100000"}, 1.5),
        ({"pod/box/cpu.max": "max 100000", "pod/cpu.max": "50000 100000"}, 0.5),
        ({"pod/box/cpu.max": "400000 100000", "pod/cpu.max": "800000 100000"}, 4.0),
        ({"cpu.max": "200000 100000"}, 2.0),  # in a container that does not see the path of the host
        ({"cpu,cpuacct/pod/box/cpu.cfs_quota_us": "-1", "cpu,cpuacct/pod/box/cpu.cfs_period_us": "100000"}, None),
        ({"cpu,cpuacct/cpu.cfs_quota_us": "300000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, 3.0),
    ],
)
def test_the_smallest_quota_on_the_way_up_counts(
    tmp_path: Path, membership: Path, files: dict[str, str], quota: float | None
) -> None:
    for name, text in files.items():
        put(tmp_path / "root" / name, text)
    assert machine.cpu_quota(tmp_path / "root", membership) == quota


def test_a_control_group_may_have_any_name(tmp_path: Path) -> None:
    membership = tmp_path / "membership"
    membership.write_bytes("0::/bäder\n".encode() + b"4:memory:/\xff\n")
    put(tmp_path / "root" / "bäder" / "cpu.max", "150000 100000")
    assert machine.cpu_quota(tmp_path / "root", membership) == 1.5
    assert machine.memory_limit(tmp_path / "root", membership) is None


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"pod/box/memory.max": "max"}, None),
        ({"pod/box/memory.max": "2147483648", "pod/memory.max": "max"}, 2 * GIB),
        ({"memory/pod/memory.limit_in_bytes": "1073741824"}, GIB),
    ],
)
def test_the_smallest_memory_limit_counts(
    tmp_path: Path, membership: Path, files: dict[str, str], limit: int | None
) -> None:
    for name, text in files.items():
        put(tmp_path / "root" / name, text)
    assert machine.memory_limit(tmp_path / "root", membership) == limit


def test_a_system_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    assert machine.cpu_quota(tmp_path, tmp_path / "gone") is None
    assert machine.memory_limit(tmp_path, tmp_path / "gone") is None


@pytest.mark.parametrize(
    ("cores", "usable", "status"),
    [
        (Cores(8, 8), 8, Status.OK),
        (Cores(8, 2), 2, Status.OK),
        (Cores(8, 8, 2.5), 2, Status.WARNING),
        (Cores(8, 8, 0.5), 1, Status.WARNING),
        (Cores(8, 2, 4.0), 2, Status.OK),
    ],
)
def test_usable_cores_are_the_least_of_all_limits(cores: Cores, usable: int, status: Status) -> None:
    assert cores.usable == usable
    finding = check_cores(cores)
    assert finding.status == status
    assert finding.text.startswith(f"{usable} usable of 8")
    assert ("FDG_THREADS" in finding.text) == (status is Status.WARNING)


def test_this_process_may_use_what_it_is_bound_to() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert machine.read_cores().allowed == machine.read_cores().usable == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("memory", "processes", "status"),
    [
        (Memory(64 * GIB, 64 * GIB), 42, Status.OK),
        (Memory(64 * GIB, 7 * GIB), 4, Status.OK),
        (Memory(64 * GIB, 5 * GIB), 2, Status.WARNING),
        (Memory(64 * GIB, 64 * GIB, 5 * GIB), 2, Status.WARNING),
        (Memory(64 * GIB, 2 * GIB), 0, Status.WARNING),
        (Memory(64 * GIB, GIB), 0, Status.PROBLEM),
    ],
)
def test_memory_is_held_against_the_sites(memory: Memory, processes: int, status: Status) -> None:
    assert memory.processes == processes
    assert check_memory(memory, sites=4).status == status


def test_a_disk_is_judged_where_the_folder_will_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"free": 100 * GIB}
    usage = type("Usage", (), free)
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage if place == tmp_path else None)
    found = check_disk("disk", tmp_path / "not" / "there")
    assert (found.status, found.text) == (Status.OK, f"100.0 GiB free in {tmp_path / 'not' / 'there'}")
    for size, status in ((GIB, Status.WARNING), (GIB // 8, Status.PROBLEM)):
        monkeypatch.setattr(usage, "free", size)
        assert check_disk("disk", tmp_path).status == status


def test_a_place_that_cannot_be_written_to_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    found = check_disk("disk", file / "cache")
    assert found.status is Status.PROBLEM
    assert f"{file} cannot be written to" in found.text


def test_a_port_that_is_listened_on_is_named() -> None:
    with socket.socket() as server, socket.socket() as other:
        server.bind(("127.0.0.1", 0))
        server.listen()
        other.bind(("127.0.0.1", 0))
        taken, free = server.getsockname()[1], other.getsockname()[1]
        other.close()
        found = check_ports((taken, free))
        assert found.status is Status.WARNING
        assert str(taken) in found.text
        assert str(free) not in found.text
        assert check_ports((free,)).status is Status.OK

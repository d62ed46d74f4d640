# SPDX-License-Identifier: Apache-2.0
"""The state of a run at the server: one job at a time has it, and nobody but its submitter goes on with it."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from fdg_plugins.state.hold import ADMINISTRATOR, OWNER_FILE, Submitter, held_run
from nvflare.apis.job_def import JobMetaKey

from fdg_plugins.errors import DataError

LEAD = Submitter("lead@hospital.example", "hospital", "lead")
HOLDER = """
import sys
from pathlib import Path
from fdg_plugins.state.hold import Submitter, held_run
with held_run(Path(sys.argv[1]), Submitter("", "", ""), lambda: False):
    (Path(sys.argv[1]) / "checkpoint").touch()
    print("held", flush=True)
    sys.stdin.read()
"""


def begun(folder: Path, submitter: Submitter = LEAD) -> Path:
    """Leave the state of a run that ``submitter`` has started."""
    with held_run(folder, submitter, lambda: False):
        (folder / "checkpoint").touch()
    return folder


def test_a_run_that_leaves_nothing_leaves_no_folder_and_one_that_does_keeps_it_private(tmp_path: Path) -> None:
    with held_run(tmp_path / "run", LEAD, lambda: False):
        assert (tmp_path / "run" / OWNER_FILE).exists()
    assert not (tmp_path / "run").exists()
    folder = begun(tmp_path / "run")
    assert {path.name for path in folder.iterdir()} == {"checkpoint", OWNER_FILE}
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / OWNER_FILE)] == [0o700, 0o600]


def test_what_the_run_s_killed_processes_have_left_goes_with_the_next_job(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".owner.json.0a1b2c3d").touch()  # of a job that was killed when it wrote its first file
    (folder / ".checkpoint.safetensors.0a1b2c3d").touch()
    assert {path.name for path in begun(folder).iterdir()} == {"checkpoint", OWNER_FILE}


def test_while_one_job_has_it_another_is_refused_and_after_its_process_was_killed_it_is_free(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        for patience, answers in ((0.0, [False]), (600.0, [True])):
            with (
                pytest.raises(DataError, match="run run still goes on in another job, expected one that has ended"),
                held_run(folder, Submitter("", "", ""), answers.pop, patience),
            ):
                pass
        other.kill()
        with held_run(folder, Submitter("", "", ""), lambda: False):
            assert (folder / "checkpoint").exists()


@pytest.mark.parametrize(
    ("other", "may"),
    [
        (LEAD, True),
        (LEAD._replace(role="org_admin"), True),
        (LEAD._replace(name="else@hospital.example"), False),
        (LEAD._replace(org="university"), False),
        (Submitter("admin@example.org", "operator", ADMINISTRATOR), True),
        (Submitter("", "", ""), False),
    ],
)
def test_who_started_a_run_goes_on_with_it(other: Submitter, may: bool, tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    if may:
        with held_run(folder, other, lambda: False):
            pass
    else:
        with (
            pytest.raises(DataError, match="run run was started by another person") as refused,
            held_run(folder, other, lambda: False),
        ):
            pass
        assert LEAD.name not in str(refused.value)
    assert (folder / "checkpoint").exists()
    with held_run(folder, LEAD, lambda: False):
        assert (folder / OWNER_FILE).exists()


def test_whose_run_an_earlier_version_began_is_not_known_so_an_administrator_goes_on_with_it(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    (folder / OWNER_FILE).unlink()
    with pytest.raises(DataError, match="another person"), held_run(folder, LEAD, lambda: False):
        pass
    begun(folder, Submitter("admin@example.org", "operator", ADMINISTRATOR))
    begun(folder, Submitter("", "", ""))
    with held_run(folder, Submitter("", "", ""), lambda: False):
        assert (folder / OWNER_FILE).exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(DataError, match=r"folder .*file/run of the run's state cannot be made: "),
        held_run(tmp_path / "file" / "run", LEAD, lambda: False),
    ):
        pass


def test_the_submitter_is_the_one_that_flare_has_authenticated() -> None:
    meta = {JobMetaKey.SUBMITTER_NAME.value: "lead", JobMetaKey.SUBMITTER_ORG.value: "hospital", "name": "job"}
    assert Submitter.of(meta) == Submitter("lead", "hospital", "")
    assert Submitter.of(None) == Submitter("", "", "")

# SPDX-License-Identifier: Apache-2.0
"""What a method keeps at a site: it outlives processes and rounds without the site, and a repeated round forgets it."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch

from fdg_plugins.errors import DataError
from fdg_plugins.state import checked_files, site_memory
from fdg_plugins.state.site_memory import KINDS, Kept, clear_memory, read_memory, write_kept


def kept(number: int) -> dict[str, torch.Tensor]:
    return {"variate": torch.full((2, 3), float(number))}


def known(folder: Path, before: int) -> float | None:
    memory = read_memory(folder, before)
    return float(memory["variate"][0, 0]) if memory else None


def test_before_the_first_round_a_site_knows_nothing(tmp_path: Path) -> None:
    assert read_memory(tmp_path / "missing", 0) == {}
    write_kept(tmp_path, 3, Kept({}))
    assert list(tmp_path.iterdir()) == []


def test_a_site_knows_its_last_round_however_long_ago(tmp_path: Path) -> None:
    write_kept(tmp_path, 0, Kept(kept(0)))
    write_kept(tmp_path, 7, Kept(kept(7)))
    assert known(tmp_path, 8) == 7.0
    assert known(tmp_path, 100) == 7.0


def test_a_repeated_round_starts_from_what_was_known_before_it(tmp_path: Path) -> None:
    for number in (2, 10, 11):
        write_kept(tmp_path, number, Kept(kept(number)))
    assert known(tmp_path, 11) == 10.0
    write_kept(tmp_path, 11, Kept(kept(-11)))
    assert (known(tmp_path, 11), known(tmp_path, 12)) == (10.0, -11.0)


def test_what_later_rounds_left_is_gone_once_an_earlier_one_is_repeated(tmp_path: Path) -> None:
    for number in (0, 1, 2):
        write_kept(tmp_path, number, Kept(kept(number)))
    write_kept(tmp_path, 1, Kept(kept(-1)))
    assert known(tmp_path, 9) == -1.0
    assert len(list(tmp_path.iterdir())) == 1


def test_the_first_round_that_a_site_trained_in_can_be_repeated(tmp_path: Path) -> None:
    write_kept(tmp_path, 3, Kept(kept(3)))
    assert known(tmp_path, 3) is None


def test_a_server_that_has_lost_more_than_one_round_is_refused_instead_of_begun_with_anew(tmp_path: Path) -> None:
    for number in range(7):
        write_kept(tmp_path, number, Kept(kept(number)))
    assert known(tmp_path, 6) == 5.0
    with pytest.raises(DataError, match=r"nothing from before round 6, .* after rounds 6 and 7\.$") as refused:
        read_memory(tmp_path, 5)
    assert refused.value.public == "what it knew before round 6, to which the server has gone back, is gone."


def test_two_rounds_are_kept_and_no_more(tmp_path: Path) -> None:
    for number in range(20):
        write_kept(tmp_path, number, Kept(kept(number)))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_spoilt_file_is_named(tmp_path: Path) -> None:
    write_kept(tmp_path, 4, Kept(kept(4)))
    [file] = tmp_path.iterdir()
    file.write_bytes(b"spoilt")
    with pytest.raises(DataError, match=file.name):
        read_memory(tmp_path, 5)


def test_files_of_others_are_left_alone_whatever_their_names(tmp_path: Path) -> None:
    for number in (4, 5, 6):
        write_kept(tmp_path, number, Kept(kept(number)))
    names = [b"fdg_memory_\xc2\xb2", b"fdg_memory_\xff", b"fdg_memory_", b"fdg_memory_-1", b"fdg_memory_07", b"\xe9"]
    strangers = [os.fsencode(tmp_path) + b"/" + name + b".safetensors" for name in names]
    for path in strangers:
        Path(os.fsdecode(path)).write_bytes(b"other")
    write_kept(tmp_path, 7, Kept(kept(7)))
    assert known(tmp_path, 8) == 7.0
    assert len(list(tmp_path.iterdir())) == len(strangers) + 2


def test_a_folder_where_a_file_is_expected_is_named(tmp_path: Path) -> None:
    (tmp_path / "fdg_memory_1.safetensors").mkdir()
    with pytest.raises(DataError, match=r"fdg_memory_1\.safetensors"):
        read_memory(tmp_path, 2)
    write_kept(tmp_path, 2, Kept(kept(2)))
    with pytest.raises(DataError, match=r"fdg_memory_1\.safetensors cannot be removed: "):
        write_kept(tmp_path, 3, Kept(kept(3)))


def test_what_is_kept_is_its_owners_alone(tmp_path: Path) -> None:
    write_kept(tmp_path / "run", 1, Kept(kept(1)))
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run", *(tmp_path / "run").iterdir())]
    assert modes == [0o700, 0o600]


def test_what_is_kept_of_one_round_is_kept_together_also_where_a_part_of_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_kept(tmp_path, 1, Kept(kept(1), kept(1), kept(1)))
    save = checked_files.save_checked_tensors

    def full(path: Path, *arguments: Any) -> None:
        if "momentum" in path.name:
            raise DataError(f"file {path} cannot be written: No space left on device.")
        save(path, *arguments)

    for number in (2, 3):  # the disk stays full for some rounds
        with monkeypatch.context() as patch:
            patch.setattr(site_memory, "save_checked_tensors", full)
            with pytest.raises(DataError, match="No space left"):
                write_kept(tmp_path, number, Kept(kept(number), kept(number), kept(number)))
        for kind in KINDS:
            assert float(read_memory(tmp_path, number + 1, kind)["variate"][0, 0]) == 1
    write_kept(tmp_path, 4, Kept(kept(4), {}, kept(4)))
    assert [float(read_memory(tmp_path, 5, kind)["variate"][0, 0]) for kind in KINDS] == [4, 1, 4]
    clear_memory(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_more_than_two_states_as_a_death_before_the_removal_leaves_are_no_fresh_start(tmp_path: Path) -> None:
    for number in (4, 5, 6):
        write_kept(tmp_path / str(number), number, Kept(kept(number)))
        (tmp_path / str(number) / f"fdg_memory_{number}.safetensors").rename(
            tmp_path / f"fdg_memory_{number}.safetensors"
        )
    with pytest.raises(DataError, match="holds nothing from before round 4"):
        read_memory(tmp_path, 3)

# SPDX-License-Identifier: Apache-2.0
"""What a method keeps at a site: it outlives processes and rounds without the site, and a repeated round forgets it."""

import stat
from pathlib import Path

import pytest
import torch

from fdg_plugins.errors import DataError
from fdg_plugins.state.site_memory import Kept, clear_memory, has_memory, read_fixed, read_kept, write_fixed, write_kept


def write(folder: Path, *numbers: int) -> None:
    for number in numbers:
        write_kept(
            folder, abs(number), Kept({"variate": torch.full((2, 3), float(number))}, momentum={"w": torch.ones(1)})
        )


def known(folder: Path, before: int) -> float | None:
    memory = read_kept(folder, before).memory
    return float(memory["variate"][0, 0]) if memory else None


def test_memory_is_of_the_last_round_and_a_repeated_one_starts_before(tmp_path: Path) -> None:
    assert read_kept(tmp_path / "missing", 0) == Kept()
    write_kept(tmp_path, 3, Kept({}))
    assert list(tmp_path.iterdir()) == []
    write(tmp_path, 2)
    assert known(tmp_path, 2) is None, "the first round that it trained in can be repeated"
    write(tmp_path, 10, 11)
    assert [known(tmp_path, before) for before in (11, 12, 100)] == [10.0, 11.0, 11.0]
    write(tmp_path, -11)
    assert [known(tmp_path, before) for before in (11, 12)] == [10.0, -11.0]
    write(tmp_path, -10)
    assert known(tmp_path, 100) == -10.0, "what later rounds left is gone once an earlier one is repeated"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_server_that_has_lost_more_than_one_round_is_refused_instead_of_begun_with_anew(tmp_path: Path) -> None:
    write(tmp_path, *range(7))
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(DataError) as refused:
        read_kept(tmp_path, 4)
    assert "nothing from before round 5, " in str(refused.value)
    assert "after rounds 6 and 7." in str(refused.value)
    assert refused.value.public == "what it knew before round 5, to which the server has gone back, is gone."
    assert known(tmp_path, 0) is None, "a run that begins anew"


def test_a_spoilt_file_is_named_and_other_files_are_left_alone(tmp_path: Path) -> None:
    strangers = [tmp_path / f"fdg_trained_{name}.safetensors" for name in ("\u00b2", "", "-1")]
    for path in strangers:
        path.write_bytes(b"other")
    write(tmp_path, 4, 5, 6)
    assert known(tmp_path, 8) == 6.0
    (tmp_path / "fdg_trained_6.safetensors").write_bytes(b"spoilt")
    assert stat.S_IMODE((tmp_path / "fdg_trained_5.safetensors").stat().st_mode) == 0o600
    with pytest.raises(DataError) as refused:
        read_kept(tmp_path, 8)
    assert "fdg_trained_6.safetensors" in str(refused.value)
    clear_memory(tmp_path)
    assert {*tmp_path.iterdir()} == {*strangers}


def test_the_fixed_part_is_found_by_its_name_alone_and_is_no_memory(tmp_path: Path) -> None:
    write_fixed(tmp_path, "one", {"w": torch.ones(2)})
    assert read_fixed(tmp_path, "one")["w"].tolist() == [1.0, 1.0]
    assert not has_memory(tmp_path)
    for folder, name in ((tmp_path, "another"), (tmp_path / "missing", "one")):
        with pytest.raises(DataError) as refused:
            read_fixed(folder, name)
        assert refused.value.public.startswith("it does not hold the model's fixed part")
    clear_memory(tmp_path)
    assert not list(tmp_path.iterdir())

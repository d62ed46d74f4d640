# SPDX-License-Identifier: Apache-2.0
"""Which request may go on with a folder: the same one, or that with more in its lists."""

from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.sweep.request import DataFound, SweepFile, check_continues, read_sweep_file
from tests.sweep.sweep_stubs import request

DATA = DataFound(stand_in=False, images={"photo": 10, "sketch": 20})
FOLDER = Path("sweep")
GRID = {"kappa": (0.1, 0.3), "rounds": (10,)}


def begun(**changes: Any) -> SweepFile:
    return SweepFile(request=request(**changes), data=DATA, versions={"torch": "2.15.0"})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"methods": ("feddim", "fedomg", "fedavg")},
        {"targets": ("photo", "sketch", "cartoon")},
        {"seeds": (0, 1, 2)},
        {"settings": {"rounds": (10,), "kappa": (0.1, 0.2, 0.3)}},
        {"methods": ("feddim", "fedomg", "fedavg"), "settings": {**GRID, "feddim:strength": (0.1, 1.0)}},
    ],
)
def test_lists_may_grow(changes: dict[str, Any]) -> None:
    check_continues(begun(settings=GRID), request(**{"settings": GRID, **changes}), DATA, FOLDER)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dataset": "rotateddigits"}, "begun with dataset pacs, but is now asked for rotateddigits"),
        ({"protocol": "quick"}, "begun with protocol paper, but is now asked for quick"),
        ({"methods": ("fedomg",)}, "begun with methods fedavg, fedomg, and fedavg is now left out"),
        ({"seeds": (1, 2)}, "begun with seeds 0, 1, and 0 is now left out"),
        ({"settings": {**GRID, "rounds": (20,)}}, "begun with rounds 10, but is now asked for 20"),
        ({"settings": {"kappa": (0.1, 0.3)}}, "begun with rounds 10, but is now asked for as the protocol has it"),
        ({"settings": {**GRID, "image_size": (64,)}}, "begun with image_size as the protocol has it, but .* for 64"),
        ({"settings": {**GRID, "fedomg:server_lr": (1,)}}, "begun with fedomg:server_lr as the protocol has it, but"),
        ({"settings": {**GRID, "kappa": (0.1, 0.5)}}, "begun with kappa 0.1, 0.3, and 0.3 is now left out"),
        ({"settings": {**GRID, "kappa": (0.1,)}}, "begun with kappa 0.1, 0.3, but is now asked for 0.1"),
        ({"settings": {**GRID, "rounds": (10, 20)}}, "begun with rounds 10, but is now asked for 10, 20"),
    ],
)
def test_whatever_would_change_or_leave_out_a_run_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        check_continues(begun(settings=GRID), request(**{"settings": GRID, **changes}), DATA, FOLDER)


@pytest.mark.parametrize(
    "data",
    [DataFound(stand_in=True, images=DATA.images), DataFound(stand_in=False, images={"photo": 10, "sketch": 21})],
)
def test_other_images_are_refused(data: DataFound) -> None:
    with pytest.raises(DataError, match=r"begun on real images \(photo 10, sketch 20\), but this call finds"):
        check_continues(begun(), request(), data, FOLDER)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    written = begun(settings={"kappa": (0.1, 0.3), "objective": ({"name": "dim"},), "patience": (None,)})
    (tmp_path / "sweep.json").write_text(written.model_dump_json())
    assert read_sweep_file(tmp_path / "sweep.json") == written
    assert read_sweep_file(tmp_path / "nothing.json") is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("{", "is not valid JSON"), ("[]", "is not what fdg sweep wrote"), ('{"format": 2}', "format is 2")],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "sweep.json"
    file.write_text(content)
    with pytest.raises(DataError, match=rf"file {file}.*{sentence}"):
        read_sweep_file(file)

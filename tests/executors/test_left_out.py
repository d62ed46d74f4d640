# SPDX-License-Identifier: Apache-2.0
"""Damaged images that a site leaves out: every task of the run, in whichever process, makes the census' own split."""

import json
from pathlib import Path

import pytest

from fdg_plugins.data import SharedDomains
from fdg_plugins.executors.work import CENSUS_FILE, SiteWork, TaskResult
from fdg_plugins.messages import TASK_CENSUS, TASK_EVALUATE, TASK_TRAIN
from fdg_plugins.plugins.own_dataset import OwnDataset
from fdg_plugins.settings.protocol import make_protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training.session import SiteSession
from tests.executors.sites import census_order, order
from tests.own_drawings import CLASSES, draw_own

DAMAGED = ("dog/000.png", "horse/002.png")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def config(own_data_root: Path) -> SiteConfig:
    """A site with two damaged images in a domain of 28, which leaves such out."""
    for file in DAMAGED:
        (own_data_root / "pacs" / "photo" / file).write_bytes(b"\x89PNG damaged")
    return SiteConfig(data_root=own_data_root, device="cpu", damaged_images="leave_out", isolate=False)


def do(task: str, config: SiteConfig, folder: Path, said: list[str] | None = None) -> TaskResult:
    """Let a process of its own do a task: nothing is left of an earlier one but the run's folder."""
    work = census_order() if task == TASK_CENSUS else order(task)
    return SiteWork().do_work(work, config, folder, lambda: False, ([] if said is None else said).append)


def test_census_counts_what_is_left_out(config: SiteConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    census = do(TASK_CENSUS, config, folder, said)
    assert census.value["num_damaged"] == 2
    assert census.value["num_test"] == 26
    assert not any(file in json.dumps(census.value) for file in DAMAGED)
    told = [line for line in said if "left out" in line]
    assert [f"photo/{file}" in line for file, line in zip(DAMAGED, told, strict=True)] == [True, True]
    assert ((folder / CENSUS_FILE).stat().st_mode & 0o777) == 0o600

    def look(*_: object) -> None:
        raise AssertionError("an image was looked at again")

    monkeypatch.setattr("fdg_plugins.data.image_files.check_image", look)
    trained = do(TASK_TRAIN, config, folder)
    assert (trained.kind, trained.reason, trained.value["samples"]) == ("ok", "", 26 - 7)
    assert do(TASK_EVALUATE, config, folder).kind == "ok"


@pytest.mark.parametrize(("content", "reason"), [(b"\0", "cannot be read"), (None, "the data folder has changed")])
def test_later_damage_ends_the_task(config: SiteConfig, folder: Path, content: bytes | None, reason: str) -> None:
    do(TASK_CENSUS, config, folder)
    assert config.data_root is not None
    for image in sorted((config.data_root / "pacs" / "photo" / "guitar").iterdir()):
        if content is not None:
            image.write_bytes(content * image.stat().st_size)
        elif image.name == "001.png":
            image.unlink()
    trained = do(TASK_TRAIN, config, folder)
    assert (trained.kind, trained.trace) == ("failed", "")
    assert reason in trained.reason


SITES = ("a-1of3", "a-2of3", "a-3of3")
OWN = OwnDataset(name="own", domains=("a", "b"), classes=CLASSES)


@pytest.mark.parametrize(("partition", "in_one_process"), [("equal", False), ("dirichlet", True)])
def test_other_images_are_in_one_split(tmp_path: Path, partition: str, in_one_process: bool) -> None:
    damaged, *others = draw_own(tmp_path, 30, OWN.domains).glob("a/*/*")
    damaged.write_bytes(b"no image")
    asked = {"dataset": OWN, "target": "b", "partition": partition, "dirichlet_alpha": 1.0, "image_size": 32}
    protocol, shared = make_protocol([asked]), SharedDomains() if in_one_process else None
    config = SiteConfig(data_root=tmp_path, device="cpu", damaged_images="leave_out")
    sessions = [SiteSession(site, config, protocol, None, frozenset(), shared) for site in SITES]
    replies = [session.census() for session in sessions]
    at = [sample.file for one in sessions for sample in (*one.data.train, *one.data.validation)]
    assert sorted(at) == sorted(file.relative_to(tmp_path).as_posix() for file in others)
    assert len({reply.split.rsplit("/part", 1)[0] for reply in replies}) == 1
    again = SiteSession(SITES[0], config, protocol, None, sessions[0].images.left_out, shared)
    assert again.data.digest == sessions[0].data.digest

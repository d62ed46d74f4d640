# SPDX-License-Identifier: Apache-2.0
"""Damaged images that a site leaves out: every task of the run, in whichever process, makes the census' own split."""

import json
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.data import PACS
from fdg_plugins.executors.work import CENSUS_FILE, SiteTask, SiteWork, TaskResult
from fdg_plugins.messages import TASK_CENSUS, TASK_EVALUATE, TASK_TRAIN, CensusRequest, TaskRequest
from fdg_plugins.models import build_model
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig

PROTOCOL = Protocol(
    model="convnet", target="sketch", image_size=16, local_epochs=1, batch_size=8, rounds=3, learning_rate=0.01
)
DAMAGED = ("dog/000.png", "horse/002.png")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the run's state lies."""
    return tmp_path / "state"


@pytest.fixture
def config(own_data_root: Path) -> SiteConfig:
    """A site with two damaged images in a domain of 28, which leaves such out."""
    for file in DAMAGED:
        (own_data_root / "pacs" / "photo" / file).write_bytes(b"\x89PNG damaged")
    return SiteConfig(data_root=own_data_root, device="cpu", damaged_images="leave_out", isolate=False)


def do(task: str, config: SiteConfig, folder: Path, said: list[str] | None = None) -> TaskResult:
    """Let a process of its own do a task: nothing is left of an earlier one but the run's folder."""
    request: dict[str, Any]
    if task == TASK_CENSUS:
        census = CensusRequest(protocol=PROTOCOL, stand_in_protocol=PROTOCOL, run="run")
        order = SiteTask(task, "photo", census.model_dump(mode="json"))
    else:
        request = TaskRequest(protocol=PROTOCOL, stand_in=False, run="run").model_dump(mode="json")
        state = build_model("convnet", len(PACS.classes), seed=0).state_dict()
        order = SiteTask(task, "photo", request, state=dict(state))
    say = (lambda line: None) if said is None else said.append
    return SiteWork().do_work(order, config, folder, lambda: False, say)


def test_the_census_counts_what_it_leaves_out_and_names_it_in_the_sites_own_log(
    config: SiteConfig, folder: Path
) -> None:
    said: list[str] = []
    outcome = do(TASK_CENSUS, config, folder, said)
    assert outcome.kind == "ok"
    assert outcome.value["num_damaged"] == 2
    assert outcome.value["num_test"] == 26
    assert not any(file in json.dumps(outcome.value) for file in DAMAGED)
    told = [line for line in said if "left out" in line]
    assert [f"photo/{file}" in line for file, line in zip(DAMAGED, told, strict=True)] == [True, True]
    assert ((folder / CENSUS_FILE).stat().st_mode & 0o777) == 0o600


def test_later_tasks_find_the_same_split_and_decode_nothing_for_it(
    config: SiteConfig, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert do(TASK_CENSUS, config, folder).kind == "ok"

    def look(*_: object) -> None:
        raise AssertionError("an image was looked at again")

    monkeypatch.setattr("fdg_plugins.data.image_files.check_image", look)
    trained = do(TASK_TRAIN, config, folder)
    assert (trained.kind, trained.reason) == ("ok", "")
    assert trained.value["samples"] == 26 - 7
    assert do(TASK_EVALUATE, config, folder).kind == "ok"


def test_a_site_stops_unless_it_was_told_otherwise(config: SiteConfig, folder: Path) -> None:
    outcome = do(TASK_CENSUS, config.model_copy(update={"damaged_images": "stop"}), folder)
    assert outcome.kind == "failed"
    assert all(f"photo/{file}" in outcome.reason for file in DAMAGED)


@pytest.mark.parametrize(("content", "reason"), [(b"\0", "cannot be read"), (None, "the data folder has changed")])
def test_what_is_damaged_after_the_census_or_gone_ends_that_task_in_one_sentence(
    config: SiteConfig, folder: Path, content: bytes | None, reason: str
) -> None:
    do(TASK_CENSUS, config, folder)
    assert config.data_root is not None
    for image in sorted((config.data_root / "pacs" / "photo" / "guitar").iterdir()):
        if content is not None:
            image.write_bytes(content * image.stat().st_size)
        elif image.name == "001.png":
            image.unlink()
    outcome = do(TASK_TRAIN, config, folder)
    assert (outcome.kind, outcome.trace) == ("failed", "")
    assert reason in outcome.reason

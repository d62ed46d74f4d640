# SPDX-License-Identifier: Apache-2.0
"""A site whose messages have the right form and are lies: each is refused by name, and the others go on unharmed."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest
from safetensors.torch import load_file

from fdg_plugins.controllers import RunRecord

from . import liar
from .conftest import SERVER_CONFIG, Federation, change_protocol, edit_json

LIAR = "photo"
HONEST = {"cartoon", "sketch"}
ALL_LIES = list(liar.LIES)
HARMLESS = ("nothing yet", "the truth")
COMPUTED = ("a million effective steps", "1e300 effective steps")  # known to the server: refused, or of no effect
LONGEST_REASON = 500
LONGEST_RECORD = 300_000  # bytes


@contextmanager
def lying(federation: Federation) -> Iterator[None]:
    """Let one site lie for a while."""
    local = federation.folder / LIAR / "local"
    (local / "custom").mkdir()
    shutil.copy(liar.__file__, local / "custom")
    (local / "privacy.json").write_text(liar.policy(), encoding="utf-8")
    try:
        yield
    finally:
        (local / "privacy.json").unlink()
        shutil.rmtree(local / "custom")


def is_plain(text: str) -> bool:
    """Return whether a text is one line without control characters, not much longer than a sentence."""
    return len(text) <= LONGEST_REASON and text.isprintable()


@pytest.fixture
def lied_to(federation: Federation, job: Path, tmp_path: Path) -> tuple[RunRecord, Path]:
    """The record of a run in which one site told every lie, and one round after; and the folder of the result."""
    change_protocol(job, rounds=len(ALL_LIES) + 1)
    edit_json(job / SERVER_CONFIG, lambda config: config["workflows"][0]["args"].update(aggregator={"name": "fednova"}))
    with lying(federation):
        submitted = federation.session("lead").submit_job(str(job))
        return federation.record_of(submitted, tmp_path / "result"), tmp_path / "result"


def test_every_lie_is_refused_by_name_and_the_run_goes_on_unharmed(lied_to: tuple[RunRecord, Path]) -> None:
    record, result = lied_to
    assert record.status == "finished"
    assert len(record.rounds) == len(ALL_LIES) + 1
    by_lie = dict(zip(ALL_LIES, record.rounds, strict=False))
    honest_length = median(
        finished.aggregation.direction_norm
        for lie, finished in by_lie.items()
        if lie in HARMLESS and finished.aggregation
    )
    for lie, finished in by_lie.items():
        assert not HONEST & finished.failures.keys(), lie
        assert set(finished.sites) >= HONEST, lie
        assert finished.aggregation is not None, lie
        assert finished.aggregation.direction_norm < 4 * honest_length, lie
        if lie in HARMLESS:
            assert finished.failures == {}, lie
        elif lie not in COMPUTED:
            assert finished.failures.keys() == {LIAR}, lie
            assert LIAR not in finished.sites, lie
    reasons = [reason for finished in record.rounds for reason in finished.failures.values()]
    assert all(is_plain(reason) for reason in reasons), reasons
    assert set(record.rounds[-1].sites) == HONEST, "the site that wanted to stop has no part any more"
    check_files(result)


def check_files(result: Path) -> None:
    """The model is finite; the record and the server's log hold no more of a site's text than a sentence."""
    (model,) = result.rglob("global_model.safetensors")
    assert all(bool(value.isfinite().all()) for value in load_file(model).values())
    (results,) = result.rglob("results.json")
    assert results.stat().st_size < LONGEST_RECORD
    (log,) = result.rglob("log.txt")
    text = log.read_bytes().decode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]", text)
    assert not [line for line in text.splitlines() if line.startswith(liar.FORGED)]
    assert max(map(len, text.splitlines())) < 10_000

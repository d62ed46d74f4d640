# SPDX-License-Identifier: Apache-2.0
"""A hostile site: whatever it sends over the real wire is refused by name, and the others go on unharmed."""

import re
from pathlib import Path
from statistics import median

from safetensors.torch import load_file

from . import hostile
from .conftest import SERVER_CONFIG, Federation, change_protocol, edit_json, local_files

SITE, HONEST = "photo", {"cartoon", "sketch"}
LONGEST_REASON = 500
LONGEST_RECORD = 500_000  # bytes


def test_hostile_site_is_refused_by_name(federation: Federation, job: Path, tmp_path: Path) -> None:
    change_protocol(job, rounds=len(hostile.WAYS) + 1)
    edit_json(job / SERVER_CONFIG, lambda config: config["workflows"][0]["args"].update(aggregator={"name": "fednova"}))
    files = {"custom/hostile.py": Path(hostile.__file__).read_text(encoding="utf-8"), "privacy.json": hostile.policy()}
    with local_files(federation, SITE, files):
        record = federation.record_of(federation.session("lead").submit_job(str(job)), tmp_path / "result")
    assert record.status == "finished"
    assert len(record.rounds) == len(hostile.WAYS) + 1
    by_way = dict(zip(hostile.WAYS, record.rounds, strict=False))
    lengths = {way: one.aggregation.direction_norm for way, one in by_way.items() if one.aggregation}
    assert lengths.keys() == by_way.keys()
    failures = {way: dict(finished.failures) for way, finished in by_way.items()}
    odd = {way: of for way, of in failures.items() if of.keys() != ({SITE} if way not in hostile.HARMLESS else set())}
    assert odd == {}, failures
    for way, finished in by_way.items():
        assert set(finished.sites) == {*HONEST, SITE} - failures[way].keys(), way
        assert lengths[way] < 4 * median(lengths[one] for one in hostile.HARMLESS), way
    assert set(record.rounds[-1].sites) == HONEST, "the site that wanted to stop has no part any more"
    reasons = {reason for finished in record.rounds for reason in finished.failures.values()}
    assert all(len(reason) <= LONGEST_REASON and reason.isprintable() for reason in reasons), reasons
    assert len(reasons) >= len(hostile.WAYS) // 3, "reasons that tell apart"
    check_files(tmp_path / "result")


def check_files(result: Path) -> None:
    """The model is finite; the record and the server's log hold no more of a site's text than a sentence."""
    (model,) = result.rglob("global_model.safetensors")
    assert all(bool(value.isfinite().all()) for value in load_file(model).values())
    (results,) = result.rglob("results.json")
    assert results.stat().st_size < LONGEST_RECORD
    (log,) = result.rglob("log.txt")
    text = log.read_bytes().decode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]", text)
    assert not [line for line in text.splitlines() if line.startswith(hostile.FORGED)]
    assert max(map(len, text.splitlines())) < 10_000

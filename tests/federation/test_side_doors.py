# SPDX-License-Identifier: Apache-2.0
"""What a malicious site tries: it asks other sites' runners for their updates, or sends the server what ruins a run.

Participants have FLARE's default list here, which is wider than what these jobs need. A colluding site, whose operator
runs code of their own there, tries all ways and gets no tensor of a victim.
"""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
from safetensors.torch import load_file

from fdg_plugins.audit.file import read_audit
from fdg_plugins.privacy.ledger import Ledger
from tests.federation import colluder, hostile
from tests.federation.conftest import SCOPE, SERVER_CONFIG, Federation, change_protocol, edit_json, local_files

VICTIM, UNPROTECTED, COLLUDER = "photo", "sketch", "cartoon"
ROUNDS = 3


@contextmanager
def collusion(federation: Federation) -> Iterator[Path]:
    """Let all keep FLARE's list, one site collude, another have a mandatory filter; yield the folder of the loot."""
    loot = federation.folder / COLLUDER / colluder.LOOT
    ledger = federation.folder / VICTIM / "local" / "fdg_privacy"
    own = {
        COLLUDER: {
            "custom/colluder.py": Path(colluder.__file__).read_text(encoding="utf-8"),
            "privacy.json": colluder.policy([VICTIM, UNPROTECTED]),
        },
        VICTIM: {"privacy.json": json.dumps(SCOPE)},
    }
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, ledger, ignore_errors=True)
        stack.callback(shutil.rmtree, loot, ignore_errors=True)
        for participant in ("server", *federation.sites):
            path = federation.folder / participant / "local" / "resources.json"
            resources = json.loads(path.read_text(encoding="utf-8"))
            resources["class_allow_list"] += DEFAULT_CLASS_ALLOW_LIST
            files = {"resources.json": json.dumps(resources), **own.get(participant, {})}
            stack.enter_context(local_files(federation, participant, files))
        yield loot


def stolen(loot: Path) -> list[str]:
    """Return what came with tensors in it, or with anything else that an executor has computed."""
    marks = ("'DXO'", "tensor(", "array(")
    texts = {path.stem: path.read_text(encoding="utf-8") for path in loot.glob("*.txt")}
    return sorted(name for name, text in texts.items() if any(mark in text for mark in marks))


def test_colluder_gets_nothing(federation: Federation, job: Path, tmp_path: Path) -> None:
    change_protocol(job, rounds=ROUNDS)
    with collusion(federation) as loot:
        first = federation.session("lead").submit_job(str(job))
        record = federation.record_of(first, tmp_path / "result")
        assert len(record.rounds) == ROUNDS
        (log,) = (tmp_path / "result").rglob("log.txt")
        check_warnings(log.read_text(encoding="utf-8"))
        check_that_nothing_left(federation, first, loot)


def check_warnings(log: str) -> None:
    """After the census the server names each participant that allows more than these jobs need."""
    many = len(DEFAULT_CLASS_ALLOW_LIST)
    for owner, count in {"the server": many - 1, "site photo": many, "site cartoon": many}.items():
        assert f"{owner}: its list of allowed classes holds {count} entries that these jobs do not need" in log


def check_that_nothing_left(federation: Federation, job: str, loot: Path) -> None:
    """Nothing of a victim's came; ledger and audit of a victim hold what the server was given, and no more."""
    assert stolen(loot) == []
    ledger = Ledger(federation.folder / VICTIM / "local" / "fdg_privacy" / "ledger.json", VICTIM).read()
    for victim in (VICTIM, UNPROTECTED):
        assert len(list(loot.glob(f"answer of {victim} to *.txt"))) == len(colluder.WAYS), "every way was tried"
        noted = [line for line in read_audit(federation.folder / victim / "fdg_audit.jsonl") if line.job == job]
        # What the executor returned is noted as well as what was sent; neither may be more than the server was given.
        for stage in ("returned", "sent"):
            updates = [line for line in noted if line.tensors and line.stage == stage]
            assert {line.task for line in updates} <= {"train"}
            assert len({line.round for line in updates}) == len(updates) <= ROUNDS
            if victim == VICTIM and stage == "sent":
                assert len(updates) <= sum(release.job == job for release in ledger.releases) <= ROUNDS
        refusals = re.findall(
            rf"site {victim} \| task [^\n]*fetched from the server itself", federation.log(victim, job)
        )
        assert len(refusals) == len(colluder.WAYS), "its log says why"


SITE, HONEST = "photo", {"cartoon", "sketch"}
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
    assert all(len(reason) <= 500 and reason.isprintable() for reason in reasons), reasons
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

# SPDX-License-Identifier: Apache-2.0
"""A site's machine is lost: it is noticed, the others go on, and what comes back takes part again."""

from pathlib import Path

from fdg_plugins.lab.poc.processes import start_participant
from tests.federation.conftest import PROTOCOL, Federation, change_protocol, export, kill, until

# While a site is lost a round lasts at least 5 s, the lead time; the start of its processes takes some of them.
ROUNDS = 30


def trainings_since_return(federation: Federation, job: str, site: str) -> int:
    """Return how many trainings the site has been given since it came back."""
    assert not federation.meta(job)["status"].startswith("FINISHED"), federation.log()[-3000:]
    after = federation.log(job=job).partition(f"Client {site} is reconnected")[2]
    return after.count(f"assigned task to client {site}: name=train")


def test_lost_source_comes_back(own_federation: Federation, tmp_path: Path) -> None:
    gap_job = export("pacs_fedomg_ga", tmp_path)  # whose sites remember something from round to round
    change_protocol(gap_job, **{**PROTOCOL, "rounds": ROUNDS})
    job = own_federation.session("lead").submit_job(str(gap_job))
    own_federation.wait_until_running(job, "round 1")
    assert kill(own_federation, "photo") >= 3, "its daemon, its own process, the one of the job"
    until(lambda: "Client photo is deemed disconnected!" in own_federation.log(job=job), "photo is not given up")
    assert list((own_federation.folder / "photo" / "fdg_state" / job).glob("fdg_own_model_*.safetensors"))
    start_participant(own_federation.folder, "photo")
    until(lambda: trainings_since_return(own_federation, job, "photo") >= 2, "photo is not back")

    record = own_federation.record_of(job, tmp_path / "results")
    assert len(record.rounds) == ROUNDS
    # A site that comes back between the tasks of a round has failed in the first and is in the update of the last.
    lost = [round_.round for round_ in record.rounds if "photo" not in round_.sites]
    assert all("photo" in record.rounds[number - 1].failures for number in lost)
    first, last = lost[0], lost[-1]
    assert first in (2, 3)
    assert lost == list(range(first, last + 1)), "away once, and then back for good"
    assert last < ROUNDS - 1
    for round_ in record.rounds:
        assert round_.aggregation is not None, round_.reason
        assert set(round_.sites) == {"cartoon", "sketch"} | ({"photo"} if round_.round not in lost else set())
    gaps = [round_.aggregation.gaps for round_ in record.rounds if round_.aggregation is not None]
    assert all(of_round is not None for of_round in gaps)
    again = gaps[last:]
    assert again[1] is not None
    assert again[1]["photo"] is not None
    assert f"site photo is back: job {job} was started there again" in own_federation.log()

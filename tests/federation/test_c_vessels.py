# SPDX-License-Identifier: Apache-2.0
"""Segmentation in a provisioned federation with a site per camera, each with its own folder of drawn images."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fdg_plugins.data.stand_in import write_stand_in

from .conftest import (
    COMMAND_TIMEOUT_S,
    ROOT,
    Federation,
    change_protocol,
    edit_json,
    free_ports,
    own_settings,
    running_federation,
)

pytestmark = pytest.mark.nightly  # in a federation of its own

CAMERAS = ("chase_db1", "drive", "hrf", "stare")
FDG = Path(sys.executable).with_name("fdg")
TINY = {"rounds": 1, "local_epochs": 1, "image_size": 32}


@pytest.fixture(scope="module")
def cameras(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A federation whose sites are the four cameras; each site has a data root of its own with its camera only."""
    drawn = write_stand_in(tmp_path_factory.mktemp("vessels") / "all", "vessels", images_per_class=4)
    with running_federation(tmp_path_factory.mktemp("poc") / "cameras", drawn, dataset="vessels") as found:
        for camera in CAMERAS:
            own = tmp_path_factory.mktemp(camera)
            (own / "vessels").mkdir()
            (drawn / "vessels" / camera).rename(own / "vessels" / camera)
            site = found.folder / camera / "local" / "fdg_site.json"
            edit_json(site, own_settings(camera, data_root=str(own)))
        yield found


def exported(name: str, to: Path) -> Path:
    """Return a job of the project, exported as a lead does it, with a protocol small enough for two cores."""
    subprocess.run([FDG, "export", "job", ROOT / "jobs" / name, "--to", to], check=True, timeout=COMMAND_TIMEOUT_S)
    assert not list(to.rglob("custom")), "config only"
    change_protocol(to / name, **TINY)
    return to / name


def test_the_sites_are_the_cameras(cameras: Federation) -> None:
    done = cameras.control("status")
    assert [line.split()[0] for line in done.output.splitlines()] == ["server", *CAMERAS]


@pytest.mark.nightly
def test_a_job_on_the_vessels_ends_with_dice_of_every_camera(cameras: Federation, tmp_path: Path) -> None:
    allowed = subprocess.run(
        [FDG, "kit", "allow", "--kit", cameras.folder / "hrf"],
        check=True,
        timeout=COMMAND_TIMEOUT_S,
        capture_output=True,
        text=True,
    )
    assert "left as it was" in allowed.stdout, "start has written what the operator's command writes"
    job = cameras.session("lead").submit_job(str(exported("vessels_fedavg", tmp_path)))
    record = cameras.record_of(job, tmp_path / "results")
    assert (record.status, record.protocol.task) == ("finished", "segmentation")
    assert (record.held_out, record.sources) == (("chase_db1",), ("drive", "hrf", "stare"))
    last = record.evaluations[-1].sites
    assert set(last) == set(CAMERAS)
    for camera, found in last.items():
        dice = found.sums["dice"]
        assert dice.count == (4 if camera == "chase_db1" else 1), "over all images, or the validation split"
        assert 0 <= dice.sum <= dice.count
        assert found.sums["true_positives_1"].count == dice.count * 32 * 32
    assert str(tmp_path.parent) not in cameras.log(job=job), "no path of a site is told to the server"


def test_a_site_that_forbids_class_means_ends_feddim_at_the_census(cameras: Federation, tmp_path: Path) -> None:
    site = cameras.folder / "hrf" / "local" / "fdg_site.json"
    before = site.read_bytes()
    edit_json(site, lambda config: config["hrf"].update(allowed_reports=[]))
    try:
        ended = cameras.wait_for(cameras.session("lead").submit_job(str(exported("vessels_feddim", tmp_path))))
    finally:
        site.write_bytes(before)
    assert ended.status != "FINISHED:COMPLETED"
    assert "site hrf forbids the report 'class_means' (allowed_reports), which objective 'dim' needs." in ended.log
    assert "| round 1/" not in ended.log
    assert "epoch" not in cameras.log("hrf", ended.id)


def test_a_folder_keeps_the_sites_with_which_it_was_provisioned(tmp_path: Path) -> None:
    folder = tmp_path / "pacs"
    folder.mkdir()
    ports = free_ports()
    state = {"version": 1, "ports": list(ports), "pids": {}}  # as version 0.1.0 wrote it
    (folder / "federation.json").write_text(json.dumps(state), encoding="utf-8")
    other = Federation(folder, ports, tmp_path, dataset="vessels")
    refused = other.start()
    assert refused.returncode == 2
    assert "other sites need another folder" in " ".join(refused.output.split())
    unknown = other.control("start", "--dataset", "nope")
    assert unknown.returncode == 2
    assert "'nope'" in unknown.output

# SPDX-License-Identifier: Apache-2.0
"""Names of a site's files and folders stay at the site: the server is told a category, and an id for the site's log."""

import json
import re
import shutil
from pathlib import Path

from tests.federation.conftest import Federation, local_files

PATIENT, WARD = "patient_mueller_19700101", "ward_7_oncology"
LOG_ID = re.compile(r"\b[0-9a-f]{8,}\b")


def test_name_of_an_image_stays_at_the_site(federation: Federation, job: Path, tmp_path: Path) -> None:
    data = tmp_path / WARD
    shutil.copytree(federation.data_root, data)
    image = next((data / "pacs" / "photo").rglob("*.*"))
    image.write_bytes(b"no image at all")
    image.rename(image.with_stem(PATIENT))
    config = json.loads((federation.folder / "photo" / "local" / "fdg_site.json").read_text(encoding="utf-8"))
    config["photo"].update(data_root=str(data))
    with local_files(federation, "photo", {"fdg_site.json": json.dumps(config)}):
        id_ = federation.session("lead").submit_job(str(job))
        ended = federation.wait_for(id_)
    assert ended.status != "FINISHED:COMPLETED"
    told = f"{ended.log}{federation.log()}"
    (reason,) = set(re.findall(r"site photo cannot take part: [^\n]*", told))
    own = federation.log("photo", id_)
    assert PATIENT in own, "the site's own log names the file"
    assert PATIENT not in told
    assert WARD not in told
    assert set(LOG_ID.findall(reason)) & set(LOG_ID.findall(own)), "the id by which its operator finds the line"

# SPDX-License-Identifier: Apache-2.0
"""What FLARE's context tells: the sites of a job, and a site's config, which holds for the site or ends its jobs."""

import json
from pathlib import Path
from typing import Any

import pytest
from nvflare.private.fed.utils.fed_utils import extract_participants

from fdg_plugins.errors import SettingsError
from fdg_plugins.flare.context import site_config_of, sites_in
from tests.flare_runner import site_context


def test_a_file_without_an_entry_for_the_site_is_refused_except_in_the_simulator(tmp_path: Path) -> None:
    own, simulated = (site_context("hospital-a", tmp_path, job) for job in ("0f6f0d3c", "simulate_job"))
    file = tmp_path / "local" / "fdg_site.json"
    file.write_text(json.dumps({"hospital_a": {"role": "held_out", "allowed_plugins": []}}), encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        site_config_of("hospital-a", own)
    assert caught.value.public == "its config has no object of settings for it."
    assert site_config_of("hospital-a", simulated).role is None
    file.write_text("{}", encoding="utf-8")
    assert site_config_of("hospital-a", own).role is None, "nothing is written there that would not hold"


@pytest.mark.parametrize(
    "participants",
    [["server", "photo", "sketch"], {"targets": ["server", "photo", "sketch"]}, [{"sites": ["photo"]}, "sketch"]],
)
def test_the_sites_are_those_that_flare_finds(participants: Any) -> None:
    assert sites_in({"app": participants}) == {*extract_participants(participants)} - {"server"} == {"photo", "sketch"}

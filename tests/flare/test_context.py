# SPDX-License-Identifier: Apache-2.0
"""What FLARE's context tells: the sites of a job, and a site's config, which holds for the site or ends its jobs."""

import json
from pathlib import Path
from typing import Any

import pytest
from nvflare.apis.fl_context import FLContext
from nvflare.private.fed.utils.fed_utils import extract_participants

from fdg_plugins.errors import SettingsError
from fdg_plugins.flare.context import site_config_of, sites_in
from tests.flare_runner import SiteWorkspace, site_context


def context(folder: Path, job: str = "0f6f0d3c") -> FLContext:
    return site_context("hospital-a", SiteWorkspace(folder, local=folder), job)


def test_a_file_without_an_entry_for_the_site_is_refused_except_in_the_simulator(tmp_path: Path) -> None:
    file = tmp_path / "fdg_site.json"
    file.write_text(json.dumps({"hospital_a": {"role": "held_out", "allowed_plugins": []}}), encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        site_config_of("hospital-a", context(tmp_path))
    assert caught.value.public == "its config has no object of settings for it."
    assert site_config_of("hospital-a", context(tmp_path, "simulate_job")).role is None
    file.write_text("{}", encoding="utf-8")
    assert site_config_of("hospital-a", context(tmp_path)).role is None, "nothing is written there that would not hold"


@pytest.mark.parametrize(
    "participants",
    [["server", "photo", "sketch"], {"targets": ["server", "photo", "sketch"]}, [{"sites": ["photo"]}, "sketch"]],
)
def test_the_sites_are_those_that_flare_finds(participants: Any) -> None:
    assert sites_in({"app": participants}) == {*extract_participants(participants)} - {"server"} == {"photo", "sketch"}

# SPDX-License-Identifier: Apache-2.0
"""A site's config file holds for the site, or ends its jobs: an entry under a wrong name must not go unnoticed."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.flare.site_file import site_config_of

FORBIDS = {"role": "held_out", "allowed_plugins": []}


def context(file: Path, job: str = "0f6f0d3c") -> Any:
    workspace = SimpleNamespace(get_file_path_in_site_config=lambda name: str(file.with_name(name)))
    return SimpleNamespace(get_engine=lambda: SimpleNamespace(get_workspace=lambda: workspace), get_job_id=lambda: job)


@pytest.mark.usefixtures("no_fdg_variables")
def test_the_entry_of_the_site_holds_and_without_a_file_the_defaults_do(tmp_path: Path) -> None:
    file = tmp_path / "fdg_site.json"
    assert site_config_of("hospital-a", context(file)).role is None
    file.write_text(json.dumps({"hospital-a": FORBIDS}), encoding="utf-8")
    config = site_config_of("hospital-a", context(file))
    assert (config.role, config.allowed_plugins) == ("held_out", ())


def test_a_file_without_an_entry_for_the_site_is_refused_except_in_the_simulator(tmp_path: Path) -> None:
    file = tmp_path / "fdg_site.json"
    file.write_text(json.dumps({"hospital_a": FORBIDS}), encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        site_config_of("hospital-a", context(file))
    assert caught.value.public == "its config has no object of settings for it."
    assert site_config_of("hospital-a", context(file, "simulate_job")).role is None
    file.write_text("{}", encoding="utf-8")
    assert site_config_of("hospital-a", context(file)).role is None, "nothing is written there that would not hold"

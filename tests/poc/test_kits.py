# SPDX-License-Identifier: Apache-2.0
"""Startup kits on one machine: a kit for every site, whatever the sites are called."""

from pathlib import Path

import pytest

from fdg_plugins.lab.poc.kits import PROVISION, SiteData, configure, provision
from fdg_plugins.lab.poc.project import read_project
from fdg_plugins.settings.site_config import FILE_NAME


@pytest.mark.parametrize("site", ["photo", "provision", "startup", "federation"])
def test_a_site_may_have_any_name_and_the_key_of_the_authority_is_beside_the_kits(tmp_path: Path, site: str) -> None:
    project, folder = read_project(9000, None, ["sketch", site]), tmp_path / "federation"
    provision(project, folder)
    configure(project, folder, SiteData())
    for name in ("sketch", site):
        assert (folder / name / "startup" / "fed_client.json").is_file()
        assert (folder / name / "local" / FILE_NAME).is_file()
    assert (folder / PROVISION).stat().st_mode & 0o077 == 0
    assert list((folder / PROVISION).rglob("cert.json"))


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/poc.md"])
def test_the_pages_say_where_the_key_of_the_authority_is(page: str) -> None:
    assert f"`{PROVISION}/`" in (Path(__file__).parents[2] / page).read_text(encoding="utf-8")

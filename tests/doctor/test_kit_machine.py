# SPDX-License-Identifier: Apache-2.0
"""What a kit names on the machine where it lies, and what of it only containers have."""

from pathlib import Path

import pytest

from fdg_plugins.data.folders import LOCK
from fdg_plugins.lab.doctor.finding import Status
from fdg_plugins.lab.doctor.kit_machine import check_data_root
from fdg_plugins.settings.site_config import SiteConfig


@pytest.mark.parametrize(("in_containers", "status"), [(True, Status.WARNING), (False, Status.PROBLEM)])
def test_a_data_root_that_is_not_there_is_a_warning_only_where_jobs_run_in_containers(
    tmp_path: Path, in_containers: bool, status: Status
) -> None:
    config = SiteConfig(data_root=tmp_path / "images")
    assert check_data_root("photo", config, in_containers=in_containers).status == status
    config = SiteConfig(data_root=tmp_path, dataset_file=tmp_path / "dataset.toml")
    assert check_data_root("photo", config, in_containers=in_containers).status == status


@pytest.mark.parametrize("in_containers", [True, False])
def test_a_data_root_that_is_a_file_is_a_problem_everywhere(tmp_path: Path, in_containers: bool) -> None:
    (tmp_path / "file").touch()
    config = SiteConfig(data_root=tmp_path / "file")
    assert check_data_root("photo", config, in_containers=in_containers).status == Status.PROBLEM


def test_a_data_root_without_the_domain_of_the_site_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "pacs" / "photo").mkdir(parents=True)
    (tmp_path / "mnist").mkdir()
    assert check_data_root("photo-2of3", SiteConfig(data_root=tmp_path)).status == Status.OK
    assert check_data_root("hospital-a", SiteConfig(data_root=tmp_path, domain="photo")).status == Status.OK
    assert (
        check_data_root("angle_15", SiteConfig(data_root=tmp_path)).status == Status.OK
    )  # RotatedMNIST has no folders
    for site in ("hospital-a", "sketch"):
        found = check_data_root(site, SiteConfig(data_root=tmp_path))
        assert found.status == Status.PROBLEM
        assert f"holds pacs, mnist without a domain {site!r}: fdg kit site --domain names it" in found.text


def test_a_data_set_that_is_still_being_prepared_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "pacs" / "photo").mkdir(parents=True)
    (tmp_path / "pacs" / LOCK).touch()
    found = check_data_root("photo", SiteConfig(data_root=tmp_path))
    assert (found.status, "fdg data prepare has not ended for pacs" in found.text) == (Status.WARNING, True)

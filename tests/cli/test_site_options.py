# SPDX-License-Identifier: Apache-2.0
"""``--alpha`` and ``--participation``: the settings that they stand for."""

import pytest

from fdg_plugins.cli.site_options import with_sites
from fdg_plugins.errors import SettingsError
from fdg_plugins.settings.participation import drawn_sites


def test_alpha_divides_by_a_dirichlet_law_and_a_share_becomes_a_number_of_sites() -> None:
    found = with_sites({"rounds": 3}, "cifar10", "fedomg-fl", 0.5, 0.4)
    assert found == {"rounds": 3, "partition": "dirichlet", "dirichlet_alpha": 0.5, "sites_per_round": 40}
    assert with_sites({}, "mnist", "paper", None, 1.0) == {"sites_per_round": None}
    assert with_sites({"sites_per_domain": 10}, "pacs", "paper", None, 0.5)["sites_per_round"] == 15
    assert with_sites({}, None, "paper", None, None) == {}


def test_at_least_two_sites_are_drawn_and_a_share_is_one() -> None:
    assert drawn_sites(0.001, 100) == 2
    with pytest.raises(SettingsError, match="participation is 0, expected a share of the sites above 0"):
        drawn_sites(0.0, 100)


def test_a_setting_given_twice_is_refused() -> None:
    with pytest.raises(SettingsError, match="--set names 'dirichlet_alpha', which --alpha or --participation sets"):
        with_sites({"dirichlet_alpha": 1.0}, "mnist", "paper", 0.5, None)

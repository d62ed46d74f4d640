# SPDX-License-Identifier: Apache-2.0
"""``--alpha`` and ``--participation``: the settings that they stand for."""

from typing import Any

import pytest

from fdg_plugins.cli.site_options import with_alpha
from fdg_plugins.errors import SettingsError
from fdg_plugins.settings.participation import drawn_sites, source_sites


def test_alpha_divides_by_a_dirichlet_law() -> None:
    assert with_alpha({"rounds": 3}, 0.5, 0.4) == {"rounds": 3, "partition": "dirichlet", "dirichlet_alpha": 0.5}
    assert with_alpha({}, None, None) == {}


def test_at_least_two_sites_are_drawn_and_a_share_is_one() -> None:
    assert drawn_sites(0.001, 100) == 2
    with pytest.raises(SettingsError, match="participation is 0, expected a share of the sites above 0"):
        drawn_sites(0.0, 100)


@pytest.mark.parametrize("name", ["dirichlet_alpha", "sites_per_round"])
def test_a_setting_given_twice_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"--set names '{name}', which --alpha or --participation sets"):
        with_alpha({name: 1}, 0.5, 0.4)


@pytest.mark.parametrize("count", ["ten", None, 2.5, True, 0, 10**9])
def test_a_number_of_sites_that_is_none_is_refused(count: Any) -> None:
    with pytest.raises(SettingsError, match=r"^sites_per_domain is .*, expected "):
        source_sites("pacs", {"sites_per_domain": count})
    assert source_sites("pacs", {"sites_per_domain": 10}) == 30

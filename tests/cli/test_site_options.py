# SPDX-License-Identifier: Apache-2.0
"""The share of the sites that are drawn for a round."""

from typing import Any

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.settings.participation import drawn_sites, source_sites


def test_at_least_two_sites_are_drawn_and_a_share_is_one() -> None:
    assert drawn_sites(0.001, 100) == 2
    with pytest.raises(SettingsError, match="participation is 0, expected a share of the sites above 0"):
        drawn_sites(0.0, 100)


@pytest.mark.parametrize("count", ["ten", None, 2.5, True, 0, 10**9])
def test_a_number_of_sites_that_is_none_is_refused(count: Any) -> None:
    with pytest.raises(SettingsError, match=r"^sites_per_domain is .*, expected "):
        source_sites("pacs", {"sites_per_domain": count})
    assert source_sites("pacs", {"sites_per_domain": 10}) == 30

# SPDX-License-Identifier: Apache-2.0
"""A FLARE without some of the internals that this package relies on."""

from collections.abc import Callable, Iterator

import pytest

from fdg_plugins.flare import internals
from fdg_plugins.flare.internals import INTERNALS, problems_of


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Take away what is declared for a need, as a new FLARE might."""

    def take_away(need: str) -> None:
        changed = tuple(one._replace(module="nvflare.gone") if one.need == need else one for one in INTERNALS)
        monkeypatch.setattr(internals, "INTERNALS", changed)
        problems_of.cache_clear()

    yield take_away
    problems_of.cache_clear()

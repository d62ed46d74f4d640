# SPDX-License-Identifier: Apache-2.0
"""The sites of a job's ``deploy_map``, in each form that FLARE takes."""

from typing import Any

import pytest
from nvflare.private.fed.utils.fed_utils import extract_participants

from fdg_plugins.flare.deploy_map import sites_in


@pytest.mark.parametrize(
    "participants",
    [["server", "photo", "sketch"], {"targets": ["server", "photo", "sketch"]}, [{"sites": ["photo"]}, "sketch"]],
)
def test_the_sites_are_those_that_flare_finds(participants: Any) -> None:
    assert sites_in({"app": participants}) == {*extract_participants(participants)} - {"server"} == {"photo", "sketch"}

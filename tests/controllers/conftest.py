# SPDX-License-Identifier: Apache-2.0
"""The tests of the server see no ``FDG_*`` variable but those that they set."""

import pytest


@pytest.fixture(autouse=True)
def _own_environment(no_fdg_variables: None) -> None:
    """Every test of this folder."""

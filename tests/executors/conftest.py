# SPDX-License-Identifier: Apache-2.0
"""The tests of a site see no ``FDG_*`` variable but those that they set."""

import pytest


@pytest.fixture(autouse=True)
def _own_environment(no_fdg_variables: None) -> None:
    """Every test of this folder."""


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without CUDA, whatever this one has."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

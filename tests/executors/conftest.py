# SPDX-License-Identifier: Apache-2.0
"""The tests of a site see no ``FDG_*`` variable but their own, and one that keeps the work in their process."""

import pytest


@pytest.fixture(autouse=True)
def _own_environment(no_fdg_variables: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test of this folder: sites work in the process of the test."""
    monkeypatch.setenv("FDG_ISOLATE", "no")


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without CUDA, whatever this one has."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

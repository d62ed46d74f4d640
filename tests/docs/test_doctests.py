# SPDX-License-Identifier: Apache-2.0
"""Every example in a docstring of the package prints what it says."""

import doctest
from importlib import import_module
from pathlib import Path

import fdg_plugins

PACKAGE = Path(fdg_plugins.__file__).parent


def modules_with_examples() -> list[str]:
    """Return the names of all modules of the package whose text has a ``>>>`` prompt."""
    paths = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))
    parts = [path.relative_to(PACKAGE.parent).with_suffix("").parts for path in paths]
    return [".".join(part for part in names if part != "__init__") for names in parts]


def test_the_examples_in_the_docstrings_are_true() -> None:
    outcomes = {name: doctest.testmod(import_module(name)) for name in modules_with_examples()}
    assert {name for name, outcome in outcomes.items() if outcome.failed or not outcome.attempted} == set()

# SPDX-License-Identifier: Apache-2.0
"""The release: one version, changes that are dated and in order, classifiers that are true, and pins."""

import ast
import itertools
import re
import sys
import tomllib
from datetime import date
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.utils import canonicalize_name

from tests.docs.test_pages import script
from tests.source_trees import imported, nodes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    content: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return content


def test_the_citation_and_the_newest_changes_are_of_this_version(project: dict[str, Any]) -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = [(number, date.fromisoformat(day)) for number, day in re.findall(r"(?m)^## (\d\S*) - (\S+)$", changes)]
    assert str(citation["version"]) == project["version"] == released[0][0]
    assert citation["license"] == project["license"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_every_package_that_the_code_imports_is_declared(project: dict[str, Any]) -> None:
    asked = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    declared = {canonicalize_name(re.split(r"[\[<>=,;]", text)[0]) for text in asked}
    known = {**packages_distributions(), "pydantic_core": ["pydantic"]}  # which asks for one version of it
    modules = nodes(ast.Import, ast.ImportFrom).values()
    found = {name.partition(".")[0] for statements in modules for one in statements for name in imported(one)}
    assert {"torch", "matplotlib"} <= found
    others = found - sys.stdlib_module_names - {"fdg_plugins"}
    names = {name: {canonicalize_name(one) for one in known.get(name, [name])} for name in others}
    assert {name for name, packages in names.items() if not packages & declared} == set()


def test_what_the_package_needs_at_run_time_is_pinned_down_to_the_last_package() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    pinned = {canonicalize_name(name): number for name, number in pins.items()}
    needed = script("make_sbom").needed()
    if any(pinned.get(name, number) != number for name, number in needed.items()):
        pytest.skip("this environment has other versions, which may need other packages")
    assert needed.keys() - pinned.keys() == set()

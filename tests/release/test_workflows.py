# SPDX-License-Identifier: Apache-2.0
"""The public checks are the Makefile's own targets, so that each of them runs on any machine by the same command."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
NEEDED = {
    "lint",
    "test-lowest",
    "test-nightly",
    "test-newest",
    "test-python",
    "dist",
    "test-wheel",
    "docs",
    "rehearse-images",
    "test-trackers",
    "test-slow",
    "test-federation",
    "coverage",
    "sbom",
}


def steps(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the steps of all jobs of a workflow."""
    for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
        yield from job["steps"]


def makefile_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_command_of_a_workflow_is_a_target_of_the_makefile(path: Path) -> None:
    commands = [step["run"] for step in steps(path) if "run" in step]
    assert commands
    for command in commands:
        assert re.fullmatch(r"make [a-z-]+", command), command
        assert command.removeprefix("make ") in makefile_targets(), command


def test_the_workflows_run_all_that_a_change_and_a_night_should_see() -> None:
    commands = {step["run"].removeprefix("make ") for path in WORKFLOWS for step in steps(path) if "run" in step}
    assert commands == NEEDED


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_have_a_major_version_and_jobs_a_limit_and_no_rights(path: Path) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert content["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 120 for job in content["jobs"].values())
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert [action for action in used if not re.fullmatch(r"actions/[a-z-]+@v\d+", action)] == []


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_every_form_asks_for_something_under_a_label(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.name == "config.yml":
        return
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)


def test_the_hooks_before_a_commit_run_tools_of_the_environment_and_fetch_nothing() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert all(hook["entry"].startswith(".venv/bin/") for hook in hooks)
    (pages,) = [hook["files"] for hook in hooks if hook["id"] == "docs-in-step"]
    for path in ("fdg_plugins/aggregators/fedomg.py", "README.md", "docs/index.md"):  # defaults are on pages
        assert re.search(pages, path), path


def test_environments_of_uv_have_the_python_of_the_makefile_and_where_all_tests_run_pip() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    made = re.findall(r"uv venv (.*)", makefile)
    assert len(made) == 2
    assert [options for options in made if "--python $(BIN)/python" not in options] == []
    (everything,) = re.findall(r"uv pip install (.*'\.\[dev\]'.*)", makefile)
    assert everything.split()[-1] == "pip"


def test_the_lists_of_phony_targets_and_of_help_name_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].replace("\\\n", " ").split()) == makefile_targets()
    shown = set(re.findall(r'@echo "make ([a-z-]+)', text))
    assert makefile_targets() - shown == {"help", "docs-tables"}

# SPDX-License-Identifier: Apache-2.0
"""The page for data protection reviews: the worked example of a budget prints what the page says."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fdg_plugins.audit.export import FIELDS
from fdg_plugins.cli.main import app
from fdg_plugins.privacy.ledger import BudgetSpentError, Ledger, LedgerContent, Limits, Release
from fdg_plugins.state.checked_files import write_checked_json

PAGE = (Path(__file__).parents[2] / "docs" / "data-protection.md").read_text(encoding="utf-8")
POLICY = json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0])


def enter(kit: Path, count: int) -> Path:
    """Write a ledger with ``count`` releases under the page's policy into a kit; return the file."""
    release = {"job": "0f6f0d3c", "clip_norm": POLICY["clip_norm"], "noise_multiplier": POLICY["noise_multiplier"]}
    releases = [Release(round=number, time="2026-03-02T09:14:05+00:00", **release) for number in range(count)]
    path = kit / "local" / "fdg_privacy" / "ledger.json"
    write_checked_json(path, LedgerContent(site=kit.name, releases=tuple(releases)).model_dump(mode="json"))
    return path


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's hospital after its first study; commands run in the folder above it."""
    folder = tmp_path / "hospital"
    (folder / "local").mkdir(parents=True)
    (folder / "local" / "fdg_privacy.json").write_text(json.dumps(POLICY))
    enter(folder, 40)
    monkeypatch.chdir(tmp_path)
    return Path("hospital")


def test_the_worked_example_prints_what_the_page_says(kit: Path) -> None:
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    asked = [re.split(r"^\$ fdg (.*)\n", block, flags=re.MULTILINE)[1:] for block in blocks]
    pairs = [pair for parts in asked for pair in zip(parts[::2], parts[1::2], strict=True)]
    assert len(pairs) == 3
    for command, printed in pairs:
        assert CliRunner().invoke(app, command.split()).stdout == printed, command


def test_the_budget_ends_after_the_rounds_and_with_the_sentence_of_the_page(kit: Path) -> None:
    ledger = Ledger(enter(kit, 119), kit.name)
    ledger.spend("0f6f0d3c", 119, Limits(**POLICY))
    with pytest.raises(BudgetSpentError) as refused:
        ledger.spend("0f6f0d3c", 120, Limits(**POLICY))
    assert f"    {refused.value}\n" in PAGE


def test_every_column_of_the_export_is_explained() -> None:
    section = PAGE.partition("| column | what |")[2].partition("\n\n")[0]
    explained = [name for line in section.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert sorted(explained) == sorted(FIELDS)

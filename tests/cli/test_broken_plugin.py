# SPDX-License-Identifier: Apache-2.0
"""An installed plug-in that cannot be loaded stands in the way of nothing but itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import check_refusal, fdg
from tests.conftest import forget_installed

pytestmark = pytest.mark.usefixtures("no_fdg_variables", "broken")


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed distribution whose method and data set are in a module that raises an error."""
    (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('of its own')", encoding="utf-8")
    info = tmp_path / "broken_plugin-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1\n", encoding="utf-8")
    groups = "[fdg_plugins.methods]\nodd = broken_plugin:METHOD\n[fdg_plugins.datasets]\nodd = broken_plugin:SET"
    (info / "entry_points.txt").write_text(groups, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    forget_installed()
    yield
    monkeypatch.undo()
    forget_installed()


def test_a_mistyped_method_is_told_as_such_and_its_own_says_why_it_cannot_be_had() -> None:
    for command in (("run",), ("sweep", "new", "--dry-run", "--methods")):
        result = fdg(*command, "fedomgx")
        check_refusal(result, "'fedomgx'", "did you mean 'fedomg'")
        assert "broken" not in result.stderr
    told = "method 'odd' of plug-in broken-plugin cannot be loaded: RuntimeError: of its own."
    check_refusal(fdg("run", "odd"), told)


def test_the_other_data_sets_are_listed_and_its_own_is_named() -> None:
    result = fdg("data", "list")
    assert result.exit_code == 0
    assert "pacs" in result.stdout
    assert result.stderr == (
        "left out: data set 'odd' of plug-in broken-plugin cannot be loaded: RuntimeError: of its own.\n"
    )

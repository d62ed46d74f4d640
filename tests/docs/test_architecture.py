# SPDX-License-Identifier: Apache-2.0
"""The tree on the architecture page is the package's: every room and every root module, each once."""

import re
from pathlib import Path

import fdg_plugins

PACKAGE = Path(fdg_plugins.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def entries_of_the_tree() -> list[str]:
    """Return the names in the page's tree, as they are written: ``core/``, ``errors.py``."""
    block = re.search(r"```\nfdg_plugins/\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    return re.findall(r"^  (\w+(?:/|\.py)) ", block[1], re.MULTILINE)


def rooms_and_root_modules() -> list[str]:
    """Return the packages and modules directly below ``fdg_plugins``."""
    rooms = [f"{init.parent.name}/" for init in PACKAGE.glob("*/__init__.py")]
    return rooms + [path.name for path in PACKAGE.glob("*.py") if path.name != "__init__.py"]


def test_the_tree_names_every_room_and_root_module_once_and_nothing_else() -> None:
    assert sorted(entries_of_the_tree()) == sorted(rooms_and_root_modules())

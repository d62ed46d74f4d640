# SPDX-License-Identifier: Apache-2.0
"""Imports point one way: from the command line down to the mathematics, imports inside functions included."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fdg_plugins.plugins.composition import published
from tests.source_trees import nodes

# Low to high. A module imports from its own room and from rows below its own, never from its own row's other rooms.
ROWS = (
    ("fdg_plugins", "errors", "randomness"),
    ("storage",),
    ("core",),
    ("plugins",),
    ("tasks",),
    ("data",),
    ("models",),
    ("settings",),
    ("messages",),
    ("flare",),
    ("objectives",),
    ("aggregators",),
    ("methods",),
    ("state",),
    ("record",),
    ("training",),
    ("privacy",),
    ("filters",),
    ("plans", "audit"),
    ("executors", "controllers", "client"),
    ("server",),  # one class path for operators, nothing else
    ("recipes",),
    ("testing",),
    ("lab", "lab.preparation"),
    ("lab.centralised",),
    ("lab.sweep",),
    ("lab.poc",),
    ("lab.engine",),
    ("lab.analysis",),
    ("lab.doctor",),
    ("cli",),
)
RANK = {room: row for row, rooms in enumerate(ROWS) for room in rooms}


def _module_of(path: Path) -> str:
    parts = ("fdg_plugins", *path.with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def _room_of(module: str) -> str:
    """Return the room of a module; the wing ``lab`` has rooms of its own."""
    _, _, inner = module.partition(".")
    return ".".join(inner.split(".")[: 2 if inner.startswith("lab.") else 1]) or module


@cache
def modules() -> dict[str, list[ast.AST]]:
    return {_module_of(path): found for path, found in nodes(ast.Import, ast.ImportFrom, ast.ClassDef).items()}


def _imports(found: list[ast.AST]) -> Iterator[str]:
    """Yield the modules of the package that a module imports, anywhere in it."""
    for node in found:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("fdg_plugins"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fdg_plugins"):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules() else str(node.module) for name in names)


def test_no_module_imports_upward() -> None:
    upward = {
        (module.removeprefix("fdg_plugins."), imported)
        for module, found in modules().items()
        for imported in _imports(found)
        if (here := _room_of(module)) != (there := _room_of(imported)) and RANK[here] <= RANK[there]
    }
    assert upward == set()


def test_a_method_takes_from_another_methods_file_only_what_it_extends() -> None:
    keys = set(published())
    assert len(keys) >= 24
    taken = {
        (module.removeprefix("fdg_plugins."), name)
        for module, found in modules().items()
        if (own := module.rpartition(".")[2]) in keys
        for name in _names_from_other_methods(found, keys - {own})
    }
    assert taken == set()


def _names_from_other_methods(found: list[ast.AST], others: set[str]) -> set[str]:
    """Return the names imported from the files of ``others``, except the base classes of the module's classes."""
    imported = {
        alias.name
        for node in found
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] in others
        for alias in node.names
    }
    bases = {
        base.id for node in found if isinstance(node, ast.ClassDef) for base in node.bases if isinstance(base, ast.Name)
    }
    return imported - bases

# SPDX-License-Identifier: Apache-2.0
"""The package's source, parsed once for all tests that read it."""

import ast
from functools import cache
from pathlib import Path

import fdg_plugins

PACKAGE = Path(fdg_plugins.__file__).parent


@cache
def nodes(*kinds: type[ast.AST]) -> dict[Path, list[ast.AST]]:
    """Return the nodes of some kinds in each module, by its path in the package, in the order of :func:`ast.walk`."""
    return {path: [node for node in found if isinstance(node, kinds)] for path, found in _nodes().items()}


@cache
def _nodes() -> dict[Path, list[ast.AST]]:
    kept = (ast.Import, ast.ImportFrom, ast.Call, ast.ClassDef)
    return {
        path.relative_to(PACKAGE): [
            one for one in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(one, kept)
        ]
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def imported(node: ast.AST) -> list[str]:
    """Return the modules that an import names in full; none for another node or a relative import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []

# SPDX-License-Identifier: Apache-2.0
"""Nothing outside ``tasks/`` knows what classification is judged by: the package's source is searched for it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import fdg_plugins

ROOT = Path(fdg_plugins.__file__).parent
WORDS = ("accuracy", "accuracies", "cross_entropy")


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Yield every name that a module defines, imports, takes or reads."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.alias(name=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name


def found_in(source: str) -> set[str]:
    return {name for name in identifiers(ast.parse(source)) if any(word in name.lower() for word in WORDS)}


def test_no_module_outside_tasks_names_the_loss_or_score_of_classification() -> None:
    modules = [path for path in sorted(ROOT.rglob("*.py")) if path.relative_to(ROOT).parts[0] != "tasks"]
    assert len(modules) > 200
    found = {
        (str(path.relative_to(ROOT)), name) for path in modules for name in found_in(path.read_text(encoding="utf-8"))
    }
    assert found == set()
    assert found_in((ROOT / "tasks" / "classification.py").read_text(encoding="utf-8")) >= {"cross_entropy", "ACCURACY"}

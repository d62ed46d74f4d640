# SPDX-License-Identifier: Apache-2.0
"""Measures what the suite protects: changes the package in random places, and counts the changes that tests find.

First the tests that reach each line, then the mutants, in a copy of the repository:

    nox -s coverage -- --cov-context=test
    python tests/mutants.py --number 150

A mutant changes one comparison, operator, constant or condition; a method's record, which is text, has none. It is
found if one of at most ``MOST_TESTS`` of the tests that reach its line fails, or does not end in time.
"""

import argparse
import ast
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import coverage

ROOT = Path(__file__).parents[1]
ROOMS = (
    *("core", "methods", "objectives", "aggregators", "filters"),
    *("privacy", "controllers", "executors", "record", "data"),
)
MOST_TESTS = 40
TIMEOUT_S = 240
PAIRS: tuple[tuple[type[ast.AST], type[ast.AST]], ...] = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)),
    *((ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.And, ast.Or)),
)
SWAPS = dict(PAIRS) | {other: one for one, other in PAIRS}


@dataclass(frozen=True)
class Mutant:
    """One change: the ``place``-th node of a module that can be changed, on a line."""

    path: Path
    place: int
    line: int

    @property
    def source(self) -> str:
        """The module with the change."""
        tree = ast.parse((ROOT / self.path).read_text(encoding="utf-8"))
        change(list(changeable(tree))[self.place])
        return ast.unparse(tree)


def changeable(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the nodes that :func:`change` changes, in the order of the tree; annotations are none of them."""
    records = {id(node) for record in ast.walk(tree) if _is_record(record) for node in ast.walk(record)}
    for node in (node for node in ast.walk(tree) if id(node) not in records):
        if isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp):
            operator = node.ops[0] if isinstance(node, ast.Compare) else node.op
            if type(operator) in SWAPS and not _is_annotation(node):
                yield node
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            yield node


def _is_record(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Method"


def _is_annotation(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)


def change(node: ast.expr) -> None:
    """Change a node in place: another operator, the opposite truth, the next number."""
    if isinstance(node, ast.Compare):
        node.ops[0] = SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]


def mutants(number: int, seed: int) -> list[Mutant]:
    """Return ``number`` mutants, equally many of each room that there is."""
    generator = random.Random(seed)
    rooms = [room for room in ROOMS if (ROOT / "fdg_plugins" / room).is_dir()]
    found = []
    for position, room in enumerate(rooms):
        places = [
            Mutant(path.relative_to(ROOT), place, node.lineno)
            for path in sorted((ROOT / "fdg_plugins" / room).rglob("*.py"))
            for place, node in enumerate(changeable(ast.parse(path.read_text(encoding="utf-8"))))
        ]
        share = number // len(rooms) + (position < number % len(rooms))
        found += generator.sample(places, min(share, len(places)))
    return found


def reaching(data: coverage.CoverageData, mutant: Mutant) -> list[str]:
    """Return the tests that reach a mutant's line: those named like its module first, then others in random order."""
    contexts = data.contexts_by_lineno(str(ROOT / mutant.path)).get(mutant.line, [])
    tests = sorted({context.partition("|")[0] for context in contexts if context})
    random.Random(mutant.line).shuffle(tests)
    near = {mutant.path.stem, mutant.path.parent.name}
    return sorted(tests, key=lambda test: not any(name in test for name in near))[:MOST_TESTS]


def is_found(copy: Path, mutant: Mutant, tests: list[str]) -> bool:
    """Run the tests on the mutant in the copy; return whether one fails or takes too long."""
    path = copy / mutant.path
    original = path.read_text(encoding="utf-8")
    path.write_text(mutant.source, encoding="utf-8")
    try:
        return _code_of(copy, tests) != 0
    finally:
        path.write_text(original, encoding="utf-8")


def _code_of(copy: Path, tests: list[str]) -> int:
    """Return pytest's exit code in a child process, which has this one's imports: torch and FLARE load but once."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(copy)
        sys.path.insert(0, str(copy))
        os.environ["PYTHONPATH"] = str(copy)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        import pytest

        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:cov", "-p", "no:xdist", *tests])))
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def main() -> None:
    """Print each mutant with its fate, and the share found of each room."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--coverage", type=Path, default=ROOT / ".coverage")
    asked = parser.parse_args()
    data = coverage.CoverageData(str(asked.coverage))
    data.read()
    import nvflare.apis.dxo
    import pytest
    import torch

    print(f"torch {torch.__version__}, pytest {pytest.__version__}, {nvflare.__name__}")  # noqa: T201
    found: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "build", ".*_cache"))
        for mutant in mutants(asked.number, asked.seed):
            tests = reaching(data, mutant)
            is_hit = bool(tests) and is_found(copy, mutant, tests)
            room = mutant.path.parts[1]
            tried[room] += 1
            found[room] += is_hit
            fate = "found" if is_hit else "survived" if tests else "not reached"
            print(f"{fate:12}{mutant.path}:{mutant.line} ({len(tests)} tests)", flush=True)  # noqa: T201
    for room, number in tried.items():
        print(f"{room:14}{found[room]:4} of {number}")  # noqa: T201
    print(f"{'all':14}{found.total():4} of {tried.total()}")  # noqa: T201


if __name__ == "__main__":
    main()

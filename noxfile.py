# SPDX-License-Identifier: Apache-2.0
"""What a maintainer runs now and then, and CI at night: ``nox --list`` names it, ``nox -s dist`` runs one session.

``generate``, ``nightly`` and ``coverage`` use the environment in which nox runs, such as that of ``make test``. The
others make one of their own.
"""

import os
from pathlib import Path

import nox

nox.options.sessions = []
QUICK = "not slow and not federation and not nightly"
PYTEST = ("python", "-m", "pytest", "--numprocesses", os.environ.get("WORKERS", "2"))
BY_FILE = ("--dist", "loadfile")
# Tests and simulators start hundreds of processes; without compiled files, each would compile the package anew.
WRITES_BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}


@nox.session(venv_backend="none")
def generate(session: nox.Session) -> None:
    """Write anew what follows from the code and is committed: the README's list, the picture of a round, jobs/."""
    for name in ("make_method_pages", "make_data_flow"):
        session.run("python", f"docs/{name}.py")
    session.run("python", "-c", 'from fdg_plugins.recipes import export_jobs; export_jobs("jobs")')


@nox.session(venv_backend="none")
def nightly(session: nox.Session) -> None:
    """Run the tests of which there are many alike, in simulators and federations."""
    session.run(*PYTEST, "-m", "nightly and not federation", env=WRITES_BYTECODE)
    session.run(*PYTEST, *BY_FILE, "-m", "federation and nightly", env=WRITES_BYTECODE)


@nox.session(venv_backend="none")
def coverage(session: nox.Session) -> None:
    """Print which lines and branches the quick tests reach."""
    reports = (
        "--cov=fdg_plugins",
        "--cov-branch",
        "--cov-report=term:skip-covered",
        "--cov-report=xml:build/coverage.xml",
    )
    session.run(*PYTEST, *BY_FILE, "-m", QUICK, *reports, *session.posargs, env=WRITES_BYTECODE)


@nox.session(venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """Run the quick tests with the lowest versions of the dependencies; those that need an extra skip themselves."""
    tests = ("pytest>=8", "pytest-xdist>=3.8", "hypothesis>=6.120")
    session.install("--resolution", "lowest-direct", "--editable", ".[lab]", *tests)
    session.run(*PYTEST, *BY_FILE, "-m", QUICK, env=WRITES_BYTECODE)


@nox.session(venv_backend="uv")
def newest(session: nox.Session) -> None:
    """Run the quick tests with the newest versions of the dependencies, in random order."""
    session.install("--upgrade", "--editable", ".[dev]", "pytest-randomly", "pip")  # tests install a plug-in by pip
    session.run(*PYTEST, *BY_FILE, "-m", QUICK, env=WRITES_BYTECODE)


@nox.session(venv_backend="uv")
def next_flare(session: nox.Session) -> None:
    """Run the quick tests and those of federations with FLARE's newest pre-release, whatever this package admits."""
    session.install("--editable", ".[dev]", "pip", "--constraint", "constraints.txt")
    session.install("--upgrade", "--prerelease", "allow", "--no-deps", "nvflare")
    session.run(*PYTEST, *BY_FILE, "-m", QUICK, env=WRITES_BYTECODE)
    session.run(*PYTEST, *BY_FILE, "-m", "federation and not nightly", env=WRITES_BYTECODE)


@nox.session(venv_backend="uv")
def trackers(session: nox.Session) -> None:
    """Run the tests of MLflow and Weights & Biases, which want an older gunicorn than the constraints have."""
    session.install("--editable", ".[test]", "mlflow>=2.16", "wandb>=0.19")
    session.run("python", "-m", "pytest", "tests/flare/test_trackers.py", env=WRITES_BYTECODE)


@nox.session
def dist(session: nox.Session) -> None:
    """Build wheel and source archive, and check what an index would show of them."""
    session.install("--constraint", "constraints.txt", "build", "twine")
    for old in Path("dist").glob("*"):
        old.unlink()
    session.run("python", "-m", "build", "--outdir", "dist")
    session.run("twine", "check", "--strict", *map(str, Path("dist").glob("*")))

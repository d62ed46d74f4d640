# SPDX-License-Identifier: Apache-2.0
"""What FLARE's process at a site loads for our components: torch and little else.

In FLARE's simulator with fewer threads than sites every task has a process of its own, and in a federation FLARE's
process at a site stands beside the one that trains: what is imported here is paid again and again.
"""

import json
import sys
from functools import cache

import pytest

from fdg_plugins.flare.components import SITE, components
from tests.processes import printed_by

SPINS = "GOMP_SPINCOUNT"
HEAVY = (
    *("torchvision", "torch._dynamo", "torch._inductor", "sympy", "cvxpy", "scipy", "sklearn", "PIL", "monai"),
    *("matplotlib", "tensorboard", "typer", "rich", "nvflare.recipe"),
)
# What only the process that works at a site, or the server, needs.
OTHERS = ("data", "models", "methods", "aggregators", "controllers", "recipes", "analysis", "cli", "executors.session")
WORKING = "executors.training_process, fdg_plugins.training.session"
MODULES = sorted({component.path.rpartition(".")[0] for component in components() if SITE in component.ends})


def last_line(code: str, **environment: str) -> str:
    return printed_by(sys.executable, "-c", code, **environment).splitlines()[-1]


@cache
def loaded_by(code: str) -> set[str]:
    """Return the names of all modules that a new interpreter has loaded after ``code``."""
    return set(json.loads(last_line(f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))")))


@pytest.mark.slow
def test_the_components_of_a_site_load_nothing_heavy_and_torch_only_after_ours() -> None:
    """Our package sets how long torch's threads wait, which torch reads when it is loaded."""
    code = (
        "import sys, nvflare.private.fed.app.simulator.simulator_worker, nvflare.private.fed.app.client.worker_process"
    )
    code += "\nimport fdg_plugins\nassert 'torch' not in sys.modules\n"
    code += "\n".join(f"import {module}" for module in MODULES)
    loaded = loaded_by(f"{code}\nfdg_plugins.executors.SiteExecutor()")
    assert {"torch", "fdg_plugins.executors.site", "fdg_plugins.filters.privacy", *MODULES} <= loaded
    assert not {*HEAVY, *(f"fdg_plugins.{package}" for package in OTHERS)} & loaded


@pytest.mark.slow
@pytest.mark.parametrize("ours", [WORKING, "controllers"])
def test_only_who_opens_digits_or_builds_a_resnet_loads_torchvision_and_who_works_no_solver(ours: str) -> None:
    loaded = loaded_by(f"import fdg_plugins.{ours}")
    assert not {"torchvision", "torch._dynamo", "sympy"} & loaded
    if ours == WORKING:
        assert {"fdg_plugins.data", "fdg_plugins.models", "fdg_plugins.objectives"} <= loaded
        assert not {"cvxpy", "fdg_plugins.controllers", "fdg_plugins.aggregators", "nvflare.recipe"} & loaded


@pytest.mark.slow
def test_threads_of_arithmetic_soon_sleep_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = f"import fdg_plugins.executors, os; print(os.environ[{SPINS!r}])"
    monkeypatch.delenv(SPINS, raising=False)
    assert last_line(lines) == "1000"
    assert last_line(lines, **{SPINS: "7"}) == "7"

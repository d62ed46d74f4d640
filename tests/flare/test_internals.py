# SPDX-License-Identifier: Apache-2.0
"""FLARE's internals are touched in one room, and all are declared."""

import ast
import inspect
import itertools
from importlib import import_module
from operator import attrgetter

import pytest
from nvflare.apis.fl_context import FLContext

from fdg_plugins.flare import internals
from fdg_plugins.flare.context import scope_filters
from fdg_plugins.flare.internals import INTERNALS, InternalsError
from tests.source_trees import imported, nodes

MOST = 50
# What FLARE documents for those who write components, recipes and tools.
PUBLIC = (
    *("nvflare.apis", "nvflare.app_common", "nvflare.app_opt", "nvflare.recipe", "nvflare.job_config"),
    *("nvflare.fuel.utils", "nvflare.fuel.flare_api", "nvflare.fuel_opt.statsd", "nvflare.client"),
    "nvflare.lighter.spec",
)


def is_there(module: str, name: str) -> bool:
    """Return whether FLARE has an internal, or sets it on instances."""
    owner, _, last = name.rpartition(".")
    found = attrgetter(owner)(import_module(module)) if owner else import_module(module)
    kinds = getattr(found, "__mro__", (object,))[:-1]
    return hasattr(found, last) or any(f"self.{last}" in inspect.getsource(kind) for kind in kinds)


def test_the_installed_flare_has_the_few_things_that_this_package_relies_on() -> None:
    names = [pair for names in INTERNALS.values() for pair in names]
    assert [name for module, name in names if not is_there(module, name)] == []
    assert len(names) <= MOST


def test_what_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(internals._MODULES, "PrivacyService.get_scope", "nvflare.gone")
    with pytest.raises(InternalsError, match=r"`nvflare\.gone\.PrivacyService\.get_scope`") as caught:
        scope_filters(FLContext())  # what guards a site refuses
    assert caught.value.public == str(caught.value)


def test_nothing_outside_the_room_imports_what_flare_does_not_promise() -> None:
    foreign = [
        f"{path}: {name}"
        for path, found in nodes(ast.Import, ast.ImportFrom).items()
        for name in itertools.chain(*map(imported, found))
        if name.split(".")[0] == "nvflare" and not name.startswith(PUBLIC)
    ]
    assert foreign == []

# SPDX-License-Identifier: Apache-2.0
"""FLARE's internals are touched in one room, all declared, and each that is gone is said in one sentence."""

import ast
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import nvflare
import pytest
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

import fdg_plugins
from fdg_plugins.flare.disk_offload import tensors_in_files
from fdg_plugins.flare.filter_chain import result_filters, scope_filters
from fdg_plugins.flare.internals import (
    ERRORS,
    FILTERS,
    INTERNALS,
    OFFLOAD,
    ORIGIN,
    SCOPES,
    SIMULATOR,
    STATS,
    Internal,
    InternalsError,
    fetch,
    problem_of,
    require,
)
from fdg_plugins.flare.origin import FetchedTasks
from fdg_plugins.flare.simulator import in_simulator
from fdg_plugins.flare.stats import answer_stats
from fdg_plugins.flare.workflow import pass_on_error_replies

PACKAGE = Path(fdg_plugins.__file__).parent
# What FLARE documents for those who write components, recipes and tools.
PUBLIC = (
    *("nvflare.apis", "nvflare.app_common", "nvflare.app_opt", "nvflare.recipe", "nvflare.job_config"),
    *("nvflare.fuel.utils", "nvflare.fuel.flare_api", "nvflare.fuel_opt.statsd", "nvflare.client"),
    "nvflare.lighter.spec",
)


def test_the_installed_flare_has_all_that_this_package_relies_on() -> None:
    assert [text for one in INTERNALS if (text := problem_of(one)) is not None] == []


@pytest.mark.parametrize(
    ("internal", "what"),
    [
        (Internal("this", "nvflare.private.no_such_module", "Class.attribute"), "is gone"),
        (Internal("this", "nvflare.private.defs", "NoSuchClass.TRY_AGAIN"), "is gone"),
        (Internal("this", "nvflare.private.defs", "SpecialTaskName.NO_SUCH_NAME"), "is gone"),
        (
            Internal("this", "nvflare.private.privacy_manager", "PrivacyService.get_scope", ("name", "x")),
            "does not take x",
        ),
        (
            Internal("this", "nvflare.private.defs", "SpecialTaskName.END_RUN", (), "other"),
            "is '__end_run__', expected 'other'",
        ),
    ],
)
def test_what_is_gone_or_changed_is_one_sentence(internal: Internal, what: str) -> None:
    path = f"{internal.module}.{internal.name}"
    assert problem_of(internal) == f"FLARE {nvflare.__version__}: `{path}`, which this needs, {what}."


# --- at run time ---


def test_require_and_fetch_raise_the_sentence_which_may_be_told(without: Callable[[str], None]) -> None:
    require(SCOPES)
    without(SCOPES)
    for call in (lambda: require(SCOPES), lambda: fetch(SCOPES, "PrivacyService.get_scope")):
        with pytest.raises(InternalsError, match=r"`nvflare\.gone\.PrivacyService\.get_scope`.*is gone") as caught:
            call()
        assert caught.value.public == str(caught.value)


def test_what_guards_a_site_refuses(without: Callable[[str], None]) -> None:
    without(SCOPES)
    with pytest.raises(InternalsError):
        scope_filters(FLContext())
    without(ORIGIN)
    with pytest.raises(InternalsError):
        FetchedTasks().take(None, "train", Shareable(), FLContext())
    without(OFFLOAD)
    with pytest.raises(InternalsError), tensors_in_files(None, True, "job"):
        pass


def test_what_is_a_convenience_is_done_without(without: Callable[[str], None]) -> None:
    fl_ctx = FLContext()
    fl_ctx.set_prop(FLContextKey.RUNNER, SimpleNamespace(task_result_filters={}))
    fl_ctx.set_prop(FLContextKey.TASK_NAME, "train")
    assert result_filters(fl_ctx) == []
    without(FILTERS)
    assert result_filters(fl_ctx) is None
    without(SIMULATOR)
    assert not in_simulator(fl_ctx)
    without(STATS)
    answer_stats("group", dict, "any event", fl_ctx)
    runner = SimpleNamespace()
    without(ERRORS)
    assert "is gone" in str(pass_on_error_replies(runner))
    assert vars(runner) == {}


# --- one room ---


def _imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.append(node.module or "")
    return found


def test_nothing_outside_the_room_imports_what_flare_does_not_promise() -> None:
    foreign = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in _imports(path)
        if name.split(".")[0] == "nvflare" and not name.startswith(PUBLIC)
    ]
    assert foreign == []

# SPDX-License-Identifier: Apache-2.0
"""Public components meet hostile job configs: nothing is opened, started, unpickled, evaluated or imported by them.

An audit hook cannot be taken away again, so the walks run in a process of their own: this module, run as a script.
"""

import ast
import importlib
import importlib.util
import inspect
import json
import math
import pkgutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer

import fdg_plugins
from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS, UpdateAggregator
from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.flare.components import SERVER, SITE, class_paths, components
from fdg_plugins.flare.kits import read_kit
from fdg_plugins.objectives import OBJECTIVES
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.registry import registries as plugged_in
from fdg_plugins.record.method_settings import federated_name
from fdg_plugins.record.round_record import Method
from tests.cli.kits import make_kit
from tests.processes import printed_by
from tests.source_trees import imported, nodes

SOURCES, ROOT = Path(fdg_plugins.__file__).parent, Path(__file__).parents[2]

# Events of CPython's audit hook, by their beginning, that no constructor may cause.
FORBIDDEN_IN_CONSTRUCTORS = (
    *("open", "os.", "shutil.", "glob.", "pathlib.", "tempfile.", "mmap."),
    *("socket.", "urllib.", "http.", "ftplib.", "smtplib.", "subprocess.", "pty.", "webbrowser.", "signal."),
    *("exec", "compile", "import", "pickle.", "marshal.", "ctypes.", "code.", "sqlite3.", "cpython.run"),
)
TEXTS = (
    *("", " ", "\x00", "a" * 100_000, "nan", "-1", "null", "{", "{}", '{"name": "ga", "step_size": "x"}'),
    *("/etc/passwd", "../../../etc/passwd", "~/.ssh/id_rsa", "C:\\x", "/dev/stdin", "{WORKSPACE}/x", "{$HOME}"),
    *("http://127.0.0.1:9/model.pt", "file:///etc/passwd", "s3://bucket/key", "\\\\host\\share"),
    *("__import__('os').system('true')", "lambda: 0", "os.system", "fdg_plugins.storage.Path", "builtins.eval"),
    *("${jndi:ldap://x}", "!!python/object/apply:os.system [true]", "cos\nsystem\n(S'true'\ntR."),
)
NUMBERS = (0, -1, 1, 2**31, 2**64, 10**400, -(10**400), 0.5, -0.0, 1e308, 1e-320, math.nan, math.inf, -math.inf, 1j)
OTHERS: tuple[Any, ...] = (
    *(None, True, False, b"\x80\x04.", [], {}, (), set(), [[]], [None]),
    *(object(), Exception("x"), len, type),
)
NAMES = (
    *("/etc/passwd", "os.system", "fedomg", "ga", "uniform", "erm", "pacs", "resnet18"),
    *("proto", "patchnet", "blocks"),
)


def _nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"name": value}
    return value


def hostile_values() -> list[Any]:
    """Return what the author of a job might write, or a programme make of it."""
    wrapped: list[Any] = []
    for text in NAMES:
        wrapped += [
            [text],
            {"name": text},
            {"name": text, "args": {"path": "/etc/passwd"}},
            {"name": {"name": text}},
            {"path": text, "args": {"command": "true"}},
            {"class_path": text},
            {text: text, 1: 2, None: []},
            {"name": text, "weighting": {"name": text, "weighting": _nested(5)}, "kappa": 10**400},
        ]
    return [*TEXTS, *NUMBERS, *OTHERS, *wrapped, _nested(50), _nested(500)]


# Modules that only a run with this tracker imports, with a package of an extra that takes seconds to import.
OF_AN_EXTRA = ("fdg_plugins.flare.mlflow_receiver", "fdg_plugins.flare.wandb_receiver")


def modules() -> list[str]:
    """Return the names of all modules of the package, without those of an extra."""
    found = [module.name for module in pkgutil.walk_packages(fdg_plugins.__path__, "fdg_plugins.")]
    return ["fdg_plugins", *(name for name in found if name not in OF_AN_EXTRA)]


def component_classes() -> list[type[Any]]:
    """Return every class of the package that FLARE can use as a component, listed or not, and that can be built."""
    found: dict[str, type[Any]] = {}
    for module in map(importlib.import_module, modules()):
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and value.__module__.startswith("fdg_plugins")
                and issubclass(value, FLComponent)
            ):
                found[f"{value.__module__}.{value.__qualname__}"] = value
    return [found[name] for name in sorted(found) if not inspect.isabstract(found[name])]


def registries() -> dict[str, Callable[[Any], Any]]:
    """Return what reads a job's names and settings once the run has begun."""
    from fdg_plugins.aggregators import make_aggregator, make_weighting
    from fdg_plugins.data import dataset_spec
    from fdg_plugins.models import NETWORKS
    from fdg_plugins.objectives import make_objective
    from fdg_plugins.plans import make_plans
    from fdg_plugins.settings.protocol import Protocol

    rule = make_aggregator("fedavg")
    plans = {
        f"make_plans(protocol.{field})": lambda value, field=field: make_plans({field: value}, {}, {}, rule)
        for field in Protocol.model_fields
    }
    return {
        "make_aggregator": make_aggregator,
        "make_weighting": make_weighting,
        "make_objective": make_objective,
        "dataset_spec": dataset_spec,
        "NETWORKS.get": NETWORKS.get,
        "make_plans(protocol)": lambda value: make_plans(value, {}, {}, rule),
        "make_plans(stand_in_protocol)": lambda value: make_plans({}, value, {}, rule),
        **plans,
    }


def _record(forbidden: tuple[str, ...]) -> list[str]:
    """Start to record forbidden events; the list grows from now on, for the rest of the process."""
    events: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(forbidden):
            caller = sys._getframe(1)
            events.append(f"{event} {str(arguments)[:80]} at {caller.f_code.co_filename}:{caller.f_lineno}")

    sys.addaudithook(hook)
    return events


def _calls(classes: list[type[Any]]) -> Iterator[tuple[str, Callable[[], Any], tuple[type[BaseException], ...]]]:
    """Yield what to call, under which name, and the errors that it may raise."""
    values = hostile_values()
    refusals = (SettingsError, TypeError)
    for cls in classes:
        make: Callable[..., Any] = cls
        parameters = [
            name
            for name, one in inspect.signature(cls.__init__).parameters.items()
            if name != "self" and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ]
        for value in values:
            choices = [{name: value} for name in (*parameters, "no_such_argument")]
            choices.append(dict.fromkeys(parameters, value))
            for arguments in choices:
                yield f"{cls.__name__}({', '.join(arguments)})", partial(make, **arguments), refusals
    for name, function in registries().items():
        for value in values:
            yield name, partial(function, value), (FDGError, TypeError)


def method_classes() -> list[type[Any]]:
    """Return the classes of every method, those of installed plug-ins among them."""
    for registry in plugged_in():  # loading is not constructing, and it reads what is installed
        registry.all()
    found = [cls for names in (AGGREGATORS, WEIGHTINGS, OBJECTIVES) for cls in names.values()]
    return [cls for cls in found if not cls.__module__.startswith("fdg_plugins.")]


def walk_constructors() -> dict[str, Any]:
    """Call everything with every hostile value; return how often, and what went wrong."""
    classes = [*component_classes(), *method_classes()]
    calls = list(_calls(classes))
    events = _record(FORBIDDEN_IN_CONSTRUCTORS)
    problems: dict[str, str] = {}
    for name, call, refusals in calls:
        seen = len(events)
        try:
            call()
        except refusals:
            pass
        except Exception as error:  # noqa: BLE001 - any other error is what the walk looks for
            problems.setdefault(f"{name} raised {type(error).__name__}", str(error)[:200])
        for event in events[seen:]:
            problems.setdefault(f"{name} caused {event.split(' ')[0]}", event)
    return {"classes": [cls.__name__ for cls in classes], "calls": len(calls), "problems": problems}


@pytest.mark.slow
def test_constructors_and_registries_do_nothing_with_hostile_settings_but_refuse_them(example_plugin: Path) -> None:
    module, path = "tests.flare.test_components", str(example_plugin)
    answer = json.loads(printed_by(sys.executable, "-m", module, folder=ROOT, PYTHONPATH=path).splitlines()[-1])
    assert "FedProtoObjective" in answer["classes"]
    assert answer["problems"] == {}
    assert answer["calls"] > 15_000
    listed = {component.path.rpartition(".")[2] for component in components() if component.path.startswith("fdg_")}
    assert listed <= set(answer["classes"])


def test_every_component_on_the_list_is_one_and_every_component_is_on_the_list() -> None:
    listed = {}
    for component in components():
        module, _, name = component.path.rpartition(".")
        listed[component.path] = getattr(importlib.import_module(module), name)
    assert all(isinstance(value, type) and issubclass(value, FLComponent) for value in listed.values())
    exported = {
        cls
        for cls in component_classes()
        if cls.__name__ in getattr(importlib.import_module(".".join(cls.__module__.split(".")[:2])), "__all__", ())
        or (cls.__module__.startswith("fdg_plugins.methods.") and issubclass(cls, UpdateAggregator))
    }
    assert exported == {value for path, value in listed.items() if path.startswith("fdg_plugins.")}


FORBIDDEN_MODULES = {
    *("pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "subprocess", "pty"),
    *("socket", "socketserver", "ssl", "urllib.request", "http", "requests", "httpx", "aiohttp", "ftplib", "smtplib"),
}
# The pipe to the site's own training process, to which nobody else can write. And what a
# person runs on a machine of their own, with no component near it: the runs of a sweep, the federation of
# fdg poc.
ALLOWED_IN = {
    "executors/training_process.py": {"pickle"},
    "lab/sweep/run.py": {"subprocess"},
    "lab/poc/processes.py": {"socket", "subprocess"},
    "lab/poc/kits.py": {"subprocess"},
}
FORBIDDEN_CALLS = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.startfile", "torch.hub.load"),
    *("torch.hub.load_state_dict_from_url", "torch.hub.download_url_to_file", "load_state_dict_from_url"),
}


def _with_parents(module: str) -> set[str]:
    parts = module.split(".")
    return {".".join(parts[: end + 1]) for end in range(len(parts))}


def forbidden_in(path: Path, found: list[ast.AST]) -> Iterator[str]:
    """Yield what a module imports or calls that none may."""
    allowed = ALLOWED_IN.get(path.as_posix(), set())
    forbidden = FORBIDDEN_MODULES - allowed
    for node in found:
        yield from {name for module in imported(node) for name in _with_parents(module)} & forbidden
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            keywords = {word.arg: ast.unparse(word.value) for word in node.keywords}
            if called not in allowed and (
                called in FORBIDDEN_CALLS
                or called.startswith(("os.exec", "os.spawn", "os.posix_spawn"))
                or (called == "torch.load" and keywords.get("weights_only") != "True")
                or (called in ("np.load", "numpy.load") and keywords.get("allow_pickle", "False") != "False")
            ):
                yield f"{called} in line {node.lineno}"


def test_no_module_unpickles_evaluates_connects_or_starts_processes() -> None:
    read = nodes(ast.Import, ast.ImportFrom, ast.Call)
    assert {
        str(path): wrong
        for path, found in read.items()
        if path.parts[0] != "cli" and (wrong := list(forbidden_in(path, found)))
    } == {}


@pytest.mark.parametrize("end", [SERVER, SITE])
def test_the_allow_list_of_a_kit_builds_nothing_else(tmp_path: Path, end: str) -> None:
    entries, file = read_kit(make_kit(tmp_path / "kit", end, {})).least_list(), tmp_path / "resources.json"
    file.write_text(json.dumps({"class_allow_list": entries}), encoding="utf-8")
    authorizer, site = ComponentPathAuthorizer(), SimpleNamespace(get_resources_file_path=lambda: str(file))

    def is_allowed(path: str) -> bool:
        try:
            authorizer.authorize_component_config({"path": path}, workspace=site)
        except UnsafeComponentError:
            return False
        return True

    paths = {
        f"{name}.{attribute}"
        for name in modules()
        for attribute, value in vars(importlib.import_module(name)).items()
        if callable(value) and not attribute.startswith("__")
    }
    assert {"fdg_plugins.version", "fdg_plugins.storage.Path", "fdg_plugins.storage.write_bytes"} <= paths
    assert set(filter(is_allowed, paths)) == {path for path in entries if path.startswith("fdg_plugins.")}


@pytest.mark.usefixtures("installed")
def test_what_a_run_looks_up_loads_no_plug_in_that_no_one_named() -> None:
    for end in (SERVER, SITE):
        class_paths(end)
    assert federated_name(Method(aggregator="FedOMGAggregator", settings={}, objective={"name": "dim"})) == "fedomg+dim"
    own = {record.key for record in METHODS.own().values()}
    assert {record.key for record in METHODS.loaded()} == own < set(METHODS.names())


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(walk_constructors())}\n")

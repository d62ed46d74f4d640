# SPDX-License-Identifier: Apache-2.0
"""The classes that a plug-in's method names: settings, defaults and names that would go wrong later are refused."""

import re
from pathlib import Path

import pytest

from fdg_plugins.aggregators import make_aggregator, make_weighting
from fdg_plugins.errors import SettingsError
from fdg_plugins.objectives import make_objective
from fdg_plugins.plugins.files import load_file
from fdg_plugins.recipes import make_recipe
from fdg_plugins.settings.protocol import Protocol

FILE = """
from dataclasses import dataclass
from typing import ClassVar

import torch

from fdg_plugins.aggregators import Weighting
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.objectives import Objective
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.methods.feddim import FedDIMObjective
from fdg_plugins.plugins.method import Default, Leaving, Method, Reference, SettingSource
from fdg_plugins.values import check_number


class XWeighting(Weighting):

    def __init__(self, power: float = 1.0) -> None:
        self.power = power

    def __call__(self, contributions, round_of=None):
        return torch.full((len(contributions),), 1 / len(contributions), dtype=torch.float64)


class XAggregator(FedAvgAggregator):
    pass


@dataclass(frozen=True)
class XObjective(Objective):
    name: ClassVar[str] = "xm"
    strength: float = 1.0

    def __post_init__(self):
        check_number("strength", self.strength)

    def local(self, received, model, site=None):
        return LocalRisk()

{code}

METHOD = Method(
    key="fedxm",
    part="xm",
    title="FedXM",
    line="of a test",
    reference=Reference(authors="us", title="ours", venue="here", year=2026),
    {given},
)
"""

WEIGHTING = "acts=('weighting',), weighting=XWeighting"
AGGREGATOR = "acts=('direction',), aggregator=XAggregator"
OBJECTIVE = "acts=('objective',), objective=XObjective"


def load(folder: Path, given: str, code: str = "") -> None:
    (folder / "own.py").write_text(FILE.replace("{code}", code).replace("{given}", given), encoding="utf-8")
    load_file(folder / "own.py")


@pytest.mark.parametrize("given", [WEIGHTING, AGGREGATOR, OBJECTIVE])
def test_a_plug_in_that_keeps_the_contract_is_taken(tmp_path: Path, given: str) -> None:
    load(tmp_path, given)
    assert make_recipe("fedxm", "pacs").name == "pacs_fedxm"


def weighting(parameters: str, body: str = "pass") -> str:
    return f"class Y(XWeighting):\n    def __init__(self, {parameters}):\n        super().__init__()\n        {body}\n"


def aggregator(parameters: str, body: str = "pass") -> str:
    return f"class Y(XAggregator):\n    def __init__(self, {parameters}):\n        {body}\n        super().__init__()\n"


def objective(fields: str, decorator: str = "@dataclass(frozen=True)") -> str:
    return f"{decorator}\nclass Y(XObjective):\n    {fields}\n"


WY, AY, OY = (text.rpartition("=")[0] + "=Y" for text in (WEIGHTING, AGGREGATOR, OBJECTIVE))


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (
            OY,
            objective("momentum: float = 0.5"),
            "objective Y of method 'fedxm' has the setting 'momentum', which a job has as one of the protocol, "
            "expected another name.",
        ),
        (
            OY,
            objective("server_lr: float = 0.5"),
            "objective Y of method 'fedxm' has the setting 'server_lr', which a job has as one of the aggregator, "
            "expected another name.",
        ),
        (
            WY,
            weighting("weighting='x'", "self.weighting = weighting"),
            "weighting Y of method 'fedxm' has the setting 'weighting', which a job has as one of the aggregator, "
            "expected another name.",
        ),
        (
            WY,
            weighting("name='x'", "self.name = name"),
            "weighting Y of method 'fedxm' has the setting 'name', which a job has as the name of the class, expected "
            "another name.",
        ),
        (
            AY,
            aggregator("rounds=3", "self.rounds = rounds"),
            "aggregator Y of method 'fedxm' has the setting 'rounds', which a job has as one of the protocol, expected "
            "another name.",
        ),
        (
            OY,
            objective("name: ClassVar[str] = 'other'"),
            "objective Y of method 'fedxm' has the name 'other', expected 'xm', which is the method's as a part.",
        ),
        (
            OY,
            objective("power: float = 0.5", decorator=""),
            "objective Y of method 'fedxm': Y is no dataclass, expected one, whose fields are its settings.",
        ),
        (
            OY,
            objective("def __init__(self, power=0.5): pass", decorator=""),
            "objective Y of method 'fedxm': Y is no dataclass, expected one, whose fields are its settings.",
        ),
        (
            OY,
            objective("strength: float = -1.0"),
            "objective Y of method 'fedxm' cannot be made with its own defaults: strength is -1.0, expected a finite "
            "number of at least 0.",
        ),
        (
            AY,
            aggregator("bound=1.0", "self.limit = bound"),
            "aggregator Y of method 'fedxm' does not keep its parameter 'bound', expected an attribute of that name, a "
            "job's setting.",
        ),
        (
            AY,
            aggregator("clip=1.0", "self.clip = clip"),
            "aggregator Y of method 'fedxm' has the setting 'clip', which is a method of its class, expected another "
            "name.",
        ),
        (
            AY,
            aggregator("**settings"),
            "aggregator Y of method 'fedxm' takes **settings, expected parameters with names: they are its settings.",
        ),
        (
            WY,
            weighting("*powers"),
            "weighting Y of method 'fedxm' takes *powers, expected parameters with names: they are its settings.",
        ),
        (
            "acts=('weighting',), weighting=XWeighting, aggregator=XAggregator",
            "",
            "aggregator XAggregator of method 'fedxm' weighs by 'samples' and never calls the method's weighting, "
            "expected one that sets its weighting to 'xm', or a record without one of both.",
        ),
        (
            WEIGHTING + ", protocol=('gap_splitt',)",
            "",
            "protocol of method 'fedxm' has 'gap_splitt', expected settings of the protocol; did you mean 'gap_split'?",
        ),
        (
            WEIGHTING + ", defaults=(Default(protocol={'momentun': 0.0}, source='ours'),)",
            "",
            "defaults of method 'fedxm' has 'momentun', expected settings of the protocol; did you mean 'momentum'?",
        ),
        (
            WEIGHTING + ", settings=(SettingSource(name='pwoer', paper='1'),)",
            "",
            "settings of method 'fedxm' has the source of 'pwoer', expected one of a setting that it has; did you mean "
            "'power'?",
        ),
    ],
)
def test_what_would_go_wrong_later_is_refused_before_it_is_used(
    tmp_path: Path, given: str, code: str, message: str
) -> None:
    load(tmp_path, given, code)
    for _ in range(2):
        with pytest.raises(SettingsError, match=rf"^{re.escape(message)}$") as refused:
            make_recipe("fedxm", "pacs")
        assert re.fullmatch(r"\w+ '\w+' is brought by a plug-in that cannot be used here\.", refused.value.public)


def test_a_weighting_that_its_aggregator_sets_runs_in_the_method_and_beside_another_direction(tmp_path: Path) -> None:
    code = (
        "class Y(XAggregator):\n    def _validate(self):\n        self.weighting = 'xm'\n        super()._validate()\n"
    )
    load(tmp_path, "acts=('weighting',), weighting=XWeighting, aggregator=Y", code)
    for method in ("fedxm", "fedomg+xm"):
        assert make_recipe(method, "pacs").name.startswith("pacs_")
    assert type(make_aggregator("fedxm").rule()).__name__ == "XWeighting"


def test_sources_may_name_settings_of_the_protocol_and_of_every_aggregator(tmp_path: Path) -> None:
    sources = ", ".join(f"SettingSource(name={name!r})" for name in ("power", "server_lr", "weighting", "gap_split"))
    load(tmp_path, f"{WEIGHTING}, settings=({sources})")
    assert vars(make_weighting("xm")) == {"power": 1.0}


def test_a_setting_that_a_class_of_this_package_has_may_be_inherited(tmp_path: Path) -> None:
    assert "target" in Protocol.model_fields
    code = "@dataclass(frozen=True)\nclass Y(FedDIMObjective):\n    name: ClassVar[str] = 'xm'\n"
    leaving = "Leaving(what='means', shape='[Y, D]', reveals='means', report='class_means')"
    load(tmp_path, f"{OY}, leaves=({leaving},)", code)
    assert vars(make_objective("xm"))["target"] == "insight"

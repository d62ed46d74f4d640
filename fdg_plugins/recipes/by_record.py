# SPDX-License-Identifier: Apache-2.0
"""The recipe of each published method, a class made from the method's record: its name, docstring and signature."""

from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar

from fdg_plugins.filters import GapReportFilter
from fdg_plugins.messages import REPORT_GAP
from fdg_plugins.plugins.method import Method, SettingSource
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.plugins.target import load_target
from fdg_plugins.recipes.recipe import FDGRecipe
from fdg_plugins.recipes.settings import METRIC
from fdg_plugins.settings.protocol import Protocol

# Arguments of FDGRecipe that take precedence over a method's setting of the same name.
_TAKEN = {"dataset", "sites", "name", *Protocol.model_fields}


class MethodRecipe(FDGRecipe):
    """The base of the classes made from records: :class:`FDGRecipe` without its first argument.

    Args:
        dataset: the data set, by name or by description.
        settings: as in :class:`FDGRecipe`.
    """

    record: ClassVar[Method]

    def __init__(self, dataset: DatasetRef = "pacs", **settings: Any) -> None:
        super().__init__(type(self).record.key, dataset, **settings)


_MADE: dict[str, type[MethodRecipe]] = {}


def recipe_of(record: Method) -> type[MethodRecipe]:
    """Return the recipe class of a method, always the same object; its signature names the method's own settings."""
    made = _MADE.get(record.key)
    if made is None or made.record is not record:
        own = own_settings(record)
        body = {
            "__doc__": _docstring(record, own),
            "__module__": __name__.rpartition(".")[0],
            "__signature__": _signature(own),
            "record": record,
        }
        made = _MADE[record.key] = type(record.recipe_name, (MethodRecipe,), body)
    return made


def find_recipe(name: str) -> type[MethodRecipe] | None:
    """Return the recipe class called ``name``: of this package's methods, else of a plug-in's; None if none exists."""
    for records in (METHODS.own().values, METHODS.all):
        for record in records():
            if record.recipe_name == name:
                return recipe_of(record)
    return None


def recipe_names() -> list[str]:
    """Return the names of the recipes of this package's own methods, in the order of tables."""
    return [record.recipe_name for record in METHODS.own().values()]


def own_settings(record: Method) -> dict[str, Any]:
    """Return the settings that a method adds to the protocol: a map from flat name to type annotation.

    These are the settings of the classes that the record names. Those of FedAvg's step also apply to other methods.
    """
    classes = _classes_of(record)
    kinds: dict[str, Any] = {}
    for class_ in classes:
        kinds |= _annotations(class_) | kinds  # a name that several share belongs to the first
    if any(getattr(class_, "shares", None) == REPORT_GAP for class_ in classes):
        kinds[METRIC] = _annotations(GapReportFilter)[METRIC]  # whether more is better, the task's record says
    return {name: kind for name, kind in kinds.items() if name not in _TAKEN}


def _classes_of(record: Method) -> list[Any]:
    """Return the classes that the record names."""
    return [load_target(one) for one in (record.aggregator, record.weighting, record.objective) if one is not None]


def _annotations(callable_: Callable[..., Any]) -> dict[str, Any]:
    if callable_.__init__ is object.__init__:  # type: ignore[comparison-overlap]
        return {}
    return {name: one.annotation for name, one in signature(callable_).parameters.items()}


def _signature(own: Mapping[str, Any]) -> Signature:
    named = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind | None) for name, kind in own.items()
    ]
    dataset = Parameter("dataset", Parameter.POSITIONAL_OR_KEYWORD, default="pacs", annotation=str)
    others = Parameter("settings", Parameter.VAR_KEYWORD, annotation=Any)
    return Signature([dataset, *named, others], return_annotation=None)


def _docstring(record: Method, own: Mapping[str, Any]) -> str:
    sources = {source.name: source for source in record.settings}
    paper = f"{record.reference.authors}, {record.reference.venue} {record.reference.year}"
    lines = [f"    {name}: {'; '.join(_said(sources.get(name)))}." for name in own]
    return "\n".join(
        [
            f"{record.title} ({paper}): {record.line}.",
            "",
            "Args:",
            "    dataset: the data set, by name.",
            *lines,
            "    settings: as in :class:`~fdg_plugins.recipes.FDGRecipe`.",
        ]
    )


def _said(source: SettingSource | None) -> Iterator[str]:
    """Yield the known facts about a setting: its symbol, its meaning, and the values in the paper and the code."""
    if source is None:
        yield "a setting of the method's classes"
        return
    facts = (("", source.symbol), ("", source.remark), ("paper: ", source.paper), ("code: ", source.code))
    for heading, fact in facts:
        if fact is not None:
            yield f"{heading}{fact}"

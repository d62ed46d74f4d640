# SPDX-License-Identifier: Apache-2.0
"""A site's calls of its objective, which may be a plug-in's: what it raises names it, what it returns is checked.

Names of its tensors are for the site's own log: a plug-in can make them of its images' names.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from fdg_plugins.calling import calling
from fdg_plugins.errors import SettingsError
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import FeatureBatch, LocalObjective, Objective, PersonalModel, SiteRound, Trained
from fdg_plugins.training.judging import Report
from fdg_plugins.values import counted, shorten

Tensors = Mapping[str, torch.Tensor]


def local_objective(
    objective: Objective, received: Tensors, model: ExtractorClassifier, site: SiteRound
) -> LocalObjective:
    """Return the loss and the step for one round; raise ``SettingsError`` if the objective returns something else."""
    with calling("objective", objective):
        found = objective.local(received, model, site)
    if not isinstance(found, LocalObjective):
        raise _wrong(objective, "local", found, "a LocalObjective")
    return found


def own_model(objective: Objective, model: ExtractorClassifier, received: Tensors, site: SiteRound) -> PersonalModel:
    """Return the site's own model; raise ``SettingsError`` for something else, and to tune what the model lacks."""
    with calling("objective", objective):
        found = objective.personal(model, received, site)
    if not isinstance(found, PersonalModel):
        raise _wrong(objective, "personal", found, "a PersonalModel")
    if (tuning := found.tuning) is not None:
        if isinstance(tuning.parameters, str):
            raise _wrong(objective, "personal: parameters", tuning.parameters, "a tuple of names")
        if unknown := sorted(set(tuning.parameters) - {name for name, _ in model.named_parameters()}):
            tunes, expected = f"objective {type(objective).__name__}: personal tunes", "expected names of parameters"
            public = f"{tunes} {counted(len(unknown), 'unknown tensor')}, {expected} of the model."
            raise SettingsError(f"{tunes} {shorten(unknown[0])}, {expected} of the model.", public=public)
    return found


def reporting(objective: Objective, report: Report) -> Report:
    """Return ``report``, a method of the objective, with its calls named and its tensors checked."""

    def checked(model: ExtractorClassifier, seen: Iterable[FeatureBatch], num_classes: int) -> dict[str, torch.Tensor]:
        with calling("objective", objective):
            found = report(model, seen, num_classes)
        return _declared(objective, report.__name__, found)

    return checked


def report_of(objective: Objective, local: LocalObjective, trained: Trained) -> dict[str, torch.Tensor]:
    """Return what the site reports about its training."""
    with calling("objective", local):
        found = local.report(trained)
    return _declared(objective, "report", found)


def memory_of(objective: Objective, local: LocalObjective, trained: Trained) -> dict[str, torch.Tensor]:
    """Return what the site keeps for its next round."""
    with calling("objective", local):
        found = local.memory(trained)
    return _tensors(objective, "memory", found)


def _declared(objective: Objective, what: str, found: Any) -> dict[str, torch.Tensor]:
    """Return a report's tensors; raise ``SettingsError`` for some that no administrator could allow or forbid."""
    tensors = _tensors(objective, what, found)
    if tensors and objective.report is None:
        returned = f"objective {type(objective).__name__}: {what} returned"
        expected = (
            "but the objective names no report, expected the name that its method declares as its class variable "
            "'report'."
        )
        public = f"{returned} {counted(len(tensors), 'tensor')}, {expected}"
        raise SettingsError(f"{returned} {shorten(next(iter(tensors)))}, {expected}", public=public)
    return tensors


def _tensors(objective: Objective, what: str, found: Any) -> dict[str, torch.Tensor]:
    if not isinstance(found, Mapping):
        raise _wrong(objective, what, found, "tensors by name")
    for name, value in found.items():
        if not isinstance(value, torch.Tensor):
            raise _wrong(objective, what, value, "a tensor", f" for {shorten(name)}")
    return dict(found)


def _wrong(objective: Objective, what: str, found: Any, expected: str, private: str = "") -> SettingsError:
    """Return the error; ``private``: what its text, but not that for the server, adds."""
    came = "nothing" if found is None else f"a {type(found).__name__}"
    text = f"objective {type(objective).__name__}: {what} returned {came}, expected {expected}"
    return SettingsError(f"{text}{private}.", public=f"{text}.")

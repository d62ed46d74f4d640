# SPDX-License-Identifier: Apache-2.0
"""The models that a run kept beside its record."""

from typing import NamedTuple

import torch

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import build_network
from fdg_plugins.record.run_files import LAST_FILE, SELECTED_FILE
from fdg_plugins.storage import load_tensors


class Chosen(NamedTuple):
    """The global model that a selection rule chose, and the round after which it was chosen."""

    rule: str
    after_round: int
    state: dict[str, torch.Tensor]


def empty_model(run: Run) -> ExtractorClassifier:
    """Return the run's network, into which its models are loaded."""
    return build_network(run.record.protocol, len(run.record.classes))


def global_model(run: Run, rule: str) -> Chosen:
    """Return the global model that a selection rule chose.

    Raises ``SettingsError`` for a rule whose model the run does not keep, and ``DataError`` if the file is missing,
    unreadable or of another network, or has a name that no run gives: a record may come from elsewhere.
    """
    files = {choice.rule: (choice.after_round, choice.file) for choice in run.record.choices if choice.file}
    if rule not in files:
        expected = f"one whose model run {run.folder} kept: {', '.join(files) or 'none'}"
        raise SettingsError(field="selection", value=rule, expected=expected)
    after_round, name = files[rule]
    if name not in (LAST_FILE, SELECTED_FILE):
        expected = f"{LAST_FILE} or {SELECTED_FILE}"
        raise DataError(field=f"the model of run {run.folder}", value=name, expected=expected)
    file = run.folder / name
    if not file.is_file():
        raise DataError(f"run {run.folder} kept no {name}; expected it beside the record (a sweep: --keep-models).")
    state = load_tensors(file)
    expected_shapes = {name: tuple(value.shape) for name, value in empty_model(run).state_dict().items()}
    found = {name: tuple(value.shape) for name, value in state.items()}
    if found != expected_shapes:
        name = min(set(expected_shapes.items()) ^ set(found.items()))[0]
        raise DataError(
            f"file {file} does not hold {run.record.protocol.model}: parameter {name!r} has shape {found.get(name)}, "
            f"expected {expected_shapes.get(name)}."
        )
    return Chosen(rule, after_round, state)

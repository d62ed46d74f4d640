# SPDX-License-Identifier: Apache-2.0
"""From an algorithm, a data set and flat settings to one centralised run, with every name and value checked.

Network, images and splits are those of the federated runs on the same data (``settings.families``, and the protocol
``quick`` of ``settings.named_protocols``). Optimizer and number of steps are DomainBed's, and so are rate and batches
for images with a class: Gulrajani, Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021. For images with
masks, which DomainBed does not have, rate and batches are those of the federated runs. Images have the shape
``[B, C, S, S]``: B is ``batch_size`` per domain, S ``image_size``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from fdg_plugins.data import dataset_spec
from fdg_plugins.data.specs import DatasetSpec
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.centralised.algorithm import Algorithm
from fdg_plugins.lab.centralised.annealing import AnnealedPenalty
from fdg_plugins.lab.centralised.catalogue import algorithm_settings, make_algorithm
from fdg_plugins.lab.centralised.schedule import (
    ADAM,
    DOMAINBED_STEPS,
    SCHEDULE_SETTINGS,
    SHARED_SETTINGS,
    Schedule,
)
from fdg_plugins.naming import did_you_mean, perhaps
from fdg_plugins.plans.plans import make_plans
from fdg_plugins.plugins.own_dataset import DatasetRef, plain_dataset
from fdg_plugins.settings.families import FAMILIES, SEGMENTATION, dataset_protocol
from fdg_plugins.settings.named_protocols import PAPER, QUICK, protocol_settings
from fdg_plugins.settings.protocol import SGD, Protocol
from fdg_plugins.tasks import TASKS

LEAST_BATCH = 2  # IRM halves a domain's batch, and BatchNorm cannot train on one image

_OF_SGD = ("learning_rate", "momentum", "weight_decay")
_SETTINGS = (*SHARED_SETTINGS, "batch_size", *_OF_SGD)
_OF_ADAM = ("learning_rate", "weight_decay")
# DomainBed: one rate and size for photographs, one for digits, which are the families by channels.
_DOMAINBED: Mapping[str, Mapping[str, Any]] = {
    "photographs": {"learning_rate": 5e-5, "batch_size": 32},
    "digits": {"learning_rate": 1e-3, "batch_size": 64},
}
# Ours, for the stand-in and the quick protocol: so few steps, mostly from random weights, need a larger rate.
_SHORT: Mapping[str, Any] = {"steps": 300, "checkpoint_every": 30, "learning_rate": 1e-3}


class _Kept(NamedTuple):
    """The settings that a run takes from DomainBed or the data set's record, from the federated protocol, and from the
    short schedule."""

    steps: tuple[str, ...]
    shared: tuple[str, ...]
    short: tuple[str, ...]


_KEPT_BY_ADAM = _Kept((*_OF_SGD, "batch_size"), SHARED_SETTINGS, tuple(_SHORT))
_KEPT_BY_SGD = _Kept(("batch_size",), (*SHARED_SETTINGS, *_OF_SGD), SCHEDULE_SETTINGS)
_OPTIONS = {"dataset": "--dataset", "target": "--target", "seed": "--seed"}


class Plan(NamedTuple):
    """One centralised run, checked: the algorithm, the schedule, and the protocol with all values in force.

    In ``protocol``, a round stands for the steps up to one checkpoint.
    """

    algorithm: Algorithm
    schedule: Schedule
    protocol: Protocol

    def settings(self) -> dict[str, Any]:
        """Return the settings of schedule and algorithm by name, as the record stores them."""
        return {**asdict(self.schedule), **self.algorithm.settings()}


def setting_names(algorithm: str) -> tuple[str, ...]:
    """Return the names of all settings of a run of ``algorithm``: its own, the schedule's, and those of the protocol.

    Raises ``SettingsError`` for an unknown algorithm.
    """
    return tuple(dict.fromkeys([*algorithm_settings(algorithm), *SCHEDULE_SETTINGS, *_SETTINGS]))


def make_plan(
    algorithm: str,
    dataset: DatasetRef,
    target: str,
    seed: int,
    given: Mapping[str, Any] | None = None,
    *,
    protocol: str = PAPER,
    stand_in: bool = False,
) -> Plan:
    """Return the checked plan of one run.

    Args:
        algorithm: a name in ``ALGORITHMS``.
        dataset: a name of a data set.
        target: the held-out domain; all other domains are sources.
        seed: the seed of the run.
        given: settings by name that override the defaults.
        protocol: ``"paper"`` or ``"quick"``, the source of the defaults.
        stand_in: whether the data are the stand-in, which has shorter defaults.

    A warm-up that is not given keeps DomainBed's share of the total steps. Raises ``SettingsError``, with one sentence,
    for an unknown name, a value out of range, or settings that contradict each other.
    """
    own, chosen = algorithm_settings(algorithm), dict(given or {})
    _refuse_unknown(chosen, setting_names(algorithm), algorithm)
    _check_names(protocol, dataset, target)
    values = {**_defaults(dataset, chosen.get("optimizer", ADAM), quick=protocol == QUICK, stand_in=stand_in), **chosen}
    schedule = Schedule(**_only(values, SCHEDULE_SETTINGS))
    if "warm_up" in own and "warm_up" not in chosen:
        values["warm_up"] = round(own["warm_up"] * schedule.steps / DOMAINBED_STEPS)
    made = make_algorithm(algorithm, _only(values, own))
    fixed: dict[str, Any] = {"rounds": schedule.checkpoints, "local_epochs": 1, "lr_decay_factor": 1.0}
    fixed |= {"optimizer": schedule.optimizer, "task": dataset_spec(dataset).task}
    where = {"dataset": plain_dataset(dataset), "target": target, "seed": seed}
    checked = make_plans({**where, **fixed, **_only(values, _SETTINGS)}, {}, {}, []).real.protocol
    _check(made, schedule, checked)
    return Plan(made, schedule, checked)


def _check_names(protocol: str, dataset: DatasetRef, target: str) -> None:
    """Raise ``SettingsError`` for a protocol, a data set or a domain of it that is unknown."""
    if protocol not in (known := (PAPER, QUICK)):
        raise SettingsError(f"protocol is {protocol!r}, expected one of {', '.join(known)}.")
    spec = dataset_spec(dataset)
    if target not in spec.domains:
        raise SettingsError(
            f"target is {target!r}, expected a domain of {spec.name}: {', '.join(spec.domains)}"
            f"{perhaps(target, spec.domains)}"
        )


def _defaults(dataset: DatasetRef, optimizer: Any, *, quick: bool, stand_in: bool) -> dict[str, Any]:
    """Return the default settings of a run; later layers override earlier ones.

    The layers are the values for a step (for SGD only the batch size), those shared with the federated protocol, the
    short schedule, the stand-in's, and those of the quick protocol.
    """
    kept = _kept_of(optimizer)
    steps = {"momentum": 0.0, "weight_decay": 0.0, **_of_steps(dataset_spec(dataset))}
    values = _only(steps, kept.steps) | _only(dataset_protocol(dataset).protocol, kept.shared)
    if quick or stand_in:
        values |= _of_short_run(dataset, kept, quick=quick, stand_in=stand_in)
    return values


def _kept_of(optimizer: Any) -> _Kept:
    return _KEPT_BY_SGD if optimizer == SGD else _KEPT_BY_ADAM


def _of_steps(spec: DatasetSpec) -> dict[str, Any]:
    """Return learning rate and batch size for Adam: DomainBed's, for masks the family's, and the record's own last."""
    base = FAMILIES[SEGMENTATION].protocol if SEGMENTATION in spec.families else _DOMAINBED[spec.families[0]]
    return _only(base, ("learning_rate", "batch_size")) | _of_record(spec)


def _of_record(spec: DatasetSpec) -> dict[str, Any]:
    """Return what the data set's own record says of steps with Adam; a learning rate for SGD says nothing of them."""
    general = FAMILIES[SEGMENTATION].protocol if SEGMENTATION in spec.families else {}
    optimizer = {**general, **spec.protocol}.get("optimizer", SGD)
    return _only(spec.protocol, ("batch_size", *(_OF_ADAM if optimizer != SGD else ())))


def _of_short_run(dataset: DatasetRef, kept: _Kept, *, quick: bool, stand_in: bool) -> dict[str, Any]:
    """Return what a run of few steps has otherwise, the quick protocol's values last."""
    values = _only({**_SHORT, **_only(_of_record(dataset_spec(dataset)), ("learning_rate",))}, kept.short)
    if stand_in:
        values |= _only(dataset_protocol(dataset).stand_in, kept.shared)
    if quick:
        values |= _only(protocol_settings(QUICK, dataset), (*kept.shared, "batch_size"))
    return values


def _only(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def _check(algorithm: Algorithm, schedule: Schedule, protocol: Protocol) -> None:
    """Raise ``SettingsError`` for values that are each in range but contradict each other."""
    if protocol.batch_size < LEAST_BATCH:
        raise SettingsError(f"batch_size is {protocol.batch_size}, expected at least {LEAST_BATCH} images per domain.")
    _check_momentum(schedule, protocol)
    _check_task(algorithm, protocol)
    _check_warm_up(algorithm, schedule)


def _check_momentum(schedule: Schedule, protocol: Protocol) -> None:
    if schedule.optimizer != SGD and protocol.momentum:
        raise SettingsError(
            f"momentum is {protocol.momentum:g}, expected 0: it is a setting of the optimizer {SGD!r}, not of "
            f"{schedule.optimizer!r}."
        )


def _check_task(algorithm: Algorithm, protocol: Protocol) -> None:
    if algorithm.needs_labelled_images and not TASKS.get(protocol.task).one_class_per_image:
        raise SettingsError(
            f"algorithm {algorithm.name!r} needs one class per image, which the task {protocol.task!r} does not have."
        )


def _check_warm_up(algorithm: Algorithm, schedule: Schedule) -> None:
    if isinstance(algorithm, AnnealedPenalty) and algorithm.strength and algorithm.warm_up >= schedule.steps:
        raise SettingsError(
            f"warm_up is {algorithm.warm_up} of {schedule.steps} steps, expected less: the strength "
            f"{algorithm.strength:g} would never apply."
        )


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...], algorithm: str) -> None:
    for name in given:
        if name in _OPTIONS:
            raise SettingsError(f"{name} is not a setting of a centralised run, expected it as {_OPTIONS[name]}.")
        if name not in known:
            hint = did_you_mean(name, known)
            raise SettingsError(f"a centralised run of {algorithm!r} has no setting {name!r}; {hint}")

# SPDX-License-Identifier: Apache-2.0
"""From an algorithm, a data set and flat settings to one centralised run, with every name and value checked.

Network, images and splits are those of the federated runs on the same data (``settings.defaults``, and the protocol
``quick`` of ``settings.protocols``). Optimizer and number of steps are DomainBed's, and so are rate and batches
for images with a class: Gulrajani, Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021. For images with
masks, which DomainBed does not have, rate and batches are those of the federated runs. Images have the shape
``[B, C, S, S]``: B is ``batch_size`` per domain, S ``image_size``. Sites that train alone have all settings of FedAvg.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError, check_choice, did_you_mean
from fdg_plugins.lab.centralised import ALGORITHMS, algorithm_settings, make_algorithm
from fdg_plugins.lab.centralised.algorithm import MOST_STEPS, Algorithm, AnnealedPenalty
from fdg_plugins.plans import job_settings, make_plans
from fdg_plugins.plugins.composition import BASE, parse_method
from fdg_plugins.plugins.fields import check_fields, check_value
from fdg_plugins.plugins.files import files_behind, load_files
from fdg_plugins.plugins.own_dataset import DatasetRef, plain_dataset, read_own_dataset
from fdg_plugins.settings.defaults import protocol_settings
from fdg_plugins.settings.protocol import LARGEST_BATCH, SGD, Protocol
from fdg_plugins.settings.protocols import FAMILIES, PAPER, QUICK, SEGMENTATION
from fdg_plugins.storage import read_json, write_bytes, write_json
from fdg_plugins.tasks import TASKS

DOMAINBED_STEPS = 5001
Steps = Annotated[int, Field(ge=1, le=MOST_STEPS)]
LEAST_BATCH = 2  # IRM halves a domain's batch, and BatchNorm cannot train on one image
PLAN_FILE = "plan.json"
CUSTOM = Path("app_server", "custom")  # as in a job: the plug-in files that a plan uses

# The settings of a protocol that determine model and images are shared by both kinds of runs; the others are not.
SHARED_SETTINGS = (
    *("model", "head", "normalization", "trainable", "adapter_rank", "pretrained", "image_size", "crop_scale"),
    *("color_jitter", "preset", "max_samples_per_domain", "precision", "channels_last", "scores", "selected_by"),
)
# Of a protocol, what a run is asked for otherwise, and what no site that trains alone has.
_NOT_ALONE = {"dataset", "target", "task", "seed", "plugins", "objective"}
_OF_SGD = ("learning_rate", "momentum", "weight_decay")
# DomainBed: one rate and size for photographs, one for digits, which are the families by channels.
_DOMAINBED: Mapping[str, Mapping[str, Any]] = {
    "photographs": {"learning_rate": 5e-5, "batch_size": 32},
    "digits": {"learning_rate": 1e-3, "batch_size": 64},
}
# Ours, for the stand-in and the quick protocol: so few steps, mostly from random weights, need a larger rate.
_SHORT: Mapping[str, Any] = {"steps": 300, "checkpoint_every": 30, "learning_rate": 1e-3}


@dataclass(frozen=True)
class Schedule:
    """Optimizer, number of steps and distance of checkpoints; a step takes one batch of every source domain.

    Args:
        optimizer: ``"adam"`` (DomainBed), ``"adamw"``, or ``"sgd"`` with the learning rate, momentum and weight decay
            of the federated runs.
        steps: total number of steps, each with one batch of every source domain. DomainBed: 5001.
        checkpoint_every: steps between two evaluations; the last interval may be shorter. DomainBed: 300 on PACS.
    """

    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    steps: Steps = DOMAINBED_STEPS
    checkpoint_every: Steps = 300

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def checkpoints(self) -> int:
        """The number of evaluations after that of the initial model: ``steps / checkpoint_every``, rounded up."""
        return -(-self.steps // self.checkpoint_every)

    def steps_of(self, checkpoint: int) -> int:
        """Return the number of steps between a checkpoint (counted from 1) and the previous one."""
        return min(self.checkpoint_every, self.steps - (checkpoint - 1) * self.checkpoint_every)


SCHEDULE_SETTINGS = tuple(field.name for field in fields(Schedule))


class Plan(NamedTuple):
    """One centralised run, checked: the algorithm, the schedule, and the protocol with all values in force.

    In ``protocol``, a round stands for the steps up to one checkpoint; of sites alone, the schedule counts rounds.
    """

    algorithm: Algorithm
    schedule: Schedule
    protocol: Protocol

    def settings(self) -> dict[str, Any]:
        """Return the settings of schedule and algorithm by name, as the record stores them."""
        return {**(asdict(self.schedule) if self.algorithm.pools else {}), **self.algorithm.settings()}


def setting_names(algorithm: str) -> tuple[str, ...]:
    """Return the names of all settings of a run of ``algorithm``."""
    own, of_protocol = algorithm_settings(algorithm), (*SHARED_SETTINGS, "batch_size", *_OF_SGD)
    if not ALGORITHMS[algorithm].pools:
        return tuple(name for name in Protocol.model_fields if name not in _NOT_ALONE)
    return tuple(dict.fromkeys([*own, *SCHEDULE_SETTINGS, *of_protocol]))


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
    """Return the checked plan of one run with seed ``seed``, in which all domains but ``target`` are sources.

    ``given`` overrides the defaults, which come from ``protocol``, for pooled data ``"paper"`` or ``"quick"``;
    ``stand_in`` has shorter ones. A warm-up that is not given keeps DomainBed's share of the total steps. Raises
    ``SettingsError`` for an unknown name, a value out of range, or settings that contradict each other.
    """
    own, chosen = algorithm_settings(algorithm), dict(given or {})
    known = setting_names(algorithm)
    if unknown := [name for name in chosen if name not in known]:
        hint = did_you_mean(unknown[0], known)
        raise SettingsError(f"a run of {algorithm!r} has no setting {unknown[0]!r}; {hint}", field=unknown[0])
    pools, sgd = ALGORITHMS[algorithm].pools, chosen.get("optimizer") == SGD
    if pools:
        check_choice("protocol", protocol, (PAPER, QUICK))
    base = parse_method(BASE)
    named = _only(protocol_settings(protocol, dataset, base), Protocol.model_fields)
    asked = {"optimizer": SGD} if pools and sgd else {} if pools else chosen
    plans = job_settings(base, dataset, {**named, **asked, "target": target, "seed": seed}).plans
    federated = (plans.stand_in if stand_in else plans.real).protocol
    if not pools:
        return Plan(make_algorithm(algorithm, {}), Schedule(federated.optimizer, federated.rounds, 1), federated)
    values = {**_defaults(federated, sgd=sgd, quick=protocol == QUICK, stand_in=stand_in), **chosen}
    schedule = Schedule(**_only(values, SCHEDULE_SETTINGS))
    if "warm_up" in own and "warm_up" not in chosen:
        values["warm_up"] = round(own["warm_up"] * schedule.steps / DOMAINBED_STEPS)
    made = make_algorithm(algorithm, _only(values, own))
    fixed: dict[str, Any] = {"rounds": schedule.checkpoints, "local_epochs": 1, "lr_decay_factor": 1.0}
    fixed |= {"optimizer": schedule.optimizer, "task": federated.task}
    where = {"dataset": plain_dataset(dataset), "target": target, "seed": seed}
    settings = _only(values, (*SHARED_SETTINGS, "batch_size", *_OF_SGD))
    checked = make_plans({**where, **fixed, **settings}, {}, {}, make_aggregator(BASE)).real.protocol
    _check(made, schedule, checked)
    return Plan(made, schedule, checked)


def _defaults(federated: Protocol, *, sgd: bool, quick: bool, stand_in: bool) -> dict[str, Any]:
    """Return the default settings of a run on pooled data beside FedAvg's on the same data; later layers win.

    Of the values for a step, SGD takes the batch size alone; rate and decay of SGD are the federated runs'.
    """
    spec = dataset_spec(federated.dataset)
    has_masks = SEGMENTATION in spec.families
    base = FAMILIES[SEGMENTATION].protocol if has_masks else _DOMAINBED[spec.families[0]]
    optimizer = spec.protocol.get("optimizer", base.get("optimizer", SGD))
    # What the data set's own record says of steps; a learning rate for SGD says nothing of those with Adam.
    recorded = _only(spec.protocol, ("batch_size", *(() if optimizer == SGD else ("learning_rate", "weight_decay"))))
    values = {"momentum": 0.0, "weight_decay": 0.0, **_only(base, ("learning_rate", "batch_size")), **recorded}
    if quick or stand_in:
        values |= {**_SHORT, **_only(recorded, ("learning_rate",))}
    if sgd:
        values = {name: value for name, value in values.items() if name not in _OF_SGD}
    values |= {name: getattr(federated, name) for name in (*SHARED_SETTINGS, *(_OF_SGD if sgd else ()))}
    return values | (_only(protocol_settings(QUICK, federated.dataset), ("batch_size",)) if quick else {})


def _only(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def _check(algorithm: Algorithm, schedule: Schedule, protocol: Protocol) -> None:
    """Raise ``SettingsError`` for values that are each in range but contradict each other."""
    check_value("batch_size", protocol.batch_size, Annotated[int, Field(ge=LEAST_BATCH, le=LARGEST_BATCH)])
    if algorithm.needs_labelled_images and not TASKS.get(protocol.task).one_class_per_image:
        expected = f"one of images with one class each, which the algorithm {algorithm.name!r} needs"
        raise SettingsError(field="task", value=protocol.task, expected=expected)
    if isinstance(algorithm, AnnealedPenalty) and algorithm.strength:  # which would else never apply
        check_value("warm_up", algorithm.warm_up, Annotated[int, Field(lt=schedule.steps)])


def write_plan(plan: Plan, job: Path) -> None:
    """Write all settings, as ``plan.json``, and the plug-in files that they name to the folder ``job``."""
    name, protocol = plan.algorithm.name, plan.protocol.model_dump(mode="json")
    values, files = {**protocol, **plan.settings()}, files_behind(plan.protocol.uses)
    content = {"algorithm": name, **_only(protocol, ("dataset", "target", "seed"))}
    content |= {"settings": _only(values, setting_names(name)), **({"plugins": [*files]} if files else {})}
    write_json(job / PLAN_FILE, content)
    for file in files.values():
        write_bytes(job / CUSTOM / file.name, file.read_bytes())


def read_plan(job: Path) -> Plan:
    """Return the plan in ``job``, whose plug-in files are then loaded."""
    content = read_json(job / PLAN_FILE)
    load_files(content.get("plugins", ()), job / CUSTOM)
    dataset, settings = content["dataset"], content["settings"]
    given = {name: "none" if value is None else value for name, value in settings.items()}  # None would be a default
    where = (dataset if isinstance(dataset, str) else read_own_dataset(dataset), content["target"], content["seed"])
    return make_plan(content["algorithm"], *where, given)

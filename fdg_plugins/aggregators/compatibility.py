# SPDX-License-Identifier: Apache-2.0
"""Whether the parts of a method go together and with the protocol, asked before any site is; and what sites report."""

from collections.abc import Iterator

from fdg_plugins.aggregators.base import UpdateAggregator
from fdg_plugins.core.travel import ALL, Rule
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError, shorten
from fdg_plugins.messages import REPORT_GAP, REPORT_TRAINING_LOSS
from fdg_plugins.objectives import Objective, build_network, fixed_names, make_objective, travel_rules
from fdg_plugins.plugins.reports import REPORT_LOCAL_MODEL
from fdg_plugins.settings.protocol import SGD, Protocol
from fdg_plugins.tasks import TASKS


def check_fit(protocol: Protocol, aggregator: UpdateAggregator) -> None:
    """Raise ``SettingsError`` for the first reason why protocol, objective and aggregator do not go together."""
    objective = make_objective(protocol.objective)
    for reason in _reasons(protocol, objective, aggregator):
        raise SettingsError(f"{reason}.")
    if protocol.travels != ALL or protocol.trainable != ALL:
        for reason in _of_travels(protocol, objective, aggregator):
            raise SettingsError(f"{reason}.")
    objective.check(protocol)


def _reasons(protocol: Protocol, objective: Objective, aggregator: UpdateAggregator) -> Iterator[str]:
    ours, rule, server = f"objective {objective.name!r}", aggregator.rule(), f"aggregator {type(aggregator).__name__}"
    if protocol.sites_per_round is not None and protocol.sites_per_round < protocol.min_sites:
        yield (
            f"sites_per_round (FDG_SITES_PER_ROUND) is {protocol.sites_per_round}, expected at least min_sites "
            f"(FDG_MIN_SITES), which is {protocol.min_sites}"
        )
    if rule.needs_reports and rule.shares not in (REPORT_GAP, objective.report):
        yield (
            f"{ours} does not send the report {rule.shares!r} from which the weights follow: expected the objective of "
            "the same method"
        )
    if rule.needs_training_loss and protocol.gap_split != "train":
        yield (
            f"gap_split (FDG_GAP_SPLIT) is {protocol.gap_split!r}, expected 'train': the weighting follows from the "
            "loss on the training split"
        )
    if objective.needs_labelled_images and not TASKS.get(protocol.task).one_class_per_image:
        yield f"{ours} needs one class per image, which the task {protocol.task!r} does not have"
    if objective.needs_flat_images and (dims := dataset_spec(protocol.dataset).dims) != 2:
        yield f"{ours} needs 2D images, and those of {protocol.dataset!r} are {dims}D"
    if protocol.enable_tensor_disk_offload and not aggregator.reads_parts:
        yield f"enable_tensor_disk_offload is true, expected false: {server} reads updates in memory only"
    yield from _of_steps(protocol, objective, aggregator)


def _of_steps(protocol: Protocol, objective: Objective, aggregator: UpdateAggregator) -> Iterator[str]:
    ours, server = f"objective {objective.name!r}", f"aggregator {type(aggregator).__name__}"
    if aggregator.reads_effective_steps and objective.changes_effective_steps:
        yield f"{ours} does not go with {server}, which divides by effective steps that are not those of its parameters"
    whose = ours if objective.reads_step_lengths else server if aggregator.reads_effective_steps else None
    if protocol.optimizer != SGD and protocol.momentum:
        yield (
            f"momentum (FDG_MOMENTUM) is {protocol.momentum:g}, expected 0: it is a setting of the optimizer {SGD!r}, "
            f"not of {protocol.optimizer!r}"
        )
    if protocol.optimizer != SGD and whose:
        yield (
            f"optimizer (FDG_OPTIMIZER) is {protocol.optimizer!r}, expected {SGD!r}: {whose} follows from the length "
            "of steps, which the learning rate determines only for SGD"
        )
    if protocol.keep_momentum and not protocol.momentum:
        yield "keep_momentum (FDG_KEEP_MOMENTUM) is true, expected false: momentum is 0, and nothing is kept"
    if protocol.keep_momentum and whose:
        yield (
            f"keep_momentum (FDG_KEEP_MOMENTUM) is true, expected false: {whose} follows from how far steps go, which "
            "is known of a momentum that starts at zero"
        )


def _of_travels(protocol: Protocol, objective: Objective, aggregator: UpdateAggregator) -> Iterator[str]:
    ours = f"objective {objective.name!r}"
    by_trainable = f"trainable (FDG_TRAINABLE) is {protocol.trainable!r}:"
    setting = f"travels (FDG_TRAVELS) is {shorten(protocol.travels)}:" if protocol.travels != ALL else by_trainable
    if objective.needs_shared == "everything":  # before a network is built that may not suit the objective at all
        yield f"{setting} {ours} needs all parameters to travel, expected 'all'"
    model = build_network(protocol, num_classes=2)  # any number will do, since only names matter
    rules = travel_rules(model, protocol)
    for part in objective.needs_trained:
        names = [name for name, _ in model.named_parameters() if name.startswith(f"{part}.")]
        if names and all(rules.of[name] is Rule.FROZEN for name in names):
            by = by_trainable if fixed_names(model, protocol).issuperset(names) else setting
            yield f"{by} {ours} trains the {part} on its own, expected one that trains some of its parameters"
    if not all(rules.of[name] is Rule.SHARED for name in model.head_names):
        for whose, needs in (
            (ours, objective.needs_shared == "head"),
            (f"aggregator {type(aggregator).__name__}", aggregator.needs_head),
        ):
            if needs:
                yield f"{setting} {whose} needs the whole head to travel"
    if protocol.keep_local_models and rules.names(Rule.PERSONAL):
        yield f"{setting} the server does not have the sites' own models, which keep_local_models needs"


def needed_reports(protocol: Protocol, aggregator: UpdateAggregator) -> dict[str, str]:
    """Return the reports that sites must send in addition to updates, each with the method's part that needs it."""
    objective = make_objective(protocol.objective)
    needed = {objective.report: f"objective {objective.name!r}"} if objective.report else {}
    if (shares := aggregator.rule().shares) is not None:
        needed[shares] = "the weighting"
    if protocol.gap_split == "train" and REPORT_GAP not in needed:  # whoever may know the gap may know its losses
        needed.setdefault(REPORT_TRAINING_LOSS, "gap_split 'train'")
    if protocol.keep_local_models:
        needed[REPORT_LOCAL_MODEL] = "keep_local_models"
    return needed

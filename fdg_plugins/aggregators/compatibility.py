# SPDX-License-Identifier: Apache-2.0
"""Whether the parts of a method go together and with the protocol, asked before any site is; and what sites report."""

from collections.abc import Iterator

from fdg_plugins.aggregators.base import UpdateAggregator
from fdg_plugins.core.travel import ALL, Rule
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import REPORT_GAP, REPORT_TRAINING_LOSS
from fdg_plugins.objectives import Objective, build_network, make_objective
from fdg_plugins.objectives.network import fixed_names, travel_rules
from fdg_plugins.plugins.reports import REPORT_LOCAL_MODEL
from fdg_plugins.settings.protocol import SGD, Protocol
from fdg_plugins.tasks import TASKS

Wrong = tuple[str, str]
"""A field of the protocol whose value does not fit, and what is expected of it."""


def check_fit(protocol: Protocol, aggregator: UpdateAggregator) -> None:
    """Raise ``SettingsError`` for the first reason why protocol, objective and aggregator do not go together."""
    objective = make_objective(protocol.objective)
    if aggregator.reads_effective_steps and objective.changes_effective_steps:
        raise SettingsError(
            f"objective {objective.name!r} does not go with {type(aggregator).__name__}, which divides by effective "
            "steps that are not those of its parameters."
        )
    wrong = [*_of_parts(protocol, objective, aggregator), *_of_steps(protocol, objective, aggregator)]
    if not wrong and (protocol.travels != ALL or protocol.trainable != ALL):
        wrong = list(_of_travels(protocol, objective, aggregator))
    for field, expected in wrong:
        value = objective.name if field == "objective" else getattr(protocol, field)
        raise SettingsError(field=f"{field} (FDG_{field.upper()})", value=value, expected=expected)
    objective.check(protocol)


def _of_parts(protocol: Protocol, objective: Objective, aggregator: UpdateAggregator) -> Iterator[Wrong]:
    ours, rule = f"objective {objective.name!r}", aggregator.rule()
    if protocol.sites_per_round is not None and protocol.sites_per_round < protocol.min_sites:
        yield "sites_per_round", f"at least min_sites (FDG_MIN_SITES), which is {protocol.min_sites}"
    if rule.shares not in (None, REPORT_TRAINING_LOSS, REPORT_GAP, objective.report):
        yield "objective", f"that of the same method: the weights follow from its report {rule.shares!r}"
    if rule.shares == REPORT_TRAINING_LOSS and protocol.gap_split != "train":
        yield "gap_split", "'train': the weighting follows from the loss on the training split"
    task = TASKS.get(protocol.task)
    if objective.needs_labelled_images and not task.one_class_per_image:
        yield "task", f"another: {ours} needs one class per image"
    if objective.needs_classes and not task.has_classes:
        yield "task", f"another: {ours} needs one class per image or pixel"
    if objective.needs_flat_images and dataset_spec(protocol.dataset).dims != 2:
        yield "dataset", f"another: {ours} needs 2D images"
    if protocol.enable_tensor_disk_offload and not aggregator.reads_parts:
        yield "enable_tensor_disk_offload", f"false: {type(aggregator).__name__} reads updates in memory only"


def _of_steps(protocol: Protocol, objective: Objective, aggregator: UpdateAggregator) -> Iterator[Wrong]:
    server = f"aggregator {type(aggregator).__name__}" if aggregator.reads_effective_steps else None
    whose = f"objective {objective.name!r}" if objective.reads_step_lengths else server
    if protocol.optimizer != SGD and protocol.momentum:
        yield "momentum", f"0: it is a setting of the optimizer {SGD!r}, not of {protocol.optimizer!r}"
    if protocol.optimizer != SGD and whose:
        yield "optimizer", f"{SGD!r}: {whose} follows from the length of steps, which the rate sets only for SGD"
    if protocol.keep_momentum and not protocol.momentum:
        yield "keep_momentum", "false: momentum is 0, and nothing is kept"
    if protocol.keep_momentum and whose:
        yield "keep_momentum", f"false: {whose} follows from the length of steps, known if momentum starts at zero"


def _of_travels(protocol: Protocol, objective: Objective, aggregator: UpdateAggregator) -> Iterator[Wrong]:
    ours, server = f"objective {objective.name!r}", f"aggregator {type(aggregator).__name__}"
    setting = "travels" if protocol.travels != ALL else "trainable"
    if objective.needs_shared == "everything":  # before a network is built that may not suit the objective at all
        yield setting, f"'all': {ours} needs all parameters to travel"
        return
    model = build_network(protocol, num_classes=2)  # any number will do, since only names matter
    rules = travel_rules(model, protocol)
    for part in objective.needs_trained:
        names = [name for name, _ in model.named_parameters() if name.startswith(f"{part}.")]
        if names and all(rules.of[name] is Rule.FROZEN for name in names):
            by = "trainable" if fixed_names(model, protocol).issuperset(names) else setting
            yield by, f"one that trains some of its parameters: {ours} trains the {part} on its own"
    if not all(rules.of[name] is Rule.SHARED for name in model.head_names):
        for whose, needs in ((ours, objective.needs_shared == "head"), (server, aggregator.needs_head)):
            if needs:
                yield setting, f"another: {whose} needs the whole head to travel"
    if protocol.keep_local_models and rules.names(Rule.PERSONAL):
        yield setting, "another: the server lacks the sites' own models, which keep_local_models needs"


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

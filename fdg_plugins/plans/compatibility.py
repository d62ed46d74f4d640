# SPDX-License-Identifier: Apache-2.0
"""Checks, before any site is asked, that a method's parts are compatible, and what they require from the sites."""

from collections.abc import Callable, Sequence

from nvflare.apis.filter import Filter

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.core.travel import ALL, Rule, Rules
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.filters import ExchangeCheckFilter, RoundedUpdateReceiveFilter
from fdg_plugins.messages import REPORT_GAP, REPORT_TRAINING_LOSS, TASK_PROBE, TASK_TRAIN
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import Objective, build_network, fixed_names, make_objective, travel_rules
from fdg_plugins.plans.plans import Plans
from fdg_plugins.plugins.reports import REPORT_LOCAL_MODEL
from fdg_plugins.settings.protocol import SGD, Protocol
from fdg_plugins.tasks import TASKS
from fdg_plugins.values import shorten


def check_settings(aggregator: UpdateAggregator, plans: Plans) -> None:
    """Raise ``SettingsError`` if either plan has settings that the aggregator refuses or parts that are incompatible.

    The aggregator keeps its current settings.
    """
    in_force = aggregator.settings()
    for plan in plans:
        aggregator.configure(plan.aggregator)
        _check_composition(plan.protocol, aggregator)
        aggregator.configure(in_force)


def _check_composition(protocol: Protocol, aggregator: UpdateAggregator) -> None:
    """Raise ``SettingsError``, with the reason, if parts of a method are incompatible."""
    objective = make_objective(protocol.objective)
    _check_drawn(protocol)
    _check_steps(protocol, objective, aggregator)
    if protocol.travels != ALL or protocol.trainable != ALL:
        _check_travels(protocol, objective, aggregator)
    _check_optimizer(protocol, objective, aggregator)
    if protocol.keep_momentum:
        _check_kept_momentum(protocol, objective, aggregator)
    _check_task(protocol, objective)
    if protocol.enable_tensor_disk_offload:
        _check_offload(objective, aggregator)
    _check_gap_split(protocol, aggregator)
    _check_weights(objective, aggregator)


def _check_drawn(protocol: Protocol) -> None:
    """Raise ``SettingsError`` if fewer sites are drawn for a round than the round needs updates."""
    if protocol.sites_per_round is not None and protocol.sites_per_round < protocol.min_sites:
        raise SettingsError(
            f"sites_per_round (FDG_SITES_PER_ROUND) is {protocol.sites_per_round}, expected at least min_sites "
            f"(FDG_MIN_SITES), which is {protocol.min_sites}: no round could have enough updates."
        )


def _check_weights(objective: Objective, aggregator: UpdateAggregator) -> None:
    """Raise ``SettingsError`` if the weights follow from a report that no part of the method sends."""
    if aggregator.needs_reports and aggregator.shares not in (REPORT_GAP, objective.report):
        raise SettingsError(
            f"objective is {objective.name!r}, which does not send the report {aggregator.shares!r} from which the "
            "weights follow: expected the objective of the same method."
        )


def _check_task(protocol: Protocol, objective: Objective) -> None:
    if objective.needs_labelled_images and not TASKS.get(protocol.task).one_class_per_image:
        raise SettingsError(
            f"objective {objective.name!r} needs one class per image, which the task {protocol.task!r} does not have."
        )
    if objective.needs_flat_images and (dims := dataset_spec(protocol.dataset).dims) != 2:
        raise SettingsError(
            f"objective {objective.name!r} needs 2D images, and those of {protocol.dataset!r} are {dims}D."
        )


def _check_gap_split(protocol: Protocol, aggregator: UpdateAggregator) -> None:
    if aggregator.needs_training_loss and protocol.gap_split != "train":
        raise SettingsError(
            f"gap_split (FDG_GAP_SPLIT) is {protocol.gap_split!r}, expected 'train': the weighting follows from the "
            "loss on the training split."
        )


def _check_steps(protocol: Protocol, objective: Objective, aggregator: UpdateAggregator) -> None:
    """Raise ``SettingsError`` for an objective whose steps are not those that the method, or SGD, counts on."""
    if aggregator.reads_effective_steps and objective.changes_effective_steps:
        in_parts = bool(objective.needs_trained)  # a part of the network has steps of its own
        reason = "not every step trains all parameters" if in_parts else "its term shortens the steps"
        raise SettingsError(
            f"objective {objective.name!r} does not go with aggregator {type(aggregator).__name__}: {reason}, which "
            "the effective steps that the sites report leave out."
        )
    if objective.plain_sgd and protocol.momentum:
        raise SettingsError(
            f"momentum (FDG_MOMENTUM) is {protocol.momentum:g}, expected 0: objective {objective.name!r} is defined "
            "for plain SGD."
        )


def _check_travels(protocol: Protocol, objective: Objective, aggregator: UpdateAggregator) -> None:
    """Raise ``SettingsError`` if what travels does not fit the network or lacks parameters that the method reads."""
    setting = _withholding(protocol)
    if objective.needs_shared == "everything":  # before a network is built that may not suit the objective at all
        raise SettingsError(f"{setting} objective {objective.name!r} needs all parameters to travel, expected 'all'.")
    model = build_network(protocol, num_classes=2)  # any number will do, since only names matter
    rules = travel_rules(model, protocol)
    for part in objective.needs_trained:
        _check_trained(part, protocol, objective, model, rules)
    if not all(rules.of[name] is Rule.SHARED for name in model.head_names):
        _check_without_head(setting, objective, aggregator)
    _check_local_models(setting, protocol, rules)


def _check_trained(
    part: str, protocol: Protocol, objective: Objective, model: ExtractorClassifier, rules: Rules
) -> None:
    """Raise ``SettingsError`` if no parameter is trained of a part of the network that has steps of its own."""
    names = [name for name, _ in model.named_parameters() if name.startswith(f"{part}.")]
    if not names or any(rules.of[name] is not Rule.FROZEN for name in names):
        return
    by_trainable = fixed_names(model, protocol).issuperset(names)
    setting = f"trainable (FDG_TRAINABLE) is {protocol.trainable!r}:" if by_trainable else _withholding(protocol)
    raise SettingsError(
        f"{setting} objective {objective.name!r} trains the {part} on its own, expected one that trains at least some "
        "of its parameters."
    )


def _withholding(protocol: Protocol) -> str:
    """Return the setting by which something does not travel, as messages begin with it."""
    if protocol.travels == ALL:
        return f"trainable (FDG_TRAINABLE) is {protocol.trainable!r}:"
    return f"travels (FDG_TRAVELS) is {shorten(protocol.travels)}:"


def _check_without_head(setting: str, objective: Objective, aggregator: UpdateAggregator) -> None:
    """Raise ``SettingsError`` for a part of the method that needs the whole head, of which something stays."""
    if objective.needs_shared == "head":
        raise SettingsError(f"{setting} objective {objective.name!r} needs the whole head to travel.")
    if aggregator.needs_head:
        raise SettingsError(f"{setting} aggregator {type(aggregator).__name__} needs the whole head to travel.")


def _check_local_models(setting: str, protocol: Protocol, rules: Rules) -> None:
    if protocol.keep_local_models and rules.names(Rule.PERSONAL):
        raise SettingsError(f"{setting} the server does not have the sites' own models, which keep_local_models needs.")


def _check_optimizer(protocol: Protocol, objective: Objective, aggregator: UpdateAggregator) -> None:
    """Raise ``SettingsError`` if an optimizer other than SGD has a momentum or the method relies on SGD's steps."""
    if protocol.optimizer == SGD:
        return
    if protocol.momentum:
        raise SettingsError(
            f"momentum (FDG_MOMENTUM) is {protocol.momentum:g}, expected 0: it is a setting of the optimizer {SGD!r}, "
            f"not of {protocol.optimizer!r}."
        )
    if whose := _readers_of_steps(objective, aggregator):
        raise SettingsError(
            f"optimizer (FDG_OPTIMIZER) is {protocol.optimizer!r}, expected {SGD!r}: {whose[0]} follows from the "
            "length of steps, which the learning rate determines only for SGD."
        )


def _check_kept_momentum(protocol: Protocol, objective: Objective, aggregator: UpdateAggregator) -> None:
    """Raise ``SettingsError`` if there is no momentum to keep, or the method counts on one that starts at zero."""
    setting = "keep_momentum (FDG_KEEP_MOMENTUM) is true, expected false:"
    if not protocol.momentum:
        raise SettingsError(f"{setting} momentum is 0, with optimizer {protocol.optimizer!r}, and nothing is kept.")
    if whose := _readers_of_steps(objective, aggregator):
        raise SettingsError(
            f"{setting} {whose[0]} follows from how far steps go, which is known of a momentum that starts at zero."
        )


def _readers_of_steps(objective: Objective, aggregator: UpdateAggregator) -> list[str]:
    """Return the parts of a method that follow from how far a site's steps go."""
    whose = [f"objective {objective.name!r}"] if objective.reads_step_lengths else []
    whose += [f"aggregator {type(aggregator).__name__}"] if aggregator.reads_effective_steps else []
    return whose


def _check_offload(objective: Objective, aggregator: UpdateAggregator) -> None:
    """Raise ``SettingsError`` if a part of the method needs per-parameter values of all sites in memory."""
    setting = "enable_tensor_disk_offload (FDG_ENABLE_TENSOR_DISK_OFFLOAD) is true, expected false:"
    if not aggregator.reads_parts:
        raise SettingsError(f"{setting} aggregator {type(aggregator).__name__} reads updates in memory only.")
    if objective.reports_parameters:
        raise SettingsError(
            f"{setting} objective {objective.name!r} keeps a number for each parameter and site in memory."
        )


def check_update_filters(plans: Plans, filters: Sequence[Filter] | None) -> None:
    """Raise ``SettingsError`` if a plan contradicts the job's filters for updates at the server.

    If ``filters`` is None, because FLARE does not tell, nothing is checked.
    """
    if filters is None:
        return
    rounded = any(isinstance(one, RoundedUpdateReceiveFilter) for one in filters)
    for plan in plans:
        precision = plan.protocol.update_precision
        if rounded != (precision == "bfloat16"):
            raise SettingsError(
                f"update_precision (FDG_UPDATE_PRECISION) is {precision!r}, but the job's configs have "
                f"{'the' if rounded else 'no'} filters that round updates to bfloat16: expected a job that was made "
                "with this setting."
            )


def check_exchange_filters(plans: Plans, filters_of: Callable[[str], Sequence[Filter] | None]) -> None:
    """Raise ``SettingsError`` if a plan's objective has reports for which the job's configs lack the server's filter.

    ``filters_of``: the server's filters for the results of a task; if it returns None, because FLARE does not tell,
    nothing is checked.
    """
    for plan in plans:
        objective = make_objective(plan.protocol.objective)
        if objective.report is None:
            continue
        task = TASK_PROBE if objective.probes else TASK_TRAIN
        filters = filters_of(task)
        if filters is not None and not any(isinstance(one, ExchangeCheckFilter) for one in filters):
            raise SettingsError(
                f"objective (FDG_OBJECTIVE) is {objective.name!r}, but the job's configs have no ExchangeCheckFilter "
                f"for its reports with the task {task!r}: expected a job that was made for this objective (fdg export)."
            )


def needed_reports(protocol: Protocol, aggregator: UpdateAggregator) -> dict[str, str]:
    """Return the reports that sites must send in addition to updates, each with the method's part that needs it."""
    objective = make_objective(protocol.objective)
    needed = {objective.report: f"objective {objective.name!r}"} if objective.report else {}
    if aggregator.shares is not None:
        needed[aggregator.shares] = "the weighting"
    if protocol.gap_split == "train" and REPORT_GAP not in needed:  # whoever may know the gap may know its losses
        needed.setdefault(REPORT_TRAINING_LOSS, "gap_split 'train'")
    if protocol.keep_local_models:
        needed[REPORT_LOCAL_MODEL] = "keep_local_models"
    return needed

# SPDX-License-Identifier: Apache-2.0
"""Adds the server's half of this package's methods to a recipe of FLARE's own, whose sites run their own scripts."""

from typing import Any

from nvflare.client.config import TransferType
from nvflare.recipe.spec import Recipe

from fdg_plugins import filters
from fdg_plugins.aggregators import UpdateAggregator, make_aggregator
from fdg_plugins.controllers.host import ExchangeHost, check_hosted
from fdg_plugins.errors import SettingsError
from fdg_plugins.flare.components import GAP
from fdg_plugins.messages import REPORT_GAP, REPORT_TRAINING_LOSS, TASK_TRAIN
from fdg_plugins.objectives import OBJECTIVES, make_objective
from fdg_plugins.plugins.composition import PLAIN, parse_method
from fdg_plugins.recipes.job import PACKAGE

HOST_ID = "fdg_exchange_host"
TASKS = [TASK_TRAIN]


def equip(recipe: Recipe, method: str, *, head: str | None = None, metric: str = "loss", **settings: Any) -> Recipe:
    """Add what ``method`` needs beside its aggregator to a FedAvg recipe of FLARE's own; return the recipe.

    The recipe keeps its aggregator, which the caller chooses (``FedAvgRecipe(aggregator=FedOMGAggregator())``). Added
    are the filters of FedDG-GA's gap and of the reports of a hosted objective, such as FedDIM and FedIIR, and the
    component that learns from them. Other methods need none. The job then relies on this package as installed at every
    participant, instead of carrying copies of its modules.

    Args:
        recipe: ``FedAvgRecipe`` or another whose workflow sends the task ``train``; changed in place.
        method: a published name, or parts joined by ``+``: ``"fedomg"``, ``"fedga"``, ``"fedomg+ga+dim"``.
        head: dotted name of the network's head, ``"fc"``; for a hosted objective.
        metric: what the gap is taken of: ``"loss"``, or the task's score, such as ``"accuracy"`` or ``"dice"``.
        settings: of a hosted objective at the server: FedDIM's ``insight_momentum`` and ``target``, FedIIR's ``ema``.
            Strengths belong to the scripts.

    Raises:
        SettingsError: for an unknown method or setting, a method, or a setting of the aggregator, that needs this
            package's own workflow, or a recipe whose sites send models instead of updates.
    """
    parts = parse_method(method)
    report, own = make_objective(parts.objective).report, getattr(recipe, "aggregator", None)
    for aggregator in (make_aggregator(parts.direction), own):
        if isinstance(aggregator, UpdateAggregator):
            _check_aggregator(aggregator, report)
    transfer = getattr(recipe, "params_transfer_type", TransferType.DIFF)
    if isinstance(own, UpdateAggregator) and transfer != TransferType.DIFF:
        expected = "TransferType.DIFF: the aggregator adds up updates, and would refuse models"
        raise SettingsError(field="params_transfer_type", value=transfer, expected=expected)
    if parts.objective == PLAIN and settings:
        raise SettingsError(
            field=min(settings), value=settings[min(settings)], expected="no setting but the aggregator's"
        )
    host = None if parts.objective == PLAIN else _host(parts.objective, head, settings)
    with_gap = any(GAP in record.reports for record in parts.records)
    if with_gap:
        recipe.add_client_output_filter(filters.GapReportFilter(metric), tasks=TASKS)
    if host is not None:
        recipe._job.to_server(host, id=HOST_ID)
        recipe.add_server_output_filter(filters.ExchangeSendFilter(), tasks=TASKS)
        recipe.add_client_input_filter(filters.ExchangeReceiveFilter(), tasks=TASKS)
        recipe.add_client_output_filter(filters.ExchangeReportFilter(), tasks=TASKS)
        recipe.add_server_input_filter(filters.ExchangeCheckFilter(), tasks=TASKS)
    if with_gap:
        recipe.add_server_input_filter(filters.GapCheckFilter(), tasks=TASKS)
    recipe._job.set_app_packages([PACKAGE])
    return recipe


def _check_aggregator(aggregator: UpdateAggregator, report: str | None) -> None:
    """Raise ``SettingsError`` for an aggregator that would refuse every update, because no site tells what it reads.

    ``report``: that of the objective, which a script may send.
    """
    rule, lacking = aggregator.rule(), aggregator.reads_census
    if lacking is None and rule.shares not in (None, REPORT_TRAINING_LOSS, REPORT_GAP, report):
        lacking = rule.shares
    if lacking is not None:
        expected = f"one that does without {lacking!r}, which no script tells the server"
        raise SettingsError(field="aggregator", value=type(aggregator).__name__, expected=expected)


def _host(part: str, head: str | None, settings: dict[str, Any]) -> ExchangeHost:
    spec = {"name": part, **(OBJECTIVES.known(part).hosted or {}), **settings}
    check_hosted(make_objective(spec))
    if not head:
        raise SettingsError(field="head", value=head, expected=f"the dotted name of the head, which {part!r} reads")
    return ExchangeHost(spec, head)

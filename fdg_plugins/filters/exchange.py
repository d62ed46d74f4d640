# SPDX-License-Identifier: Apache-2.0
"""Transfers a method's additional tensors (such as insights or classifier gradients) with the model and the update.

Down: :class:`ExchangeSendFilter` at the server attaches the tensors to the model; :class:`ExchangeReceiveFilter` at the
site extracts them. Up: :class:`ExchangeReportFilter` at the site attaches the report to the update;
:class:`ExchangeCheckFilter` at the server extracts it, validates it with the method's exchange, and attaches the result
to the answer. The workflow sets the round's exchange as a context property. The filters keep no state; the workflow
commits the validated report together with the update.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nvflare.apis.dxo import DataKind
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_opt.pt.decomposers import TensorDecomposer
from nvflare.fuel.utils import fobs

from fdg_plugins.errors import ContributionError, PartError, one_line, shorten
from fdg_plugins.filters.wire import Packed, pack, read_message, with_meta
from fdg_plugins.flare.peers import asking_site, authenticated_site
from fdg_plugins.flare.stored_tensor import size_of
from fdg_plugins.messages import META_CHECKED_REPORTS, META_RECEIVED, META_SITE_REPORT
from fdg_plugins.plugins.reports import CheckedReports

if TYPE_CHECKING:
    from fdg_plugins.objectives import Exchange

EXCHANGE_PROP = "fdg_exchange_round"


@dataclass
class ExchangeRound:
    """The exchange of a run and the current round, counted from 0, which the workflow sets; the check fills the rest.

    ``broken``: what the exchange itself raised on reading a report, for which the workflow ends the run.
    """

    exchange: "Exchange"
    round_number: int
    broken: PartError | None = field(default=None, init=False)


class ExchangeSendFilter(Filter):
    """At the server, on the data of ``train``: attaches the exchange's tensors for the site to the model."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the task with the tensors attached to its model; unchanged if there are none."""
        current: ExchangeRound | None = fl_ctx.get_prop(EXCHANGE_PROP)
        message = read_message(shareable)
        if current is None or message is None:
            return shareable
        tensors = current.exchange.broadcast(asking_site(fl_ctx))
        return pack(message.main, tensors, current.round_number, shareable) if tensors else shareable


class SiteExchangeFilter(Filter):
    """Base of the filters at a site: teaches the process to send and receive tensors.

    An executor of FLARE's own that exchanges arrays does not.
    """

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Register the encoding of tensors when the job starts."""
        if event_type == EventType.START_RUN:
            fobs.register(TensorDecomposer)


class ExchangeReceiveFilter(SiteExchangeFilter):
    """At a site, on the data of ``train``: extracts the tensors for the executor."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the task with the model as its only content and the tensors in the meta."""
        message = read_message(shareable)
        if message is None:
            return shareable
        return with_meta(message.main, {META_RECEIVED: message.tensors or {}}).update_shareable(shareable)


class ExchangeReportFilter(SiteExchangeFilter):
    """At a site, on the results of ``probe`` and ``train``: attaches the method's report to the result."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the result with the report attached; unchanged if it has none."""
        message = read_message(shareable)
        if message is None or (report := message.main.meta.get(META_SITE_REPORT)) is None:
            return shareable
        round_number = int(shareable.get_header(AppConstants.CURRENT_ROUND, 0))
        return pack(with_meta(message.main, {}, META_SITE_REPORT), report, round_number, shareable)


class ExchangeCheckFilter(Filter):
    """At the server, on the results of ``probe`` and ``train``: extracts the report and validates it.

    An unusable report is refused, naming the site; the accompanying update is treated separately.
    """

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the result without the report; its checked reports hold the value, or the reason for a refusal."""
        current: ExchangeRound | None = fl_ctx.get_prop(EXCHANGE_PROP)
        if current is None or (message := read_message(shareable)) is None:
            return shareable
        # Always overwritten: a site cannot claim that its own report was checked.
        checked = CheckedReports.of(message.main.get_meta_prop(META_CHECKED_REPORTS))
        if fl_ctx.get_prop(FLContextKey.TASK_NAME) == current.exchange.phase:
            values = message.tensors.values() if isinstance(message.tensors, Mapping) else ()
            value, refused = None, None
            try:
                value = _read(message, current, authenticated_site(shareable, fl_ctx))
            except (ContributionError, PartError) as error:
                refused = str(error)
                current.broken = current.broken or (error if isinstance(error, PartError) else None)
                self.log_warning(fl_ctx, f"Report refused: {one_line(refused)}")
            checked.note(current.exchange.report, value, refused=refused, num_bytes=sum(map(size_of, values)))
        return with_meta(message.main, {META_CHECKED_REPORTS: checked}).update_shareable(shareable)


def _read(message: Packed, current: ExchangeRound, site: str) -> Any:
    if message.tensors is not None and message.round_number != current.round_number:
        came = shorten(message.round_number)
        raise ContributionError(f"site {site}: its report is of round {came}, expected {current.round_number}.")
    update = message.main.data if message.main.data_kind == DataKind.WEIGHT_DIFF else None
    return current.exchange.read(site, message.tensors, update)

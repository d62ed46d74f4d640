# SPDX-License-Identifier: Apache-2.0
"""FLARE filters: a method's additional tensors, the generalization gap, rounded updates, differential privacy."""

from fdg_plugins.filters.exchange import (
    EXCHANGE_PROP,
    ExchangeCheckFilter,
    ExchangeReceiveFilter,
    ExchangeReportFilter,
    ExchangeRound,
    ExchangeSendFilter,
)
from fdg_plugins.filters.gap import GapCheckFilter, GapReportFilter
from fdg_plugins.filters.precision import RoundedUpdateReceiveFilter, RoundedUpdateSendFilter
from fdg_plugins.filters.privacy import DifferentialPrivacyFilter

__all__ = [
    "EXCHANGE_PROP",
    "DifferentialPrivacyFilter",
    "ExchangeCheckFilter",
    "ExchangeReceiveFilter",
    "ExchangeReportFilter",
    "ExchangeRound",
    "ExchangeSendFilter",
    "GapCheckFilter",
    "GapReportFilter",
    "RoundedUpdateReceiveFilter",
    "RoundedUpdateSendFilter",
]

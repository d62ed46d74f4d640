# SPDX-License-Identifier: Apache-2.0
"""Halves the size of updates: rounds them to bfloat16 when they leave a site, and back to float32 at the server.

bfloat16 has the range of float32 and 8 significant bits. Rounding changes a value by at most 1/256 of its magnitude. It
changes a sum of many terms, such as an inner product, by far less, since terms are rounded up as often as down. The
broadcast model, integer buffers and a method's additional tensors are not rounded.
"""

from typing import Any

import torch
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

from fdg_plugins.core.stored import dense_tensor
from fdg_plugins.errors import DataError, shorten
from fdg_plugins.filters.wire import read_update, with_main
from fdg_plugins.flare.stored_tensor import size_of
from fdg_plugins.messages import HEADER_NOT_FINITE, HEADER_REASON, META_UPDATE_BYTES


class RoundedUpdateSendFilter(Filter):
    """At a site, on the result of ``train``, after all other filters that change the update: rounds it to bfloat16."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the result with its update rounded; unchanged if it is not an update.

        If rounding fails, return an error reply: FLARE does not tell the server about an error raised in a filter.
        """
        if (message := read_update(shareable)) is None:
            return shareable
        update = message.main.data
        try:
            rounded = {name: _rounded(fl_ctx.get_identity_name(), name, value) for name, value in update.items()}
        except DataError as error:
            self.log_error(fl_ctx, f"update not sent: {error}", fire_event=False)
            floats = (one for one in map(dense_tensor, update.values()) if one is not None and one.is_floating_point())
            finite = all(bool(torch.isfinite(one).all()) for one in floats)
            headers = {HEADER_REASON: error.public, HEADER_NOT_FINITE: not finite}
            return make_reply(ReturnCode.EXECUTION_EXCEPTION, headers)
        return with_main(DXO(DataKind.WEIGHT_DIFF, data=rounded, meta=message.main.meta), shareable)


class RoundedUpdateReceiveFilter(Filter):
    """At the server, on the result of ``train``, before all other filters: converts bfloat16 to float32.

    Tensors of other types are left to the aggregator, which refuses those it cannot use. Tensors that FLARE wrote to
    files are also left unchanged; they are converted to float32 when they are read.
    """

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the result with its update in float32 and its size on the wire, in bytes, in the meta."""
        if (message := read_update(shareable)) is None:
            return shareable
        update = message.main.data
        widened = {
            name: value.float() if isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16 else value
            for name, value in update.items()
        }
        # Always overwritten: a site's own claim does not count.
        meta = {**message.main.meta, META_UPDATE_BYTES: sum(map(size_of, update.values()))}
        return with_main(DXO(DataKind.WEIGHT_DIFF, data=widened, meta=meta), shareable)


def _rounded(site: str, name: Any, value: Any) -> Any:
    dense = dense_tensor(value)
    problem = "has values that are NaN, infinite or too large for bfloat16, expected finite ones"
    if dense is None or dense.is_complex():
        kind = f"{type(value).__name__} of {getattr(value, 'dtype', 'no type')}"
        problem = f"is a {kind}, expected a dense tensor or array of real numbers"
    elif not dense.is_floating_point():
        return value
    elif bool(torch.isfinite(rounded := dense.to(torch.bfloat16).contiguous()).all()):
        return rounded
    raise DataError(f"site {site}: parameter {shorten(name)} of its update {problem}.", public=True)

# SPDX-License-Identifier: Apache-2.0
"""Updates in half of their bytes: rounded to bfloat16 when they leave a site, float32 again when the server has them.

bfloat16 has the range of float32 and 8 significant bits: rounding changes a value by at most 1/256 of itself, and a sum
of many, such as an inner product, by far less, since the roundings of its terms are as often up as down. The model that
goes down stays as it is, and so do integer buffers and whatever a method sends beside the update.
"""

from typing import Any, NoReturn

import numpy as np
import torch
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

from fdg_plugins.errors import DataError
from fdg_plugins.filters.wire import read_message, with_main
from fdg_plugins.flare.stored_tensor import size_of
from fdg_plugins.messages import HEADER_NOT_FINITE, HEADER_REASON, META_UPDATE_BYTES, shorten


class RoundedUpdateSendFilter(Filter):
    """At a site, on the result of ``train``, after all filters that change the update: rounds it to bfloat16."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the result with the rounded update, as it came if it is none; an error reply if it cannot be rounded.

        An error raised here would not reach the server: FLARE tells it nothing of what a filter raises.
        """
        message = read_message(shareable)
        if message is None or message.main.data_kind != DataKind.WEIGHT_DIFF:
            return shareable
        site = fl_ctx.get_identity_name()
        try:
            rounded = {name: _rounded(site, name, value) for name, value in message.main.data.items()}
        except DataError as error:
            self.log_error(fl_ctx, f"update not sent: {error}")
            finite = _is_finite(message.main.data)
            return make_reply(
                ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: error.public, HEADER_NOT_FINITE: not finite}
            )
        return with_main(DXO(DataKind.WEIGHT_DIFF, data=rounded, meta=message.main.meta), shareable)


class RoundedUpdateReceiveFilter(Filter):
    """At the server, on the result of ``train``, before all other filters: makes bfloat16 float32.

    What does not come as bfloat16 is left to the aggregator, which refuses what it cannot use, and so is what FLARE
    wrote to files: it is made float32 where it is read.
    """

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the result with its update in float32, and in the meta the bytes with which it came."""
        message = read_message(shareable)
        if message is None or message.main.data_kind != DataKind.WEIGHT_DIFF:
            return shareable
        came = sum(size_of(value) for value in message.main.data.values())
        widened = {name: _widened(value) for name, value in message.main.data.items()}
        # Set in any case: a site's own word does not count.
        meta = {**message.main.meta, META_UPDATE_BYTES: came}
        return with_main(DXO(DataKind.WEIGHT_DIFF, data=widened, meta=meta), shareable)


def _is_finite(update: Any) -> bool:
    """Return whether no tensor of an update has NaN or infinite values."""
    return not any(
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and value.is_floating_point()
        and not bool(torch.isfinite(value).all())
        for value in update.values()
    )


def _rounded(site: str, name: Any, value: Any) -> Any:
    """Return one parameter of an update in bfloat16, round to nearest; integers and booleans as they are."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        if value.dtype.kind != "f":
            return value
        value = torch.from_numpy(value.astype(value.dtype.newbyteorder("=")))  # a copy: torch warns of read-only ones
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_complex():
        _refuse(site, name, f"is a {_kind(value)}, expected a dense tensor or array of real numbers")
    if not value.is_floating_point():
        return value
    rounded = value.detach().to(torch.bfloat16).contiguous()
    if not bool(torch.isfinite(rounded).all()):
        _refuse(site, name, "has values that are NaN, infinite or too large for bfloat16, expected finite ones")
    return rounded


def _widened(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16 else value


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor | np.ndarray):
        layout = f"{value.layout} " if isinstance(value, torch.Tensor) else ""
        return f"{type(value).__name__} of {layout}{value.dtype}"
    return type(value).__name__


def _refuse(site: str, name: Any, what: str) -> NoReturn:
    raise DataError(f"site {site}: parameter {shorten(name)} of its update {what}.", public=True)

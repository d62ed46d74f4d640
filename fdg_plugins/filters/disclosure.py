# SPDX-License-Identifier: Apache-2.0
"""Decides what part of a site's answer may leave under differential privacy; every entry of the answer is checked.

Each check raises :class:`RefusedError`, which never quotes a value. Anything not known to be harmless is refused.
"""

from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants

from fdg_plugins.core.linear import LARGEST_SQUARABLE
from fdg_plugins.errors import FDGError, shorten
from fdg_plugins.filters.precision import is_dense
from fdg_plugins.filters.wire import NO_DXO
from fdg_plugins.messages import (
    HEADER_REASON,
    HEADER_RUN,
    HEADER_STOP,
    META_GAP,
    META_REPORT,
    META_SAMPLES,
    META_SITE_REPORT,
    CensusReply,
    TrainReport,
)

STEP_COUNTERS = "num_batches_tracked"  # BatchNorm's counters, which count steps, not images
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
ARRAYS = (np.float16, np.float32, np.float64, np.int64)
WITHHELD = {"received": None, "local": None, "training_split": None, "personal": None, "epoch_losses": None}

DXO_KEY = "DXO"
_REASONS = {
    META_SITE_REPORT: "a method's tensors for the server, which differential privacy does not cover",
    META_GAP: "a generalization gap, which differential privacy does not cover",
}
# HEADER_RUN holds the server's own run id, which the site's executor passes to the job's filters; it does not leave.
_HEADERS = (ReservedHeaderKey.CONTENT_TYPE, ReservedHeaderKey.RC, AppConstants.CURRENT_ROUND, HEADER_RUN)
_RETURN_CODES = {value for name, value in vars(ReturnCode).items() if not name.startswith("_")}


class RefusedError(FDGError):
    """The answer holds something that differential privacy does not cover, so it does not leave the site.

    The error's text quotes no value and may leave.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text, public=True)


class Update(NamedTuple):
    """A checked update: floating-point tensors and step counters; ``arrays`` names those received as NumPy arrays."""

    tensors: dict[str, torch.Tensor]
    arrays: frozenset[str]


def refuse(site: str, what: str) -> NoReturn:
    """Raise ``RefusedError``: the answer does not leave, for the reason ``what``, which quotes no value."""
    raise RefusedError(f"site {site}: differential privacy refused its answer: {what}.")


def bare_error(site: str, code: Any, shareable: Shareable) -> Shareable:
    """Return an error reply without its reason, because an exception's text may quote the data."""
    code = code if isinstance(code, str) and code in _RETURN_CODES else ReturnCode.EXECUTION_EXCEPTION
    reason = f"site {site}: {code}; its reason stays in the site's own log, as differential privacy demands."
    reply = make_reply(code, {HEADER_REASON: reason})
    if shareable.get_header(HEADER_STOP) is True:
        reply.set_header(HEADER_STOP, True)
    return reply


def check_context(site: str, fl_ctx: FLContext) -> None:
    """Refuse public context properties, which leave with the answer, except FLARE's own (``__name__``)."""
    for key in fl_ctx.get_all_public_props():
        if not (key.startswith("__") and key.endswith("__")):
            refuse(site, f"FLARE's context has the public property {shorten(key)}, which would leave beside it")


def content(site: str, shareable: Shareable) -> DXO:
    """Return the DXO in an answer; refuse an answer that holds anything else."""
    for key in shareable.keys() - {DXO_KEY, ReservedHeaderKey.HEADERS}:
        refuse(site, f"it holds {shorten(key)} beside its content")
    for key in (shareable.get(ReservedHeaderKey.HEADERS) or {}).keys() - {*_HEADERS}:
        refuse(site, f"it has the header {shorten(key)}, which is not known to be free of data")
    try:
        return from_shareable(shareable)
    except NO_DXO as error:
        raise RefusedError(f"site {site}: differential privacy refused its answer: it is not a DXO.") from error


def census(site: str, dxo: DXO) -> DXO:
    """Return the census, whose counts are public, without the names of skipped files."""
    if dxo.data_kind != DataKind.METRICS or dxo.meta:
        refuse(site, f"its census is {shorten(dxo.data_kind)}, expected METRICS without meta")
    try:
        reply = CensusReply.read(dxo.data, "census", RefusedError)
    except RefusedError:
        refuse(site, "its census is not as declared")
    return DXO(DataKind.METRICS, data=reply.model_copy(update={"skipped": ()}).model_dump(mode="json"))


def read_update(site: str, dxo: DXO) -> Update:
    """Return the update in an answer; refuse any other content."""
    if dxo.data_kind == DataKind.COLLECTION:
        refuse(site, "it holds a method's tensors beside the update, which differential privacy does not cover")
    if dxo.data_kind != DataKind.WEIGHT_DIFF:
        kind = getattr(dxo.data_kind, "value", dxo.data_kind)  # an enum member until it has crossed the wire
        refuse(site, f"it is {shorten(str(kind))}, expected an update (WEIGHT_DIFF)")
    tensors = {name: _values(site, name, value) for name, value in dxo.data.items()}
    if not any(value.is_floating_point() for value in tensors.values()):
        refuse(site, "its update has no floating-point values")
    return Update(tensors, frozenset(name for name, value in dxo.data.items() if isinstance(value, np.ndarray)))


def _values(site: str, name: Any, value: Any) -> torch.Tensor:
    """Return one parameter as a CPU tensor: floats, which may leave after noise is added, or a step counter."""
    if not isinstance(name, str):
        refuse(site, f"a parameter's name is a {type(name).__name__}, expected a string")
    where = f"parameter {shorten(name)}"
    if isinstance(value, np.ndarray) and value.dtype in ARRAYS:
        value = torch.from_numpy(value.copy())  # a copy, since torch warns about read-only arrays
    if not is_dense(value) or value.device.type == "meta":
        refuse(site, f"{where} is a {type(value).__name__}, expected a dense tensor or array of numbers")
    if value.dtype in FLOATS:
        if not bool(torch.isfinite(value).all()):
            refuse(site, f"{where} has values that are NaN or infinite")
        if value.dtype == torch.float64 and bool((value.abs() > LARGEST_SQUARABLE).any()):
            refuse(site, f"{where} has values beyond {LARGEST_SQUARABLE:g}")
    elif value.dtype != torch.int64 or not name.endswith(STEP_COUNTERS):
        refuse(site, f"{where} is of {value.dtype}, expected floating-point numbers, or BatchNorm's step counter")
    return value.detach().cpu()


def released_meta(site: str, dxo: DXO) -> dict[str, Any]:
    """Return the meta that may leave: the number of samples, and the report without values measured on images."""
    meta: dict[str, Any] = {}
    for key, value in dxo.meta.items():
        if key == META_SAMPLES:
            if type(value) is not int or value < 1:
                refuse(site, "its number of samples is not a whole number above zero")
            meta[key] = value
        elif key == META_REPORT:
            try:
                report = TrainReport.read(value, "report", RefusedError)
            except RefusedError:
                refuse(site, "its report of the training is not as declared")
            meta[key] = report.model_copy(update=WITHHELD).model_dump(mode="python")
        elif key not in (MetaKey.INITIAL_METRICS, MetaKey.FILTER_HISTORY):  # which are dropped
            refuse(site, f"its meta holds {_REASONS.get(key, f'{shorten(key)}, which is not known')}")
    return meta


def round_of(site: str, shareable: Shareable) -> int:
    """Return the number of an answer's round, counted from 0; refuse the answer if it is no whole number."""
    number = shareable.get_header(AppConstants.CURRENT_ROUND, 0)
    if type(number) is not int or number < 0:
        refuse(site, "the number of its round is not a whole number")
    return number

# SPDX-License-Identifier: Apache-2.0
"""Differential privacy for what a site answers, which fails closed: what is not understood does not leave.

The update is clipped as one vector, noise is added, and the release is entered into the site's ledger before it is
handed out; all else that depends on the site's images is taken off. What cannot be treated so (a method's tensors
beside the update, a gap, metrics, unknown entries) turns the answer into an error reply of one sentence. The answer is
built anew from what was checked, so nothing passes by being overlooked.
"""

from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.filters.exclude_vars import ExcludeVars
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.filters.svt_privacy import SVTPrivacy

from fdg_plugins.core.privacy import Noise, privatize, secure_normal
from fdg_plugins.errors import FDGError
from fdg_plugins.filters.chain import class_path, result_filters
from fdg_plugins.filters.ledger import (
    LEDGER_FILE,
    LEDGER_FOLDER,
    POLICY_FILE,
    BudgetSpentError,
    Ledger,
    Limits,
    read_limits,
    read_policy,
)
from fdg_plugins.filters.precision import RoundedUpdateSendFilter
from fdg_plugins.messages import (
    HEADER_REASON,
    HEADER_RUN,
    HEADER_STOP,
    META_GAP,
    META_REPORT,
    META_SAMPLES,
    META_SITE_REPORT,
    TASK_CENSUS,
    CensusReply,
    TrainReport,
    shorten,
)

STEP_COUNTERS = "num_batches_tracked"  # BatchNorm's, which count steps and not images
LARGEST_VALUE = 1e140  # beyond it the squared length of an update overflows
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
ARRAYS = (np.float16, np.float32, np.float64, np.int64)
WITHHELD = {"received": None, "local": None, "training_split": None, "epoch_losses": None}

_DXO_KEY = "DXO"
_REASONS = {
    META_SITE_REPORT: "a method's tensors for the server, which differential privacy does not cover",
    META_GAP: "a generalization gap, which differential privacy does not cover",
}
# The run is the server's own word, which the site's executor hands to the job's filters; it does not leave.
_HEADERS = (ReservedHeaderKey.CONTENT_TYPE, ReservedHeaderKey.RC, AppConstants.CURRENT_ROUND, HEADER_RUN)
_RETURN_CODES = {value for name, value in vars(ReturnCode).items() if not name.startswith("_")}
# What a result may pass after this filter: filters that see the release alone, take away from it, round it, add noise.
_POST_PROCESSING = (ExcludeVars, PercentilePrivacy, SVTPrivacy, RoundedUpdateSendFilter)


class RefusedError(FDGError):
    """The answer holds something that differential privacy does not cover; it does not leave the site."""


class Update(NamedTuple):
    """A checked update: floating-point tensors and step counters; ``arrays`` names those that came as arrays."""

    tensors: dict[str, torch.Tensor]
    arrays: frozenset[str]


class DifferentialPrivacyFilter(Filter):
    """At a site, on its results: lets an update out only clipped, with noise, and within the site's budget.

    As a filter of the job for the tasks ``train``, ``probe`` and ``evaluate``, or of a scope in the site's own privacy
    policy, where no job can leave it out. Every answer but an update, an error and the census is refused.

    Args:
        clip_norm: C > 0, largest length of the whole update, in its own units.
        noise_multiplier: sigma > 0; the noise on every value has the deviation sigma C.
        max_epsilon: ceiling on the epsilon of all the site's releases, those of earlier jobs included.
        delta: in (0, 1), at which epsilon is computed; below one over the number of people in the data.

    A site's ``local/fdg_privacy.json`` may tighten each of them, never loosen.
    """

    def __init__(self, clip_norm: float, noise_multiplier: float, max_epsilon: float, delta: float = 1e-5) -> None:
        super().__init__()
        self.clip_norm = clip_norm
        self.noise_multiplier = noise_multiplier
        self.max_epsilon = max_epsilon
        self.delta = delta
        self._noise: Noise = secure_normal
        self._limits()

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the release, or an error reply that says why there is none."""
        site = fl_ctx.get_identity_name()
        try:
            return self._answer(site, shareable, fl_ctx)
        except FDGError as error:
            return self._refusal(str(error), fl_ctx, stop=isinstance(error, BudgetSpentError))
        except Exception as error:  # noqa: BLE001 - whatever happens, what came in must not go out
            # Not the error's own text: it may quote the data.
            return self._refusal(f"site {site}: differential privacy failed with {type(error).__name__}.", fl_ctx)

    def _answer(self, site: str, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        code = shareable.get_return_code(ReturnCode.OK)
        if code != ReturnCode.OK:
            return _bare_error(site, code, shareable)
        _check_what_follows(site, self, fl_ctx)
        _check_context(site, fl_ctx)
        dxo = _content(site, shareable)
        if fl_ctx.get_prop(FLContextKey.TASK_NAME) == TASK_CENSUS:
            return _census(site, dxo).to_shareable()
        update, meta = _update(site, dxo), _meta(site, dxo)
        round_number = _round(site, shareable)
        local = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir())
        limits = self._limits().under(read_policy(site, local / POLICY_FILE))
        job = str(fl_ctx.get_job_id())
        cost = Ledger(local / LEDGER_FOLDER / LEDGER_FILE, site).spend(job, round_number, limits)
        release = self._release(update, limits)
        self.log_info(
            fl_ctx,
            f"site {site} | round {round_number + 1} | released with noise: epsilon is now {cost:.4g} of "
            f"{limits.max_epsilon:g} at delta {limits.delta:g}",
        )
        answer = DXO(DataKind.WEIGHT_DIFF, data=release, meta=meta).to_shareable()
        answer.set_header(AppConstants.CURRENT_ROUND, round_number)
        return answer

    def _release(self, update: Update, limits: Limits) -> dict[str, Any]:
        """Return the update as it may leave: floats clipped and noised as one vector, step counters zero."""
        floats = {name: value for name, value in update.tensors.items() if value.is_floating_point()}
        noisy = privatize(floats, limits.clip_norm, limits.noise_multiplier, self._noise)
        release = {
            name: noisy[name] if name in noisy else torch.zeros(value.shape, dtype=value.dtype)
            for name, value in update.tensors.items()
        }
        return {name: value.numpy() if name in update.arrays else value for name, value in release.items()}

    def _limits(self) -> Limits:
        names = ("clip_norm", "noise_multiplier", "max_epsilon", "delta")
        return read_limits({name: getattr(self, name) for name in names})

    def _refusal(self, reason: str, fl_ctx: FLContext, stop: bool = False) -> Shareable:
        self.log_error(fl_ctx, f"Nothing was released: {reason}")
        headers: dict[str, Any] = {HEADER_REASON: reason}
        return make_reply(ReturnCode.EXECUTION_EXCEPTION, {**headers, HEADER_STOP: True} if stop else headers)


# --- what may come in; each raises RefusedError, which never quotes a value ---


def _refuse(site: str, what: str) -> NoReturn:
    raise RefusedError(f"site {site}: differential privacy refused its answer: {what}.")


def _bare_error(site: str, code: Any, shareable: Shareable) -> Shareable:
    """Return an error reply without its reason, for the text of an exception may quote the data."""
    code = code if isinstance(code, str) and code in _RETURN_CODES else ReturnCode.EXECUTION_EXCEPTION
    reason = f"site {site}: {code}; its reason stays in the site's own log, as differential privacy demands."
    reply = make_reply(code, {HEADER_REASON: reason})
    if shareable.get_header(HEADER_STOP) is True:
        reply.set_header(HEADER_STOP, True)
    return reply


def _check_what_follows(site: str, own: Filter, fl_ctx: FLContext) -> None:
    chain = result_filters(fl_ctx)
    if chain is None or own not in chain:
        _refuse(site, "FLARE does not say which filters its answer will pass after this one")
    for later in chain[chain.index(own) + 1 :]:
        if type(later) not in (*_POST_PROCESSING, type(own)):
            _refuse(site, f"the filter {class_path(later)} comes after it and could add what it does not see")


def _check_context(site: str, fl_ctx: FLContext) -> None:
    """Refuse public properties other than FLARE's own, which lie between double underscores: they leave as well."""
    for key in fl_ctx.get_all_public_props():
        if not (key.startswith("__") and key.endswith("__")):
            _refuse(site, f"FLARE's context has the public property {shorten(key)}, which would leave beside it")


def _content(site: str, shareable: Shareable) -> DXO:
    """Return the DXO in an answer that holds nothing else."""
    for key in shareable:
        if key not in (_DXO_KEY, ReservedHeaderKey.HEADERS):
            _refuse(site, f"it holds {shorten(key)} beside its content")
    for key in shareable.get(ReservedHeaderKey.HEADERS) or {}:
        if key not in _HEADERS:
            _refuse(site, f"it has the header {shorten(key)}, which is not known to be free of data")
    try:
        return from_shareable(shareable)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RefusedError(f"site {site}: differential privacy refused its answer: it is no DXO.") from error


def _census(site: str, dxo: DXO) -> DXO:
    """Return the census, whose counts are public, without the names of the files that were skipped."""
    if dxo.data_kind != DataKind.METRICS or dxo.meta:
        _refuse(site, f"its census is {shorten(dxo.data_kind)}, expected METRICS without meta")
    try:
        reply = CensusReply.read(dxo.data, "census", RefusedError)
    except RefusedError:
        _refuse(site, "its census is not as declared")
    return DXO(DataKind.METRICS, data=reply.model_copy(update={"skipped": ()}).model_dump(mode="json"))


def _update(site: str, dxo: DXO) -> Update:
    if dxo.data_kind == DataKind.COLLECTION:
        _refuse(site, "it holds a method's tensors beside the update, which differential privacy does not cover")
    if dxo.data_kind != DataKind.WEIGHT_DIFF:
        _refuse(site, f"it is {shorten(str(dxo.data_kind))}, expected an update (WEIGHT_DIFF)")
    tensors = {}
    for name, value in dxo.data.items():
        if not isinstance(name, str):
            _refuse(site, f"a parameter's name is a {type(name).__name__}, expected a string")
        tensors[name] = _values(site, name, value)
    if not any(value.is_floating_point() for value in tensors.values()):
        _refuse(site, "its update has no floating-point values")
    return Update(tensors, frozenset(name for name, value in dxo.data.items() if isinstance(value, np.ndarray)))


def _values(site: str, name: str, value: Any) -> torch.Tensor:
    """Return one parameter as a tensor on the CPU that may leave once it is noised, or is a counter of steps."""
    where = f"parameter {shorten(name)}"
    if isinstance(value, np.ndarray) and value.dtype in ARRAYS:
        value = torch.from_numpy(value.copy())  # a copy: torch warns of arrays that are read-only
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.device.type == "meta":
        _refuse(site, f"{where} is a {type(value).__name__}, expected a dense tensor or array of numbers")
    if value.dtype in FLOATS:
        if not bool(torch.isfinite(value).all()):
            _refuse(site, f"{where} has values that are NaN or infinite")
        if value.dtype == torch.float64 and bool((value.abs() > LARGEST_VALUE).any()):
            _refuse(site, f"{where} has values beyond {LARGEST_VALUE:g}")
    elif value.dtype != torch.int64 or not name.endswith(STEP_COUNTERS):
        _refuse(site, f"{where} is of {value.dtype}, expected floating-point numbers, or BatchNorm's step counter")
    return value.detach().cpu()


def _meta(site: str, dxo: DXO) -> dict[str, Any]:
    """Return the meta that may leave: the number of samples, and the report without what was measured on images."""
    meta: dict[str, Any] = {}
    for key, value in dxo.meta.items():
        if key == META_SAMPLES:
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                _refuse(site, "its number of samples is not a whole number above zero")
            meta[key] = value
        elif key == META_REPORT:
            meta[key] = _withheld(site, value)
        elif key not in (MetaKey.INITIAL_METRICS, MetaKey.FILTER_HISTORY):  # which simply do not leave
            _refuse(site, f"its meta holds {_REASONS.get(key) or f'{shorten(key)}, which is not known'}")
    return meta


def _withheld(site: str, value: Any) -> dict[str, Any]:
    try:
        report = TrainReport.read(value, "report", RefusedError)
    except RefusedError:
        _refuse(site, "its report of the training is not as declared")
    return report.model_copy(update=WITHHELD).model_dump(mode="python")


def _round(site: str, shareable: Shareable) -> int:
    number = shareable.get_header(AppConstants.CURRENT_ROUND, 0)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        _refuse(site, "the number of its round is not a whole number")
    return number

# SPDX-License-Identifier: Apache-2.0
"""Differential privacy for a site's answers. It fails closed: content that is not understood does not leave.

The update is clipped as one vector, noise is added, and the release is entered into the site's ledger before it is
returned. Other values that depend on the site's images are removed. Content that cannot be treated this way (a method's
additional tensors, a gap, metrics, unknown entries) raises :class:`RefusedError`, which never quotes a value, and the
answer becomes an error reply. The answer is rebuilt from checked content only, so nothing can pass unnoticed.

This package's own executor does the same before it returns an answer if the site's files require it
(``fdg_plugins.executors.site``). The site's or the job's filter then receives the same answer. A mark ensures that
noise is added only once. The mark is an attribute of the object in this process that stores the limits and the content
of the release. No message or config can supply one, and a mark is void if the answer's content has changed.
"""

import logging
from collections.abc import Mapping, Sequence
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

from fdg_plugins.core.linear import LARGEST_SQUARABLE
from fdg_plugins.core.privacy import Noise, privatize, secure_normal
from fdg_plugins.core.stored import dense_tensor
from fdg_plugins.errors import FDGError, SettingsError, shorten
from fdg_plugins.filters.precision import RoundedUpdateSendFilter
from fdg_plugins.filters.wire import NO_DXO
from fdg_plugins.flare.context import class_path, result_filters
from fdg_plugins.flare.metrics import publish_at_site
from fdg_plugins.messages import (
    HEADER_REASON,
    HEADER_RUN,
    HEADER_STOP,
    META_REPORT,
    META_SAMPLES,
    TASK_CENSUS,
    CensusReply,
    TrainReport,
)
from fdg_plugins.privacy import ledger as ledgers
from fdg_plugins.privacy.reasons import RefusedError, failing_closed, reason_of

# Filters allowed after a release: they see only the release, and remove content, round it or add noise.
POST_PROCESSING = (ExcludeVars, PercentilePrivacy, SVTPrivacy, RoundedUpdateSendFilter)
STEP_COUNTERS = "num_batches_tracked"  # BatchNorm's counters, which count steps, not images
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WITHHELD = {"received": None, "local": None, "training_split": None, "personal": None, "epoch_losses": None}

DXO_KEY = "DXO"
# HEADER_RUN holds the server's own run id, which the site's executor passes to the job's filters; it does not leave.
_HEADERS = {ReservedHeaderKey.CONTENT_TYPE, ReservedHeaderKey.RC, AppConstants.CURRENT_ROUND, HEADER_RUN}
_RETURN_CODES = {value for name, value in vars(ReturnCode).items() if not name.startswith("_")}
_MARK = "_fdg_release"


class DifferentialPrivacyFilter(Filter):
    """At a site, on its results: releases an update only if clipped, with noise, and within the site's budget.

    Use it as a filter of the job for the tasks ``train``, ``statistics``, ``probe`` and ``evaluate``, or of a scope in
    the site's own privacy policy, where no job can omit it. Only updates, errors and the census pass; any other answer
    is refused.

    Args:
        clip_norm: C > 0, maximum L2 norm of the whole update, in the update's units.
        noise_multiplier: sigma > 0; the noise on every value has standard deviation sigma * C.
        max_epsilon: > 0, ceiling on the total epsilon of all the site's releases, including those of earlier jobs.
        delta: in (0, 1), the delta at which epsilon is computed; choose it below 1 / (number of people in the data).

    A site's ``local/fdg_privacy.json`` may tighten each limit, never loosen it. Raises ``SettingsError`` for an
    argument that is out of range.
    """

    def __init__(
        self, clip_norm: float, noise_multiplier: float, max_epsilon: float, delta: float = ledgers.DEFAULT_DELTA
    ) -> None:
        super().__init__()
        self.clip_norm = clip_norm
        self.noise_multiplier = noise_multiplier
        self.max_epsilon = max_epsilon
        self.delta = delta
        self._noise: Noise = secure_normal
        self.limits()

    def limits(self) -> ledgers.Limits:
        """Return the arguments as limits; raise ``SettingsError`` naming the argument that is out of range."""
        arguments = {name: getattr(self, name) for name in ledgers.Limits.model_fields}
        return ledgers.Limits.read(arguments, "differential privacy", SettingsError)

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the release, or an error reply that says why nothing was released."""
        try:
            with failing_closed(f"site {fl_ctx.get_identity_name()}: differential privacy"):
                return self._answer(shareable, fl_ctx)
        except FDGError as error:
            reason = reason_of(error, fl_ctx)
            self.log_error(fl_ctx, f"Nothing was released: {reason.logged}", fire_event=False)
            return refusal(error, reason.told)

    def _answer(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        site, chain = fl_ctx.get_identity_name(), result_filters(fl_ctx)
        limits = ledgers.strictest(self.limits(), policy_of(fl_ctx))
        at = chain.index(self) if chain is not None and self in chain else None
        if shareable.get_return_code(ReturnCode.OK) == ReturnCode.OK:
            check_what_follows(site, None if chain is None or at is None else chain[at + 1 :])
            check_context(site, fl_ctx)
        if chain is not None and is_released(shareable, limits, chain[:at]):
            return shareable
        task = str(fl_ctx.get_prop(FLContextKey.TASK_NAME))
        return make_release(site, task, shareable, fl_ctx, limits, self._noise)


def policy_of(fl_ctx: FLContext) -> ledgers.Policy:
    """Return the site's own policy; raise ``SettingsError`` if it is invalid."""
    return ledgers.read_policy(str(fl_ctx.get_identity_name()), _local(fl_ctx) / ledgers.POLICY_FILE)


def _local(fl_ctx: FLContext) -> Path:
    return Path(fl_ctx.get_engine().get_workspace().get_site_config_dir())


def check_what_follows(site: str, later: Sequence[Filter] | None) -> None:
    """Raise ``RefusedError`` if a filter in ``later`` could add content that no release covers; None: unknown.

    Filters in ``POST_PROCESSING`` cannot; a privacy filter releases the answer again.
    """
    if later is None:
        refuse(site, "FLARE does not say which filters its answer will pass after this one")
    for filter_ in later:
        if type(filter_) not in (*POST_PROCESSING, DifferentialPrivacyFilter):
            refuse(site, f"the filter {class_path(filter_)} comes after it and could add what it does not see")


# --- the release ---


def refuse(site: str, what: str) -> NoReturn:
    """Raise ``RefusedError``: the answer does not leave, for the reason ``what``, which quotes no value."""
    raise RefusedError(f"site {site}: differential privacy refused its answer: {what}.", public=True)


def make_release(
    site: str, task: str, shareable: Shareable, fl_ctx: FLContext, limits: ledgers.Limits, noise: Noise
) -> Shareable:
    """Return the release of a site's answer to ``task`` (also of an error reply) under ``limits``.

    Raises ``RefusedError`` for content that differential privacy does not cover, ``BudgetSpentError`` if the budget is
    spent, and ``DataError`` for an unusable ledger; call it within :func:`failing_closed`.
    """
    code = shareable.get_return_code(ReturnCode.OK)
    if code != ReturnCode.OK:
        return _bare_error(site, code, shareable)
    check_context(site, fl_ctx)
    dxo = _content(site, shareable)
    if task == TASK_CENSUS:
        return _census(site, dxo).to_shareable()
    update, meta = read_update(site, dxo), _released_meta(site, dxo)
    number, job = shareable.get_header(AppConstants.CURRENT_ROUND, 0), str(fl_ctx.get_job_id())
    cost = ledgers.Ledger(ledgers.ledger_file(site, _local(fl_ctx)), site).spend(job, number, limits)
    floats = {name: value for name, value in update.items() if value.is_floating_point()}
    noisy = privatize(floats, limits.clip_norm, limits.noise_multiplier, noise)
    released = {name: noisy[name] if name in noisy else torch.zeros_like(value) for name, value in update.items()}
    data = {
        name: value.numpy() if isinstance(dxo.data[name], np.ndarray) else value for name, value in released.items()
    }
    answer = DXO(DataKind.WEIGHT_DIFF, data=data, meta=meta).to_shareable()
    answer.set_header(AppConstants.CURRENT_ROUND, number)
    logging.getLogger(__name__).info(
        f"site {site} | round {number + 1} | released with noise: epsilon is now {cost:.4g} of "
        f"{limits.max_epsilon:g} at delta {limits.delta:g}"
    )
    budget = {"fdg_epsilon_spent": cost, "fdg_epsilon_left": limits.max_epsilon - cost}
    publish_at_site(budget, {"site": site, "run": job})
    return answer


def refusal(error: FDGError, told: str) -> Shareable:
    """Return the error reply that says in ``told`` why nothing was released, and whether the site stops for good."""
    stop = {HEADER_STOP: True} if isinstance(error, ledgers.BudgetSpentError) else {}
    return make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: told, **stop})


# --- what an answer holds ---


def _bare_error(site: str, code: Any, shareable: Shareable) -> Shareable:
    """Return an error reply without its reason, because an exception's text may quote the data."""
    code = code if isinstance(code, str) and code in _RETURN_CODES else ReturnCode.EXECUTION_EXCEPTION
    reason = f"site {site}: {code}; its reason stays in the site's own log, as differential privacy demands."
    stop = {HEADER_STOP: True} if shareable.get_header(HEADER_STOP) is True else {}
    return make_reply(code, {HEADER_REASON: reason, **stop})


def check_context(site: str, fl_ctx: FLContext) -> None:
    """Refuse public context properties, which leave with the answer, except FLARE's own (``__name__``)."""
    for key in fl_ctx.get_all_public_props():
        if not (key.startswith("__") and key.endswith("__")):
            refuse(site, f"FLARE's context has the public property {shorten(key)}, which would leave beside it")


def _content(site: str, shareable: Shareable) -> DXO:
    for key in shareable.keys() - {DXO_KEY, ReservedHeaderKey.HEADERS}:
        refuse(site, f"it holds {shorten(key)} beside its content")
    for key in (shareable.get(ReservedHeaderKey.HEADERS) or {}).keys() - _HEADERS:
        refuse(site, f"it has the header {shorten(key)}, which is not known to be free of data")
    try:
        return from_shareable(shareable)
    except NO_DXO:
        refuse(site, "it is not a DXO")


def _census(site: str, dxo: DXO) -> DXO:
    """Return the census, whose counts are public, without the names of skipped files."""
    if dxo.data_kind != DataKind.METRICS or dxo.meta:
        refuse(site, "its census is not as declared")
    reply = CensusReply.model_validate(dxo.data).model_copy(update={"skipped": ()})
    return DXO(DataKind.METRICS, data=reply.model_dump(mode="json"))


def read_update(site: str, dxo: DXO) -> dict[str, torch.Tensor]:
    """Return the update in an answer, floating-point tensors and step counters; refuse any other content."""
    if dxo.data_kind != DataKind.WEIGHT_DIFF:
        kind = getattr(dxo.data_kind, "value", dxo.data_kind)  # an enum member until it has crossed the wire
        refuse(site, f"it is {shorten(str(kind))}, expected an update (WEIGHT_DIFF) and nothing beside it")
    update = {name: _values(site, name, value) for name, value in dxo.data.items()}
    if not any(value.is_floating_point() for value in update.values()):
        refuse(site, "its update has no floating-point values")
    return update


def _values(site: str, name: Any, value: Any) -> torch.Tensor:
    if not isinstance(name, str):
        refuse(site, f"a parameter's name is a {type(name).__name__}, expected a string")
    where = f"parameter {shorten(name)}"
    dense = dense_tensor(value)
    if dense is None:
        refuse(site, f"{where} is a {type(value).__name__}, expected a dense tensor or array of numbers")
    if dense.dtype not in FLOATS and (dense.dtype != torch.int64 or not name.endswith(STEP_COUNTERS)):
        refuse(site, f"{where} is of {dense.dtype}, expected floating-point numbers, or BatchNorm's step counter")
    if dense.is_floating_point():
        largest = min(LARGEST_SQUARABLE, torch.finfo(dense.dtype).max)
        if not bool((dense.abs() <= largest).all()):
            refuse(site, f"{where} has values that are NaN or beyond {largest:g}")
    return dense


def _released_meta(site: str, dxo: DXO) -> dict[str, Any]:
    """Return the meta that may leave: the number of samples, and the report without values measured on images."""
    meta: dict[str, Any] = {}
    for key, value in dxo.meta.items():
        if key == META_SAMPLES:
            if type(value) is not int or value < 1:
                refuse(site, "its number of samples is not a whole number above zero")
            meta[key] = value
        elif key == META_REPORT:
            meta[key] = TrainReport.model_validate(value).model_copy(update=WITHHELD).model_dump()
        elif key not in (MetaKey.INITIAL_METRICS, MetaKey.FILTER_HISTORY):  # which are dropped
            refuse(site, f"its meta holds {shorten(key)}, which differential privacy does not cover")
    return meta


# --- the mark of a release ---


class Release(NamedTuple):
    """The mark of an answer: the limits under which it was released, and its content at that time."""

    limits: ledgers.Limits
    rest: Any
    values: Any
    held: Any  # references to the tensors, so that no other object can reuse their ids


def mark(answer: Shareable, limits: ledgers.Limits) -> Shareable:
    """Mark ``answer`` in place as released under ``limits`` and return it; the mark never leaves the process."""
    tensors = list(answer[DXO_KEY]["data"].values()) if DXO_KEY in answer else []
    setattr(answer, _MARK, Release(limits, *_summary(answer), tensors))
    return answer


def is_released(answer: Shareable, limits: ledgers.Limits, earlier: Sequence[Filter]) -> bool:
    """Return whether ``answer`` was released under ``limits`` or stricter ones and has since passed only ``earlier``.

    Its content must be unchanged, or the result of post-processing filters, which add no entry.
    """
    release = getattr(answer, _MARK, None)
    if not isinstance(release, Release) or ledgers.strictest(release.limits, limits) != release.limits:
        return False
    rest, values = _summary(answer)
    post_processed = all(type(one) in POST_PROCESSING for one in earlier) and isinstance(values, dict)
    return rest == release.rest and (
        values == release.values or (post_processed and values.keys() <= release.values.keys())
    )


def _summary(answer: Shareable) -> tuple[Any, Any]:
    """Return a comparable summary of what an answer holds but its values, and of these by name.

    Left out is the history of filters, which FLARE's filters add to the meta.
    """
    rest = _plain(answer)
    dxo = rest.get(DXO_KEY)
    if not isinstance(dxo, dict):
        return rest, None
    if isinstance(meta := dxo.get("meta"), dict):
        meta.pop(MetaKey.FILTER_HISTORY, None)
    return rest, dxo.pop("data", None)


def _plain(value: Any) -> Any:
    """Return a copy to compare, in which a tensor is represented by its id and version counter."""
    if isinstance(value, torch.Tensor):
        return "tensor", id(value), value._version
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool | int | float | str | None):
        return type(value), value
    return object()  # equal to nothing: an array or another mutable object may have been modified

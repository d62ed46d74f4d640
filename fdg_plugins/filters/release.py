# SPDX-License-Identifier: Apache-2.0
"""A release under differential privacy (clipped, noised, entered into the ledger), and the mark on a released answer.

If the site's own files require privacy, the executor releases an answer before returning it. The site's or the job's
:class:`~fdg_plugins.filters.privacy.DifferentialPrivacyFilter` then receives the same answer. A mark ensures that noise
is added only once. The mark is an attribute of the object in this process that stores the limits and the content of the
release. No message or config can supply one, and a mark is void if the answer's content has changed.
"""

import functools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.filters.exclude_vars import ExcludeVars
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.filters.svt_privacy import SVTPrivacy

from fdg_plugins.core.privacy import Noise, privatize
from fdg_plugins.errors import FDGError
from fdg_plugins.filters import disclosure
from fdg_plugins.filters.disclosure import DXO_KEY, RefusedError, Update, refuse
from fdg_plugins.filters.precision import RoundedUpdateSendFilter
from fdg_plugins.flare.filter_chain import class_path
from fdg_plugins.flare.metrics import Metric, publish_at_site
from fdg_plugins.messages import HEADER_REASON, HEADER_STOP, TASK_CENSUS, TASK_EVALUATE
from fdg_plugins.privacy.ledger import BudgetSpentError, Ledger, Limits, ledger_file

# Filters allowed after a release: they see only the release, and remove content, round it or add noise.
POST_PROCESSING = (ExcludeVars, PercentilePrivacy, SVTPrivacy, RoundedUpdateSendFilter)

_MARK = "_fdg_release"


class Release(NamedTuple):
    """The mark of an answer: the limits under which it was released, and its content at that time."""

    limits: Limits
    content: Any
    held: Any  # references to the tensors, so that no other object can reuse their ids


def make_release(
    site: str, task: str, shareable: Shareable, fl_ctx: FLContext, limits: Limits, noise: Noise
) -> Shareable:
    """Return the release of a site's answer to ``task`` (also of an error reply) under ``limits``.

    Raises ``RefusedError`` for content that differential privacy does not cover, ``BudgetSpentError`` if the budget is
    spent, and ``DataError`` for an unusable ledger. It raises no other errors, and none quotes a value of the answer.
    """
    try:
        return _release(site, task, shareable, fl_ctx, limits, noise)
    except FDGError:
        raise
    except Exception as error:
        # Only the type, because the error's text may quote the data.
        raise RefusedError(f"site {site}: differential privacy failed with {type(error).__name__}.") from error


def _release(site: str, task: str, shareable: Shareable, fl_ctx: FLContext, limits: Limits, noise: Noise) -> Shareable:
    code = shareable.get_return_code(ReturnCode.OK)
    if code != ReturnCode.OK:
        return disclosure.bare_error(site, code, shareable)
    disclosure.check_context(site, fl_ctx)
    dxo = disclosure.content(site, shareable)
    if task == TASK_CENSUS:
        return disclosure.census(site, dxo).to_shareable()
    if task == TASK_EVALUATE and (dxo.data_kind, dxo.data, dxo.meta or {}) == (DataKind.METRICS, {}, {}):
        return DXO(DataKind.METRICS, data={}).to_shareable()
    update, meta = disclosure.read_update(site, dxo), disclosure.released_meta(site, dxo)
    round_number = disclosure.round_of(site, shareable)
    local = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir())
    cost = Ledger(ledger_file(site, local), site).spend(str(fl_ctx.get_job_id()), round_number, limits)
    answer = DXO(DataKind.WEIGHT_DIFF, data=_noised(update, limits, noise), meta=meta).to_shareable()
    answer.set_header(AppConstants.CURRENT_ROUND, round_number)
    logging.getLogger(__name__).info(
        f"site {site} | round {round_number + 1} | released with noise: epsilon is now {cost:.4g} of "
        f"{limits.max_epsilon:g} at delta {limits.delta:g}"
    )
    budget = {"fdg_epsilon_spent": cost, "fdg_epsilon_left": limits.max_epsilon - cost}
    metrics = (Metric(name, "gauge", value) for name, value in budget.items())
    publish_at_site(metrics, {"site": site, "run": str(fl_ctx.get_job_id())})
    return answer


def refusal(error: FDGError, told: str) -> Shareable:
    """Return the error reply that says in ``told`` why nothing was released, and whether the site stops for good."""
    reply = make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: told})
    if isinstance(error, BudgetSpentError):
        reply.set_header(HEADER_STOP, True)
    return reply


def _noised(update: Update, limits: Limits, noise: Noise) -> dict[str, Any]:
    """Return the update in releasable form: floats clipped and noised as one vector, step counters set to zero."""
    floats = {name: value for name, value in update.tensors.items() if value.is_floating_point()}
    noisy = privatize(floats, limits.clip_norm, limits.noise_multiplier, noise)
    release = {
        name: noisy[name] if name in noisy else torch.zeros(value.shape, dtype=value.dtype)
        for name, value in update.tensors.items()
    }
    return {name: value.numpy() if name in update.arrays else value for name, value in release.items()}


def strictest(limits: Limits, *others: Limits) -> Limits:
    """Return limits that combine the strictest value of each."""
    return functools.reduce(Limits.under, others, limits)


def check_what_follows(site: str, later: Sequence[Filter], kind: type[Filter]) -> None:
    """Raise ``RefusedError`` if a filter in ``later`` could add content that no release covers.

    Filters in ``POST_PROCESSING`` cannot; filters of class ``kind`` release the answer again.
    """
    for filter_ in later:
        if type(filter_) not in (*POST_PROCESSING, kind):
            refuse(site, f"the filter {class_path(filter_)} comes after it and could add what it does not see")


def mark(answer: Shareable, limits: Limits) -> Shareable:
    """Mark ``answer`` in place as released under ``limits`` and return it; the mark never leaves the process."""
    tensors = list((answer.get(DXO_KEY) or {}).get("data", {}).values()) if DXO_KEY in answer else []
    setattr(answer, _MARK, Release(limits, _content(answer), tensors))
    return answer


def is_released(answer: Shareable, limits: Limits, earlier: Sequence[Filter]) -> bool:
    """Return whether ``answer`` was released under ``limits`` or stricter ones and has since passed only ``earlier``.

    Its content must be unchanged, or the result of post-processing filters.
    """
    release = getattr(answer, _MARK, None)
    if not isinstance(release, Release) or strictest(release.limits, limits) != release.limits:
        return False
    now = _content(answer)
    if now == release.content:
        return True
    return all(type(one) in POST_PROCESSING for one in earlier) and _without_values(now, release.content)


def _without_values(now: Any, before: Any) -> bool:
    """Return whether an answer has no entry that it did not have before, except the filter history in its meta."""
    try:
        one, other = dict(now[DXO_KEY]), dict(before[DXO_KEY])
        meta = {key: value for key, value in one.pop("meta").items() if key != MetaKey.FILTER_HISTORY}
        values, known = one.pop("data"), other.pop("data")
        has_same_frame = (meta, {**now, DXO_KEY: one}) == (other.pop("meta"), {**before, DXO_KEY: other})
        return bool(has_same_frame and values.keys() <= known.keys())
    except (KeyError, TypeError, AttributeError):
        return False


def _content(value: Any) -> Any:
    """Return a comparable summary of an answer's content; a tensor is represented by its id and version counter."""
    if isinstance(value, torch.Tensor):
        return "tensor", id(value), value._version
    if isinstance(value, Mapping):
        return {key: _content(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_content(item) for item in value]
    if isinstance(value, bool | int | float | str | None):
        return type(value), value
    return object()  # equal to nothing: an array or another mutable object may have been modified

# SPDX-License-Identifier: Apache-2.0
"""A release under differential privacy: clipped, noised, entered into the ledger; and the mark that it was made.

The executor releases what the site's own files protect before it returns anything, and the site's or the job's
:class:`~fdg_plugins.filters.privacy.DifferentialPrivacyFilter` meets the same answer afterwards. So that the noise is
added once, a released answer carries a mark: an attribute of the object in this process, which says under which limits
it was made and what it held. No message and no config can bring one; an answer whose content changed has lost it.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.filters.exclude_vars import ExcludeVars
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.filters.svt_privacy import SVTPrivacy

from fdg_plugins.core.privacy import Noise, privatize
from fdg_plugins.errors import FDGError
from fdg_plugins.filters import disclosure
from fdg_plugins.filters.disclosure import DXO_KEY, RefusedError, Update, refuse
from fdg_plugins.filters.ledger import LEDGER_FILE, LEDGER_FOLDER, Ledger, Limits, Policy
from fdg_plugins.filters.precision import RoundedUpdateSendFilter
from fdg_plugins.flare.filter_chain import class_path
from fdg_plugins.messages import TASK_CENSUS

# What a result may pass after a release: filters that see the release alone, take away from it, round it, add noise.
POST_PROCESSING = (ExcludeVars, PercentilePrivacy, SVTPrivacy, RoundedUpdateSendFilter)

_MARK = "_fdg_release"


class Release(NamedTuple):
    """The mark of an answer: the limits under which it was released, and what it held then."""

    limits: Limits
    content: Any
    held: Any  # the tensors themselves: while they are held, no other object has their ids


def make_release(
    site: str, task: str, shareable: Shareable, fl_ctx: FLContext, limits: Limits, noise: Noise
) -> Shareable:
    """Return the release of a site's answer to ``task``, error replies among them, under ``limits``.

    Raises ``RefusedError`` for what differential privacy does not cover, ``BudgetSpentError`` if the budget is spent
    and ``DataError`` for a ledger that cannot be used; no other error, and none that quotes a value of the answer.
    """
    try:
        return _release(site, task, shareable, fl_ctx, limits, noise)
    except FDGError:
        raise
    except Exception as error:
        # Not the error's own text: it may quote the data.
        raise RefusedError(f"site {site}: differential privacy failed with {type(error).__name__}.") from error


def _release(site: str, task: str, shareable: Shareable, fl_ctx: FLContext, limits: Limits, noise: Noise) -> Shareable:
    code = shareable.get_return_code(ReturnCode.OK)
    if code != ReturnCode.OK:
        return disclosure.bare_error(site, code, shareable)
    disclosure.check_context(site, fl_ctx)
    dxo = disclosure.content(site, shareable)
    if task == TASK_CENSUS:
        return disclosure.census(site, dxo).to_shareable()
    update, meta = disclosure.read_update(site, dxo), disclosure.released_meta(site, dxo)
    round_number = disclosure.round_of(site, shareable)
    local = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir())
    cost = Ledger(local / LEDGER_FOLDER / LEDGER_FILE, site).spend(str(fl_ctx.get_job_id()), round_number, limits)
    answer = DXO(DataKind.WEIGHT_DIFF, data=_noised(update, limits, noise), meta=meta).to_shareable()
    answer.set_header(AppConstants.CURRENT_ROUND, round_number)
    logging.getLogger(__name__).info(
        f"site {site} | round {round_number + 1} | released with noise: epsilon is now {cost:.4g} of "
        f"{limits.max_epsilon:g} at delta {limits.delta:g}"
    )
    return answer


def _noised(update: Update, limits: Limits, noise: Noise) -> dict[str, Any]:
    """Return the update as it may leave: floats clipped and noised as one vector, step counters zero."""
    floats = {name: value for name, value in update.tensors.items() if value.is_floating_point()}
    noisy = privatize(floats, limits.clip_norm, limits.noise_multiplier, noise)
    release = {
        name: noisy[name] if name in noisy else torch.zeros(value.shape, dtype=value.dtype)
        for name, value in update.tensors.items()
    }
    return {name: value.numpy() if name in update.arrays else value for name, value in release.items()}


# --- limits ---


def strictest(limits: Limits, *others: Limits) -> Limits:
    """Return the strictest of each limit."""
    for other in others:
        limits = limits.under(Policy.model_validate(other.model_dump()))
    return limits


# --- what may come after a release ---


def check_what_follows(site: str, later: Sequence[Filter], kind: type[Filter]) -> None:
    """Raise ``RefusedError`` if a filter in ``later`` could add what no release covers; ``kind`` releases anew."""
    for filter_ in later:
        if type(filter_) not in (*POST_PROCESSING, kind):
            refuse(site, f"the filter {class_path(filter_)} comes after it and could add what it does not see")


# --- the mark ---


def mark(answer: Shareable, limits: Limits) -> Shareable:
    """Return ``answer`` itself, marked as released under ``limits``; nothing of the mark leaves the process."""
    tensors = list((answer.get(DXO_KEY) or {}).get("data", {}).values()) if DXO_KEY in answer else []
    setattr(answer, _MARK, Release(limits, _content(answer), tensors))
    return answer


def is_released(answer: Shareable, limits: Limits, earlier: Sequence[Filter]) -> bool:
    """Return whether ``answer`` was released under ``limits`` or stricter ones, and has passed ``earlier`` since.

    Its content must be what it was, or what filters that take away or round have left of it.
    """
    release = getattr(answer, _MARK, None)
    if not isinstance(release, Release) or strictest(release.limits, limits) != release.limits:
        return False
    now = _content(answer)
    if now == release.content:
        return True
    return all(type(one) in POST_PROCESSING for one in earlier) and _without_values(now, release.content)


def _without_values(now: Any, before: Any) -> bool:
    """Return whether an answer holds nothing by name that it did not hold before, but a filter's entry of itself."""
    try:
        one, other = now[DXO_KEY], before[DXO_KEY]
        meta = {key: value for key, value in one["meta"].items() if key != MetaKey.FILTER_HISTORY}
        return bool(
            now.keys() == before.keys()
            and now[ReservedHeaderKey.HEADERS] == before[ReservedHeaderKey.HEADERS]
            and one.keys() == other.keys()
            and one["kind"] == other["kind"]
            and meta == other["meta"]
            and one["data"].keys() <= other["data"].keys()
        )
    except (KeyError, TypeError, AttributeError):
        return False


def _content(value: Any) -> Any:
    """Return what can be compared of an answer later: a tensor by its identity and how often it was written to."""
    if isinstance(value, torch.Tensor):
        return "tensor", id(value), value._version
    if isinstance(value, Mapping):
        return {key: _content(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_content(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return type(value), value
    return object()  # equal to nothing: an array, or whatever else may have been written to

# SPDX-License-Identifier: Apache-2.0
"""What the executor holds its own answers to before it returns one, from the site's own files alone.

FLARE's filters see what FLARE's runner sends to the server, and nothing that another component of a job does with an
executor's answer. So the site's demands are met here: differential privacy, if its ``local/fdg_privacy.json`` gives all
of it or a scope of its ``local/privacy.json`` has the filter, and its list of allowed reports, held against what the
answer really contains.
"""

from pathlib import Path

from nvflare.apis.dxo import DataKind, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fdg_plugins.core.privacy import Noise, secure_normal
from fdg_plugins.errors import SettingsError
from fdg_plugins.executors.work import Order
from fdg_plugins.filters.disclosure import refuse
from fdg_plugins.filters.ledger import POLICY_FILE, Limits, Policy, read_policy
from fdg_plugins.filters.privacy import DifferentialPrivacyFilter
from fdg_plugins.filters.release import check_what_follows, make_release, mark, strictest
from fdg_plugins.flare.filter_chain import result_filters, scope_filters
from fdg_plugins.messages import (
    META_GAP,
    META_REPORT,
    META_SITE_REPORT,
    REPORT_GAP,
    REPORT_LOCAL_MODEL,
    REPORT_TRAINING_LOSS,
    TaskRequest,
)
from fdg_plugins.plugins.files import load_files
from fdg_plugins.settings.protocol import Protocol

DEFAULT_DELTA = 1e-5


# --- differential privacy ---


def demanded_limits(site: str, fl_ctx: FLContext) -> Limits | None:
    """Return the limits under which every answer of the site must be released; None if its files demand no privacy.

    They are the strictest of all that apply: the site's policy, the filters of the scope in force and of the default
    scope, which no choice of another scope by a job escapes, and once one of these demands anything the job's own
    filters too, so that the answer meets them when it gets there. Raises ``SettingsError`` for a policy that cannot be
    read.
    """
    local = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir())
    policy = read_policy(site, local / POLICY_FILE)
    demands = [one.limits() for one in _scope_filters(fl_ctx)]
    if (whole := _whole(policy)) is not None:
        demands.append(whole)
    if not demands:
        return None
    jobs = [one.limits() for one in result_filters(fl_ctx) or () if isinstance(one, DifferentialPrivacyFilter)]
    return strictest(demands[0], *demands[1:], *jobs).under(policy)


def _whole(policy: Policy) -> Limits | None:
    """Return a policy as limits if it gives all that a release needs."""
    if policy.clip_norm is None or policy.noise_multiplier is None or policy.max_epsilon is None:
        return None
    return Limits(
        clip_norm=policy.clip_norm,
        noise_multiplier=policy.noise_multiplier,
        max_epsilon=policy.max_epsilon,
        delta=policy.delta or DEFAULT_DELTA,
    )


def _scope_filters(fl_ctx: FLContext) -> list[DifferentialPrivacyFilter]:
    """Return the privacy filters for results in the scope in force and in the site's default scope."""
    return [one for one in scope_filters(fl_ctx) if isinstance(one, DifferentialPrivacyFilter)]


def release(
    site: str, task: str, answer: Shareable, fl_ctx: FLContext, limits: Limits, noise: Noise = secure_normal
) -> Shareable:
    """Return the release of ``answer`` under ``limits``, marked for the filters that it will meet.

    Raises ``RefusedError``, before anything is entered into the ledger, if the answer holds what differential privacy
    does not cover, or a filter of the job could add such a thing afterwards.
    """
    if answer.get_return_code(ReturnCode.OK) == ReturnCode.OK:
        chain = result_filters(fl_ctx)
        if chain is None:
            refuse(site, "FLARE does not say which filters its answer will pass after this one")
        # What comes before a privacy filter of the chain is that filter's to judge: it looks at the answer once more.
        kinds = [isinstance(one, DifferentialPrivacyFilter) for one in chain]
        last = len(kinds) - kinds[::-1].index(True) if True in kinds else 0
        check_what_follows(site, chain[last:], DifferentialPrivacyFilter)
    return mark(make_release(site, task, answer, fl_ctx, limits, noise), limits)


# --- what may leave beside an update ---


def check_reports(answer: Shareable, order: Order, allowed: tuple[str, ...] | None) -> None:
    """Raise ``SettingsError`` if an answer holds a report that is not ``allowed``; None allows everything.

    What counts is what the answer contains, whatever was refused or not before the work began.
    """
    if allowed is None or answer.get_return_code(ReturnCode.OK) != ReturnCode.OK:
        return
    for what, any_of in _reports_in(answer, order).items():
        if not set(any_of) & set(allowed):
            names = " or ".join(repr(name) for name in any_of if name is not None) or "a report that has no name"
            raise SettingsError(f"the answer holds {what}: the site forbids {names} (allowed_reports).", public=True)


def _reports_in(answer: Shareable, order: Order) -> dict[str, tuple[str | None, ...]]:
    """Return what an answer holds beside its update, in words, and the names of which one must be allowed for it."""
    dxo = from_shareable(answer)
    meta = dxo.meta or {}
    needed: dict[str, tuple[str | None, ...]] = {}
    if meta.get(META_SITE_REPORT) or dxo.data_kind == DataKind.COLLECTION:
        needed["tensors of the method"] = (_report_of(order),)
    if (meta.get(META_REPORT) or {}).get("training_split") is not None:
        needed["losses on the training split"] = (REPORT_TRAINING_LOSS, REPORT_GAP)
    if META_GAP in meta:
        needed["a generalization gap"] = (REPORT_GAP,)
    if dxo.data_kind == DataKind.WEIGHT_DIFF and _protocol(order).keep_local_models:
        needed["a model that is kept among the results"] = (REPORT_LOCAL_MODEL,)
    return needed


def _protocol(order: Order) -> Protocol:
    return TaskRequest.model_validate(order.request).protocol


def _report_of(order: Order) -> str | None:
    # Imported where it is needed: FLARE's process has no use for methods and models otherwise.
    from fdg_plugins.objectives import make_objective

    protocol = _protocol(order)
    load_files(protocol.plugins, Path(order.custom))  # the work has admitted them already
    return make_objective(protocol.objective).report

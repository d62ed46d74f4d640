# SPDX-License-Identifier: Apache-2.0
"""Enforces the site's own rules on every answer before the executor returns it; the rules come from the site's files.

FLARE's filters see only what FLARE's runner sends to the server. They do not see what another component of a job does
with an executor's answer. The site's rules are therefore enforced here:

- differential privacy, if the site's ``local/fdg_privacy.json`` sets every required limit, or a scope of its
  ``local/privacy.json`` has the filter;
- the site's list of allowed reports, checked against the actual content of the answer.
"""

from collections.abc import Iterable, Iterator

from nvflare.apis.dxo import DataKind, from_shareable
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fdg_plugins.core.privacy import secure_normal
from fdg_plugins.errors import SettingsError
from fdg_plugins.executors.work import SiteTask
from fdg_plugins.filters.privacy import (
    DifferentialPrivacyFilter,
    check_what_follows,
    make_release,
    mark,
    policy_of,
)
from fdg_plugins.flare.context import result_filters, scope_filters
from fdg_plugins.messages import (
    META_REPORT,
    META_SITE_REPORT,
    REPORT_GAP,
    REPORT_TRAINING_LOSS,
    TASK_CENSUS,
    TASK_EVALUATE,
    TASK_SCORE,
    TASK_STATISTICS,
    TASK_TRAIN,
)
from fdg_plugins.plugins.files import load_files
from fdg_plugins.plugins.reports import REPORT_EVALUATION, REPORT_LOCAL_MODEL, REPORT_STATISTICS
from fdg_plugins.privacy.ledger import DEFAULT_DELTA, Limits, strictest
from fdg_plugins.privacy.reasons import failing_closed


def demanded_limits(fl_ctx: FLContext) -> Limits | None:
    """Return the privacy limits for every answer of the site; None if the site's files require no privacy.

    The result combines the strictest value of each limit that applies: the site's policy, the filters of the active
    scope and those of the default scope (a job cannot avoid the latter by choosing another scope). If any of these
    requires privacy, the job's own filters count too, so that the answer will also satisfy them.

    Raises ``SettingsError`` if the policy cannot be read.
    """
    policy = policy_of(fl_ctx)
    demands, own = _limits_of(scope_filters(fl_ctx)), {"delta": DEFAULT_DELTA, **policy.limits()}
    if own.keys() == Limits.model_fields.keys():  # else it lacks a limit that a release needs
        demands.append(Limits(**own))
    return strictest(*demands, *_limits_of(result_filters(fl_ctx) or ()), policy) if demands else None


def _limits_of(filters: Iterable[Filter]) -> list[Limits]:
    return [one.limits() for one in filters if isinstance(one, DifferentialPrivacyFilter)]


def release(task: str, answer: Shareable, fl_ctx: FLContext, limits: Limits) -> Shareable:
    """Return the release of ``answer`` under ``limits``, marked for the filters that follow.

    Raises ``RefusedError``, before any entry in the ledger, if the answer holds anything that differential privacy
    does not cover, or if a later filter of the job could add such content.
    """
    site = str(fl_ctx.get_identity_name())
    with failing_closed(f"site {site}: differential privacy"):
        if answer.get_return_code(ReturnCode.OK) == ReturnCode.OK:
            chain = result_filters(fl_ctx)
            # A privacy filter in the chain checks the answer again, so it covers the filters before it.
            covered = [at for at, one in enumerate(chain or ()) if isinstance(one, DifferentialPrivacyFilter)]
            check_what_follows(site, chain if chain is None else chain[max(covered, default=-1) + 1 :])
        return mark(make_release(site, task, answer, fl_ctx, limits, secure_normal), limits)


def check_reports(answer: Shareable, order: SiteTask, allowed: tuple[str, ...] | None) -> None:
    """Raise ``SettingsError`` if an answer holds a report that is not in ``allowed``; None allows everything.

    Only the content of the answer counts, whatever the protocol says.
    """
    if allowed is None or order.task == TASK_CENSUS:
        return
    for what, names in _reports_in(answer, order):
        if set(names).isdisjoint(allowed):
            forbidden = " or ".join(map(repr, names)) or "a report that has no name"
            text = f"the answer holds {what}: the site forbids {forbidden} (allowed_reports)."
            raise SettingsError(text, public=True)


def _reports_in(answer: Shareable, order: SiteTask) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield an answer's additional contents, in words, each with its report names, of which one must be allowed."""
    # Imported here because FLARE's process otherwise needs neither methods nor models.
    from fdg_plugins.objectives import make_objective

    dxo, protocol = from_shareable(answer), order.request.protocol
    if order.custom is not None:
        load_files(protocol.plugins, order.custom)  # the site's work has already admitted them
    if dxo.meta.get(META_SITE_REPORT):
        report = make_objective(protocol.objective).report
        yield "tensors of the method", () if report is None else (report,)
    if dxo.meta.get(META_REPORT, {}).get("training_split") is not None:
        yield "losses on the training split", (REPORT_TRAINING_LOSS, REPORT_GAP)
    if order.task == TASK_STATISTICS and dxo.data:
        yield "normalization statistics", (REPORT_STATISTICS,)
    if dxo.data_kind == DataKind.WEIGHT_DIFF and protocol.keep_local_models:
        yield "a model that is kept among the results", (REPORT_LOCAL_MODEL,)
    if order.task == TASK_SCORE:
        yield "the scores of a finished model", (REPORT_EVALUATION,)
    if order.task in (TASK_TRAIN, TASK_EVALUATE, TASK_SCORE):
        yield from (("scores of its task beyond the primary one", (scores,)) for scores in protocol.learned.reports)

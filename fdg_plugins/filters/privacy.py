# SPDX-License-Identifier: Apache-2.0
"""Differential privacy for what a site answers, which fails closed: what is not understood does not leave.

The update is clipped as one vector, noise is added, and the release is entered into the site's ledger before it is
handed out; all else that depends on the site's images is taken off. What cannot be treated so (a method's tensors
beside the update, a gap, metrics, unknown entries) turns the answer into an error reply of one sentence. The answer is
built anew from what was checked, so nothing passes by being overlooked.

Our own executor does the same by itself before it returns an answer, where the site's files demand it
(``fdg_plugins.executors.gate``); such an answer passes here as it is, if it was made under limits as strict.
"""

from pathlib import Path
from typing import Any

from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

from fdg_plugins.core.privacy import Noise, secure_normal
from fdg_plugins.errors import FDGError
from fdg_plugins.filters import disclosure
from fdg_plugins.filters.disclosure import refuse
from fdg_plugins.filters.ledger import POLICY_FILE, BudgetSpentError, Limits, read_limits, read_policy
from fdg_plugins.filters.release import check_what_follows, is_released, make_release
from fdg_plugins.flare.filter_chain import result_filters
from fdg_plugins.messages import HEADER_REASON, HEADER_STOP
from fdg_plugins.privacy.reasons import may_tell_names, reason_of


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
        self.limits()

    def limits(self) -> Limits:
        """Return the arguments as limits; raise ``SettingsError`` naming the one that is out of range."""
        names = ("clip_norm", "noise_multiplier", "max_epsilon", "delta")
        return read_limits({name: getattr(self, name) for name in names})

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the release, or an error reply that says why there is none."""
        site = fl_ctx.get_identity_name()
        try:
            return self._answer(site, shareable, fl_ctx)
        except FDGError as error:
            return self._refusal(error, fl_ctx)
        except Exception as error:  # noqa: BLE001 - whatever happens, what came in must not go out
            # Not the error's own text: it may quote the data.
            failed = f"site {site}: differential privacy failed with {type(error).__name__}."
            return self._refusal(disclosure.RefusedError(failed), fl_ctx)

    def _answer(self, site: str, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        limits = self.limits().under(read_policy(site, _policy_file(fl_ctx)))
        chain = result_filters(fl_ctx)
        at = chain.index(self) if chain is not None and self in chain else None
        if shareable.get_return_code(ReturnCode.OK) == ReturnCode.OK:
            if chain is None or at is None:
                refuse(site, "FLARE does not say which filters its answer will pass after this one")
            check_what_follows(site, chain[at + 1 :], type(self))
            disclosure.check_context(site, fl_ctx)
        if chain is not None and is_released(shareable, limits, chain[:at]):
            return shareable
        task = str(fl_ctx.get_prop(FLContextKey.TASK_NAME))
        return make_release(site, task, shareable, fl_ctx, limits, self._noise)

    def _refusal(self, error: FDGError, fl_ctx: FLContext) -> Shareable:
        reason = reason_of(error, names=may_tell_names(fl_ctx))
        self.log_error(fl_ctx, f"Nothing was released: {reason.logged}")
        headers: dict[str, Any] = {HEADER_REASON: reason.told}
        if isinstance(error, BudgetSpentError):
            headers[HEADER_STOP] = True
        return make_reply(ReturnCode.EXECUTION_EXCEPTION, headers)


def _policy_file(fl_ctx: FLContext) -> Path:
    return Path(fl_ctx.get_engine().get_workspace().get_site_config_dir()) / POLICY_FILE

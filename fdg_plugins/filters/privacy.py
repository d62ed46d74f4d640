# SPDX-License-Identifier: Apache-2.0
"""Differential privacy for a site's answers. It fails closed: content that is not understood does not leave.

The update is clipped as one vector, noise is added, and the release is entered into the site's ledger before it is
returned. Other values that depend on the site's images are removed. Content that cannot be treated this way (a method's
additional tensors, a gap, metrics, unknown entries) turns the answer into an error reply with a one-sentence reason.
The answer is rebuilt from checked content only, so nothing can pass unnoticed.

This package's own executor does the same before it returns an answer if the site's files require it
(``fdg_plugins.executors.gate``). Such an answer passes this filter unchanged if its limits were at least as strict.
"""

from pathlib import Path

from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fdg_plugins.core.privacy import Noise, secure_normal
from fdg_plugins.errors import FDGError
from fdg_plugins.filters import disclosure
from fdg_plugins.filters.disclosure import refuse
from fdg_plugins.filters.release import check_what_follows, is_released, make_release, refusal
from fdg_plugins.flare.filter_chain import result_filters
from fdg_plugins.privacy.ledger import DEFAULT_DELTA, POLICY_FILE, Limits, read_limits, read_policy
from fdg_plugins.privacy.reasons import may_tell_names, reason_of


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
        self, clip_norm: float, noise_multiplier: float, max_epsilon: float, delta: float = DEFAULT_DELTA
    ) -> None:
        super().__init__()
        self.clip_norm = clip_norm
        self.noise_multiplier = noise_multiplier
        self.max_epsilon = max_epsilon
        self.delta = delta
        self._noise: Noise = secure_normal
        self.limits()

    def limits(self) -> Limits:
        """Return the arguments as limits; raise ``SettingsError`` naming the argument that is out of range."""
        names = ("clip_norm", "noise_multiplier", "max_epsilon", "delta")
        return read_limits({name: getattr(self, name) for name in names})

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the release, or an error reply that says why nothing was released."""
        site = fl_ctx.get_identity_name()
        try:
            return self._answer(site, shareable, fl_ctx)
        except FDGError as error:
            return self._refusal(error, fl_ctx)
        except Exception as error:  # noqa: BLE001 - whatever happens, the input must not leave
            # Only the type, because the error's text may quote the data.
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
        self.log_error(fl_ctx, f"Nothing was released: {reason.logged}", fire_event=False)
        return refusal(error, reason.told)


def _policy_file(fl_ctx: FLContext) -> Path:
    return Path(fl_ctx.get_engine().get_workspace().get_site_config_dir()) / POLICY_FILE

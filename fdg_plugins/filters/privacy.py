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
from fdg_plugins.filters.release import check_context, check_what_follows, is_released, make_release, refusal, refuse
from fdg_plugins.flare.filter_chain import result_filters
from fdg_plugins.privacy.ledger import DEFAULT_DELTA, POLICY_FILE, Limits, read_limits, read_policy, strictest
from fdg_plugins.privacy.reasons import reason_of


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
        return read_limits({name: getattr(self, name) for name in Limits.model_fields})

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the release, or an error reply that says why nothing was released."""
        try:
            return self._answer(shareable, fl_ctx)
        except FDGError as error:
            reason = reason_of(error, fl_ctx)
            self.log_error(fl_ctx, f"Nothing was released: {reason.logged}", fire_event=False)
            return refusal(error, reason.told)

    def _answer(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        # FLARE sends nothing of an answer in whose filters an unforeseen error was raised.
        site, local = fl_ctx.get_identity_name(), fl_ctx.get_engine().get_workspace().get_site_config_dir()
        limits = strictest(self.limits(), read_policy(site, Path(local) / POLICY_FILE))
        chain = result_filters(fl_ctx)
        at = chain.index(self) if chain is not None and self in chain else None
        if shareable.get_return_code(ReturnCode.OK) == ReturnCode.OK:
            if chain is None or at is None:
                refuse(site, "FLARE does not say which filters its answer will pass after this one")
            check_what_follows(site, chain[at + 1 :], type(self))
            check_context(site, fl_ctx)
        if chain is not None and is_released(shareable, limits, chain[:at]):
            return shareable
        task = str(fl_ctx.get_prop(FLContextKey.TASK_NAME))
        return make_release(site, task, shareable, fl_ctx, limits, self._noise)

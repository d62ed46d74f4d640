# SPDX-License-Identifier: Apache-2.0
"""``fdg kit privacy``: what a plan will spend of a site's privacy, or what noise it needs."""

from collections.abc import Sequence
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fdg_plugins.cli.console import say
from fdg_plugins.core import accounting
from fdg_plugins.errors import DataError, SettingsError, counted, visible
from fdg_plugins.flare.kits import CLIENT_FILE, site_of_kit
from fdg_plugins.privacy import ledger as ledgers

# A site's ledger, empty if a kit has none yet, its file, and the policy.
Past = tuple[ledgers.LedgerContent, Path, ledgers.Policy]


def privacy(
    places: Annotated[list[Path] | None, Argument(metavar="[KIT] [LEDGER]", help="A site's kit, a ledger.")] = None,
    noise: Annotated[float | None, Option(metavar="SIGMA", help="The noise multiplier.")] = None,
    epsilon: Annotated[float | None, Option(help="The wanted epsilon, in place of the noise.")] = None,
    rounds: Annotated[int | None, Option(min=1, max=10**6, metavar="N", help="One release each.")] = None,
    delta: Annotated[float, Option(help="In (0, 1), at which epsilon is computed.")] = 1e-5,
) -> None:
    """Print what a plan spends of a privacy budget.

    That is the epsilon of a plan with the DifferentialPrivacyFilter, or the noise that it needs. The cost is exact, for
    data that may be replaced as a whole, and does not depend on the clip norm. With a kit the stricter of the plan and
    the site's policy (local/fdg_privacy.json) counts, as in the filter, and it says what the site has spent already and
    how many more such rounds fit. For a site in containers, name the ledger by its path on this machine.

    Examples:

      fdg kit privacy --epsilon 3 --rounds 100
      fdg kit privacy --noise 8 --rounds 100 /srv/flare/photo
    """
    given = [one for one in (noise, epsilon) if one is not None]
    if len(given) != (rounds is not None) or not (places or rounds):
        raise SettingsError("a plan needs --rounds, and one of --noise and --epsilon; what was spent, a kit or ledger.")
    past = _past(places or ())
    policy = ledgers.Policy() if past is None else past[2]
    delta, sigma = min(accounting.checked_delta(delta), policy.delta or 1.0), None
    if rounds is not None:
        asked = accounting.gaussian_noise_multiplier(epsilon, delta, rounds) if epsilon is not None else noise or 0.0
        accounting.mu_of_equal(rounds, asked)  # refuses a wrong noise multiplier, also where the policy's is larger
        sigma = max(asked, policy.noise_multiplier or asked)
        cost = accounting.epsilon_of_mu(accounting.mu_of_equal(rounds, sigma), delta)
        # Six digits, rounded up: whoever types them in spends no more than is printed beside them.
        digits = f"{Context(prec=6, rounding=ROUND_CEILING).create_decimal(sigma).normalize():f}"
        say(f"{counted(rounds, 'round')} with noise multiplier {digits}: epsilon {cost:.4g} at delta {delta:g}")
        if noise is not None and sigma > noise:
            say(f"the site's policy raises the noise multiplier from {noise:.6g}")
    if past is not None:
        _show_past(past, rounds or 0, sigma, delta)


def _past(places: Sequence[Path]) -> Past | None:
    by_kind = {place.is_file(): place for place in reversed(places)}
    kit, ledger = by_kind.get(False), by_kind.get(True)
    if kit is None:
        return None if ledger is None else (ledgers.read_ledger(ledger), ledger, ledgers.Policy())
    local = kit / "local"
    if not local.is_dir():
        raise DataError(f"kit {kit} has no folder local/, expected a site's startup kit.")
    # Of a site in containers, only its own files may be there.
    site = site_of_kit(kit) if (kit / "startup" / CLIENT_FILE).exists() else kit.resolve().name
    policy = ledgers.read_policy(site, local / ledgers.POLICY_FILE)
    if ledger is not None:
        return ledgers.read_ledger(ledger, site), ledger, policy
    file = ledgers.ledger_file(site, local)
    return ledgers.Ledger(file, site).read(), file, policy


def _show_past(past: Past, rounds: int, sigma: float | None, delta: float) -> None:
    content, file, policy = past
    spent = [release.noise_multiplier for release in content.releases]
    epsilon = f"epsilon {accounting.gaussian_epsilon(spent, delta):.4g} at delta {delta:g}"
    say(visible(f"site {content.site} has spent {epsilon}, by {counted(len(spent), 'release')} ({file})"))
    if sigma is not None:
        say(f"with the plan: epsilon {accounting.gaussian_epsilon([*spent, *[sigma] * rounds], delta):.4g}")
    if policy.max_epsilon is not None:
        ceiling = f"ceiling of the site's policy: epsilon {policy.max_epsilon:g}"
        if sigma is not None:
            left = accounting.releases_left(accounting.composed_mu(spent), sigma, policy.max_epsilon, delta)
            ceiling += f"; {left} more such rounds fit under it"
        say(ceiling)

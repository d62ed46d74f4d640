# SPDX-License-Identifier: Apache-2.0
"""``fdg privacy``: what a plan will spend of a site's privacy, or what noise it needs."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.values import counted, visible

if TYPE_CHECKING:
    from fdg_plugins.privacy.ledger import LedgerContent, Policy

DELTA = 1e-5


class Plan(NamedTuple):
    """Releases with the same noise, and what they cost together, by themselves."""

    rounds: int
    noise_multiplier: float
    epsilon: float


class Past(NamedTuple):
    """A site's ledger, empty if a kit has none yet, its file, and the policy."""

    content: "LedgerContent"
    file: Path
    policy: "Policy"


class Standing(NamedTuple):
    """What a site's past says: epsilon spent, epsilon with the plan, how many more rounds fit."""

    past: Past
    spent: float
    with_plan: float | None
    rounds_left: int | None


def privacy(
    noise: Annotated[
        float | None,
        typer.Option(metavar="SIGMA", help="The noise multiplier; its cost is printed.", show_default=False),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="The wanted epsilon; the noise that it needs is printed.", show_default=False)
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, max=10**6, metavar="N", help="Rounds in which the site trains: one release each."),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help=f"In (0, 1), at which epsilon is computed; default: {DELTA:g}.")
    ] = None,
    kit: Annotated[
        Path | None, typer.Option(help="A site's startup kit: its ledger and its policy count too.", show_default=False)
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="A ledger file, in place of the kit's own.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print what a plan spends of a privacy budget.

    That is the epsilon of a plan with the DifferentialPrivacyFilter, or the noise that it needs.

    The cost is exact, for data that may be replaced as a whole, and does not depend on the clip norm. With a kit the
    stricter of the plan and the site's policy (local/fdg_privacy.json) counts, as in the filter, and it says what the
    site has spent already and how many more such rounds fit under the policy's ceiling. For a site in containers,
    --ledger names the ledger by its path on this machine.

    Examples:

      fdg privacy --noise 8 --rounds 100 --delta 1e-5

      fdg privacy --epsilon 3 --rounds 100

      fdg privacy --noise 8 --rounds 100 --kit /srv/flare/photo

      fdg privacy --kit /srv/flare/photo --json
    """
    from fdg_plugins.privacy.ledger import Policy

    _check(noise, epsilon, rounds, kit, ledger)
    past = _read(kit, ledger)
    policy = Policy() if past is None else past.policy
    in_force = _delta_in_force(delta, policy)
    plan = _plan(noise, epsilon, rounds, in_force, policy)
    standing = None if past is None else _standing(past, plan, in_force)
    if as_json:
        typer.echo(json.dumps(_as_json(plan, standing, in_force), indent=1, allow_nan=False))
    else:
        _show(plan, standing, in_force, noise)


def _check(
    noise: float | None, epsilon: float | None, rounds: int | None, kit: Path | None, ledger: Path | None
) -> None:
    """Raise ``SettingsError`` for options that do not make a question."""
    options = {"noise": noise, "epsilon": epsilon, "rounds": rounds, "kit": kit, "ledger": ledger}
    given = {name for name, value in options.items() if value is not None}
    if {"noise", "epsilon"} <= given:
        raise SettingsError("--noise and --epsilon exclude each other: one of them follows from the other.")
    _check_question(given)


def _check_question(given: set[str]) -> None:
    """Raise ``SettingsError`` unless the options ask for a plan, or for the past alone."""
    if given & {"noise", "epsilon"}:
        if "rounds" not in given:
            raise SettingsError("--rounds is missing: how many releases the plan makes.")
    elif not given or given - {"kit", "ledger"}:
        raise SettingsError("--noise or --epsilon is missing, for --rounds; or --kit or --ledger, for what was spent.")


def _delta_in_force(delta: float | None, policy: "Policy") -> float:
    """Return the smaller of both deltas; raise ``SettingsError`` for a wrong one, whatever the policy says."""
    from fdg_plugins.core.accounting import checked_delta

    asked = DELTA if delta is None else checked_delta(delta)
    return asked if policy.delta is None else min(asked, policy.delta)


def _read(kit: Path | None, ledger: Path | None) -> Past | None:
    """Return the past of the site whose kit or ledger the user names, None if neither."""
    from fdg_plugins.privacy.ledger import Policy, read_ledger

    if kit is not None:
        return _read_kit(kit, ledger)
    return None if ledger is None else Past(read_ledger(ledger), ledger, Policy())


def _read_kit(kit: Path, ledger: Path | None) -> Past:
    """Return the past of a kit's site, from ``ledger`` if that is given."""
    from fdg_plugins.privacy.ledger import POLICY_FILE, Ledger, LedgerContent, ledger_file, read_ledger, read_policy

    local, site = kit / "local", _site_of(kit)
    if not local.is_dir():
        raise DataError(f"kit {kit} has no folder local/, expected a site's startup kit.")
    policy = read_policy(site, local / POLICY_FILE)
    if ledger is not None:
        return Past(read_ledger(ledger, site), ledger, policy)
    file = ledger_file(site, local)
    try:
        file.lstat()
        content = Ledger(file, site).read()
    except FileNotFoundError:
        content = LedgerContent(site=site)
    except OSError as error:
        raise DataError(f"privacy ledger {file} cannot be read: {error.strerror}.") from error
    return Past(content, file, policy)


def _site_of(kit: Path) -> str:
    """Return the name of the kit's site; that of its folder if only the site's own files are there."""
    from fdg_plugins.flare.kits import CLIENT_FILE, site_of_kit

    return site_of_kit(kit) if (kit / "startup" / CLIENT_FILE).exists() else kit.resolve().name


def _plan(
    noise: float | None, epsilon: float | None, rounds: int | None, delta: float, policy: "Policy"
) -> Plan | None:
    from fdg_plugins.core.accounting import epsilon_of_mu, gaussian_noise_multiplier, mu_of_equal

    if rounds is None:
        return None
    if noise is None:
        assert epsilon is not None
        noise = gaussian_noise_multiplier(epsilon, delta, rounds)
    mu_of_equal(rounds, noise)  # refuses a wrong noise multiplier, also where the policy's is larger
    in_force = max(noise, policy.noise_multiplier or noise)
    return Plan(rounds, in_force, epsilon_of_mu(mu_of_equal(rounds, in_force), delta))


def _standing(past: Past, plan: Plan | None, delta: float) -> Standing:
    from fdg_plugins.core.accounting import composed_mu, gaussian_epsilon, releases_left

    spent = [release.noise_multiplier for release in past.content.releases]
    left = None
    if plan is not None and past.policy.max_epsilon is not None:
        left = releases_left(composed_mu(spent), plan.noise_multiplier, past.policy.max_epsilon, delta)
    with_plan = None if plan is None else gaussian_epsilon([*spent, *[plan.noise_multiplier] * plan.rounds], delta)
    return Standing(past, gaussian_epsilon(spent, delta), with_plan, left)


def _as_json(plan: Plan | None, standing: Standing | None, delta: float) -> dict[str, Any]:
    result: dict[str, Any] = {"delta": delta, "plan": None}
    if plan is not None:
        result["plan"] = {**plan._asdict(), "epsilon": _finite(plan.epsilon)}
    if standing is not None:
        result["ledger"] = {
            "file": str(standing.past.file),
            "site": standing.past.content.site,
            "releases": len(standing.past.content.releases),
            "epsilon": _finite(standing.spent),
            "epsilon_with_plan": _finite(standing.with_plan),
            "max_epsilon": standing.past.policy.max_epsilon,
            "rounds_left": standing.rounds_left,
        }
    return result


def _finite(value: float | None) -> float | None:
    """Return ``value`` as JSON can hold it: null stands for more than any number."""
    return None if value is None or math.isinf(value) else value


def _digits(noise_multiplier: float) -> str:
    """Return six digits, rounded up: whoever types them in spends no more than is printed beside them."""
    shown = f"{noise_multiplier:.6g}"
    if float(shown) < noise_multiplier:
        exponent = math.floor(math.log10(noise_multiplier)) - 5
        shown = f"{float(shown) + 10.0**exponent:.6g}"
    return shown


def _show(plan: Plan | None, standing: Standing | None, delta: float, asked_noise: float | None) -> None:
    at = f"at delta {delta:g}"
    if plan is not None:
        _show_plan(plan, at, asked_noise)
    if standing is not None:
        _show_standing(standing, at)


def _show_plan(plan: Plan, at: str, asked_noise: float | None) -> None:
    rounds = counted(plan.rounds, "round")
    say(f"{rounds} with noise multiplier {_digits(plan.noise_multiplier)}: epsilon {plan.epsilon:.4g} {at}")
    if asked_noise is not None and plan.noise_multiplier > asked_noise:
        say(f"the site's policy raises the noise multiplier from {asked_noise:.6g}")


def _show_standing(standing: Standing, at: str) -> None:
    content, file, policy = standing.past
    spent = f"epsilon {standing.spent:.4g} {at}, by {counted(len(content.releases), 'release')}"
    say(visible(f"site {content.site} has spent {spent} ({file})"))
    if standing.with_plan is not None:
        say(f"with the plan: epsilon {standing.with_plan:.4g}")
    if policy.max_epsilon is not None:
        fits = "" if standing.rounds_left is None else f"; {standing.rounds_left} more such rounds fit under it"
        say(f"ceiling of the site's policy: epsilon {policy.max_epsilon:g}{fits}")

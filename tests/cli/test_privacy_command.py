# SPDX-License-Identifier: Apache-2.0
"""``fdg kit privacy``: the cost of a plan, the noise for a cost, and what a site's ledger and policy add to either."""

from pathlib import Path

import pytest

from fdg_plugins.core.accounting import gaussian_epsilon
from fdg_plugins.privacy.ledger import Ledger, Limits
from tests.cli.commands import check_refusal, fdg

LIMITS = Limits(clip_norm=1.0, noise_multiplier=8.0, max_epsilon=100.0, delta=1e-5)
PLAN = ("kit", "privacy", "--noise", 8, "--rounds", 3)


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    folder = tmp_path / "photo"
    (folder / "local").mkdir(parents=True)
    for number in range(5):
        Ledger(folder / "local" / "fdg_privacy" / "ledger.json", "photo").spend("job", number, LIMITS)
    return folder


def test_the_cost_of_a_plan() -> None:
    printed = fdg("privacy", "--noise", 4, "--rounds", 10).stdout
    assert printed == "10 rounds with noise multiplier 4: epsilon 7.511 at delta 1e-05\n"
    assert f"{gaussian_epsilon([8.0] * 3, 1e-6):.4g} at delta 1e-06" in fdg(*PLAN, "--delta", 1e-6).stdout


@pytest.mark.parametrize(("epsilon", "rounds"), [(3.7, 77), (250.0, 12)])
def test_who_types_in_the_noise_that_is_printed_spends_no_more_than_was_wanted(epsilon: float, rounds: int) -> None:
    printed = fdg("privacy", "--epsilon", epsilon, "--rounds", rounds).stdout
    noise = float(printed.split("noise multiplier ")[1].split(":")[0])
    assert epsilon * 0.9999 < gaussian_epsilon([noise] * rounds, 1e-5) <= epsilon


def test_with_a_kit_it_says_what_was_spent_and_how_much_fits(kit: Path) -> None:
    (kit / "local" / "fdg_privacy.json").write_text('{"max_epsilon": 4.0, "delta": 1e-6}')
    told = fdg(*PLAN, kit).stdout
    assert f"has spent epsilon {gaussian_epsilon([8.0] * 5, 1e-6):.4g} at delta 1e-06, by 5 releases" in told
    assert f"with the plan: epsilon {gaussian_epsilon([8.0] * 8, 1e-6):.4g}" in told
    left = int(told.split("epsilon 4; ")[1].split()[0])
    assert gaussian_epsilon([8.0] * (5 + left), 1e-6) <= 4.0 < gaussian_epsilon([8.0] * (6 + left), 1e-6)
    assert fdg("privacy", "--kit", kit).stdout.startswith("site photo has spent"), "as in version 0.2.0"


def test_the_sites_policy_can_only_raise_the_noise(kit: Path) -> None:
    (kit / "local" / "fdg_privacy.json").write_text('{"noise_multiplier": 16.0}')
    raised = fdg(*PLAN, kit).stdout
    assert "noise multiplier 16:" in raised
    assert "raises the noise multiplier from 8" in raised
    assert "noise multiplier 32:" in fdg("privacy", "--noise", 32, "--rounds", 3, kit).stdout


def test_a_ledger_elsewhere_is_named_alone_or_beside_its_kit(kit: Path, tmp_path: Path) -> None:
    (kit / "local" / "fdg_privacy").rename(tmp_path / "mounted")
    (kit / "local" / "fdg_privacy.json").write_text('{"max_epsilon": 4.0, "ledger": "/only/in/containers"}')
    ledger = tmp_path / "mounted" / "ledger.json"
    assert "by 5 releases" in fdg("privacy", ledger).stdout
    both = fdg("privacy", kit, ledger).stdout
    assert "by 5 releases" in both
    assert "ceiling of the site's policy: epsilon 4" in both
    check_refusal(fdg("privacy", kit), "'/only/in/containers'")
    ledger.write_bytes(ledger.read_bytes()[:-20])
    check_refusal(fdg("privacy", ledger), f"file {ledger}")


def test_the_ledger_of_another_site_is_refused(kit: Path) -> None:
    (kit / "startup").mkdir()
    (kit / "startup" / "fed_client.json").write_text('{"client": {"fqsn": "sketch"}}')
    check_refusal(fdg("privacy", kit), "is that of site 'photo'")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--noise", 8], "a plan needs --rounds"),
        (["--noise", 8, "--epsilon", 3, "--rounds", 1], "one of --noise and --epsilon"),
        (["--noise", "nan", "--rounds", 3], "noise multiplier is nan"),
        (["/nowhere"], "kit /nowhere has no folder local/"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: list[object], complaint: str) -> None:
    check_refusal(fdg("privacy", *arguments), complaint)

# SPDX-License-Identifier: Apache-2.0
"""``fdg privacy``: the cost of a plan, the noise for a cost, and what a site's ledger and policy add to either."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fdg_plugins.cli.main import app
from fdg_plugins.core.accounting import gaussian_epsilon
from fdg_plugins.privacy.ledger import Ledger, Limits

LIMITS = Limits(clip_norm=1.0, noise_multiplier=8.0, max_epsilon=100.0, delta=1e-5)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["privacy", *map(str, arguments)])


def answer(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    content: dict[str, Any] = json.loads(result.stdout)
    return content


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    folder = tmp_path / "photo"
    (folder / "local").mkdir(parents=True)
    for number in range(5):
        Ledger(folder / "local" / "fdg_privacy" / "ledger.json", "photo").spend("job", number, LIMITS)
    return folder


def test_the_cost_of_a_plan() -> None:
    assert (
        run("--noise", 4, "--rounds", 10).stdout == "10 rounds with noise multiplier 4: epsilon 7.511 at delta 1e-05\n"
    )
    assert answer("--noise", 8, "--rounds", 100, "--delta", 1e-6)["plan"] == {
        "rounds": 100,
        "noise_multiplier": 8.0,
        "epsilon": pytest.approx(gaussian_epsilon([8.0] * 100, 1e-6), rel=1e-12),
    }


@pytest.mark.parametrize(("epsilon", "rounds"), [(3.0, 100), (3.7, 77), (0.1, 1), (250.0, 12)])
def test_who_types_in_the_noise_that_is_printed_spends_no_more_than_was_wanted(epsilon: float, rounds: int) -> None:
    printed = run("--epsilon", epsilon, "--rounds", rounds).stdout
    noise = float(printed.split("noise multiplier ")[1].split(":")[0])
    assert epsilon * 0.9999 < gaussian_epsilon([noise] * rounds, 1e-5) <= epsilon
    assert answer("--epsilon", epsilon, "--rounds", rounds)["plan"]["noise_multiplier"] == pytest.approx(
        noise, rel=1e-5
    )


def test_with_a_kit_it_says_what_was_spent_and_how_much_fits(kit: Path) -> None:
    (kit / "local" / "fdg_privacy.json").write_text('{"max_epsilon": 4.0, "delta": 1e-6}')
    content = answer("--noise", 8, "--rounds", 3, "--kit", kit)
    assert content["delta"] == 1e-6, "the stricter of the policy's and the default"
    ledger = content["ledger"]
    assert (ledger["site"], ledger["releases"], ledger["max_epsilon"]) == ("photo", 5, 4.0)
    assert ledger["epsilon"] == gaussian_epsilon([8.0] * 5, 1e-6)
    assert ledger["epsilon_with_plan"] == gaussian_epsilon([8.0] * 8, 1e-6)
    left = ledger["rounds_left"]
    assert gaussian_epsilon([8.0] * (5 + left), 1e-6) <= 4.0 < gaussian_epsilon([8.0] * (6 + left), 1e-6)
    text = run("--noise", 8, "--rounds", 3, "--kit", kit).stdout
    assert f"ceiling of the site's policy: epsilon 4; {left} more such rounds fit under it" in text


def test_the_sites_policy_can_only_raise_the_noise(kit: Path) -> None:
    (kit / "local" / "fdg_privacy.json").write_text('{"noise_multiplier": 16.0}')
    assert answer("--noise", 8, "--rounds", 1, "--kit", kit)["plan"]["noise_multiplier"] == 16.0
    assert "raises the noise multiplier from 8" in run("--noise", 8, "--rounds", 1, "--kit", kit).stdout
    assert answer("--noise", 32, "--rounds", 1, "--kit", kit)["plan"]["noise_multiplier"] == 32.0


def test_a_ledger_alone_can_be_read(kit: Path) -> None:
    content = answer("--ledger", kit / "local" / "fdg_privacy" / "ledger.json")
    assert content["plan"] is None
    assert content["ledger"]["epsilon"] == gaussian_epsilon([8.0] * 5, 1e-5)
    assert content["ledger"]["rounds_left"] is None
    assert "site photo has spent epsilon" in run("--ledger", kit / "local" / "fdg_privacy" / "ledger.json").stdout


def test_a_ledger_elsewhere_is_found_by_the_policy_or_given_by_its_name_here(kit: Path, tmp_path: Path) -> None:
    elsewhere, policy = tmp_path / "mounted", kit / "local" / "fdg_privacy.json"
    (kit / "local" / "fdg_privacy").rename(elsewhere)
    policy.write_text(json.dumps({"max_epsilon": 4.0, "ledger": str(elsewhere)}))
    found = answer("--kit", kit)["ledger"]
    assert (found["file"], found["releases"]) == (str(elsewhere / "ledger.json"), 5)
    policy.write_text('{"max_epsilon": 4.0, "ledger": "/only/in/containers"}')
    assert "'/only/in/containers', expected the absolute path of a folder that exists" in run("--kit", kit).stderr
    given = answer("--kit", kit, "--ledger", elsewhere / "ledger.json")["ledger"]
    assert (given["releases"], given["max_epsilon"]) == (5, 4.0)


def test_the_ledger_of_another_site_is_refused(kit: Path) -> None:
    (kit / "startup").mkdir()
    (kit / "startup" / "fed_client.json").write_text('{"client": {"fqsn": "sketch"}}')
    for options in ((), ("--ledger", kit / "local" / "fdg_privacy" / "ledger.json")):
        result = run("--kit", kit, *options)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "is that of site 'photo'" in result.stderr
    (kit / "startup" / "fed_client.json").write_text('{"client": {"fqsn": "photo"}}')
    assert run("--kit", kit.rename(kit.with_name("photo-docker"))).exit_code == 0, "the folder's name is not the site's"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "--noise or --epsilon is missing"),
        (["--rounds", 3], "--noise or --epsilon is missing"),
        (["--noise", 8], "--rounds is missing"),
        (["--noise", 8, "--epsilon", 3, "--rounds", 1], "exclude each other"),
        (["--kit", "a", "--ledger", "b"], "kit a has no folder local/"),
        (["--kit", "a", "--rounds", 3], "--noise or --epsilon is missing"),
        (["--noise", -8, "--rounds", 3], "noise multiplier is -8, expected a finite number above zero"),
        (["--noise", "nan", "--rounds", 3], "noise multiplier is nan"),
        (["--epsilon", 0, "--rounds", 3], "epsilon is 0, expected"),
        (["--noise", 8, "--rounds", 3, "--delta", 1], "delta is 1, expected"),
        (["--noise", 8, "--rounds", 3, "--delta", "nan"], "delta is nan, expected"),
        (["--kit", "/nowhere"], "kit /nowhere has no folder local/"),
        (["--ledger", "/nowhere"], "privacy ledger /nowhere: file /nowhere cannot be read"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: list[object], complaint: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_broken_ledger_is_named(kit: Path) -> None:
    file = kit / "local" / "fdg_privacy" / "ledger.json"
    file.write_bytes(file.read_bytes()[:-20])
    result = run("--kit", kit)
    assert result.exit_code == 2
    assert f"privacy ledger {file}: file {file} is not valid JSON" in result.stderr

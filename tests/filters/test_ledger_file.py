# SPDX-License-Identifier: Apache-2.0
"""The ledger as a file: what is written is private and checked; a broken one is named."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from fdg_plugins.core.accounting import gaussian_epsilon
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.privacy.ledger import BudgetSpentError, Ledger, Limits, ledger_file

LIMITS = Limits(clip_norm=1.0, noise_multiplier=8.0, max_epsilon=3.0, delta=1e-5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fdg_privacy" / "ledger.json"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_private_and_becomes_so_again_with_the_next_release(path: Path) -> None:
    Ledger(path, "photo").spend("job", 0, LIMITS)
    assert [mode(one) for one in (path, path.with_suffix(".lock"), path.parent)] == [0o600, 0o600, 0o700]
    for one, open_mode in ((path, 0o644), (path.with_suffix(".lock"), 0o644), (path.parent, 0o755)):
        one.chmod(open_mode)
    Ledger(path, "photo").spend("job", 1, LIMITS)
    assert [mode(one) for one in (path, path.with_suffix(".lock"), path.parent)] == [0o600, 0o600, 0o700]


def test_the_policy_names_another_folder_which_must_exist(tmp_path: Path) -> None:
    local, elsewhere = tmp_path / "local", tmp_path / "elsewhere"
    own, policy = local / "fdg_privacy" / "ledger.json", local / "fdg_privacy.json"
    local.mkdir()
    assert ledger_file("photo", local) == own
    policy.write_text("{}")
    assert ledger_file("photo", local) == own
    for wrong in (str(elsewhere), "elsewhere", ""):
        policy.write_text(json.dumps({"ledger": wrong}))
        with pytest.raises(SettingsError) as caught:
            ledger_file("photo", local)
        assert (caught.value.field, caught.value.value) == ("ledger", wrong)
    assert not elsewhere.exists()
    elsewhere.mkdir()
    policy.write_text(json.dumps({"ledger": str(elsewhere)}))
    assert ledger_file("photo", local) == elsewhere / "ledger.json"


def test_what_a_ledger_in_the_kit_has_spent_is_not_forgotten(tmp_path: Path) -> None:
    own, elsewhere = tmp_path / "fdg_privacy" / "ledger.json", tmp_path / "elsewhere"
    Ledger(own, "photo").spend("job", 0, LIMITS)
    elsewhere.mkdir()
    (tmp_path / "fdg_privacy.json").write_text(json.dumps({"ledger": str(elsewhere)}))
    with pytest.raises(SettingsError) as caught:
        ledger_file("photo", tmp_path)
    assert str(own) in str(caught.value)
    own.rename(elsewhere / "ledger.json")
    assert len(Ledger(ledger_file("photo", tmp_path), "photo").read().releases) == 1


def test_one_that_is_a_link_is_refused_and_stays_one(path: Path, tmp_path: Path) -> None:
    """Whoever shares the file behind the link would not learn of a release into a file in the link's place."""
    Ledger(tmp_path / "shared.json", "photo").spend("job", 0, LIMITS)
    path.parent.mkdir()
    path.symlink_to(tmp_path / "shared.json")
    with pytest.raises(DataError):
        Ledger(path, "photo").spend("job", 0, LIMITS)
    assert path.is_symlink()
    assert len(Ledger(tmp_path / "shared.json", "photo").read().releases) == 1


def test_those_who_spend_at_once_lose_no_entry_and_overspend_nothing(path: Path) -> None:
    allowed = 12
    limits = LIMITS.model_copy(update={"max_epsilon": gaussian_epsilon([8.0] * allowed, 1e-5)})

    def spend(number: int) -> bool:
        with suppress(BudgetSpentError):
            return Ledger(path, "photo").spend("job", number, limits) > 0
        return False

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(spend, range(20))) == allowed == len(Ledger(path, "photo").read().releases)


def test_on_a_full_disk_nothing_is_spent(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DataError) as caught:
        Ledger(path, "photo").spend("job", 0, LIMITS)
    assert str(path) in str(caught.value)
    assert not path.exists()


def test_exactly_as_many_releases_fit_as_the_exact_cost_allows(path: Path) -> None:
    costs = [gaussian_epsilon([8.0] * count, 1e-5) for count in range(1, 20)]
    fitting = sum(cost <= 3.0 for cost in costs)
    spent = [Ledger(path, "photo").spend("job", number, LIMITS) for number in range(fitting)]
    assert spent == costs[:fitting]
    with pytest.raises(BudgetSpentError) as caught:
        Ledger(path, "photo").spend("job", fitting, LIMITS)
    assert f"one more release would make it {costs[fitting]:.4g}" in str(caught.value)
    assert caught.value.public == str(caught.value)

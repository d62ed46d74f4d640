# SPDX-License-Identifier: Apache-2.0
"""Runs in two precisions are compared in pairs, and the table is that of the results that are kept."""

import math
from pathlib import Path

import precision_effect
import pytest
from precision_effect import Result, differences, mean_difference, read_results, table


def result(target: str, seed: int, precision: str, last: float) -> Result:
    return Result("digits", target, seed, precision, 0.5, last, 0.5)


def test_a_difference_is_of_one_target_and_one_seed_whatever_the_order() -> None:
    runs = [
        result("a", 1, "float32", 0.9),
        result("a", 0, "bfloat16", 0.25),
        result("a", 1, "bfloat16", 0.8),
        result("a", 0, "float32", 0.125),
    ]
    assert differences(runs, "last") == pytest.approx([0.125, -0.1])
    assert differences(runs, "selected") == [0.0, 0.0]


def test_a_run_without_its_partner_is_refused() -> None:
    runs = [result("a", 0, "float32", 0.5), result("a", 0, "bfloat16", 0.5), result("b", 3, "float32", 0.5)]
    with pytest.raises(ValueError, match=r"^the run of b with seed 3 in bfloat16 is missing\.$"):
        differences(runs, "last")


def test_the_standard_error_is_that_of_the_mean() -> None:
    found = mean_difference([0.1, -0.1, 0.1, -0.1])
    assert found.mean == pytest.approx(0.0)
    assert found.error == pytest.approx(math.sqrt(4 / 3 * 0.01) / 2)
    assert found.pairs == 4


def test_a_folder_without_a_run_leaves_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept.csv"
    kept.write_text("what was kept", encoding="utf-8")
    monkeypatch.setattr(precision_effect, "RESULTS", kept)
    with pytest.raises(ValueError, match=r"no_such_sweep holds no finished run, expected .*; kept\.csv is kept\.$"):
        precision_effect.main(["keep", str(tmp_path / "no_such_sweep")])
    assert kept.read_text(encoding="utf-8") == "what was kept"


def test_the_kept_runs_are_whole_pairs_and_make_the_table() -> None:
    kept = read_results()
    assert {one.precision for one in kept} == set(precision_effect.PAIRED)
    *_, last = table(kept)
    assert last.endswith(f"| {len(kept) // 2} |")

# SPDX-License-Identifier: Apache-2.0
"""Rect-4: the domains are what they are said to be, the steps what the mathematics promises, the pictures in step."""

import doctest
import math
import re
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
import rect4_rounds
import torch
from rect4_rounds import Domain, Round, Step, loss, make_domains, optimum, play_round
from rect4_tables import held_out_table, round_table

from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "tutorial"
BYTES = 100_000


@pytest.fixture(scope="module")
def domains() -> dict[str, Domain]:
    """The four domains."""
    return make_domains()


@pytest.fixture(scope="module")
def everyone(domains: dict[str, Domain]) -> Round:
    """The FL setting: all four train and are judged."""
    return play_round(domains, "ABCD", "ABCD")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The example that draws."""
    return load_script(ROOT / "examples" / "rect4.py")


def named(result: Round) -> dict[str, Step]:
    """Return a round's steps by name."""
    return {step.name: step for step in result.steps}


def numbers(table: str) -> dict[str, list[float]]:
    """Return the rows of a table by their first cell."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return {row[0]: [float(cell) for cell in row[1:]] for row in rows}


def test_the_example_in_the_docstring_is_what_comes_out() -> None:
    assert doctest.testmod(rect4_rounds) == (0, 2)


@pytest.mark.parametrize("name", "ABCD")
def test_a_domain_fills_its_two_squares_and_its_first_coordinate_is_right_three_times_in_four(
    domains: dict[str, Domain], name: str
) -> None:
    domain = domains[name]
    signed = domain.labels[:, None] * domain.points  # the squares are mirrored in the origin
    assert (signed - torch.tensor([0.5, domain.slant])).abs().max() <= 1.0
    assert (signed[:, 0] > 0).double().mean() == pytest.approx(0.75, abs=0.09)  # three standard errors of 200 points
    assert signed[:, 1].mean() == pytest.approx(domain.slant, abs=3 / math.sqrt(3 * 200))
    assert domain.labels.sum() == 0


def test_points_depend_on_the_seed_and_differ_between_domains(domains: dict[str, Domain]) -> None:
    again, other = make_domains(), make_domains(seed=1)
    assert all(torch.equal(again[name].points, domains[name].points) for name in domains)
    assert not any(torch.equal(other[name].points, domains[name].points) for name in domains)
    offsets = [d.points - d.labels[:, None] * torch.tensor([0.5, d.slant]) for d in domains.values()]
    assert not any(torch.allclose(first, second) for first, second in pairwise(offsets))


def test_a_network_that_knows_nothing_has_the_loss_of_a_coin(domains: dict[str, Domain]) -> None:
    assert float(loss(torch.zeros(2, dtype=torch.float64), list(domains.values()))) == pytest.approx(math.log(2))


def test_the_loss_of_many_networks_is_that_of_each(domains: dict[str, Domain]) -> None:
    networks = torch.tensor([[[0.5, -1.0], [2.0, 0.0], [0.0, 3.0]]], dtype=torch.float64)
    each = torch.stack([loss(w, [domains["A"], domains["D"]]) for w in networks[0]])
    assert torch.allclose(loss(networks, [domains["A"], domains["D"]]), each[None])


@pytest.mark.parametrize("names", ["ABCD", "D", "AC"])
def test_at_the_optimum_the_gradient_is_zero(domains: dict[str, Domain], names: str) -> None:
    chosen = [domains[name] for name in names]
    w = optimum(chosen).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(w, chosen), w)
    assert gradient.norm() < 1e-8


def test_points_that_one_network_tells_apart_have_no_optimum() -> None:
    points = torch.tensor([[1.0, 2.0], [-1.0, -2.0]], dtype=torch.float64)
    apart = Domain("X", 2.0, points, torch.tensor([1.0, -1.0], dtype=torch.float64))
    with pytest.raises(ArithmeticError, match="no minimum"):
        optimum([apart])


def test_an_update_is_twenty_steps_down_the_gradient_of_the_sites_own_loss(
    domains: dict[str, Domain], everyone: Round
) -> None:
    w = torch.zeros(2, dtype=torch.float64)
    for _ in range(20):
        w = w.detach().requires_grad_()
        w = w - 0.5 * torch.autograd.grad(loss(w, [domains["D"]]), w)[0]
    assert torch.allclose(everyone.updates[3], w.detach())


def test_no_step_within_the_radius_leaves_a_site_less_behind_than_fedomgs(everyone: Round) -> None:
    steps = named(everyone)
    best = everyone.least_inner_product(steps["FedOMG"])
    assert best > everyone.least_inner_product(steps["FedAvg"])
    mean = steps["FedAvg"].vector
    angles = torch.linspace(0, 2 * math.pi, 721, dtype=torch.float64)
    circle = torch.stack([angles.cos(), angles.sin()], dim=1)
    for fraction in (0.25, 0.5, 0.75, 1.0):
        tried = mean + fraction * 0.5 * mean.norm() * circle
        assert (tried @ everyone.updates.T).min(dim=1).values.max() <= best + 1e-9


def test_fedavg_is_the_mean_and_a_radius_of_zero_makes_fedomg_the_same(domains: dict[str, Domain]) -> None:
    result = play_round(domains, "ABCD", "ABCD", kappa=0.0)
    assert torch.allclose(named(result)["FedAvg"].vector, result.updates.mean(dim=0))
    assert torch.allclose(named(result)["FedOMG"].vector, result.updates.mean(dim=0))


def test_with_one_source_fedavg_and_erm_are_its_update_and_fedomg_is_longer(domains: dict[str, Domain]) -> None:
    result = play_round(domains, "B", "D", kappa=0.5)
    factors = {"FedAvg": 1.0, "ERM": 1.0, "FedOMG": 1.5}
    for name, step in named(result).items():
        assert torch.allclose(step.vector, factors[name] * result.updates[0])


def test_the_order_of_the_sources_does_not_matter(domains: dict[str, Domain], everyone: Round) -> None:
    turned = play_round(domains, "DBCA", "ABCD")
    for name, step in named(turned).items():
        assert torch.allclose(step.vector, named(everyone)[name].vector)


@pytest.mark.parametrize(("sources", "judged", "got"), [("AX", "D", "'X'"), ("AB", "Y", "'Y'"), ("", "D", "none")])
def test_unknown_domains_are_refused_by_name(domains: dict[str, Domain], sources: str, judged: str, got: str) -> None:
    with pytest.raises(ValueError, match=f"named A, B, C, D; got {got}"):
        play_round(domains, sources, judged)


def test_the_rounds_table_says_what_the_round_holds(everyone: Round) -> None:
    rows, steps = numbers(round_table(everyone)), named(everyone)
    assert rows.keys() == steps.keys()
    for name, step in steps.items():
        w1, w2, *cosines, least, after, same_length, worst = rows[name]
        assert [w1, w2] == pytest.approx(step.vector.tolist(), abs=6e-4)
        assert cosines == pytest.approx(everyone.cosines(step).tolist(), abs=6e-4)
        assert least == pytest.approx(min(float(update @ step.vector) for update in everyone.updates), abs=6e-4)
        assert after == pytest.approx(float(loss(step.vector, everyone.judged)), abs=6e-4)
        assert worst >= same_length
    assert rows["FedAvg"][-3] == rows["FedAvg"][-2]


def test_the_tutorial_says_of_the_fl_setting_what_came_out(everyone: Round) -> None:
    rows = numbers(round_table(everyone))
    worst = {name: row[-1] for name, row in rows.items()}
    same_length = {name: row[-2] for name, row in rows.items()}
    assert min(worst, key=worst.__getitem__) == "FedOMG"
    assert max(same_length, key=same_length.__getitem__) == "FedOMG"
    assert everyone.matching.weights.tolist() == pytest.approx([0, 0, 0, 1])


def test_the_tutorial_says_of_held_out_domains_what_came_out(domains: dict[str, Domain]) -> None:
    rows = numbers(held_out_table(domains))
    *others, mean, worst = (fedomg - fedavg for fedomg, fedavg in zip(rows["FedOMG"], rows["FedAvg"], strict=True))
    assert [difference > 0 for difference in others] == [True, True, True, False]
    assert mean > 0 > worst
    after = numbers(round_table(play_round(domains, "ABC", "D")))
    assert after["FedOMG"][-3] > after["FedAvg"][-3]  # the whole, longer step


@pytest.mark.slow
def test_the_example_draws_the_same_bytes_each_time_and_small_ones(script: ModuleType, tmp_path: Path) -> None:
    text = script.report(tmp_path / "first")
    script.report(tmp_path / "second")
    names = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert names == ["rect4_fdg.png", "rect4_fdg.svg", "rect4_fl.png", "rect4_fl.svg"]
    for name in names:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
        assert (tmp_path / "first" / name).stat().st_size < BYTES
    assert held_out_table(make_domains()) in text


@pytest.mark.parametrize(("name", "sources", "judged"), [("fl", "ABCD", "ABCD"), ("fdg", "ABC", "D")])
def test_the_tutorials_pictures_are_of_these_rounds(
    domains: dict[str, Domain], name: str, sources: str, judged: str
) -> None:
    picture = (PICTURES / f"rect4_{name}.svg").read_text(encoding="utf-8")
    described = re.search(r"<dc:description>(.*?)</dc:description>", picture, re.DOTALL)
    assert described is not None
    table = round_table(play_round(domains, sources, judged)).replace("<", "&lt;").replace(">", "&gt;")
    assert described[1] == table, "run: python examples/rect4.py --to docs/tutorial"


def test_a_folder_that_cannot_be_written_ends_in_one_sentence(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["rect4.py", "--to", str(tmp_path / "taken")])
    with pytest.raises(SystemExit, match=r"^file .*rect4_fl\.svg cannot be written: .+\.$"):
        script.main()

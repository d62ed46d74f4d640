# SPDX-License-Identifier: Apache-2.0
"""The figure of the server step's growth: its numbers survive their file, its legends have the slopes."""

from pathlib import Path

import pytest
import scale_figure
from cases import scale
from cases.scale import Cost

MACHINE = 'CPU: "two" cores, 1 torch thread'


def cubic_costs() -> list[Cost]:
    """Every size: ours takes U^3 P, the reference U P."""
    sizes = [*((sites, scale.FEW_PARAMETERS) for sites in scale.SITES)]
    sizes += [(scale.FEW_SITES, length) for length in scale.PARAMETERS[1:]]
    return [Cost(u, p, 1e-9 * u**3 * p, 1e-9 * u * p, 4.0 * u**3 * p, 4.0 * u * p) for u, p in sizes]


def test_the_numbers_survive_their_file() -> None:
    costs = cubic_costs()
    assert scale_figure.read_numbers(scale_figure.render_numbers(costs, MACHINE)) == (costs, MACHINE)


def test_the_fit_gives_back_a_power_of_the_size() -> None:
    by_sites, by_parameters = scale.growths(cubic_costs())
    assert list(by_sites.values("seconds", "ours")) == list(scale.SITES)
    assert list(by_parameters.values("bytes", "reference")) == list(scale.PARAMETERS)
    slopes: tuple[dict[scale.Side, int], ...] = ({"ours": 3, "reference": 1}, {"ours": 1, "reference": 1})
    for growth, by_side in zip((by_sites, by_parameters), slopes, strict=True):
        for side, expected in by_side.items():
            values = growth.values("bytes", side)
            assert scale.slope(values) == pytest.approx(expected)
            assert scale_figure.fitted(values) == pytest.approx(values)


def test_each_panel_has_both_sides_with_their_slopes() -> None:
    figure = scale_figure.draw(scale_figure.picture_of(MACHINE), scale.growths(cubic_costs()))
    found = [axes.get_legend() for axes in figure.axes]
    legends = [[text.get_text() for text in legend.get_texts()] for legend in found if legend is not None]
    by_sites = ["FedOMG: slope 3.00", "FLARE's weighted mean: slope 1.00"]
    by_parameters = ["FedOMG: slope 1.00", "FLARE's weighted mean: slope 1.00"]
    assert legends == [by_sites, by_parameters] * 2
    assert all((axes.get_xscale(), axes.get_yscale()) == ("log", "log") for axes in figure.axes)


def test_the_script_draws_what_it_measures_and_the_same_bytes_from_the_file_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "measure", lambda quick: cubic_costs())
    scale_figure.main(["--measure", "--to", str(tmp_path)])
    first = (tmp_path / "scale.svg").read_bytes()
    scale_figure.main(["--to", str(tmp_path)])
    assert (tmp_path / "scale.svg").read_bytes() == first
    assert b"FedOMG: slope 3.00" in first


def test_the_docs_figure_is_that_of_its_numbers() -> None:
    costs, _ = scale_figure.read_numbers((scale_figure.FOLDER / "scale.csv").read_bytes())
    by_sites, by_parameters = scale.growths(costs)
    assert list(by_sites.values("seconds", "ours")) == list(scale.SITES)
    assert list(by_parameters.values("seconds", "ours")) == list(scale.PARAMETERS)
    svg = (scale_figure.FOLDER / "scale.svg").read_text()
    for growth in (by_sites, by_parameters):
        for quantity in scale_figure.QUANTITIES:
            assert f"FedOMG: slope {scale.slope(growth.values(quantity, 'ours')):.2f}" in svg

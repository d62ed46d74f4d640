# SPDX-License-Identifier: Apache-2.0
"""What is drawn: every line, bar and point is the number it stands for, nothing is covered, and bytes repeat."""

import csv
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib._pylab_helpers import Gcf
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.container import Container, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fdg_plugins.lab.analysis.estimates import Estimate
from fdg_plugins.lab.analysis.figures.drawing import draw, render
from fdg_plugins.lab.analysis.figures.drawing.canvas import columns_for
from fdg_plugins.lab.analysis.figures.drawing.contours import levels_of
from fdg_plugins.lab.analysis.figures.drawing.masks import DIMMED, OUTCOMES, laid_over
from fdg_plugins.lab.analysis.figures.drawing.words import inches_of, wrapped
from fdg_plugins.lab.analysis.figures.picture import (
    MANY_SITES,
    Bar,
    Bars,
    Chart,
    Counts,
    FeaturePoint,
    Line,
    Outcome,
    Overlays,
    Panel,
    Picture,
    PlacedModel,
    Scale,
    Scatter,
    SegmentedImage,
    ShownImage,
    Surface,
    render_csv,
)
from fdg_plugins.lab.analysis.figures.style import numbered_look
from tests.figures.figure_stubs import ORIGIN, small_chart

COMMON: dict[str, Any] = {"title": "A title", "caption": "[STAND-IN, from scratch] STAND-IN for PACS", "origin": ORIGIN}


def bars() -> Bars:
    panel = tuple(
        Bar(label, numbered_look(number), 1.0 + number, 2.0 + number, 4.0 + number, 7)
        for number, label in enumerate(("FedAvg", "FedOMG + GA + DIM"))
    )
    return Bars(name="time", x_label="seconds", panels={"whole round": panel, "aggregation": panel[:1]}, **COMMON)


LONG = "FedOMG + GA + DIM (kappa 0.1, server_lr 1.0, idle_below 1e-05, damping released)"


def long_bars() -> Bars:
    panels = {
        title: tuple(replace(bar, label=f"{bar.label}: {LONG}") for bar in two) for title, two in bars().panels.items()
    }
    return replace(bars(), panels=panels)


def long_lines() -> Chart:
    panels = [
        replace(one, lines=tuple(replace(line, label=f"{line.label}: {LONG}") for line in one.lines))
        for one in small_chart().panels
    ]
    return small_chart(panels=tuple(panels))


def long_names() -> Scatter:
    names = {
        name: f"a {name} with a name of many and more words than a line has room for" for name in scatter().class_looks
    }
    points = tuple(replace(point, class_name=names[point.class_name]) for point in scatter().points)
    looks = {names[name]: look for name, look in scatter().class_looks.items()}
    return replace(scatter(), points=points, class_looks=looks)


def surface() -> Surface:
    x, y = (-1.0, 0.0, 1.0, 2.0), (0.0, 1.0, 2.0)
    loss = tuple(tuple(1.0 + a * a + b * b for a in x) for b in y)
    models = tuple(
        PlacedModel(name, numbered_look(number), float(number), number / 2, 1.0, 0.25, 0.0)
        for number, name in enumerate(("cartoon", "photo", "global model"))
    )
    error = tuple(tuple(value / 10 for value in row) for row in loss)
    words = "loss (of a task)"
    return Surface(name="surface", loss_words=words, x=x, y=y, loss=loss, error=error, models=models, **COMMON)


def scatter(classes: int = 3) -> Scatter:
    names = [f"class {number}" for number in range(classes)]
    points = tuple(
        FeaturePoint(domain, name, f"{domain}/{name}", float(place), float(-place))
        for place, (domain, name) in enumerate(itertools.product(("photo", "sketch"), names))
    )
    return Scatter(
        name="features",
        points=points,
        domain_looks={domain: numbered_look(number) for number, domain in enumerate(("photo", "sketch"))},
        class_looks={name: numbered_look(number) for number, name in enumerate(names)},
        held_out="sketch",
        **COMMON,
    )


def overlays(count: int = 3) -> Overlays:
    cases = ("best", "median", "worst")[:count]
    pixels = np.random.default_rng(0).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    outcomes = np.arange(120, dtype=np.uint8).reshape(12, 10) % 4
    return Overlays(
        name="overlays",
        shown=tuple(ShownImage(case, f"{case}: Dice 100.0 %", f"{case}.png", pixels, outcomes, 1.5) for case in cases),
        images=tuple(SegmentedImage(f"{case}.png", 0.5, 1, 2, 3, 4.5) for case in (*cases, "other")),
        unit="mm",
        held_out="photo",
        **COMMON,
    )


def counts(sites: int = 30) -> Counts:
    rows = tuple((number, 0, 7) for number in range(sites))
    names = tuple(f"train-{number}of{sites}" for number in range(1, sites + 1))
    return Counts(name="partition", sites=names, classes=("airplane", "cat", "ship"), counts=rows, **COMMON)


PICTURES: dict[str, Picture] = {"chart": small_chart(), "bars": bars(), "surface": surface(), "scatter": scatter()}
PICTURES |= {"long bars": long_bars(), "long lines": long_lines(), "long names": long_names()}
PICTURES |= {"overlays": overlays(), "one overlay": overlays(1), "counts": counts(), "one site": counts(1)}


def whiskers_of(bars: Container) -> list[np.ndarray]:
    """Return the vertical or horizontal lines of error bars, ``[2, 2]`` each: their ends in x and y."""
    assert isinstance(bars, ErrorbarContainer)
    (lines,) = bars.lines[2]
    assert isinstance(lines, LineCollection)
    return [np.asarray(segment) for segment in lines.get_segments()]


def plotted(figure: Figure) -> Iterator[Axes]:
    """Yield the axes that show numbers, not those of colour bars."""
    yield from (axes for axes in figure.axes if axes.get_label() != "<colorbar>")


@pytest.mark.parametrize("kind", PICTURES)
def test_the_same_numbers_give_the_same_bytes_and_the_marks_are_in_them(kind: str) -> None:
    picture = PICTURES[kind]
    first, second = (render(draw(picture), picture, "svg") for _ in range(2))
    assert first == second
    assert b"dc:date" not in first
    text = first.decode()
    assert picture.caption in text
    assert f">{picture.title}</text>" in text
    assert "STAND-IN for PACS</text>" in text


def test_the_same_pixels_have_the_same_bytes_and_their_caption_in_the_metadata() -> None:
    picture = PICTURES["surface"]
    first, second = (render(draw(picture), picture, "png") for _ in range(2))
    assert first == second
    assert picture.caption.encode() in first


def test_the_scale_of_the_counts_ends_with_the_largest() -> None:
    (bar,) = (axes for axes in draw(counts()).axes if axes.get_label() == "<colorbar>")
    assert bar.get_yticks().tolist() == [1, 3, 8, 20, 29]


@pytest.mark.parametrize("kind", PICTURES)
def test_nothing_is_written_over_anything_else(kind: str) -> None:
    figure = draw(PICTURES[kind])
    assert isinstance(figure.canvas, FigureCanvasAgg)
    renderer = figure.canvas.get_renderer()
    figure.draw(renderer)
    around = [axes.get_tightbbox(renderer) for axes in plotted(figure)]
    boxes = [box for box in around if box is not None]
    assert len(boxes) == len(around)
    boxes += [legend.get_window_extent(renderer) for legend in figure.legends]
    boxes += [text.get_window_extent(renderer) for text in figure.texts]
    for one, other in itertools.combinations(boxes, 2):
        overlap = [min(one.max[axis], other.max[axis]) - max(one.min[axis], other.min[axis]) for axis in (0, 1)]
        assert min(overlap) <= 1.0  # pixels
    for box in boxes:
        assert np.min(box.min) >= -1.0
        assert (np.asarray(box.max) <= np.asarray(figure.bbox.max) + 1.0).all()


def test_every_line_is_the_numbers_of_a_line_and_its_band_is_the_deviation() -> None:
    chart = small_chart()
    figure = draw(chart)
    for axes, panel in zip(plotted(figure), chart.panels, strict=True):
        assert axes.get_title() == panel.title
        assert len(axes.lines) == len(panel.lines)
        for drawn, line in zip(axes.lines, panel.lines, strict=True):
            np.testing.assert_array_equal(drawn.get_xdata(), list(line.points))
            np.testing.assert_array_equal(drawn.get_ydata(), [point.mean for point in line.points.values()])
            assert drawn.get_linestyle() == ("-" if line.quantity == "target" else ":")
            assert drawn.get_color() == line.look.colour
        solid = [line for line in panel.lines if line.quantity == "target"]
        for band, line in zip(axes.collections, solid, strict=True):
            outline = np.asarray(band.get_paths()[0].vertices)
            for x, point in line.points.items():
                heights = outline[outline[:, 0] == x, 1]
                assert (point.mean - heights.min(), heights.max() - point.mean) == pytest.approx((point.std, point.std))
    assert [text.get_text() for legend in figure.legends for text in legend.get_texts()] == [
        "FedAvg",
        "FedOMG",
        "target",
        "source",
    ]


def test_axes_are_labelled_accuracies_are_percent_and_rounds_are_whole() -> None:
    figure = draw(small_chart())
    figure.draw_without_rendering()
    left, right = plotted(figure)
    assert (left.get_xlabel(), left.get_ylabel(), right.get_xlabel(), right.get_ylabel()) == (
        "round",
        "accuracy",
        "round",
        "",
    )
    assert all(tick.get_text().endswith(" %") for tick in left.get_yticklabels())
    assert all(tick == round(tick) for tick in left.get_xticks())


def test_panels_stand_in_even_rows_and_every_lowest_one_has_its_rounds() -> None:
    panel = small_chart().panels[0]
    for count, width, rows in (
        (1, 3.3, [1]),
        (3, 6.9, [3]),
        (4, 6.9, [2, 2]),
        (5, 6.9, [3, 2]),
        (4, 3.3, [2, 2]),
        (3, 3.3, [2, 1]),
        (2, 2.5, [1, 1]),
    ):
        figure = draw(small_chart(panels=(panel,) * count), width)
        places = [axes.get_position().y0 for axes in figure.axes]
        assert [len(list(row)) for _, row in itertools.groupby(places)] == rows
        assert sum(axes.get_xlabel() == "round" for axes in figure.axes) == (rows[0])


def test_the_markers_of_two_lines_are_at_other_rounds_also_beside_dotted_lines() -> None:
    points = {float(after): Estimate(0.5, None, 1) for after in range(21)}
    quantities = ("held-out domain", "source validation")
    lines = [Line(label, numbered_look(look), points, what) for look, label in enumerate("ab") for what in quantities]
    (axes,) = draw(small_chart(panels=(Panel("sketch", "accuracy", tuple(lines)),), quantities=quantities)).axes
    first, second = (line.get_markevery() for line in axes.lines if line.get_linestyle() == "-")
    assert (first, second) == ((0, 2), (1, 2))


@pytest.mark.parametrize(
    ("values", "scale", "shown"),
    [
        ((0.0001, 0.0003, 0.001, 0.01, 0.1), Scale.LOG, ["0.0001", "0.0003", "0.001", "0.01", "0.1"]),
        ((0.0, 0.0001, 0.001, 0.01, 0.1), Scale.ZERO_AND_LOG, ["0", "0.0001", "0.001", "0.01", "0.1"]),
        ((1.0, 1.01, 1.02, 2.0), Scale.LINEAR, ["1", "", "", "2"]),
    ],
)
def test_the_labels_of_tried_values_do_not_overlap_in_a_narrow_panel(
    values: Sequence[float], scale: Scale, shown: list[str]
) -> None:
    points = {value: Estimate(0.5, None, 1) for value in values}
    panel = Panel("held out: photo", "accuracy", (Line("FedOMG", numbered_look(0), points),))
    figure = draw(replace(small_chart(), panels=(panel, panel), scale=scale, quantities=(), legend=()))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for axes in figure.axes:
        texts = [label for label in axes.get_xticklabels() if label.get_text()]
        assert [label.get_text() for label in axes.get_xticklabels()] == shown
        boxes = [label.get_window_extent() for label in texts]
        assert all(one.x1 <= other.x0 for one, other in itertools.pairwise(boxes))


def test_tried_values_are_the_ticks_also_on_a_logarithmic_axis_and_deviations_are_bars() -> None:
    points = {0.01: Estimate(0.5, 0.1, 2), 0.3: Estimate(0.6, 0.2, 2)}
    level = Line("FedAvg", numbered_look(1), dict.fromkeys(points, Estimate(0.4, None, 1)), is_constant=True)
    panel = Panel("held out: photo", "accuracy", (Line("FedOMG", numbered_look(0), points), level), True)
    figure = draw(small_chart(panels=(panel,), quantities=(), scale=Scale.LOG, x_label="kappa"))
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.01", "0.3"]
    (bar,) = axes.containers
    heights = [segment[:, 1].tolist() for segment in whiskers_of(bar)]
    assert heights == [pytest.approx([0.4, 0.6]), pytest.approx([0.4, 0.8])]
    assert [line.get_linestyle() for line in axes.lines if line.get_label() == "FedAvg"] == ["--"]


def test_level_lines_of_one_colour_have_dashes_of_their_own_in_all_panels_and_in_the_legend() -> None:
    def level(label: str, look: int) -> Line:
        return Line(label, numbered_look(look), {0.1: Estimate(0.4, None, 1)}, is_constant=True)

    # The first has the same colour as the third and the fourth, and the second another.
    lines = (level("a", 0), level("b", 1), level("c", 0), level("d", 7))
    panels = (Panel("one", "accuracy", lines), Panel("other", "accuracy", lines[::-1]))
    figure = draw(small_chart(panels=panels, quantities=(), scale=Scale.LINEAR, x_label="kappa"))
    marks = [mark for axes in figure.axes for mark in axes.lines]
    marks += [mark for legend in figure.legends for mark in legend.get_lines()]
    found: dict[str, set[str]] = {}
    for mark in marks:
        found.setdefault(str(mark.get_label()), set()).add(f"{mark.get_color()} {mark._dash_pattern}")  # type: ignore[attr-defined]
    assert sorted(found) == ["a", "b", "c", "d"]
    assert all(len(looks) == 1 for looks in found.values())
    assert len(set.union(*found.values())) == 4


def test_many_sites_of_a_domain_are_drawn_as_median_quartiles_and_range_and_fewer_each_by_itself() -> None:
    def panel(count: int, quantity: str) -> tuple[Line, ...]:
        points = [{1.0: Estimate(place / 100, None, 1)} for place in range(count)]
        return tuple(Line("photo", numbered_look(0), one, quantity, name=str(n)) for n, one in enumerate(points))

    for count, solid in ((MANY_SITES, MANY_SITES), (MANY_SITES + 1, 1)):
        chart = small_chart(panels=(Panel("one", "cosine", (*panel(count, "target"), *panel(count, "source"))),))
        (axes,) = plotted(draw(chart))
        assert [line.get_linestyle() for line in axes.lines] == ["-"] * solid + [":"] * solid
        assert len(list(chart.rows())) == 2 * count
    for line in axes.lines:
        assert np.asarray(line.get_ydata()).tolist() == [pytest.approx(MANY_SITES / 200)]
    heights = [np.asarray(band.get_paths()[0].vertices)[:, 1] for band in axes.collections]
    assert [(found.min(), found.max()) for found in heights] == [
        (0.0, pytest.approx(MANY_SITES / 100)),
        (pytest.approx(MANY_SITES / 400), pytest.approx(3 * MANY_SITES / 400)),
    ]


def test_categories_are_written_under_their_places() -> None:
    line = Line("FedOMG", numbered_look(0), {0.0: Estimate(0.5, None, 1), 1.0: Estimate(0.6, None, 1)})
    chart = small_chart(
        panels=(Panel("p", "accuracy", (line,)),), quantities=(), scale=Scale.CATEGORIES, categories=("max", "max_abs")
    )
    (axes,) = draw(chart).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["max", "max_abs"]


def test_bars_are_medians_from_zero_with_their_quartiles() -> None:
    picture = bars()
    for axes, panel in zip(draw(picture).axes, picture.panels.values(), strict=True):
        drawn = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        assert [patch.get_width() for patch in drawn] == [bar.median for bar in panel]
        assert axes.get_xlim()[0] == 0
        whiskers = whiskers_of(axes.containers[1])
        assert [segment[:, 0].tolist() for segment in whiskers] == [[bar.lower, bar.upper] for bar in panel]
        assert [text.get_text().strip() for text in axes.texts] == ["2.00 s", "3.00 s"][: len(panel)]
        assert axes.get_xlabel() == "seconds"


def test_bars_of_no_length_have_an_axis(recwarn: pytest.WarningsRecorder) -> None:
    panel = (Bar("ERM", numbered_look(0), 0.0, 0.0, 0.0, 3),)
    (axes,) = draw(Bars(name="time", x_label="seconds", panels={"aggregation": panel}, **COMMON)).axes
    assert axes.get_xlim() == (0, 1)
    assert not recwarn.list


def test_a_surface_marks_its_models_in_both_panels_at_true_proportions() -> None:
    picture = surface()
    loss, error = plotted(draw(picture))
    for axes in (loss, error):
        assert axes.get_aspect() == 1
        marks = {tuple(np.asarray(line.get_xydata())[0].tolist()) for line in axes.lines}
        assert marks == {(model.x, model.y) for model in picture.models}
    assert (loss.get_title(), error.get_title()) == (picture.loss_words, "error")
    assert "L2" in error.get_xlabel()


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(1.0, 2.0, 50),
        np.geomspace(1.9, 65.0, 50) ** 1.5,
        1.95 + 1e-3 * np.arange(50) / 50,
        np.repeat([61.0, 64.0, 80.0], 20),
        np.array([*np.full(48, 2.0), 2.5, 40.0]),
        np.linspace(-3.0, 0.0, 9),
    ],
)
def test_levels_enclose_all_values_and_no_two_have_the_same_label(values: np.ndarray) -> None:
    levels, decimals = levels_of(values)
    labels = [f"{level:.{decimals}f}" for level in levels]
    assert len(set(labels)) == len(labels) > 1
    assert [float(label) for label in labels] == pytest.approx(levels)
    assert levels[0] <= values.min() <= values.max() <= levels[-1]
    assert sorted(levels) == list(levels)


def test_values_that_are_the_same_everywhere_have_one_level() -> None:
    for values in ([80.0, 80.0], [0.0, 0.0], [1.95, 1.95 + 1e-6], []):
        assert len(levels_of(np.array(values)).values) == 1


def test_a_panel_without_contours_says_the_value() -> None:
    picture = replace(surface(), error=tuple(tuple(0.8 for _ in row) for row in surface().error))
    _, error = plotted(draw(picture))
    assert error.get_title() == "error: 80.000 % throughout"


def test_no_band_bar_or_axis_leaves_the_bounds_of_its_quantity() -> None:
    points = {float(x): Estimate(mean, 0.3, 2) for x, mean in enumerate((0.05, 0.5, 0.95))}
    line = Line("FedOMG", numbered_look(0), points)
    panel = Panel("held out: photo", "accuracy", (line,), True, (0.0, 1.0), chance=0.2)
    for scale in (Scale.ROUNDS, Scale.LINEAR):
        (axes,) = draw(small_chart(panels=(panel,), quantities=(), scale=scale)).axes
        low, high = axes.get_ylim()
        assert 0.0 <= low < high <= 1.0
        drawn = np.concatenate([path.vertices for band in axes.collections for path in band.get_paths()])
        assert drawn[:, 1].min() == pytest.approx(0.0)
        assert drawn[:, 1].max() == pytest.approx(1.0)


def test_the_score_of_guessing_is_a_line_with_an_entry_in_the_legend() -> None:
    panels = tuple(replace(panel, chance=0.25) for panel in small_chart().panels)
    figure = draw(small_chart(panels=panels))
    for axes in figure.axes:
        assert [np.asarray(line.get_ydata())[0] for line in axes.lines if line.get_linestyle() == "-."] == [0.25]
    assert "always the commonest class (25 %)" in [
        text.get_text() for legend in figure.legends for text in legend.get_texts()
    ]


def test_small_values_are_apart_beside_a_large_one_on_an_axis_that_is_linear_only_around_zero() -> None:
    points = {float(x): Estimate(mean, None, 1) for x, mean in enumerate((-25.0, -1.0, 0.5))}
    panel = Panel("held out: photo", "gap", (Line("FedOMG", numbered_look(0), points),))
    (axes,) = draw(small_chart(panels=(panel,), quantities=(), linear_to=1.0)).axes
    places = [axes.transData.transform((0.0, value))[1] for value in (-25.0, -1.0, 0.5)]
    assert places[2] - places[1] > (places[1] - places[0]) / 3


def test_a_matrix_of_panels_stands_upright_where_its_rows_do_not_fit() -> None:
    panels = tuple(replace(small_chart().panels[0], title=f"{row}{column}") for row in "ab" for column in "123")
    chart = small_chart(panels=panels, is_matrix=True, columns=3)
    assert [axes.get_title() for axes in draw(chart, 6.9).axes] == ["a1", "a2", "a3", "b1", "b2", "b3"]
    assert [axes.get_title() for axes in draw(chart, 3.3).axes] == ["a1", "b1", "a2", "b2", "a3", "b3"]


def test_no_line_ends_between_a_number_and_what_it_counts() -> None:
    text = "PACS, resnet18, 64 px, 10 rounds, 3 source sites, chance 14.3 %"
    for inches in (0.9, 1.2, 1.6, 2.2, 3.0):
        lines = wrapped(text, inches, 6.5)
        assert " ".join(lines) == text
        assert not [line for line in lines[:-1] if line[-1].isdigit()]


def test_no_line_of_a_text_is_wider_than_its_place_or_much_shorter_than_the_others() -> None:
    text = "[from scratch] PACS, resnet18, 64 px, 10 rounds, 3 source sites; mean over 2 seeds (0, 1), in the plane"
    for inches in (1.5, 2.0, 3.3):
        lines = wrapped(text, inches, 6.5)
        widths = [inches_of(line, 6.5) for line in lines]
        assert " ".join(lines) == text
        assert max(widths) <= inches
        assert min(widths) > max(widths) / 3
    assert all(inches_of(line, 6.5) <= 0.5 for line in wrapped("x" * 80, 0.5, 6.5))


def test_a_flat_surface_and_one_with_holes_are_drawn() -> None:
    flat = surface()
    holes = tuple(tuple(float("nan") if a == b else 0.5 for b in range(4)) for a in range(3))
    for error in (holes, tuple(tuple(0.5 for _ in row) for row in flat.error)):
        picture = replace(flat, error=error)
        assert render(draw(picture), picture, "svg")


def test_points_stand_at_their_places_once_by_domain_and_once_by_class() -> None:
    picture = scatter()
    figure = draw(picture)
    by_domain, by_class = plotted(figure)
    expected = {(point.x, point.y) for point in picture.points}
    for axes, groups in ((by_domain, 2), (by_class, 3)):
        assert len(axes.collections) == groups
        places = np.concatenate([collection.get_offsets() for collection in axes.collections])
        drawn = [tuple(place) for place in places.tolist()]
        assert len(drawn) == len(expected)
        assert set(drawn) == expected
    legend = by_domain.get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["photo (3)", "sketch (held out, 3)"]


def test_too_many_classes_for_a_legend_are_counted_instead() -> None:
    figure = draw(scatter(classes=31))
    _, by_class = plotted(figure)
    assert by_class.get_legend() is None
    assert by_class.get_title() == "by class (31, not named)"


def test_signs_that_mean_markup_are_written_as_they_are() -> None:
    picture = small_chart(title="costs $5$ & <more>", caption="a $x_1$ caption")
    text = render(draw(picture), picture, "svg").decode()
    assert ">costs $5$ &amp; &lt;more&gt;</text>" in text
    assert ">a $x_1$ caption</text>" in text


def test_a_long_legend_keeps_within_the_width_in_even_rows() -> None:
    labels = [f"method number {number}" for number in range(10)]
    columns = columns_for(labels, 6.0)
    assert 1 < columns < 10
    assert columns_for([*labels, "x" * 500], 6.0) == 1
    assert columns_for([str(digit) for digit in range(10)], 3.3) == 5  # two rows of five, not of eight and two


def test_a_long_label_has_several_lines_and_keeps_all_its_words() -> None:
    named = [legend.get_text() for legend in draw(long_lines()).legends[0].get_texts()]
    named += [label.get_text() for label in draw(long_bars()).axes[0].get_yticklabels()]
    assert all("\n" in label for label in named)
    assert {" ".join(label.split()) for label in named} == {
        f"{method}: {LONG}" for method in ("FedAvg", "FedOMG", "FedOMG + GA + DIM")
    }


def test_a_cell_is_the_number_of_images_none_is_white_and_sites_are_counted_from_one() -> None:
    picture = counts()
    figure = draw(picture)
    (axes,) = plotted(figure)
    shown = axes.images[0].get_array()
    assert isinstance(shown, np.ma.MaskedArray)
    np.testing.assert_array_equal(shown.filled(0), np.array(picture.counts).T)
    assert np.ma.getmaskarray(shown)[1].all()
    figure.canvas.draw()
    assert [label.get_text() for label in axes.get_yticklabels()] == list(picture.classes)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["5", "10", "15", "20", "25", "30"]
    (bar,) = [other for other in figure.axes if other is not axes]
    numbers = [float(place) for place in bar.get_yticks()]
    assert numbers[0] == 1  # a colour scale that does not start with a number cannot be read where most cells are
    assert 3 <= len(numbers) <= 5


def test_drawing_changes_nothing_global() -> None:
    before = dict(matplotlib.rcParams)
    render(draw(small_chart()), small_chart(), "png")
    assert dict(matplotlib.rcParams) == before
    assert Gcf.get_all_fig_managers() == []  # pyplot knows of no figure


def test_a_picture_without_a_drawing_is_refused() -> None:
    with pytest.raises(TypeError, match="no drawing for a Picture"):
        draw(Picture(name="none", **COMMON))


@pytest.mark.parametrize("kind", PICTURES)
def test_the_csv_holds_a_line_for_every_number_and_its_mark(kind: str) -> None:
    picture = PICTURES[kind]
    header, *lines = render_csv(picture).splitlines()
    assert len(lines) == len(list(picture.rows()))
    assert header.endswith(",data,stand_in,initial_weights")
    assert all(line.endswith(",STAND-IN for PACS,true,from scratch") for line in lines)


def test_an_image_is_shown_as_it_is_and_below_with_the_colours_of_the_outcomes_that_the_legend_names() -> None:
    picture = overlays()
    figure = draw(picture)
    above, below = figure.axes[:3], figure.axes[3:]
    assert [" ".join(axes.get_title().split()) for axes in above] == [image.label for image in picture.shown]
    (legend,) = figure.legends
    patches = legend.get_patches()
    named = {text.get_text(): patch.get_facecolor()[:3] for text, patch in zip(legend.texts, patches, strict=True)}
    assert list(named) == ["true positive", "false positive", "missed"]
    for image, plain, painted in zip(picture.shown, above, below, strict=True):
        np.testing.assert_array_equal(plain.images[0].get_array(), image.pixels)
        assert plain.get_aspect() == painted.get_aspect() == image.ratio
        pixels = painted.images[0].get_array()
        assert pixels is not None
        for outcome, (name, _) in OUTCOMES.items():
            assert {tuple(colour) for colour in pixels[image.outcomes == outcome]} == {named[name]}
        rest = pixels[image.outcomes == Outcome.TRUE_NEGATIVE]
        np.testing.assert_array_equal(rest.min(axis=1), rest.max(axis=1))
        np.testing.assert_array_equal(pixels, laid_over(image))
        assert rest.max() <= DIMMED


def test_outcomes_differ_in_brightness_from_each_other_and_from_the_image_below() -> None:
    colours = [*(to_rgb(colour) for _, colour in OUTCOMES.values()), (DIMMED,) * 3]
    linear = [((np.array(colour) + 0.055) / 1.055) ** 2.4 for colour in colours]  # of sRGB
    brightness = sorted(float(colour @ (0.2126, 0.7152, 0.0722)) + 0.05 for colour in linear)
    assert all(brighter / darker > 1.4 for darker, brighter in itertools.pairwise(brightness))  # contrast as in WCAG


def test_the_numbers_of_all_images_are_listed_and_the_shown_ones_are_named() -> None:
    rows = list(csv.DictReader(io.StringIO(render_csv(overlays(2)))))
    assert [(row["file"], row["case"]) for row in rows] == [
        ("best.png", "best"),
        ("median.png", "median"),
        ("other.png", ""),
    ]
    assert {tuple(row.items())[3:9] for row in rows} == {
        (
            ("dice", "0.5"),
            ("true positives", "1"),
            ("false positives", "2"),
            ("false negatives", "3"),
            ("hd95", "4.5"),
            ("unit of hd95", "mm"),
        )
    }

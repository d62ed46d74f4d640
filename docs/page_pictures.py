# SPDX-License-Identifier: Apache-2.0
"""Pictures of pages other than the methods', drawn from the package when the site is built."""

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pictures import GREY, INK, drawn

from fdg_plugins.data.stand_in import CAMERAS, draw, draw_pair
from fdg_plugins.lab.analysis.figures.picture import BLUE, GREEN, VERMILLION

PACKAGE = Path(__file__).parents[1] / "fdg_plugins"


def _imports(room: Path) -> Iterator[str]:
    """Yield the packages that a package imports, once for each of its modules."""
    for module in room.rglob("*.py"):
        nodes = ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        names = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        found = {name.split(".")[1] for name in names if name.startswith("fdg_plugins.")}
        yield from found - {room.name}


@drawn("architecture", 4.6)
def _architecture(figure: Figure) -> None:
    """Imports between packages, counted in the code: a row imports from its columns. The darker, the more of its
    modules do. Nothing imports from a package to the right of its own: they are in the order of imports.
    """
    left, right = figure.subplots(1, 2, width_ratios=(2.6, 1), sharey=True)
    rooms = [room for room in PACKAGE.iterdir() if room.is_dir() and any(room.glob("*.py"))]
    used = {room.name: list(_imports(room)) for room in rooms}
    order: list[str] = []
    while len(order) < len(rooms):
        left_over = sorted(used.keys() - {*order})
        order.append(next((one for one in left_over if not {*used[one]} & {*left_over}), left_over[0]))
    counts = np.array([[used[row].count(column) for column in order] for row in order])
    left.imshow(np.ma.masked_equal(counts, 0), cmap="cividis_r", vmin=-2, aspect="auto")
    left.set_yticks(range(len(order)), order)
    left.set_xticks(range(len(order)), order, rotation=90)
    left.plot([-0.5, len(order) - 0.5], [-0.5, len(order) - 0.5], color=GREY, linewidth=0.7)
    sizes = [
        sum(len(file.read_text("utf-8").splitlines()) for file in (PACKAGE / name).rglob("*.py")) for name in order
    ]
    right.barh(range(len(order)), sizes, color=GREY)
    right.set(title="lines of code")


@drawn("own-data", 3.3)
def _own_data(figure: Figure) -> None:
    """A data set of drawings of the stand-in as folders: a row is a domain, a column a class. Each domain is a site.
    Three train; the fourth is held out, and no site trains on its images.
    """
    classes, domains = ("dog", "giraffe", "guitar", "house", "person"), ("photo", "art_painting", "cartoon", "sketch")
    grid = figure.subplots(len(domains), len(classes) + 1)
    for row, domain in enumerate(domains):
        for column, name in enumerate(classes):
            _show(grid[row][column], np.asarray(draw(domain, name, 0)), f"{name}/" if row == 0 else "")
        grid[row][0].set_ylabel(f"{domain}/", rotation=0, ha="right", va="center")
        text, colour = ("held out", VERMILLION) if domain == "sketch" else ("trains", GREEN)
        grid[row][-1].text(0, 0.5, f"site {domain}:\n{text}", va="center", color=colour)
        grid[row][-1].axis("off")


@drawn("medical", 2.7)
def _medical(figure: Figure) -> None:
    """Image and mask of each camera, as drawn for the stand-in of the retinal vessels: a domain is a camera. Three
    train, and the network must find the vessels in images of the fourth.
    """
    grid = figure.subplots(2, len(CAMERAS))
    for column, camera in enumerate(CAMERAS):
        image, mask = (np.asarray(one) for one in draw_pair(camera, 1))
        _show(grid[0][column], image, f"{camera}: {'held out' if camera == 'stare' else 'trains'}")
        _show(grid[1][column], np.where(mask[..., None] > 0, [255, 255, 255], image // 3).astype(np.uint8), "")
    grid[0][0].set_ylabel("images/", rotation=0, ha="right", va="center")
    grid[1][0].set_ylabel("masks/", rotation=0, ha="right", va="center")


def _show(axes: Axes, image: np.ndarray, title: str) -> None:
    axes.imshow(image, interpolation="none")
    axes.set(title=title, xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


@drawn("deployment", 2.8)
def _deployment(figure: Figure) -> None:
    """Who connects to whom. Every connection begins at a hospital or a person; only the server accepts any. Images and
    private keys stay where they are.
    """
    axes = figure.subplots()
    for place, name in enumerate("ABCDE"):
        _box(axes, (0, 4 - place), f"hospital {name}: site, images", BLUE)
        _connect(axes, (1.95, 4 - place), (3.3, 2.3 - 0.15 * place))
    for place, name in ((3, "lead: submits jobs"), (1, "org admin: operates a site")):
        _box(axes, (6.6, place), name, GREEN)
        _connect(axes, (6.5, place), (5.15, 2 + (place - 2) * 0.2))
    _box(axes, (3.4, 2), "server: jobs, models", INK)
    _box(axes, (3.4, 0), "coordinator: certificates, offline", VERMILLION)
    axes.text(2.6, 3.7, "port 8002: updates, reports", color=GREY)
    axes.text(4.1, 3.0, "port 8003: commands", color=GREY)
    axes.set(xlim=(-0.1, 8.7), ylim=(-0.5, 4.5))
    axes.axis("off")


def _box(axes: Axes, corner: tuple[float, float], text: str, colour: str) -> None:
    frame = {"boxstyle": "round,pad=0.5", "edgecolor": colour, "facecolor": "none", "linewidth": 1.4}
    axes.text(*corner, text, bbox=frame, va="center")


def _connect(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 1.2})

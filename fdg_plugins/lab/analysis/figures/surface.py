# SPDX-License-Identifier: Apache-2.0
"""Loss and error on the held-out domain over the plane through three sites' own models, with the global model marked.

Such figures are Fig. 4 of the FedDG-GA paper and Fig. 3 of the FedDIM paper: if averaging works, the global model lies
in a wider and lower valley than the local models.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch

from fdg_plugins.lab.analysis.figures.groups import caption_of, origin_of, site_look
from fdg_plugins.lab.analysis.figures.material import Batches, Images, State, device, empty_model
from fdg_plugins.lab.analysis.figures.picture import PlacedModel, Surface
from fdg_plugins.lab.analysis.figures.plane import Place, Plane
from fdg_plugins.lab.analysis.figures.style import BLACK, Look
from fdg_plugins.lab.analysis.names import method_title
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.models import ExtractorClassifier, parameter_kinds
from fdg_plugins.tasks import TASKS, Score
from fdg_plugins.training.loop import DevicePolicy, evaluate

GLOBAL = "global model"
MARGIN = 0.25  # beyond the outermost models on each side, as a fraction of the larger extent
IN_THE_PLANE = 1e-4  # as a fraction of the distance from the nearest corner: float32 parameters are rounded

Track = Callable[[Iterable[tuple[float, float]], str, int], Iterable[tuple[float, float]]]


class Grid(NamedTuple):
    """The points at which a surface is evaluated."""

    x: tuple[float, ...]
    y: tuple[float, ...]


def surface(
    run: Run, corners: Mapping[str, State], last: State, images: Images, points: int, samples: int, track: Track
) -> Surface:
    """Return the surface of ``run`` over ``points`` x ``points`` models, each evaluated on at most ``samples`` images.

    ``corners`` are the models of three sites after the last round, ``last`` is the global model aggregated from them;
    ``track`` yields the points and may show progress. Raises ``DataError`` if the corners span no plane, or if the
    images are not those of the run.
    """
    data = images.open(run.target)
    drawn = images.draw(data, samples)
    judge = Judge(run, images.batches(data, drawn))
    plane = Plane(list(corners.values()), parameter_kinds(judge.model))
    places = [Place(x, y, 0.0) for x, y in plane.corners]
    models = [
        _placed(site, site_look(run, site), place, judge.judged(plane.model_at(place.x, place.y)))
        for site, place in zip(corners, places, strict=True)
    ]
    own = plane.place(last)
    models.append(_placed(GLOBAL, Look(BLACK, "*"), own, judge.judged(last)))
    grid = grid_around([(model.x, model.y) for model in models], points)
    flat = [(x, y) for y in grid.y for x in grid.x]
    scores = [judge.judged(plane.model_at(x, y)) for x, y in track(flat, "evaluating the surface", len(flat))]
    rows = [scores[start : start + len(grid.x)] for start in range(0, len(scores), len(grid.x))]
    return Surface(
        name="surface",
        title=f"Loss and error around the global model on the held-out domain {run.target}, {method_title(run.method)}",
        caption=f"{caption_of([run])}; {len(drawn)} images; after the last round; the global model lies "
        f"{_beside(own, plane)}",
        origin=origin_of([run]),
        loss_words=run.record.task.loss_words,
        x=grid.x,
        y=grid.y,
        loss=tuple(tuple(score.loss for score in row) for row in rows),
        error=tuple(tuple(score.error for score in row) for row in rows),
        models=tuple(models),
    )


class Judged(NamedTuple):
    """The mean loss of a model, and the distance of its score from the best possible one."""

    loss: float
    error: float


class Judge:
    """Evaluates state dicts on images kept in memory, in evaluation mode, on the fastest device of the machine."""

    def __init__(self, run: Run, batches: Batches) -> None:
        self._task = TASKS.get(run.record.protocol.task)
        self._size = run.record.protocol.image_size
        self._policy = DevicePolicy(device())
        self._batches = [(self._policy.images(images), labels) for images, labels in batches]
        self.model: ExtractorClassifier = self._policy.place(empty_model(run))

    def __call__(self, state: State) -> Score:
        """Return the score of the model with these parameters and buffers."""
        self.model.load_state_dict(dict(state))
        return evaluate(self.model, self._batches, self._policy, lambda: False, self._task, self._size)

    def judged(self, state: State) -> "Judged":
        """Return loss and error of the model with these parameters and buffers."""
        score, kind = self(state), self._task.score
        return Judged(score.loss, kind.error(score.value(kind.name)))


def grid_around(places: Sequence[tuple[float, float]], points: int) -> Grid:
    """Return ``points`` x ``points`` grid points, evenly over the bounding box of ``places`` plus a margin."""
    lows = [min(place[axis] for place in places) for axis in (0, 1)]
    highs = [max(place[axis] for place in places) for axis in (0, 1)]
    margin = MARGIN * max(high - low for low, high in zip(lows, highs, strict=True))
    axes = [
        tuple(torch.linspace(low - margin, high + margin, points, dtype=torch.float64).tolist())
        for low, high in zip(lows, highs, strict=True)
    ]
    return Grid(*axes)


def relative(place: Place, plane: Plane) -> float:
    """Return a model's distance from the plane as a fraction of that from the nearest corner; 0 at a corner."""
    nearest = min(math.hypot(place.x - x, place.y - y, place.distance) for x, y in plane.corners)
    return place.distance / nearest if nearest > 0 else 0.0


def _beside(place: Place, plane: Plane) -> str:
    share = relative(place, plane)
    if share < IN_THE_PLANE:
        return "in the plane"
    return f"{place.distance:.3g} off the plane, {share:.2g} of its distance from the nearest of the three"


def _placed(label: str, look: Look, place: Place, score: Judged) -> PlacedModel:
    return PlacedModel(label, look, place.x, place.y, score.loss, score.error, place.distance)

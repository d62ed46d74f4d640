# SPDX-License-Identifier: Apache-2.0
"""Pictures of the methods' pages, drawn from the package's own functions when the site is built.

Most show a model of two weights, so that a round can be seen: it tells scikit-learn's digits 3 and 8 apart by where
their ink is. Site A has the digits as they are, site B has them turned. Others show photographs of scikit-learn, or
the records of ``results/``.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pictures import GREY, INK, drawn
from scipy.ndimage import rotate
from scipy.optimize import minimize
from sklearn.datasets import load_digits, load_sample_images
from torch import nn

from fdg_plugins.core.head_combination import head_mixtures, uncertainty, weighted_means
from fdg_plugins.core.insight import insight_matrix, update_global_insight
from fdg_plugins.core.matching import invariant_direction
from fdg_plugins.core.spectrum import (
    amplitude_and_phase,
    centred_band,
    mean_amplitude,
    mix_amplitudes,
    replace_amplitude,
)
from fdg_plugins.core.steps import effective_steps
from fdg_plugins.core.style import draw_styles, explore_styles, mix_styles, styles_of
from fdg_plugins.core.weighting import sample_weights
from fdg_plugins.lab.analysis.figures.picture import BLUE, GREEN, ORANGE, SKY_BLUE, VERMILLION
from fdg_plugins.lab.centralised.fishr import gradient_variances
from fdg_plugins.methods.fedcsa import class_shares, class_weights
from fdg_plugins.methods.fediir import FedIIRObjective
from fdg_plugins.methods.fednova import normalized_coefficients
from fdg_plugins.methods.fedprox import FedProxObjective
from fdg_plugins.methods.fedrod import FedRoDObjective
from fdg_plugins.methods.fedsam import FedSAMObjective
from fdg_plugins.methods.mofedsam import MoFedSAMObjective, MomentumExchange, SiteDescent
from fdg_plugins.methods.rsc import label_gradient, largest
from fdg_plugins.methods.scaffold import SCAFFOLDObjective
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import ERMObjective, Objective
from fdg_plugins.objectives.objective import FeatureBatch, SiteRound, Trained
from fdg_plugins.training.loop import DevicePolicy, train_locally

RECORDS = Path(__file__).parent / "results" / "records"
RATE = 1.0
Point = np.ndarray
TWO_WEIGHTS = (
    "A model of two weights tells handwritten digits 3 and 8 apart. Site A has the digits upright, site B turned; thin "
    "lines join weights of equal loss. "
)
# Methods of which a picture would be decoration, and why.
WITHOUT = {
    "fedadg": "generated features lie in hundreds of dimensions; two of them show points, not the distribution",
    "fedbabu": "a fixed head is one sentence, and what it does to features takes a trained network",
    "fedlgf": "a perturbed head of two weights has no flat directions to see",
    "fedsr": "noise on features is plain from its equation; what it leaves out takes a trained network",
    "perfedavg": "in two weights its model is too close to FedAvg's to be told apart",
}


# --- a model of two weights ---


class Site(NamedTuple):
    """A site of the model of two weights: features ``[B, 2]``, labels ``[B]``, name and colour."""

    features: torch.Tensor
    labels: torch.Tensor
    name: str
    colour: str

    def loss(self, at: Point) -> Any:
        """Return the mean cross entropy at weights ``[..., 2]``."""
        signs = 2 * self.labels.numpy() - 1
        return np.logaddexp(0, -(at @ self.features.numpy().T) * signs).mean(-1)


class Walk(NamedTuple):
    """What a site did in a round: its weights before each step and after the last ``[S + 1, 2]``, and what it keeps."""

    points: Point
    change: Mapping[str, torch.Tensor]
    memory: Mapping[str, torch.Tensor]

    @property
    def update(self) -> Point:
        """Local minus global ``[2]``."""
        return np.asarray(self.points[-1] - self.points[0])


@cache
def _site(name: str, colour: str, turned: float) -> Site:
    digits = load_digits()
    chosen = np.isin(digits.target, (3, 8))
    images = rotate(digits.images[chosen] / 16, turned, axes=(2, 1), reshape=False, order=1)
    across = np.linspace(1, -1, 8)  # more ink on the left, or at the top, is positive
    ink = np.stack([(images * across).mean((1, 2)), (images * across[:, None]).mean((1, 2))], axis=1)
    return Site(torch.from_numpy(20 * ink).float(), torch.from_numpy(digits.target[chosen] == 8).long(), name, colour)


def _sites() -> tuple[Site, Site]:
    return _site("site A", BLUE, 0), _site("site B", VERMILLION, -75)


def _model(start: Point) -> ExtractorClassifier:
    model = ExtractorClassifier(nn.Flatten(), nn.Linear(2, 2, bias=False))
    model.last_layer.weight.data = torch.tensor(np.stack([-start, start]) / 2, dtype=torch.float32)
    return model


def _walk(objective: Objective, start: Point, site: Site, steps: int = 12, **known: Any) -> Walk:
    """Train as a site does, ``steps`` times on all of its images, by plain SGD."""
    model, points = _model(start), []
    received = known.pop("received", {})
    local = objective.local(received, model, SiteRound(site.name, learning_rate=RATE, **known))

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(steps):
            points.append(_weights(model))
            yield site.features, site.labels

    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    policy = DevicePolicy(torch.device("cpu"))
    train_locally(model, local, [batches()], optimizer, policy)
    before = dict(_model(start).named_parameters())
    update = {name: value.detach() - before[name].detach() for name, value in model.named_parameters()}
    return Walk(
        np.array([*points, _weights(model)]), update, local.memory(Trained(update, steps, effective_steps(steps, 0.0)))
    )


def _weights(model: ExtractorClassifier) -> Point:
    of_3, of_8 = model.last_layer.weight.detach().double()
    return np.asarray((of_8 - of_3).numpy())


@cache
def _joint_optimum() -> Any:
    return minimize(lambda at: sum(site.loss(at) for site in _sites()), [0.0, 0.0]).x


def _landscape(axes: Axes, title: str, low: Point, high: Point, sites: Sequence[Site] = ()) -> None:
    """Draw lines of equal loss of the sites, by default of both with the optimum of their sum."""
    grid = np.stack(np.meshgrid(*(np.linspace(low[i], high[i], 120) for i in (0, 1))), axis=-1)
    for site in sites or _sites():
        losses = site.loss(grid)
        levels = losses.min() + (losses.max() - losses.min()) * np.linspace(0.01, 0.9, 7) ** 2
        axes.contour(grid[..., 0], grid[..., 1], losses, levels, colors=site.colour, linewidths=0.7, alpha=0.6)
    if not sites:
        axes.plot(*_joint_optimum(), "*", color=GREEN, markersize=9, label="optimum of both", linestyle="")
    axes.set(title=title, xticks=[], yticks=[], xlabel="weight of ink on the left", ylabel="weight of ink at the top")
    axes.set_aspect("equal")


def _path(axes: Axes, points: Point, colour: str, label: str = "", style: str = "-") -> None:
    axes.plot(*points.T, style, color=colour, label=label, marker="o", markersize=2.5, linewidth=1)


def _arrow(axes: Axes, start: Point, move: Point, colour: str, label: str = "") -> None:
    look = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.8, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", tuple(start + move), tuple(start), arrowprops=look, zorder=3)
    axes.plot(*np.stack([start, start + move]).T, color=colour, label=label, linewidth=1.8)  # for limits and legend


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    found = dict(zip(labels, handles, strict=True))
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=len(found))


START = np.array([-0.6, -1.0])
LOW, HIGH = np.array([-1.3, -1.4]), np.array([3.6, 3.6])
OTHER_STEPS = (12, 3)
TURN = np.linspace(0, 2 * np.pi, 200)


def _rounds(objective: Objective, rounds: int, steps: tuple[int, int], *, is_nova: bool = False) -> list[list[Walk]]:
    """Return what both sites did in each round, under FedAvg or FedNova with full participation."""
    found: list[list[Walk]] = []
    start = START
    memory: list[dict[str, torch.Tensor]] = [{}, {}]
    for number in range(rounds):
        # c is the mean of all c_u if all sites take part: SCAFFOLD's invariant.
        mean = {name: (memory[0][name] + memory[1][name]) / 2 for name in memory[0]}
        walks = [
            _walk(objective, start, site, count, received=mean, memory=own, number=number)
            for site, count, own in zip(_sites(), steps, memory, strict=True)
        ]
        found.append(walks)
        weights = torch.tensor([0.5, 0.5], dtype=torch.float64)
        factors = normalized_coefficients(weights, torch.tensor(steps, dtype=torch.float64)) if is_nova else weights
        start = start + factors.numpy() @ np.stack([walk.update for walk in walks])
        memory = [dict(walk.memory) for walk in walks]
    return found


def _draw_rounds(axes: Axes, rounds: list[list[Walk]], shown: int, title: str) -> None:
    """Draw the server's path and the sites' steps of one round."""
    _landscape(axes, title, LOW, HIGH)
    server = np.array([walks[0].points[0] for walks in rounds])
    for site, walk in zip(_sites(), rounds[shown], strict=True):
        _path(axes, walk.points, site.colour, f"steps of {site.name}")
    axes.plot(*server.T, "s-", color=INK, label="global model", markersize=3.5, linewidth=1)


@drawn("fedavg", preface=TWO_WEIGHTS)
def _fedavg(figure: Figure) -> None:
    """Each site trains from the global model, and the server moves it by the mean of both updates."""
    rounds = _rounds(ERMObjective(), 12, (12, 12))
    for axes, shown in zip(figure.subplots(1, 2), (0, 3), strict=True):
        _draw_rounds(axes, rounds, shown, f"steps of round {shown + 1}")
    _legend(figure, axes)


@drawn("fedprox", 2.9, preface=TWO_WEIGHTS)
def _fedprox(figure: Figure) -> None:
    """The penalty keeps both sites near the model that they received."""
    for axes, strength in zip(figure.subplots(1, 3), (0.0, 0.1, 0.6), strict=True):
        _landscape(axes, f"μ = {strength:g}", LOW, HIGH)
        for site in _sites():
            walk = _walk(FedProxObjective(strength), START, site, 40)
            _path(axes, walk.points, site.colour, f"40 steps of {site.name}")
    _legend(figure, axes)


@drawn("fednova", preface=TWO_WEIGHTS)
def _fednova(figure: Figure) -> None:
    """Site A takes 12 steps in a round, site B 3. Under FedAvg the global model ends near the optimum of site A; under
    FedNova steps do not decide how much a site counts.
    """
    for axes, is_nova in zip(figure.subplots(1, 2), (False, True), strict=True):
        rounds = _rounds(ERMObjective(), 12, OTHER_STEPS, is_nova=is_nova)
        _draw_rounds(axes, rounds, 0, f"Fed{'Nova' if is_nova else 'Avg'}, steps of round 1")
    _legend(figure, axes)


@drawn("scaffold", preface=TWO_WEIGHTS)
def _scaffold(figure: Figure) -> None:
    """Site A takes 12 steps in a round, site B 3. In round 12 of FedAvg both still walk to their own optima. With
    control variates each steps along the gradient of both, and the global model reaches their optimum.
    """
    for axes, objective in zip(figure.subplots(1, 2), (ERMObjective(), SCAFFOLDObjective()), strict=True):
        rounds = _rounds(objective, 12, OTHER_STEPS)
        _draw_rounds(axes, rounds, 11, f"{'SCAFFOLD' if objective.name == 'scaffold' else 'FedAvg'}, steps of round 12")
    _legend(figure, axes)


@drawn("fedsam", 3.2)
def _fedsam(figure: Figure) -> None:
    """A model of two weights; thin lines join weights of equal loss at a site. FedSAM climbs by e, computes the
    gradient there, and takes its step from where it was. Steps are drawn six times as long as they are.
    """
    axes, site, radius, length = figure.subplots(), _sites()[0], 0.7, 6.0
    start = np.array([0.6, 2.6])
    _landscape(axes, "", np.array([-0.3, 1.1]), np.array([3.2, 4.0]), sites=[site])
    plain, aware = (length * _walk(one, start, site, 1).update for one in (ERMObjective(), FedSAMObjective(radius)))
    ascent = -radius * math.sqrt(2) * plain / np.linalg.norm(plain)  # half of it in each of two opposite rows
    _arrow(axes, start, plain, GREY, "step of FedAvg")
    _arrow(axes, start, ascent, ORANGE, "ascent e of length ρ")
    _arrow(axes, start + ascent, aware, SKY_BLUE, "step there")
    _arrow(axes, start, aware, INK, "step of FedSAM")
    _legend(figure, axes)


@drawn("mofedsam", 2.9, preface=TWO_WEIGHTS)
def _mofedsam(figure: Figure) -> None:
    """The smaller β, the more each step follows the common direction of the round before."""
    first = _rounds(ERMObjective(), 1, (12, 12))[0]
    reports = {str(number): SiteDescent(walk.change, 12 * RATE) for number, walk in enumerate(first)}
    common = MomentumExchange({name: value.shape for name, value in first[0].change.items()}).learn(reports)
    for axes, beta in zip(figure.subplots(1, 3), (1.0, 0.6, 0.1), strict=True):
        _landscape(axes, f"β = {beta:g}", LOW, HIGH)
        objective = MoFedSAMObjective(radius=0.05, beta=beta)
        start = START + np.mean([walk.update for walk in first], axis=0)
        for site in _sites():
            _path(axes, _walk(objective, start, site, received=common).points, site.colour, f"steps of {site.name}")
        _arrow(axes, START, start - START, INK, "step of the round before")
    _legend(figure, axes)


@drawn("fediir", 3.0, preface=TWO_WEIGHTS)
def _fediir(figure: Figure) -> None:
    """The penalty of a site is the squared length of its dotted line, from its gradient to the mean g."""
    axes, objective, model = figure.subplots(), FedIIRObjective(ema=0.0), _model(np.array([1.2, 1.2]))
    start, reports = _weights(model), {}
    _landscape(axes, "", LOW, HIGH)
    for site in _sites():
        seen = [FeatureBatch(site.features, site.features, site.labels)]
        reports[site.name] = objective.report_received(model, seen, 2)
    mean = objective.exchange(model, 2, 2).learn(reports)
    length = 14.0

    def descent(gradients: Mapping[str, torch.Tensor]) -> Point:
        (of_3, of_8) = next(iter(gradients.values())).double()
        return length * np.asarray((of_3 - of_8).numpy())

    for site in _sites():
        found = descent(reports[site.name])
        _arrow(axes, start, found, site.colour, f"-gradient of {site.name}")
        axes.plot(*(start + np.stack([found, descent(mean)])).T, ":", color=site.colour, linewidth=1.4)
    _arrow(axes, start, descent(mean), INK, "-g, their mean")
    _legend(figure, axes)


@drawn("centralised", 2.9)
def _fishr(figure: Figure) -> None:
    """Gradients of the images of two domains, at one model of two weights. IGA compares their means (squares), Fishr
    their variances (ellipses, of two deviations along each weight), and the risks of V-REx need no gradient.
    """
    axes, start = figure.subplots(), np.array([1.2, 1.2])
    weight = torch.tensor(start).requires_grad_()
    for site in _sites():
        losses = nn.functional.softplus((1 - 2 * site.labels) * (site.features.double() @ weight))
        gradients = torch.stack([torch.autograd.grad(loss, weight, retain_graph=True)[0] for loss in losses])
        mean = gradients.mean(dim=0)
        axes.plot(*gradients.T, ".", color=site.colour, alpha=0.35, markersize=4)
        axes.plot(*mean, "s", color=site.colour, label=site.name.replace("site", "mean of domain"), markersize=6)
        spread = 2 * gradient_variances(gradients, [(site.features, site.labels)])[0].sqrt()
        ellipse = mean[:, None] + spread[:, None] * torch.tensor(np.stack([np.cos(TURN), np.sin(TURN)]))
        axes.plot(*ellipse, color=site.colour, label=site.name.replace("site", "variance of domain"))
    axes.set(xlabel="gradient of ink on the left", ylabel="of ink at the top")
    axes.set_aspect("equal")
    _legend(figure, axes)


@drawn("fedomg")
def _fedomg(figure: Figure) -> None:
    """Left: the updates of three sites with handwritten digits, of which A and C are alike. The mean leans to them.
    FedOMG searches the circle around the mean for the direction that also serves B. Right: the smallest cosine of an
    update with either, on PACS from scratch: mean over four held-out domains and all seeds.
    """
    plane, record = figure.subplots(1, 2, width_ratios=(1, 1.2))
    sites = [_site("site A", BLUE, 0), _site("site B", VERMILLION, -110), _site("site C", SKY_BLUE, -25)]
    updates = torch.tensor(np.stack([_walk(ERMObjective(), START, site).update for site in sites]))
    p, kappa = torch.full((3,), 1 / 3, dtype=torch.float64), 0.5
    mean, direction = (p @ updates).numpy(), np.asarray(invariant_direction(updates, p, kappa))
    for site, update in zip(sites, updates.numpy(), strict=True):
        _arrow(plane, np.zeros(2), update, site.colour, f"update of {site.name}")
    _arrow(plane, np.zeros(2), mean, GREY, "mean")
    _arrow(plane, np.zeros(2), direction, INK, "direction of FedOMG")
    circle = mean[:, None] + kappa * np.linalg.norm(mean) * np.array([np.cos(TURN), np.sin(TURN)])
    plane.plot(*circle, ":", color=GREY, linewidth=1)
    plane.set(xticks=[], yticks=[], title="updates of a round")
    plane.set_aspect("equal")
    found = _records("pacs", "fedomg")
    for column, colour in (("cosines_with_mean", GREY), ("cosines_with_direction", INK)):
        worst = found.groupby(["run", "round"])[column].min().groupby("round").mean()
        record.plot(worst.index, worst, "o-", color=colour)
    record.set(title="cosine with the update served worst, PACS", xlabel="round")
    _legend(figure, plane)


# --- records of runs ---


def _records(study: str, method: str) -> pd.DataFrame:
    """Return the lines of a method's runs: one per run, round and site."""
    lines = pd.read_csv(RECORDS / study / "sites.csv.gz").dropna(subset=["weights"])
    lines = lines[lines["run"].str.startswith(f"{method}-")]
    return lines.assign(target=lines["run"].str.extract(r"^\w+-(\w+)-seed", expand=False))


def _weights_over_rounds(figure: Figure, method: str) -> None:
    lines = _records("pacs_all_methods", method)
    colours = dict(zip(sorted(lines["target"].unique()), (BLUE, VERMILLION, GREEN, ORANGE), strict=True))
    every = figure.subplots(1, 4, sharey=True)
    for axes, target in zip(every, colours, strict=True):
        for site, line in lines[lines["target"] == target].groupby("site"):
            axes.plot(line["round"], line["weights"], "o-", color=colours[site], label=site, markersize=3)
        axes.axhline(1 / 3, color=GREY, linewidth=0.7, linestyle=":")
        axes.set(title=f"held out: {target}", xlabel="round")
    every[0].set_ylabel("weight")
    handles = {label: handle for axes in every for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=4)


@drawn("fedga", 2.2)
def _fedga(figure: Figure) -> None:
    """A site gains weight while the global model is worse on its images than its own. Ten rounds on PACS from scratch,
    1,000 images per domain, one seed; dotted: equal weights.
    """
    _weights_over_rounds(figure, "fedga")


@drawn("arfl", 2.2)
def _arfl(figure: Figure) -> None:
    """A site loses weight while the global model has a high loss on its images. Ten rounds on PACS from scratch, 1,000
    images per domain, one seed; dotted: equal weights.
    """
    _weights_over_rounds(figure, "arfl")


@drawn("fedas", 2.2)
def _fedas(figure: Figure) -> None:
    """Weights by the Fisher trace, which a site computes from the gradients of its batches. Ten rounds on PACS from
    scratch, 1,000 images per domain, one seed; dotted: equal weights.
    """
    _weights_over_rounds(figure, "fedas")


# --- digits whose pixels are the features ---


@cache
def _pixels(turned: float = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scikit-learn's digits ``[B, 1, 8, 8]``, turned, and their labels."""
    digits = load_digits()
    images = rotate(digits.images / 16, turned, axes=(2, 1), reshape=False, order=1)
    return torch.from_numpy(images).float()[:, None], torch.from_numpy(digits.target).long()


def _trained(
    images: torch.Tensor, labels: torch.Tensor, objective: Objective, extractor: nn.Module, features: int, rate: float
) -> ExtractorClassifier:
    """Return a model after 150 steps on all images, from zeros in the head."""
    model = ExtractorClassifier(extractor, nn.Linear(features, 10))
    nn.init.zeros_(model.last_layer.weight)
    local = objective.local({}, model, SiteRound(class_counts=tuple(labels.bincount(minlength=10).tolist())))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=1e-3)
    policy, batches = DevicePolicy(torch.device("cpu")), [(images, labels)] * 150
    train_locally(model, local, [batches], optimizer, policy)
    return model.eval()


def _class_means(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean pixels of each digit ``[Y, 64]``, zero for a digit without images."""
    return torch.stack([images[labels == digit].flatten(1).mean(dim=0) for digit in range(10)]).nan_to_num()


@drawn("feddim", 1.75)
def _feddim(figure: Figure) -> None:
    """A linear model whose features are pixels: the insight of a 3 is what each pixel adds to the logit of 3 (orange)
    or takes from it (purple). Site B has the digits turned, and other pixels decide there. FedDIM draws both sites to
    the mean of their insights.
    """
    sites = {"site A": _pixels(), "site B": _pixels(-60)}
    means = {name: _class_means(*site) for name, site in sites.items()}
    heads = {name: _trained(*site, ERMObjective(), nn.Flatten(), 64, 0.1).last_layer for name, site in sites.items()}
    insights = {name: insight_matrix(means[name], head.weight.detach()) for name, head in heads.items()}
    counts = torch.ones(2, 10, dtype=torch.int64)
    both = update_global_insight(None, insights.values(), counts, 1.0).values
    digit = 3
    panels = [(f"mean 3 of {name}", mean[digit]) for name, mean in means.items()]
    panels += [(f"insight of {name}", found[digit, :, digit]) for name, found in insights.items()]
    panels += [("global insight", both[digit, :, digit])]
    limit = float(torch.stack([values for _, values in panels[2:]]).abs().max())
    for number, (axes, (title, values)) in enumerate(zip(figure.subplots(1, 5), panels, strict=True)):
        look = {"cmap": "gray"} if number < 2 else {"cmap": "PuOr", "vmin": -limit, "vmax": limit}
        axes.imshow(values.view(8, 8), **look)
        axes.set(title=title, xticks=[], yticks=[])


@drawn("fedpac", 2.4)
def _fedpac(figure: Figure) -> None:
    """Four sites have parts of the digits, with their pixels as features. A site's head becomes a mixture of heads:
    most of its own, part of that of the site with the same digits, hardly any of the others.
    """
    images, labels = _pixels()
    generator = np.random.default_rng(0)
    groups = {"A": range(5), "B": range(5), "C": range(5, 10), "D": range(5, 10)}
    means, uncertain, held = [], [], []
    for group in groups.values():
        likely = np.where(np.isin(labels.numpy(), list(group)), 0.12, 0.01)
        mine = torch.from_numpy(generator.random(len(labels)) < likely)
        counts = labels[mine].bincount(minlength=10)
        classes = _class_means(images[mine], labels[mine])
        held.append(counts)
        means.append(weighted_means(classes, counts))
        uncertain.append(uncertainty(classes, counts, float(images[mine].square().sum(dim=(1, 2, 3)).mean())))
    mixtures = head_mixtures(torch.stack(means), torch.tensor(uncertain))
    left, right = figure.subplots(1, 2, width_ratios=(1.6, 1))
    _heat(left, torch.stack(held).numpy(), "images by site and digit", groups, range(10), "{:.0f}")
    _heat(right, mixtures.numpy(), "share of each head in a site's mixture", groups, groups, "{:.2f}")


def _heat(axes: Axes, values: np.ndarray, title: str, rows: Iterable[Any], columns: Iterable[Any], form: str) -> None:
    axes.imshow(values, cmap="cividis", aspect="auto", vmin=0)
    for (row, column), value in np.ndenumerate(values):
        dark = value < values.max() / 2
        axes.text(column, row, form.format(value), ha="center", va="center", color="white" if dark else "black")
    axes.set_xticks(range(values.shape[1]), list(columns))
    axes.set_yticks(range(values.shape[0]), list(rows))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set(title=title)


@drawn("fedcsa", 2.6)
def _fedcsa(figure: Figure) -> None:
    """Six of 100 sites of the label-skewed MNIST study, as if they were those of a round. A row of the head belongs to
    the sites that have its digit, however few images they have in all.
    """
    run = pd.read_csv(RECORDS / "mnist_skewed_125" / "selections.csv.gz").iloc[0]
    census = json.loads(run["record"])["census"]
    counts = [census[site]["class_counts"] for site in json.loads(run["record"])["sources"][:6]]
    weights = class_weights(sample_weights([sum(one) for one in counts]), class_shares(counts))
    names = [str(number + 1) for number in range(len(counts))]
    left, right = figure.subplots(1, 2)
    _heat(left, np.array(counts), "images by site and digit", names, range(10), "{:.0f}")
    _heat(right, 100 * weights.numpy(), "weight of a site in each row of the head, percent", names, range(10), "{:.0f}")


@drawn("fedrod", 2.4)
def _fedrod(figure: Figure) -> None:
    """A linear model of one site, evaluated on as many images of each digit. With the shift by class counts the
    generic head finds rare digits as well; the personal head, which is not shown, keeps the proportions of the site.
    """
    images, labels = _pixels()
    counts = np.array([80, 60, 45, 34, 25, 19, 14, 10, 8, 5])
    train = torch.cat([(labels == digit).nonzero()[:count, 0] for digit, count in enumerate(counts)])
    test = torch.cat([(labels == digit).nonzero()[90:, 0] for digit in range(10)])
    left, right = figure.subplots(1, 2)
    left.bar(range(10), counts, color=GREY)
    left.set(title="images of a site", xlabel="digit", xticks=range(10))
    for balance, colour, marker in ((0.0, GREY, "s"), (1.0, INK, "o")):
        model = _trained(images[train], labels[train], FedRoDObjective(balance), nn.Flatten(), 64, 0.1)
        hit = (model(images[test]).argmax(dim=1) == labels[test]).float()
        recall = [100 * float(hit[labels[test] == digit].mean()) for digit in range(10)]
        right.plot(range(10), recall, f"{marker}-", color=colour, label=f"balance = {balance:g}")
    right.set(title="accuracy of the generic head, percent", xlabel="digit", xticks=range(10))
    right.legend()


@drawn("rsc", 1.8)
def _rsc(figure: Figure) -> None:
    """Crosses: the third of all positions that adds most to the logit of the right digit, in a small network. RSC
    mutes them for the images whose label loses most by it, so that the rest must do.
    """
    images, labels = _pixels()
    torch.manual_seed(0)
    extractor = nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    model = _trained(images[:300], labels[:300], ERMObjective(), extractor, 24, 0.1)
    shown = torch.stack([(labels == digit).nonzero()[20, 0] for digit in (0, 3, 4, 6, 7, 9)])
    with torch.no_grad():
        maps = model.feature_map(images[shown])
        gradient = label_gradient(model.classifier, model.pool(maps), labels[shown])
        muted = largest((maps * gradient[:, :, None, None]).sum(dim=1).flatten(1), 1 / 3).view(-1, 8, 8)
    for axes, image, mask in zip(figure.subplots(1, 6), images[shown], muted, strict=True):
        axes.imshow(image[0], cmap="gray", interpolation="none")
        rows, columns = mask.nonzero().T
        axes.plot(columns, rows, "x", color=ORANGE, markersize=5)
        axes.set(xticks=[], yticks=[])


# --- photographs ---


def _photographs() -> torch.Tensor:
    """Return a temple and a flower ``[2, 3, 192, 288]``, in [0, 1]."""
    found = load_sample_images().images
    images = torch.stack([torch.from_numpy(np.array(one)).permute(2, 0, 1) for one in found]).float() / 255
    return nn.functional.interpolate(images[:, :, 20:404, 30:606], scale_factor=0.25, mode="area")


def _show(axes: Axes, image: torch.Tensor, title: str) -> None:
    axes.imshow((255 * image.clamp(0, 1)).byte().permute(1, 2, 0).numpy(), interpolation="none")
    axes.set(title=title, xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


@drawn("am", 1.5)
def _am(figure: Figure) -> None:
    """The amplitudes of a photograph are mixed with those of a partner, its phases stay. Even with all amplitudes of
    the partner (s = 0) one sees the temple.
    """
    images = _photographs()
    every = figure.subplots(1, 4)
    _show(every[0], images[0], "image, s = 1")
    for axes, share in zip(every[1:], (0.5, 0.0), strict=False):
        mixed = mix_amplitudes(images, torch.tensor([1, 0]), torch.tensor([share, share]))
        _show(axes, mixed[0], f"s = {share:g}")
    _show(every[3], images[1], "partner")


@drawn("harmofl", 2.5)
def _harmofl(figure: Figure) -> None:
    """Two photographs, that of site A with little light. The amplitudes of low frequencies become the mean of the
    sites: with band 0 the brightness and tint of a whole image, with a wider band the large shades too.
    """
    images = _photographs() * torch.tensor([0.3, 1.0])[:, None, None, None]  # a camera with less light
    common = mean_amplitude(images)
    grid = figure.add_gridspec(2, 4, width_ratios=(1, 1, 1, 1.4))
    spectra = figure.add_subplot(grid[:, 3])
    bands = {"band = 0": 0.0, "band = 0.03": 0.03}
    for row, (site, image) in enumerate(zip(_sites(), images, strict=True)):
        shown = {f"image of {site.name}": image}
        for title, band in bands.items():
            shown[title] = replace_amplitude(image[None], common, centred_band(image.shape[1], image.shape[2], band))[0]
        for column, (title, one) in enumerate(shown.items()):
            _show(figure.add_subplot(grid[row, column]), one, title if row == 0 or column == 0 else "")
        spectra.semilogy(amplitude_and_phase(image)[0].mean(dim=0)[:16, 0], color=site.colour, label=site.name)
    spectra.semilogy(common.mean(dim=0)[:16, 0], color=INK, label="mean of the sites")
    spectra.set(title="amplitude by frequency", xlabel="vertical frequency")
    spectra.legend()


@drawn("stablefdg")
def _stablefdg(figure: Figure) -> None:
    """Styles of patches of two photographs, here mean and deviation of their brightness. A batch of a site is trained
    with styles of another one, with styles farther from its mean than its own, and with mixtures.
    """
    axes = figure.subplots()
    images = _photographs().mean(dim=1, keepdim=True)
    patches = images.unfold(2, 48, 48).unfold(3, 48, 48).flatten(2, 3).transpose(1, 2)  # [2, 24, 1, 48, 48]
    own, other = (styles_of(one) for one in patches)
    generator = torch.Generator().manual_seed(0)
    summary = torch.stack([other.mean(dim=0), other.std(dim=0)])
    drawn = draw_styles(summary, torch.randn(12, 2, generator=generator))
    explored = explore_styles(own[:8], own, 1.0)
    batch = torch.cat([own[:12], drawn])
    partners = torch.randperm(len(batch), generator=generator)
    mixed = mix_styles(batch, partners, torch.rand(len(batch), generator=generator))
    for styles, colour, marker, label in (
        (own, BLUE, "o", "own"),
        (drawn, VERMILLION, "s", "shared by another site"),
        (explored, GREEN, "^", "explored"),
        (mixed, GREY, "x", "mixed"),
    ):
        axes.plot(*styles.T, marker, color=colour, label=label)
    axes.set(xlabel="mean μ", ylabel="deviation σ")
    _legend(figure, axes)

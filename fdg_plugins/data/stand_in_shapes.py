# SPDX-License-Identifier: Apache-2.0
"""The seven objects of the stand-in data set, each defined once as a list of named parts, and their random pose.

Shapes use unit coordinates, x to the right and y down, roughly within [-0.5, 0.5]. Parts are listed from back to
front, and animals face right. The styles choose the colours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Tone = Literal["main", "shade", "second", "dark", "light"]
Points = NDArray[np.float64]


@dataclass(frozen=True)
class Joint:
    """The joint of one or more parts: they turn about ``pivot`` by the same angle of at most ``swing`` degrees.

    A caricature scales the parts by its exaggeration to the power of ``growth``; a negative power shrinks them.
    """

    name: str
    pivot: tuple[float, float]
    swing: float
    growth: float = 0.0


@dataclass(frozen=True)
class Part:
    """A named piece of a shape: its closed outline ``[K, 2]``, the tone of its colour and the joint it turns about."""

    name: str
    outline: Points
    tone: Tone = "main"
    joint: Joint | None = None


def _ellipse(
    name: str,
    centre: tuple[float, float],
    radii: tuple[float, float],
    tone: Tone = "main",
    joint: Joint | None = None,
    tilt: float = 0.0,
) -> Part:
    angles = np.linspace(0.0, 2.0 * np.pi, 32, endpoint=False)
    outline = np.stack([np.cos(angles), np.sin(angles)], axis=1) * radii @ _rotation(tilt).T + centre
    return Part(name, outline, tone, joint)


def _polygon(
    name: str, corners: Sequence[tuple[float, float]], tone: Tone = "main", joint: Joint | None = None
) -> Part:
    return Part(name, np.array(corners, dtype=np.float64), tone, joint)


def _line(
    name: str,
    points: Sequence[tuple[float, float]],
    widths: tuple[float, float],
    tone: Tone = "main",
    joint: Joint | None = None,
) -> Part:
    """Return a thick line through ``points`` whose width changes from the first to the second of ``widths``."""
    path = np.array(points, dtype=np.float64)
    direction = np.gradient(path, axis=0)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    normal = np.stack([-direction[:, 1], direction[:, 0]], axis=1)
    half = np.linspace(widths[0], widths[1], len(path))[:, None] / 2.0
    path[-1] += direction[-1] * half[-1] / 2.0
    return Part(name, np.concatenate([path + normal * half, (path - normal * half)[::-1]]), tone, joint)


def _legs(roots: Sequence[tuple[float, Tone]], top: float, bottom: float, width: float, swing: float) -> list[Part]:
    """Return an animal's legs, one per position and tone in ``roots``; the far legs are darker, to recede."""
    parts = []
    for number, (x, tone) in enumerate(roots):
        joint = Joint(f"leg {number}", (x, top), swing, -0.8)
        parts.append(_line(f"leg {number}", [(x, top), (x, bottom)], (width * 1.15, width * 0.9), tone, joint))
    return parts


def _dog() -> list[Part]:
    tail, head = Joint("tail", (-0.26, 0.0), 25.0), Joint("head", (0.16, 0.0), 14.0, 1.0)
    return [
        _line("tail", [(-0.25, 0.02), (-0.36, -0.08), (-0.41, -0.24)], (0.08, 0.03), "main", tail),
        *_legs([(-0.14, "shade"), (0.1, "shade")], 0.1, 0.31, 0.075, 14.0),
        *_legs([(-0.22, "main"), (0.17, "main")], 0.1, 0.33, 0.08, 14.0),
        _ellipse("body", (-0.03, 0.06), (0.26, 0.125)),
        _polygon("neck", [(0.08, -0.02), (0.2, 0.1), (0.34, -0.1), (0.2, -0.18)], "main", head),
        _ellipse("head", (0.28, -0.16), (0.13, 0.12), "main", head),
        _ellipse("snout", (0.4, -0.12), (0.1, 0.06), "main", head, 8.0),
        _ellipse("nose", (0.48, -0.13), (0.032, 0.03), "dark", head),
        _ellipse("ear", (0.19, -0.13), (0.055, 0.13), "second", head, 12.0),
        _ellipse("eye", (0.32, -0.19), (0.02, 0.022), "dark", head),
    ]


def _elephant() -> list[Part]:
    tail, trunk, head = (
        Joint("tail", (-0.38, -0.08), 20.0),
        Joint("trunk", (0.3, -0.08), 16.0, 0.7),
        Joint("head", (0.16, -0.1), 6.0, 0.7),
    )
    return [
        _line("tail", [(-0.37, -0.1), (-0.43, 0.03), (-0.44, 0.14)], (0.035, 0.02), "shade", tail),
        *_legs([(-0.14, "shade"), (0.08, "shade")], 0.1, 0.35, 0.12, 8.0),
        *_legs([(-0.27, "main"), (0.16, "main")], 0.1, 0.37, 0.13, 8.0),
        _ellipse("body", (-0.09, -0.03), (0.31, 0.22)),
        _polygon("tusk", [(0.3, 0.03), (0.34, -0.01), (0.45, 0.09)], "light", head),
        _line("trunk", [(0.33, -0.1), (0.41, 0.06), (0.41, 0.22), (0.47, 0.33)], (0.13, 0.05), "main", trunk),
        _ellipse("head", (0.25, -0.13), (0.15, 0.15), "main", head),
        _ellipse("ear", (0.13, -0.11), (0.11, 0.17), "second", head, 8.0),
        _ellipse("eye", (0.31, -0.17), (0.018, 0.02), "dark", head),
    ]


def _giraffe() -> list[Part]:
    tail, neck = Joint("tail", (-0.28, 0.06), 20.0), Joint("neck", (0.04, 0.08), 9.0, -0.4)
    spots = [(-0.19, 0.08), (-0.09, 0.03), (-0.09, 0.13), (0.0, 0.09)]
    neck_spots = [(0.06, -0.02), (0.11, -0.09), (0.13, -0.18), (0.18, -0.25), (0.2, -0.33)]
    return [
        _line("tail", [(-0.27, 0.05), (-0.33, 0.14), (-0.34, 0.24)], (0.025, 0.03), "second", tail),
        *_legs([(-0.17, "shade"), (-0.02, "shade")], 0.1, 0.46, 0.045, 9.0),
        *_legs([(-0.23, "main"), (0.04, "main")], 0.1, 0.48, 0.05, 9.0),
        _ellipse("body", (-0.1, 0.08), (0.19, 0.105), "main", None, -12.0),
        _polygon("neck", [(-0.05, 0.02), (0.09, 0.1), (0.27, -0.36), (0.18, -0.4)], "main", neck),
        _line("horn", [(0.21, -0.41), (0.19, -0.49)], (0.02, 0.03), "second", neck),
        _polygon("ear", [(0.19, -0.43), (0.1, -0.43), (0.17, -0.38)], "shade", neck),
        _ellipse("head", (0.27, -0.4), (0.105, 0.05), "main", neck, 18.0),
        *[_ellipse(f"spot {k}", spot, (0.036, 0.03), "second") for k, spot in enumerate(spots)],
        *[_ellipse(f"neck spot {k}", spot, (0.026, 0.026), "second", neck) for k, spot in enumerate(neck_spots)],
        _ellipse("eye", (0.26, -0.42), (0.016, 0.016), "dark", neck),
    ]


def _guitar() -> list[Part]:
    lower = np.linspace(-0.3 * np.pi, 1.3 * np.pi, 24)
    upper = np.linspace(0.8 * np.pi, 2.2 * np.pi, 20)
    belly = np.stack([0.21 * np.cos(lower), 0.27 + 0.17 * np.sin(lower)], axis=1)
    chest = np.stack([0.155 * np.cos(upper), 0.02 + 0.12 * np.sin(upper)], axis=1)
    neck = Joint("neck", (0.0, 0.0), 0.0, -0.8)
    return [
        Part("body", np.concatenate([belly, chest])),
        _ellipse("sound hole", (0.0, 0.12), (0.065, 0.06), "dark"),
        _line("neck", [(0.0, 0.08), (0.0, -0.36)], (0.06, 0.05), "second", neck),
        _polygon("headstock", [(-0.03, -0.34), (-0.06, -0.5), (0.06, -0.5), (0.03, -0.34)], "second", neck),
        _line("bridge", [(-0.08, 0.3), (0.08, 0.3)], (0.03, 0.03), "dark"),
        _line("strings", [(0.0, 0.3), (0.0, -0.36)], (0.014, 0.014), "light", neck),
        *[_ellipse(f"peg {k}", (0.08 * side, y), (0.02, 0.015), "light", neck) for k, (side, y) in enumerate(_PEGS)],
    ]


_PEGS = ((-1, -0.46), (1, -0.46), (-1, -0.4), (1, -0.4))


def _horse() -> list[Part]:
    tail, head = Joint("tail", (-0.28, -0.03), 14.0), Joint("head", (0.12, 0.0), 10.0, 0.6)
    mane = [(0.0, -0.06), (0.04, -0.16), (0.12, -0.28), (0.2, -0.4), (0.29, -0.38), (0.2, -0.22), (0.12, -0.02)]
    return [
        _line("tail", [(-0.26, -0.05), (-0.37, 0.02), (-0.4, 0.16), (-0.38, 0.28)], (0.05, 0.07), "second", tail),
        *_legs([(-0.16, "shade"), (0.09, "shade")], 0.06, 0.42, 0.05, 15.0),
        *_legs([(-0.23, "main"), (0.16, "main")], 0.06, 0.44, 0.055, 15.0),
        _ellipse("body", (-0.04, 0.0), (0.26, 0.125)),
        _polygon("neck", [(0.02, -0.06), (0.2, 0.08), (0.35, -0.22), (0.22, -0.37)], "main", head),
        _polygon("ear", [(0.24, -0.35), (0.26, -0.46), (0.31, -0.36)], "main", head),
        _line("head", [(0.24, -0.31), (0.34, -0.23), (0.45, -0.13)], (0.16, 0.08), "main", head),
        _polygon("mane", mane, "second", head),
        _ellipse("eye", (0.32, -0.28), (0.017, 0.018), "dark", head),
    ]


def _house() -> list[Part]:
    roof = Joint("roof", (0.0, -0.06), 0.0, 0.6)
    return [
        _polygon("chimney", [(0.14, -0.16), (0.14, -0.4), (0.23, -0.4), (0.23, -0.1)], "shade", roof),
        _polygon("wall", [(-0.33, -0.08), (0.33, -0.08), (0.33, 0.38), (-0.33, 0.38)]),
        _polygon("roof", [(-0.43, -0.06), (0.0, -0.42), (0.43, -0.06)], "second", roof),
        _polygon("door", [(-0.22, 0.38), (-0.22, 0.1), (-0.06, 0.1), (-0.06, 0.38)], "dark"),
        _polygon("window", [(0.05, 0.04), (0.25, 0.04), (0.25, 0.22), (0.05, 0.22)], "light"),
        _line("window bar", [(0.15, 0.04), (0.15, 0.22)], (0.016, 0.016), "dark"),
        _line("window sill", [(0.05, 0.13), (0.24, 0.13)], (0.016, 0.016), "dark"),
    ]


def _person() -> list[Part]:
    left, right = Joint("left arm", (-0.11, -0.2), 32.0), Joint("right arm", (0.11, -0.2), 32.0)
    left_leg, right_leg = Joint("left leg", (-0.06, 0.1), 12.0, -0.8), Joint("right leg", (0.06, 0.1), 12.0, -0.8)
    head = Joint("head", (0.0, -0.24), 10.0, 1.4)
    return [
        _line("left leg", [(-0.06, 0.08), (-0.08, 0.46)], (0.1, 0.075), "second", left_leg),
        _line("right leg", [(0.06, 0.08), (0.08, 0.46)], (0.1, 0.075), "second", right_leg),
        _line("left arm", [(-0.1, -0.2), (-0.22, -0.05), (-0.26, 0.08)], (0.08, 0.055), "light", left),
        _line("right arm", [(0.1, -0.2), (0.22, -0.05), (0.26, 0.08)], (0.08, 0.055), "light", right),
        _line("throat", [(0.0, -0.32), (0.0, -0.2)], (0.06, 0.06), "light", head),
        _polygon("torso", [(-0.14, -0.24), (0.14, -0.24), (0.11, 0.14), (-0.11, 0.14)]),
        _ellipse("hair", (0.0, -0.39), (0.1, 0.105), "dark", head),
        _ellipse("head", (0.0, -0.36), (0.08, 0.095), "light", head),
    ]


SHAPES: dict[str, Callable[[], list[Part]]] = {
    "dog": _dog,
    "elephant": _elephant,
    "giraffe": _giraffe,
    "guitar": _guitar,
    "horse": _horse,
    "house": _house,
    "person": _person,
}


def pose(class_name: str, size: int, exaggeration: float, generator: np.random.Generator) -> list[Part]:
    """Return the shape in pixels of a ``size`` x ``size`` canvas: limbs moved, stretched, turned, mirrored and placed.

    The longer side of the drawing spans 70 to 100 percent of the canvas minus its margin; nothing is cut off.
    An ``exaggeration`` above one gives a caricature with a big head and short legs; one keeps natural proportions.
    """
    parts = _move_limbs(SHAPES[class_name](), exaggeration, generator)
    stretch = np.diag(generator.uniform(0.85, 1.15, size=2))
    mirror = np.diag([generator.choice([-1.0, 1.0]), 1.0])
    turn = generator.uniform(-25.0, 25.0) if class_name == "guitar" else generator.uniform(-9.0, 9.0)
    matrix = _rotation(turn) @ mirror @ stretch
    turned = [part.outline @ matrix.T for part in parts]
    low, high = np.min([p.min(axis=0) for p in turned], axis=0), np.max([p.max(axis=0) for p in turned], axis=0)
    extent = high - low
    factor = generator.uniform(0.7, 1.0) * 0.92 * size / extent.max()
    corner = generator.uniform(0.0, 1.0, size=2) * (0.94 * size - factor * extent) + 0.03 * size
    outlines = [(points - low) * factor + corner for points in turned]
    return [replace(part, outline=outline) for part, outline in zip(parts, outlines, strict=True)]


def _move_limbs(parts: list[Part], exaggeration: float, generator: np.random.Generator) -> list[Part]:
    """Turn and stretch all parts of a joint together; joints draw random numbers in the order the shape lists them."""
    moves = {}
    for joint in dict.fromkeys(part.joint for part in parts if part.joint is not None):
        factor = exaggeration**joint.growth * generator.uniform(0.9, 1.1)
        moves[joint] = factor * _rotation(generator.uniform(-joint.swing, joint.swing))
    return [
        part
        if part.joint is None
        else replace(part, outline=(part.outline - part.joint.pivot) @ moves[part.joint].T + part.joint.pivot)
        for part in parts
    ]


def _rotation(degrees: float) -> Points:
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array([[cosine, -sine], [sine, cosine]])

# SPDX-License-Identifier: Apache-2.0
"""Draws ``data-flow.svg``: what a site keeps, what leaves it and when, from the records of the methods.

The messages of sources are the lines of the table in ``security.md``: a method that reports something new appears in
both. Run it after changing what a method reports: ``nox -s generate``.
"""

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from fdg_plugins.plugins.method import Leaving
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.reports import OF_SETTINGS

FILE = Path(__file__).parent / "data-flow.svg"
CENSUS, PLAIN = "once per job", Leaving.when
EVERY, ANY = "fedavg", "any method"

# Pixels: the boxes of site and server, between them the messages.
WIDTH, MARGIN, SIDE, GAP = 1180, 20, 250, 60
LEFT, RIGHT = MARGIN + SIDE + GAP, WIDTH - MARGIN - SIDE - GAP
LINE, SMALL, PAD = 17, 15, 9
COLUMNS, SIDE_COLUMNS = 70, 33  # characters of a line

SITE = (
    ("Never leaves", ("images, masks, labels", "names of files and folders", "single predictions")),
    ("Kept in the kit", ("what methods remember of a run", "privacy ledger", "audit of every answer", "logs")),
    (
        "Decides before anything leaves",
        (
            "allowed_reports: which reports may",
            "fdg_privacy.json: clipping, noise, and a budget",
            "class_allow_list, byoc: no code of jobs",
        ),
    ),
    ("Before each answer is sent", ("a line in the audit, on disk; an answer that cannot be noted does not leave",)),
)
SERVER = (
    ("Keeps in memory for a round", ("updates and reports, by site",)),
    ("Keeps while the run goes on", ("checkpoint: model, state of the method, record",)),
    (
        "Keeps as results",
        ("global models", "results.json: the census, and losses, scores and times of each site", "TensorBoard events"),
    ),
    (
        "Passes on",
        (
            "to sites: the global model, and what a method has learned from all of them",
            "to whoever may download the job: the results",
        ),
    ),
)


class Message(NamedTuple):
    """A thing that leaves: in words, what it is and who asks for it, and the word by which an operator forbids it."""

    what: str
    detail: str
    word: str


class Band(NamedTuple):
    """Messages that leave on the same occasion."""

    title: str
    colour: str
    messages: tuple[Message, ...]


# No record says these: docs/security.md has them in words.
BY_FLARE = (
    Message("name, organisation and address of the site, heartbeats", "as long as the site is connected", ""),
    Message("the content of the site's resources.json", "once, when it registers", ""),
    Message("the site's logs", "unless its resources.json has allow_log_streaming false", ""),
)
HELD_OUT = (Message("loss, accuracy, count on all its images, of the model received", "3 numbers, every round", ""),)


def bands() -> tuple[Band, ...]:
    """Return what leaves, by occasion: once per job, in every round, and only with some methods or settings."""
    lines = [(line, key) for key, method in METHODS.own().items() for line in method.leaves]
    census = [(line, "") for line, _ in lines if line.when == CENSUS]
    always = [(line, "") for line, key in lines if key == EVERY and line.when != CENSUS]
    some = [(line, key) for line, key in lines if key != EVERY] + [(line, ANY) for line in OF_SETTINGS]
    return (
        Band("By FLARE, whatever the job", "#eeeeee", BY_FLARE),
        Band("Once per job, before round 1", "#e8eef7", _messages(census)),
        Band("In every round in which the site trains, with every method", "#e6f3ea", _messages(always)),
        Band(
            "Only with some methods or settings; framed: allowed_reports",
            "#fbf1dd",
            _messages(some),
        ),
        Band("From a held-out site, which sends a census and no update", "#f3e9f5", HELD_OUT),
    )


def _messages(lines: Iterable[tuple[Leaving, str]]) -> tuple[Message, ...]:
    """Return a message for each thing, with all who ask for it."""
    asked: dict[tuple[str, str], dict[str, list[str]]] = {}
    words: dict[tuple[str, str], list[str]] = {}
    for line, key in lines:
        thing = (line.what.replace("`", ""), line.shape)
        asked.setdefault(thing, {}).setdefault("" if line.when in (CENSUS, PLAIN) else line.when, []).append(key)
        known = words.setdefault(thing, [])
        if line.report is not None and line.report not in known:
            known.append(line.report)
    return tuple(Message(thing[0], _detail(thing[1], who), ", ".join(words[thing])) for thing, who in asked.items())


def _detail(shape: str, who: Mapping[str, list[str]]) -> str:
    """Return the shape, and the methods by when they ask."""
    names = {when: ", ".join(filter(None, keys)) for when, keys in who.items()}
    return "; ".join(filter(None, [shape, *(": ".join(filter(None, (keys, when))) for when, keys in names.items())]))


def diagram() -> str:
    """Return the picture as SVG."""
    parts: list[str] = []
    bottom = MARGIN + 40
    for band in bands():
        drawn, bottom = _band(band, bottom)
        parts += [*drawn]
        bottom += 14
    sides = [_side("A site", SITE, MARGIN, bottom), _side("The server", SERVER, WIDTH - MARGIN - SIDE, bottom)]
    down, height = _down(bottom), bottom + 44
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="DejaVu Sans, Verdana, sans-serif" font-size="13">\n'
        "<title>What leaves a site</title>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#444"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n'
    )
    return head + "\n".join([*(line for side in sides for line in side), *parts, *down]) + "\n</svg>\n"


def _band(band: Band, top: int) -> tuple[list[str], int]:
    """Return a band with its messages and arrows, and where it ends."""
    inner, y = [_text(LEFT + PAD, top + LINE, band.title, bold=True)], top + LINE + PAD
    for message in band.messages:
        drawn, below = _message(message, y)
        inner += [
            *drawn,
            _arrow(MARGIN + SIDE, LEFT, (y + below) // 2),
            _arrow(RIGHT, WIDTH - MARGIN - SIDE, (y + below) // 2),
        ]
        y = below + 6
    return [_box(LEFT, top, RIGHT - LEFT, y - top + 2, band.colour), *inner], y + 2


def _message(message: Message, top: int) -> tuple[list[str], int]:
    """Return a message, what it is above what it has for a shape, and where it ends."""
    columns = COLUMNS - len(message.word) - 8 if message.word else COLUMNS
    what, detail = textwrap.wrap(message.what, columns), textwrap.wrap(message.detail, COLUMNS + 8)
    height = len(what) * LINE + len(detail) * SMALL + PAD
    lines = [_box(LEFT + PAD, top, RIGHT - LEFT - 2 * PAD, height, "#fff")]
    y = top + 2
    for line in what:
        y += LINE
        lines.append(_text(LEFT + 2 * PAD, y - 2, line))
    for line in detail:
        y += SMALL
        lines.append(_text(LEFT + 2 * PAD, y - 1, line, small=True))
    if message.word:
        lines += _word(message.word, top)
    return lines, top + height


def _word(word: str, top: int) -> list[str]:
    """Return the word of ``allowed_reports``, in a frame at the right end of a message."""
    width = 13 * len(word) // 2 + 14
    left = RIGHT - 2 * PAD - width
    return [_box(left, top + 5, width, 18, "#fbf1dd"), _text(left + 6, top + 18, word, small=True)]


def _side(title: str, groups: tuple[tuple[str, tuple[str, ...]], ...], left: int, bottom: int) -> list[str]:
    """Return the box of a participant, from the top of the picture to ``bottom``."""
    lines = [
        _box(left, MARGIN, SIDE, bottom - MARGIN, "#f4f4f4"),
        _text(left + PAD, MARGIN + 24, title, bold=True, large=True),
    ]
    y = MARGIN + 40
    for heading, entries in groups:
        y += LINE + 8
        lines.append(_text(left + PAD, y, heading, bold=True))
        for entry in entries:
            for number, line in enumerate(textwrap.wrap(entry, SIDE_COLUMNS)):
                y += LINE
                lines.append(_text(left + PAD + (14 if number else 0), y, line if number else f"· {line}"))
    return lines


def _down(bottom: int) -> list[str]:
    """Return the arrow from the server to the site, which closes the picture."""
    y, left, right = bottom + 24, MARGIN + SIDE // 2, WIDTH - MARGIN - SIDE // 2
    path = f'<path d="M{right} {bottom}V{y}H{left}V{bottom + 2}" fill="none" stroke="#444" marker-end="url(#tip)"/>'
    words = "the protocol, the global model, what the method has learned; no code, no path"
    return [path, _text(WIDTH // 2 - 270, y - 6, words)]


def _arrow(left: int, right: int, y: int) -> str:
    return f'<path d="M{left} {y}H{right}" stroke="#444" marker-end="url(#tip)"/>'


def _box(left: int, top: int, width: int, height: int, fill: str) -> str:
    return f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="5" fill="{fill}" stroke="#999"/>'


def _text(left: int, base: int, text: str, *, bold: bool = False, small: bool = False, large: bool = False) -> str:
    style = ' font-weight="bold"' if bold else ""
    style += ' font-size="11" fill="#555"' if small else ' font-size="17"' if large else ""
    return f'<text x="{left}" y="{base}"{style}>{escape(text)}</text>'


if __name__ == "__main__":
    FILE.write_text(diagram(), encoding="utf-8")

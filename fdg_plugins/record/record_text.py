# SPDX-License-Identifier: Apache-2.0
"""A record as JSON after every round, for which each round and each evaluation is encoded only once.

A record is written whole after every round, so that a reader never finds a part of it. Encoding all earlier rounds each
time would make round r cost r times as much as the first.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pydantic

from fdg_plugins.record.run_record import Evaluated, EvaluationRecord, RoundRecord, RunRecord

_FIELDS = tuple(RunRecord.model_fields)
_GROWING = ("rounds", "evaluations")  # next to each other in the record
_BEFORE = set(_FIELDS[: _FIELDS.index(_GROWING[0])])
_AFTER = set(_FIELDS[_FIELDS.index(_GROWING[1]) + 1 :])
_ROUND: pydantic.TypeAdapter[RoundRecord] = pydantic.TypeAdapter(RoundRecord)
_EVALUATION: pydantic.TypeAdapter[EvaluationRecord] = pydantic.TypeAdapter(Evaluated)

Part = RoundRecord | EvaluationRecord


class _Encoded(NamedTuple):
    """A part of the record, its text, and whether it was undone by then, which is all that may change in it."""

    part: Part
    undone: bool
    text: str


class RecordText:
    """Encodes one growing record again and again; ``indent``: of each level, None for text without blanks."""

    def __init__(self, indent: int | None = None) -> None:
        self._indent = indent
        self._known: dict[str, list[_Encoded]] = {name: [] for name in _GROWING}

    def of(self, record: RunRecord) -> str:
        """Return the text of ``record.model_dump_json(indent=...)``, byte for byte."""
        before, after = (record.model_dump_json(indent=self._indent, include=names) for names in (_BEFORE, _AFTER))
        rounds = self._array("rounds", record.rounds, _ROUND.dump_json)
        evaluations = self._array("evaluations", record.evaluations, _EVALUATION.dump_json)
        end = len(self._line(0)) + 1  # that of the line break and of the brace
        return self._comma(1).join((before[:-end], rounds, evaluations, after[1 + len(self._line(1)) :]))

    def _array(self, name: str, parts: Iterable[Part], encode: Callable[..., bytes]) -> str:
        """Return the member ``name`` of the record."""
        texts = [encoded.text for encoded in self._encoded(name, parts, encode)]
        colon = ":" if self._indent is None else ": "
        array = f"[{self._line(2)}{self._comma(2).join(texts)}{self._line(1)}]" if texts else "[]"
        return f'"{name}"{colon}{array}'

    def _encoded(self, name: str, parts: Iterable[Part], encode: Callable[..., bytes]) -> list[_Encoded]:
        known = self._known[name]
        self._known[name] = [
            known[place]
            if place < len(known) and known[place].part is part and known[place].undone == part.undone
            else _Encoded(part, part.undone, self._text(part, encode))
            for place, part in enumerate(parts)
        ]
        return self._known[name]

    def _text(self, part: Any, encode: Callable[..., bytes]) -> str:
        text = encode(part, indent=self._indent).decode()
        return text.replace("\n", self._line(2)) if self._indent is not None else text  # no string holds a line break

    def _line(self, level: int) -> str:
        """Return what begins a line at a level of nesting."""
        return "" if self._indent is None else "\n" + " " * (self._indent * level)

    def _comma(self, level: int) -> str:
        return f",{self._line(level)}"

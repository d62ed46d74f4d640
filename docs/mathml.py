# SPDX-License-Identifier: Apache-2.0
"""Plain formulas as MathML, which browsers typeset without a script: ``gᵤ = θᵤ − θ``, ``dᵣ = (1 − r/R) d``.

Formulas are written once, to be read in a terminal: in a method's record, and as ``$...$`` on a page. A slash between
spaces divides all factors around it, back to a sum or mean; one without spaces, its two neighbours. Two or more spaces
separate parts. Words of several letters are upright.
"""

import re
import unicodedata
from collections.abc import Iterator

SUB = dict(zip("ᵤᵥᵢⱼₖₗₘₙᵣₐₑₒₓₚₛₜ₀₁₂₃₄₅₆₇₈₉₊₋", "uvijklmnraeoxpst0123456789+−", strict=True))
SUPER = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ᵏⁱʸᵀ*'′", "0123456789+−()kiyT∗′′", strict=True))
MARKS = {"\u0304": "¯", "\u0302": "^", "\u0303": "~"}  # combining: above the letter before
FLAT = ' stretchy="false"'
PAIRS = {"(": ")", "[": "]", "{": "}", "⌊": "⌋", "⟨": "⟩", "‖": "‖", "|": "|"}
SUMS = ("∑", "mean", "min", "max", "argmin", "E")  # what applies to all that follows
_LOW, _HIGH, _MARK = (f"[{re.escape(''.join(signs))}]" for signs in (SUB, SUPER, MARKS))
_TOKEN = re.compile(
    rf"(?P<gap> {{2,}})|(?P<space> )|(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)"
    rf"|(?P<word>[A-Za-z][A-Za-z0-9]*(?:'s\b)?|(?!{_LOW}|{_HIGH})[^\W_])"
    rf"|(?P<low>{_LOW}+(?:,{_LOW}+)*)|(?P<high>{_HIGH}+)|(?P<mark>{_MARK})|(?P<script>[_^])|(?P<sign>.)"
)
_GROUP = r"\[[^\[\]]*\]|\([^()\s][^()]*\)|⌊[^⌋]*⌋"
_SYMBOL = re.compile(
    rf"(?<![\w`'])(?:[b-zA-Z](?:{_GROUP})?|\w?(?:[Α-ωΣ∇√‖|]|{_LOW}|{_MARK}|[⁰⁺⁽′]|(?<=\w)_\w)(?:{_GROUP}|[^\s;:])*?"
    r"|\[[^\[\]]*\]|⌊[^⌋]*⌋)(?=[,;:.)]*(?:'s)?(?:\s|$))"
)
_SETTING = re.compile(r"\b[a-z]\w+_[a-z]\w*")
_SPAN = re.compile(r"(?<!\w)\$(\S[^$]*?)(?<=\S)\$(?!\w)")


def math(formula: str, *, display: bool = False) -> str:
    """Return a formula of one line as an element ``math``; a display stands on its own line."""
    text = re.sub(r"\\([*|])", r"\1", " ".join(formula.strip().split("\n")))  # Markdown's escapes go
    row = _Parser(unicodedata.normalize("NFD", text).replace("Σ", "∑")).row()
    # Without the span, Markdown takes a formula at the beginning of a paragraph for a block.
    return f'<math display="block">{row}</math>' if display else f"<span><math>{row}</math></span>"


def with_math(markdown: str) -> str:
    """Return a page with its formulas ``$...$`` outside code typeset."""
    parts = re.split(r"(^```.*?^```|`[^`\n]*`)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if at % 2 else _SPAN.sub(lambda span: math(span[1]), part) for at, part in enumerate(parts))


def with_symbols(text: str, *, is_list: bool = False) -> str:
    """Return a text with the letters in it typeset; in a list, also those with which an entry begins."""
    text = unicodedata.normalize("NFD", text)
    if is_list:
        first = r"(?:^|(?<=; ))((?:[A-Za-z], )*[A-Za-z])(?= )"
        text = re.sub(first, lambda letters: math(letters[1]), text)
    text = _SETTING.sub(lambda name: f"`{name[0]}`", text)
    parts = re.split(r"(<span><math.*?</math></span>|`[^`]*`)", text)
    return "".join(part if at % 2 else _SYMBOL.sub(lambda one: math(one[0]), part) for at, part in enumerate(parts))


def _element(name: str, *parts: str) -> str:
    return f"<{name}>{''.join(parts)}</{name}>"


def _text(name: str, text: str, attributes: str = "") -> str:
    """Return a leaf; signs that Markdown would read are entities."""
    safe = "".join(sign if sign.isalnum() or ord(sign) > 127 else f"&#{ord(sign)};" for sign in text)
    return f"<{name}{attributes}>{safe}</{name}>"


class _Parser:
    """Reads tokens from left to right; every method returns an element and leaves what follows."""

    def __init__(self, text: str) -> None:
        self.tokens = [(found.lastgroup or "", found[0]) for found in _TOKEN.finditer(text)]
        self.place = 0

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        here = self.place + ahead
        return self.tokens[here] if here < len(self.tokens) else ("end", "")

    def row(self, stop: str = "") -> str:
        """Return all up to the bracket ``stop``, which is read too."""
        parts: list[str] = []
        while self.peek()[0] != "end" and not (stop and self.peek()[1] == stop):
            parts += self.term() or [self.operator(first=not parts or parts[-1].startswith("<mo"))]
        self.place += 1
        return "".join(parts)

    def operator(self, *, first: bool) -> str:
        kind, sign = self.peek()
        self.place += 1
        if kind == "gap":
            return '<mspace width="1.5em"></mspace>'
        if kind == "space":
            return ""
        prefix = ' form="prefix"' if first and sign in "−+" else ""
        spaced = f'{FLAT} lspace="0.3em" rspace="0.3em"' if sign == "‖" else ""
        return _text("mo", {"-": "−", "~": "∼"}.get(sign, sign), prefix + spaced)

    def term(self) -> list[str]:
        """Return factors, the spaces between them, and fractions of them."""
        factors: list[str] = []
        after = 0  # the last sum ends here: a fraction after it is summed
        while True:
            spaced = self.peek()[0] == "space"
            sign = self.peek(int(spaced))[1]
            if sign == "/" and factors:
                self.place += 1 + spaced
                factors, after = self.fraction(factors, after, wide=spaced)
            elif self.begins_factor(int(spaced)):
                self.place += spaced
                if factors and spaced:
                    factors.append('<mspace width="0.2em"></mspace>')
                factors.append(self.factor())
                if sign in SUMS and self.peek()[0] == "space":
                    after = len(factors)
            else:
                return factors

    def fraction(self, factors: list[str], after: int, *, wide: bool) -> tuple[list[str], int]:
        if not wide:
            return [*factors[:-1], _element("mfrac", _bare(factors[-1]), _bare(self.factor()))], after
        self.place += self.peek()[0] == "space"
        below = self.term()
        start = 0 if any(f">{name}<" in below[0] for name in SUMS) else after
        above = factors[start:]
        above = above[1:] if above and above[0].startswith("<mspace") else above
        return [*factors[:start], _element("mfrac", _bare(*above), _bare(*below))], start

    def begins_factor(self, ahead: int) -> bool:
        kind, sign = self.peek(ahead)
        if sign in ("‖", "|"):
            return self.peek(ahead + 1)[0] not in ("space", "gap", "end") and self.closes(ahead + 1, sign)
        return kind in ("number", "word") or sign in ("∑", "∇", "√", "½") or sign in PAIRS

    def closes(self, ahead: int, sign: str) -> bool:
        return any(other == sign for _, other in self.tokens[self.place + ahead :])

    def factor(self, *, with_scripts: bool = True) -> str:
        """Return one letter, word, number or bracket, by default with its scripts."""
        kind, sign = self.peek()
        self.place += 1
        if sign in PAIRS:
            inner = self.row(PAIRS[sign])
            size = "" if "<mfrac" in inner else FLAT
            base = _element("mrow", _text("mo", sign, size), inner, _text("mo", PAIRS[sign], size))
        elif sign == "√":
            return _element("msqrt", _bare(self.factor()))
        elif sign in ("∑", "∇"):
            base = _text("mo", sign)
        else:
            base = _text("mn" if kind == "number" or sign == "½" else "mi", sign)
        return self.scripts(base) if with_scripts else base

    def scripts(self, base: str) -> str:
        low, high = "", ""
        while True:
            kind, sign = self.peek()
            if kind == "mark":
                base = f'<mover accent="true">{base}{_text("mo", MARKS[sign], FLAT)}</mover>'
            elif kind == "low":
                low += _each(sign, SUB)
            elif kind == "high":
                high += _each(sign, SUPER)
            elif kind == "script":
                self.place += 1
                inner = self.script(with_scripts=sign == "^")
                low, high = (low + inner, high) if sign == "_" else (low, high + inner)
                continue
            else:
                break
            self.place += 1
        if low and high:
            return _element("msubsup", base, _element("mrow", low), _element("mrow", high))
        if low or high:
            return _element("msub" if low else "msup", base, _element("mrow", low or high))
        return base

    def script(self, *, with_scripts: bool) -> str:
        if self.peek()[1] == "{":
            self.place += 1
            return self.row("}")
        return self.factor(with_scripts=with_scripts)


def _each(signs: str, letters: dict[str, str]) -> str:
    read = [letters.get(one, one) for one in signs]
    return "".join(_text("mi", one) if one.isalpha() else _text("mo", one, FLAT) for one in read)


def _bare(*parts: str) -> str:
    """Return one element; round brackets around all of it go."""
    whole = "".join(parts)
    group = re.fullmatch(r"<mrow><mo[^>]*>&#40;</mo>(.*)<mo[^>]*>&#41;</mo></mrow>", whole)
    if group and all(part.count("&#40;") >= part.count("&#41;") for part in _beginnings(group[1])):
        whole = group[1]
    return _element("mrow", whole)


def _beginnings(inner: str) -> Iterator[str]:
    return (inner[: found.end()] for found in re.finditer("&#41;", inner))

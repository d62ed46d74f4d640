# SPDX-License-Identifier: Apache-2.0
"""What the site adds to the pages: typeset formulas and drawn pictures; and that each page says for whom it is."""

import re
import sys
import unicodedata
from collections import Counter
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from fdg_plugins.plugins.methods import METHODS
from tests.scripts import load_script

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def mathml() -> ModuleType:
    return load_script(DOCS / "mathml.py")


def test_formulas_of_all_records_are_well_formed_and_keep_their_letters(mathml: ModuleType) -> None:
    def letters(text: str) -> Counter[str]:
        plain = "".join({**mathml.SUB, **mathml.SUPER}.get(sign, sign) for sign in unicodedata.normalize("NFD", text))
        return Counter(sign for sign in plain if sign.isalnum())

    equations = [equation for record in METHODS.own().values() for equation in record.equations]
    for formula in (line for equation in equations for line in equation.formula.splitlines()):
        typeset = ElementTree.fromstring(mathml.math(formula, display=True))
        assert letters("".join(typeset.itertext()).replace("∑", "Σ")) == letters(formula), formula


@pytest.mark.parametrize(
    ("formula", "above", "below"),
    [
        ("η τ Σᵤ pᵤ Δᵤ / aᵤ", "puΔu", "au"),  # the fraction is summed
        ("Σᵤ nᵤ μᵤ / Σᵥ nᵥ", "∑unuμu", "∑vnv"),  # both sums are divided
        ("μ/2 ‖x‖²", "μ", "2"),
        ("p = (a + b) / (2 c)", "a+b", "2c"),
    ],
)
def test_fractions_take_what_belongs_to_them(formula: str, above: str, below: str, mathml: ModuleType) -> None:
    fraction = next(ElementTree.fromstring(mathml.math(formula)).iter("mfrac"))
    assert ["".join(part.itertext()) for part in fraction] == [above, below]


def test_only_formulas_outside_code_are_typeset(mathml: ModuleType) -> None:
    code = "```bash\n$ cd $HOME\n```\nand `$x$`, at $5 and 6 $"
    assert mathml.with_math(code) == code
    assert mathml.with_math("a $x_1$, `b`").count("<msub>") == 1


def test_symbols_in_a_text_are_typeset_and_settings_are_code(mathml: ModuleType) -> None:
    text = mathml.with_symbols("a a weight; θᵤ a model [U, P]; η server_lr", is_list=True)
    assert re.sub(r"<[^>]*>", "", text) == "a a weight; θu a model &#91;U&#44;P&#93;; η `server_lr`"


def test_every_method_has_a_picture_or_a_reason_for_none() -> None:
    without, drawn = load_script(DOCS / "method_pictures.py").WITHOUT, sys.modules["pictures"].PICTURES
    assert sorted([*without, *(key for key in drawn if key in METHODS.own())]) == sorted(METHODS.own())


@pytest.mark.parametrize("key", ["fedsam", "fedcsa", "architecture"])
def test_a_picture_is_in_the_colour_of_the_text_with_its_caption(key: str) -> None:
    for script in ("method_pictures.py", "page_pictures.py"):
        load_script(DOCS / script)
    page = sys.modules["pictures"].with_picture("# Title\n\nFor you.\n\nRest", key)
    assert page.startswith("# Title\n\nFor you.\n\n<figure")
    figure = ElementTree.fromstring(page.split("\n\n")[2].replace("xlink:", ""))
    assert "currentColor" in ElementTree.tostring(figure, encoding="unicode")
    assert sys.modules["pictures"].picture(key) in page  # the same bytes again


def test_every_page_says_for_whom_it_is_first() -> None:
    pages = [*DOCS.rglob("*.md"), DOCS.parent / "SECURITY.md", DOCS.parent / "CONTRIBUTING.md"]
    first = {page.name: re.sub(r"\A# .*\n\n", "", page.read_text(encoding="utf-8"), count=1)[:15] for page in pages}
    assert [name for name, text in first.items() if not text.startswith(("For ", "**For whom.** "))] == []

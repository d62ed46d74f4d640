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
FORMULAS = [
    (key, line)
    for key, record in METHODS.own().items()
    for equation in record.equations
    for line in equation.formula.splitlines()
]


@pytest.fixture(scope="module")
def mathml() -> ModuleType:
    return load_script(DOCS / "mathml.py")


@pytest.mark.parametrize("key", METHODS.own())
def test_formulas_of_every_record_are_well_formed_and_keep_their_letters(key: str, mathml: ModuleType) -> None:
    def letters(text: str) -> Counter[str]:
        plain = "".join({**mathml.SUB, **mathml.SUPER}.get(sign, sign) for sign in unicodedata.normalize("NFD", text))
        return Counter(sign for sign in plain if sign.isalnum())

    for formula in (line for owner, line in FORMULAS if owner == key):
        typeset = ElementTree.fromstring(mathml.math(formula, display=True))
        assert letters("".join(typeset.itertext()).replace("∑", "Σ")) == letters(formula), formula
        assert "⁰" not in "".join(typeset.itertext())


@pytest.mark.parametrize(
    ("formula", "above", "below"),
    [
        ("p = 1 / U", "1", "U"),
        ("η τ Σᵤ pᵤ Δᵤ / aᵤ", "puΔu", "au"),  # the fraction is summed
        ("Σᵤ nᵤ μᵤ / Σᵥ nᵥ", "∑unuμu", "∑vnv"),  # both sums are divided
        ("μ/2 ‖x‖²", "μ", "2"),
        ("(a + b) / (2 c)", "a+b", "2c"),
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
    assert re.sub(r"<[^>]*>", "", text).startswith("a a weight; θu a model")
    assert text.count("<math>") == 4
    assert text.endswith(" `server_lr`")


def test_every_method_has_a_picture_or_a_reason_for_none() -> None:
    methods = load_script(DOCS / "method_pictures.py")
    pictures = sys.modules["pictures"]
    assert (pictures.PICTURES.keys() | methods.WITHOUT.keys()) >= METHODS.own().keys()
    assert not pictures.PICTURES.keys() & methods.WITHOUT.keys()
    assert pictures.picture("fedsr") == ""


@pytest.mark.parametrize("key", ["fedsam", "fedcsa", "architecture", "deployment"])
def test_a_picture_is_drawn_in_the_colour_of_the_text_with_its_caption(key: str) -> None:
    load_script(DOCS / "method_pictures.py")
    load_script(DOCS / "page_pictures.py")
    pictures = sys.modules["pictures"]
    page = pictures.with_picture("# Title\n\nFor you.\n\nRest", key)
    assert page.startswith("# Title\n\nFor you.\n\n<figure")
    figure = ElementTree.fromstring(re.search(r"<figure.*</figure>", page)[0].replace("xlink:", ""))  # type: ignore[index]
    assert "currentColor" in ElementTree.tostring(figure, encoding="unicode")
    assert len(figure.findtext("figcaption") or "") > 60
    assert pictures.picture(key) in page  # the same bytes again


def test_every_page_says_for_whom_it_is_first() -> None:
    pages = [*DOCS.rglob("*.md"), DOCS.parent / "SECURITY.md", DOCS.parent / "CONTRIBUTING.md"]
    first = {page.name: re.sub(r"\A# .*\n\n", "", page.read_text(encoding="utf-8"), count=1)[:15] for page in pages}
    assert [name for name, text in first.items() if not text.startswith(("For ", "**For whom.** "))] == []

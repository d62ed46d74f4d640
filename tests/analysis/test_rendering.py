# SPDX-License-Identifier: Apache-2.0
"""The four forms of a table: what each must keep, read back as its reader would."""

import csv
import re
from collections.abc import Sequence

import pytest

from fdg_plugins.lab.analysis import Run, Table, build_table
from fdg_plugins.lab.analysis.cells import Cell, Grid
from fdg_plugins.lab.analysis.estimates import difference
from fdg_plugins.lab.analysis.grid import to_grid
from fdg_plugins.lab.analysis.render_csv import FIELDS, render_csv
from fdg_plugins.lab.analysis.render_latex import escaped, render_latex
from fdg_plugins.lab.analysis.render_markdown import render_markdown
from fdg_plugins.lab.analysis.render_text import render_text
from tests.analysis.run_stubs import FEDAVG, FEDGA, FEDOMG, fedomg, run, runs_of

NASTY = r"50% of $x_1 & {a|b} #*^~\ [c] <d>"


@pytest.fixture
def table() -> Table:
    """Two methods on two domains, FedOMG being better in both, beside FedOMG's paper."""
    runs: Sequence[Run] = [
        *runs_of(FEDAVG, {"photo": (0.5, 0.6, 0.7), "sketch": (0.5,)}),
        *runs_of(FEDOMG, {"photo": (0.7, 0.8, 0.9), "sketch": (1 / 3, 2 / 3)}),
    ]
    return build_table(runs, against="fedomg")


@pytest.fixture
def nasty() -> Grid:
    """A grid all of whose texts are full of markup."""
    rows = ((Cell(NASTY), Cell(NASTY, best=True)), (Cell("x"), Cell("-0.5 no")))
    return Grid(caption=NASTY, header=(NASTY, "b"), words=1, groups=(rows,), notes=(NASTY,))


# --- text -------------------------------------------------------------------------------------------


def test_columns_of_text_are_aligned_words_left_and_numbers_right(table: Table) -> None:
    grid = to_grid(table, paired=False)
    lines = render_text(grid).plain.splitlines()
    assert lines[0] == grid.caption
    body = [line for line in lines if line.startswith(("method", "Fed")) and "paper:" not in line]
    assert len(body) == 1 + sum(len(group) for group in grid.groups)
    ends = [body[0].index(title) + len(title) for title in ("photo", "sketch")]
    for line in body:
        padded = line.ljust(ends[-1])
        assert all(padded[end - 1] != " " for end in ends)
        assert all(padded[end : end + 2].strip() == "" for end in ends)
    assert lines[-len(grid.notes) :] == list(grid.notes)


def test_the_best_is_bold_in_a_terminal(table: Table) -> None:
    text = render_text(to_grid(table))
    assert {text.plain[span.start : span.end] for span in text.spans if span.style == "bold"} == {
        "80.0 ± 10.0 (3)", "50.0 (1)", "50.0 ± 23.6 (2)",
    }  # fmt: skip


# --- Markdown ---------------------------------------------------------------------------------------


def rows_of(markdown: str) -> list[list[str]]:
    """Return the cells of a Markdown table, as a reader splits them: at bars that are not escaped."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_markdown_is_a_caption_a_table_of_equal_rows_and_footnotes(table: Table) -> None:
    grid = to_grid(table, paired=False)
    text = render_markdown(grid)
    header, alignment, *rows = rows_of(text)
    assert header == list(grid.header)
    assert alignment == [":---", ":---"] + ["---:"] * 2
    assert [[cell.replace("*", "") for cell in row] for row in rows] == [
        [cell.text.replace("[", r"\[").replace("]", r"\]") for cell in row] for group in grid.groups for row in group
    ]
    ours = next(row for row in rows if row[:2] == ["FedOMG", "ours"])
    assert ours[2:4] == ["**80.0 ± 10.0 (3)**", "**50.0 ± 23.6 (2)**"]
    assert text.startswith(grid.caption + "\n\n|")
    assert sum(line.startswith("- ") for line in text.splitlines()) == len(grid.notes)


def test_markup_in_names_is_escaped_in_markdown(nasty: Grid) -> None:
    rows = rows_of(render_markdown(nasty))
    assert {len(row) for row in rows} == {2}
    assert re.sub(r"\\(.)", r"\1", rows[2][0]) == NASTY
    assert not re.search(r"(?<!\\)[<\[]", render_markdown(nasty))


# --- LaTeX ------------------------------------------------------------------------------------------


def test_latex_is_one_environment_of_rows_as_wide_as_its_columns(table: Table) -> None:
    text = render_latex(to_grid(table, paired=False))
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 1
    for line in (r"\toprule", r"\bottomrule"):
        assert text.count(line) == 1
    (columns,) = re.findall(r"\\begin\{tabular\}\{(\w+)\}", text)
    assert columns == "llrr"
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 1 + 6  # ours, printed and the difference for two methods
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(columns) - 1}
    assert r"\textbf{80.0 $\pm$ 10.0 (3)}" in text
    assert "$-$18.0 (SE 5.8) no" in text
    assert "``Federated Domain Generalization" in text


def test_every_special_character_is_escaped_in_latex(nasty: Grid) -> None:
    text = render_latex(nasty)
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert escaped(NASTY) == (
        r"50\% of \$x\_1 \& \{a|b\} \#*\textasciicircum{}\textasciitilde{}\textbackslash{} "
        r"{[}c{]} \textless{}d\textgreater{}"
    )
    assert escaped("a ± b²") == r"a $\pm$ b$^2$"
    assert escaped('a "quoted" word') == "a ``quoted'' word"
    body = "\n".join(text.splitlines()[1:])
    assert not re.search(r"(?<!\\)[%#]", body)


# --- CSV --------------------------------------------------------------------------------------------


def lines_of(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(render_csv(table).splitlines()))


def test_csv_gives_back_every_number_of_ours_bit_for_bit(table: Table) -> None:
    lines = [line for line in lines_of(table) if line["kind"] == "ours"]
    assert len(lines) == len(table.methods) * len(table.columns)
    for line in lines:
        (rows,) = (rows for rows in table.methods if rows.label == line["label"])
        (result,) = (result for result in rows.results if result.rule == line["selection"])
        cell = result.cells.get(line["target"])
        if cell is None:
            assert (line["seeds"], line["mean"], line["std"], line["values"]) == ("0", "", "", "")
            continue
        values = dict(pair.split(":") for pair in line["values"].split(";"))
        assert {int(seed): float(value) for seed, value in values.items()} == cell.by_seed
        assert (float(line["mean"]), int(line["seeds"])) == (cell.mean, cell.count)
        assert (float(line["std"]) if line["std"] else None) == cell.std


def test_csv_has_the_printed_numbers_and_the_differences(table: Table) -> None:
    lines = lines_of(table)
    (printed,) = (
        line for line in lines if (line["kind"], line["method"], line["target"]) == ("printed", "fedomg", "photo")
    )
    assert (printed["paper"], printed["tables"], float(printed["mean"])) == ("fedomg", "2", 0.98)
    assert printed["selection"] == ""
    (found,) = (
        line for line in lines if (line["kind"], line["method"], line["target"]) == ("difference", "fedomg", "photo")
    )
    rows = table.methods[1]
    expected = difference(rows.results[0].cells["photo"], rows.printed[0].cells["photo"])
    assert (float(found["mean"]), float(found["standard_error"])) == (expected.value, expected.standard_error)
    assert found["within_two_standard_errors"] == "no"
    (noted,) = (line for line in lines if "printed average differs" in line["note"])
    assert (noted["method"], noted["target"]) == ("fedavg", "average")


def test_every_line_of_csv_says_on_which_data_it_was_measured() -> None:
    drawn = run("a", fedomg(note='a "quoted", parted\nname'), stand_in=True, data="STAND-IN for PACS")
    lines = list(csv.DictReader(render_csv(build_table([drawn, run("b", FEDGA, **vars_of(drawn))])).splitlines()))
    assert {(line["data"], line["stand_in"]) for line in lines} == {("STAND-IN for PACS", "true")}
    assert tuple(lines[0]) == FIELDS


def vars_of(drawn: Run) -> dict[str, object]:
    return {"stand_in": drawn.record.stand_in, "data": drawn.record.data}

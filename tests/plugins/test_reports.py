# SPDX-License-Identifier: Apache-2.0
"""Reports are declared once, in the records of methods, and found from there by name."""

from pathlib import Path

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import CensusReply
from fdg_plugins.objectives import OBJECTIVES
from fdg_plugins.plugins.method import Leaving, Method, Reference
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.reports import declared_reports, report_names
from fdg_plugins.settings.site_config import read_site_config

OWN = Method(
    key="styles",
    title="Styles",
    line="sites share how bright they are",
    reference=Reference(authors="Doe", title="Styles", venue="None", year=2030),
    acts=("weighting",),
    weighting="styles:Weighting",
    leaves=(Leaving(what="mean brightness", shape="1 number", reveals="how bright", report="brightness"),),
)


def test_the_reports_of_this_package_are_known_with_who_uses_them() -> None:
    reports = declared_reports()
    assert set(reports) >= {"gap", "training_loss", "class_means", "control_variate", "step_length", "local_model"}
    assert reports["class_means"].used_by == ("feddim",)
    assert len(reports["class_means"].lines) == 2


def test_every_report_that_an_objective_needs_is_declared() -> None:
    needed = {OBJECTIVES[name].report for name in OBJECTIVES} - {None}
    assert needed <= set(report_names())


def test_a_method_from_outside_brings_its_report_and_a_site_may_allow_it() -> None:
    environment: dict[str, str] = {}
    assert "brightness" not in report_names()
    METHODS.add(OWN)
    try:
        assert "brightness" in report_names()
        assert declared_reports()["brightness"].used_by == ("styles",)
        config = read_site_config("photo", None, environment).model_validate({"allowed_reports": ["brightness"]})
        assert config.allowed_reports == ("brightness",)
    finally:
        METHODS.remove("styles")


def test_a_word_that_names_no_report_is_refused_with_those_that_do(tmp_path: Path) -> None:
    path = tmp_path / "fdg_site.json"
    path.write_text('{"photo": {"allowed_reports": ["gaps"]}}')
    with pytest.raises(SettingsError, match=r"allowed_reports is .* but 'gaps' is unknown, did you mean 'gap'"):
        read_site_config("photo", path, {})


def test_a_wrong_list_of_plug_ins_loads_none_to_look_for_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fdg_site.json"
    path.write_text('{"photo": {"allowed_reports": ["brightness"], "allowed_plugins": ["a b"]}}')
    monkeypatch.setattr(METHODS, "entries", lambda: pytest.fail("plug-ins were looked for"))
    with pytest.raises(SettingsError, match=r"allowed_plugins\.0 is 'a b'"):
        read_site_config("photo", path, {})


IN_THE_CENSUS = {
    "domain": "names of domain",
    "dataset": "data set",
    "stand_in": "data set",
    "classes": "classes",
    "class_counts": "number of images of each class",
    **dict.fromkeys(("num_train", "num_validation", "num_test"), "sizes of the splits"),
    "split": "the split's name",
    "split_hash": "hash",
    "skipped": "named only with report_names",
    "num_skipped": "numbers of files that were skipped",
    "num_damaged": "of damaged images",
    "num_other_components": "number of foreign classes on its allow list",
    "role": "role",
    "allowed_reports": "allowed reports",
    "device": "device",
    "precision": "precision",
    "compiled": "whether it compiles",
    "keeps_state": "whether it has kept anything of the run",
    "versions": "versions",
}


def test_what_a_census_tells_is_declared_field_by_field() -> None:
    (line,) = [line for line in METHODS.get("fedavg").leaves if line.what.startswith("census: ")]
    assert IN_THE_CENSUS.keys() == CensusReply.model_fields.keys()
    assert [words for words in IN_THE_CENSUS.values() if words not in line.what] == []

# SPDX-License-Identifier: Apache-2.0
"""The list of dependencies: what the package needs at run time and nothing else, and which licences are refused."""

import json
import sys
from importlib.metadata import version
from types import ModuleType

import pytest

from tests.docs.test_pages import script


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    """The script that lists what is installed with the package."""
    return script("make_sbom")


def test_what_the_package_needs_is_listed_with_its_version_and_what_only_tests_need_is_not(sbom: ModuleType) -> None:
    packages = sbom.needed()
    assert packages["torch"] == version("torch")
    assert {"nvflare", "numpy", "typing-extensions", "grpcio"} <= packages.keys()
    assert packages.keys().isdisjoint({"fdg-plugins", "pytest", "ruff", "mkdocs", "monai", "hypothesis"})


@pytest.mark.parametrize(
    ("licence", "kind"),
    [
        ("GNU General Public License v3 (GPLv3)", "COPYLEFT"),
        ("LGPL-2.1-or-later", "COPYLEFT"),
        ("AGPL-3.0-only", "COPYLEFT"),
        ("MIT AND GPL-2.0-only", "COPYLEFT"),
        ("MPL-2.0 AND MIT", "OF_FILES"),
        ("Mozilla Public License 2.0 (MPL 2.0)", "OF_FILES"),
        ("LicenseRef-NVIDIA-Proprietary", "PROPRIETARY"),
        ("UNKNOWN", "UNKNOWN"),
        ("MIT OR GPL-2.0-only", None),
        ("Apache-2.0", None),
        ("BSD License; MIT License", None),
        ("CeCILL-B", None),
    ],
)
def test_a_licence_is_of_the_kind_that_its_terms_are(sbom: ModuleType, licence: str, kind: str | None) -> None:
    row = {"Name": "some", "Version": "1", "License": licence}
    kinds = ("COPYLEFT", "OF_FILES", "PROPRIETARY", "UNKNOWN")
    assert [name for name in kinds if sbom.of_kind([row], getattr(sbom, name))] == ([kind] if kind else [])


def test_the_bill_keeps_what_is_needed_and_names_no_folder(sbom: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    own = version("fdg-plugins")

    def component(name: str, number: str = "1") -> dict[str, object]:
        return {"name": name, "version": number, "bom-ref": f"{name}=={number}", "externalReferences": ["file:///x"]}

    whole = {
        "metadata": {"tools": {}},
        "components": [component("fdg-plugins", own), component("Flask"), component("pytest")],
        "dependencies": [
            {"ref": f"fdg-plugins=={own}", "dependsOn": ["Flask==1", "pytest==1"]},
            {"ref": "Flask==1"},
            {"ref": "pytest==1"},
        ],
    }
    monkeypatch.setattr(sbom, "_output", lambda command: json.dumps(whole))
    found = sbom.bill({"flask": "1"})
    assert [one["name"] for one in found["components"]] == ["Flask"]
    assert found["metadata"]["component"]["name"] == "fdg-plugins"
    assert found["metadata"]["component"]["externalReferences"] == []
    assert found["dependencies"] == [
        {"ref": f"fdg-plugins=={own}", "dependsOn": ["Flask==1"]},
        {"ref": "Flask==1", "dependsOn": []},
    ]


def test_a_copyleft_licence_ends_with_an_error_after_both_files_are_written(
    sbom: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("sbom")
    monkeypatch.setattr(sbom, "needed", lambda: {"some": "1"})
    monkeypatch.setattr(sbom, "bill", lambda packages: {})
    monkeypatch.setattr(sys, "argv", ["make_sbom.py", "--to", str(folder)])
    codes = []
    for licence in ("GPL-3.0-only", "MIT"):
        rows = [{"Name": "some", "Version": "1", "License": licence}]
        monkeypatch.setattr(sbom, "licences", lambda packages, rows=rows: rows)
        with pytest.raises(SystemExit) as ended:
            sbom.main()
        codes.append(ended.value.code)
        assert (folder / "licences.txt").read_text(encoding="utf-8") == f"some  1  {licence}\n"
    assert codes == [1, 0]

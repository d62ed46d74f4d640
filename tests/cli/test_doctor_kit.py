# SPDX-License-Identifier: Apache-2.0
"""``fdg kit check`` on real files: what an operator would want to know of a kit, and nothing changed in it."""

import json
from pathlib import Path
from typing import Any

import pytest
from nvflare.app_common.logging.site_log_streamer import SiteLogStreamer
from nvflare.fuel.sec.authz import AuthzContext, Person
from nvflare.security.security import COMMAND_CATEGORIES, FLAuthorizer

from fdg_plugins.flare.cautious_kits import RETURNING_SITES
from fdg_plugins.flare.components import SERVER, SITE, class_paths
from fdg_plugins.lab.doctor.kit import examine_kit
from fdg_plugins.privacy.ledger import Ledger, Limits
from tests.cli.commands import printed
from tests.cli.kits import make_kit

RIGHTS = {
    "format_version": "1.0",
    "permissions": {"project_admin": {"view": "any", "byoc": "none"}, "lead": {"submit_job": "any"}},
}
BOUNDS = {"clip_norm": 1.0, "noise_multiplier": 8.0, "max_epsilon": 3.5}
DP = {"path": "fdg_plugins.filters.DifferentialPrivacyFilter", "args": BOUNDS}
MODULE_PATH = "fdg_plugins.filters.privacy.DifferentialPrivacyFilter"
OWN_FILES = ("fdg_site.json", "privacy.json", "fdg_privacy.json")


def scope(name: str, *filters: Any) -> dict[str, Any]:
    """Return a scope of a privacy policy with these filters over what leaves the site."""
    return {"name": name, "task_result_filters": list(filters)}


def job_storage(place: str) -> dict[str, Any]:
    """Return the component of a server that keeps its jobs in ``place``."""
    return {"id": "job_manager", "args": {"uri_root": place}}


def good_kit(folder: Path, end: str = SITE, **resources: Any) -> Path:
    """Make a kit in which nothing is to be found fault with; None takes an entry of its resources away."""
    # As FLARE provisions every site, and our hardening the server.
    component = {"path": RETURNING_SITES if end == SERVER else f"{SiteLogStreamer.__module__}.SiteLogStreamer"}
    content = {
        "class_allow_list": class_paths(end),
        "allow_log_streaming": False,
        "components": [component],
        **resources,
    }
    make_kit(folder, end, {key: value for key, value in content.items() if value is not None}, "photo")
    write(folder, "authorization.json", RIGHTS)
    if end == SITE:
        data = folder.parent / "data"
        (data / "pacs" / "photo").mkdir(parents=True, exist_ok=True)
        write(folder, "fdg_site.json", {"photo": {"domain": "photo", "data_root": str(data)}})
    return folder


def write(kit: Path, name: str, content: Any) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (kit / "local" / name).write_text(text, encoding="utf-8")


def findings(kit: Path, check: str) -> list[tuple[str, str]]:
    """Return status and text of what was found under ``check``; nothing of the kit changes."""
    before = {path: (path.stat().st_mode, path.read_bytes()) for path in kit.rglob("*") if path.is_file()}
    found = examine_kit(kit)
    assert {path: (path.stat().st_mode, path.read_bytes()) for path in kit.rglob("*") if path.is_file()} == before
    return [(str(one.status), one.text) for one in found if one.check.startswith(check)]


@pytest.mark.parametrize("end", [SERVER, SITE])
def test_of_a_kit_with_the_least_rights_all_is_well(tmp_path: Path, end: str) -> None:
    told = printed("kit", "check", good_kit(tmp_path / "kit", end))
    assert "all is well" in told
    assert f"kit, of a {end}" in " ".join(told.split())


@pytest.mark.parametrize(
    ("entries", "at_site", "text"),
    [
        (None, "problem", "FLARE's own list is in force, 88 entries"),
        (["nvflare.app_common.ccwf.CyclicClientController"], "problem", "past its filters and audit"),
        (["nvflare.app_common.ccwf."], "problem", "every callable that can be reached below it"),
        (["my_hospital.filters.Guard"], "warning", "1 of "),
    ],
)
def test_a_list_that_holds_more_is_a_warning_and_one_that_leads_past_the_filters_a_problem(
    tmp_path: Path, entries: list[str] | None, at_site: str, text: str
) -> None:
    for end, worst in ((SITE, at_site), (SERVER, "warning")):
        wide = None if entries is None else [*class_paths(end), *entries]
        found = findings(good_kit(tmp_path / end, end, class_allow_list=wide), "class_allow_list")
        assert [status for status, said in found if text in said] == [worst], found
        assert {status for status, _ in found} <= {worst, "warning"}


def test_without_rights_of_the_operators_own_flares_default_counts(tmp_path: Path) -> None:
    kit = good_kit(tmp_path / "kit")
    (kit / "local" / "authorization.json").unlink()
    assert findings(kit, "authorization.json")[0][0] == "problem", "no policy can be read"
    write(kit, "authorization.json.default", RIGHTS)
    assert {status for status, _ in findings(kit, "authorization.json")} == {"ok"}


CALLED_BY = {"byoc": ["byoc"], "shell_commands": ["cat", "grep", "head", "ls", "pwd", "tail"]} | {
    "operate": [command for command, category in COMMAND_CATEGORIES.items() if category == "operate"]
}


@pytest.mark.parametrize(
    "rights",
    [
        "any",
        ["not none"],
        {"*": "none", "byoc": "any"},
        {"byoc": "No", "Shell_Commands": ["none", "o:site"]},
        {"shell_commands": "any", **dict.fromkeys(CALLED_BY["shell_commands"], "none")},
        {"operate": "o:site", "shutdown": "none"},
    ],
)
def test_a_right_is_named_exactly_if_flare_gives_it_to_somebody(tmp_path: Path, rights: Any) -> None:
    policy = {"format_version": "1.0", "permissions": {"lead": rights, "org_admin": {"operate": "o:site"}}}
    kit = good_kit(tmp_path / "kit")
    write(kit, "authorization.json", policy)
    flare = FLAuthorizer("hospital", policy)
    people = [Person(name, org, "lead") for name in ("anna", "ben") for org in ("hospital", "other")]
    for right, commands in CALLED_BY.items():
        given = any(
            flare.authorize(AuthzContext(command, user, submitter))[0]
            for command in commands
            for user in people
            for submitter in people
        )
        ((status, text),) = findings(kit, f"authorization.json, {right}")
        nobody = "nobody but admins" if right == "operate" else "nobody"
        assert (status, text.split(":")[0]) == (("warning", "lead") if given else ("ok", nobody))


@pytest.mark.parametrize(
    ("end", "resources", "files", "check", "status"),
    [
        (SITE, {"class_list_enforcement_mode": "warn"}, {}, "class_list_enforcement_mode", "problem"),
        (SITE, {"allow_log_streaming": None}, {}, "resources.json", "warning"),
        (SITE, {"allow_log_streaming": "false"}, {}, "resources.json", "warning"),
        (SITE, {}, {"startup/fed_client.json": {}}, "fdg_site.json", "problem"),
        (SITE, {}, {"local/authorization.json": []}, "authorization.json", "problem"),
        (SITE, {}, {"local/authorization.json": {"permissions": []}}, "authorization.json", "problem"),
        *((SITE, {}, {f"local/{name}": {"photo": {"no such field": 1}}}, name, "problem") for name in OWN_FILES),
        (SERVER, {}, {"startup/fed_server.json": {"require_signed_jobs": False}}, "require_signed_jobs", "problem"),
        (SERVER, {"components": [job_storage("/tmp/nvflare/jobs-storage")]}, {}, "job storage", "warning"),
        (SERVER, {"components": [job_storage("/srv/jobs")]}, {}, "job storage", "ok"),
    ],
)
def test_what_is_amiss_has_its_line(
    tmp_path: Path, end: str, resources: dict[str, Any], files: dict[str, Any], check: str, status: str
) -> None:
    kit = good_kit(tmp_path / "kit", end, **resources)
    for name, content in files.items():
        (kit / name).write_text(json.dumps(content), encoding="utf-8")
    assert [found for found, _ in findings(kit, check)] == [status]


def test_a_scope_without_privacy_beside_one_with_it_is_a_warning_for_a_job_chooses(tmp_path: Path) -> None:
    kit = good_kit(tmp_path / "kit")
    for other, status in (
        (scope("incoming", {**DP, "direction": "in"}), "warning"),
        (scope("both", {**DP, "direction": "INOUT"}), "ok"),
        (scope("off", {**DP, "disabled": True}), "warning"),
        (scope("module", {**DP, "path": MODULE_PATH}), "ok"),
        ({"name": "bare"}, "warning"),
    ):
        write(kit, "privacy.json", {"scopes": [scope("private", DP), other], "default_scope": "private"})
        ((found, text),) = findings(kit, "privacy.json")
        assert found == status, text
    assert text.startswith("bare has no differential privacy, and a job chooses its scope")


def test_the_bounds_of_the_privacy_policy_are_told(tmp_path: Path) -> None:
    kit = good_kit(tmp_path / "kit")
    write(kit, "fdg_privacy.json", {"clip_norm": 1.0, "max_epsilon": 3.5})
    lacking = "clip_norm 1, max_epsilon 3.5; without noise_multiplier, it demands no differential privacy itself"
    assert findings(kit, "fdg_privacy.json") == [("warning", lacking)]
    write(kit, "privacy.json", {"scopes": [scope("dp", DP)], "default_scope": "dp"})
    assert findings(kit, "fdg_privacy.json") == [("ok", "clip_norm 1, max_epsilon 3.5")]


def test_a_config_needs_an_entry_for_its_participant_and_names_those_of_others(tmp_path: Path) -> None:
    for end, name in ((SITE, "photo"), (SERVER, "server")):
        kit = good_kit(tmp_path / end, end)
        for names, found in ((["other"], ["problem"]), ([name, "other"], ["ok", "warning"]), ([name], ["ok"])):
            write(kit, "fdg_site.json", {key: {"allowed_plugins": []} for key in names})
            assert [status for status, _ in findings(kit, "fdg_site.json")][: len(found)] == found


def test_a_report_that_nothing_sends_is_named_among_the_allowed(tmp_path: Path) -> None:
    kit = good_kit(tmp_path)
    for names, told in ((["gap", "local_model", "class_means"], []), (["gap", "class_mean"], ["'class_means'"])):
        write(kit, "fdg_site.json", {"photo": {"allowed_reports": names}})
        found = [text for status, text in findings(kit, "fdg_site.json") if status == "warning"]
        assert [text.split("did you mean ")[1] for text in found] == [f"{name}?" for name in told]


def test_the_folder_that_the_policy_names_for_the_ledger_is_looked_at(tmp_path: Path) -> None:
    kit, mounted = good_kit(tmp_path / "kit"), tmp_path / "mounted"
    write(kit, "fdg_privacy.json", {"max_epsilon": 3.5, "ledger": str(mounted)})
    assert [status for status, _ in findings(kit, "privacy ledger")] == ["problem"]
    write(kit, "resources.json", {"class_allow_list": class_paths(SITE), "components": [{"id": "docker_launcher"}]})
    assert [status for status, _ in findings(kit, "privacy ledger")] == ["warning"], "its containers may have it"
    for mode, status in ((0o700, "ok"), (0o755, "warning")):
        mounted.mkdir(exist_ok=True)
        mounted.chmod(mode)
        assert [found for found, _ in findings(kit, f"files, {mounted}")] == [status]


def test_a_ledger_from_which_nothing_can_be_released_is_a_problem(tmp_path: Path) -> None:
    kit = good_kit(tmp_path / "kit")
    path, limits = kit / "local" / "fdg_privacy" / "ledger.json", Limits(**BOUNDS, delta=1e-5)
    assert findings(kit, "privacy ledger") == []
    Ledger(path, "photo").spend("job", 0, limits)
    assert findings(kit, "privacy ledger") == [("ok", f"1 release in {path}")]
    path.write_text(path.read_text().replace('"round": 0', '"round": 1'))
    assert [status for status, _ in findings(kit, "privacy ledger")] == ["problem"]


def test_files_that_others_can_read_are_named_with_the_remedy(tmp_path: Path) -> None:
    kit = good_kit(tmp_path / "kit")
    key, state = kit / "startup" / "client.key", kit / "fdg_state" / "run" / "memory.safetensors"
    ledger = kit / "local" / "fdg_privacy" / "ledger.json"
    for path in (key, state, ledger):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}", encoding="utf-8")
        path.chmod(0o600)
        path.parent.chmod(0o700)
    state.parent.parent.chmod(0o700)
    state.chmod(0o644)
    assert {status for status, _ in findings(kit, "files")} == {"ok"}, "nobody else can enter its folder"
    for folder in (state.parent, state.parent.parent, ledger.parent):
        folder.chmod(0o755)
    found = findings(kit, "files")
    assert [status for status, _ in found] == ["warning", "warning"]
    assert f"chmod -R go= {kit / 'fdg_state'}" in found[0][1]
    key.chmod(0o640)
    assert findings(kit, "files")[0][0] == "problem"


def test_the_data_root_is_looked_for(tmp_path: Path) -> None:
    kit, data, own = good_kit(tmp_path / "kit"), tmp_path / "data", tmp_path / "own"
    (own / "ward").mkdir(parents=True)

    def status(**settings: str) -> str:
        write(kit, "fdg_site.json", {"photo": settings})
        ((found, _),) = findings(kit, "data root")
        return found

    assert status(data_root=str(data)) == "ok"
    assert status() == "warning", "it would draw a stand-in"
    assert status(data_root=str(tmp_path / "nothing")) == "problem"
    assert status(data_root=str(own), domain="ward") == "ok"
    assert status(data_root=str(own)) == "problem"
    assert status(data_root=str(own), dataset_file=str(own / "none.toml")) == "problem"
    write(kit, "resources.json", {"class_allow_list": class_paths(SITE), "components": [{"id": "docker_launcher"}]})
    assert status(data_root="/data/default/images") == "warning", "only containers have it"

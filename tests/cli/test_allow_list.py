# SPDX-License-Identifier: Apache-2.0
"""``fdg kit allow`` on real files: what it adds, what it leaves, and what it says to a user's mistake."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
from nvflare.app_common.logging.job_log_streamer import JobLogStreamer
from nvflare.app_common.logging.site_log_streamer import SiteLogStreamer
from typer.testing import CliRunner, Result

from fdg_plugins.cli.main import app
from fdg_plugins.flare.allow_list import (
    GROUPS,
    by_group,
    count_other_components,
    is_too_wide,
    opens_side_door,
    warning_of,
)
from fdg_plugins.flare.components import SERVER, SITE, class_paths, components

JOBS = Path(__file__).parents[2] / "jobs"
BEFORE = {"format_version": 2, "class_allow_list": ["my_hospital.filters.Guard"], "components": [{"id": "x"}]}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["kit", "allow", *(str(argument) for argument in arguments)])


def make_kit(folder: Path, end: str = SITE, name: str = "resources.json", content: Any = BEFORE) -> Path:
    for part in ("startup", "local"):
        (folder / part).mkdir(parents=True)
    (folder / "startup" / f"fed_{'server' if end == SERVER else 'client'}.json").write_text("{}", encoding="utf-8")
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "local" / name).write_text(text, encoding="utf-8")
    return folder


def read(kit: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((kit / "local" / "resources.json").read_text(encoding="utf-8"))
    return content


def test_a_file_of_the_kit_keeps_its_permissions_and_a_link_its_target(tmp_path: Path) -> None:
    kit, managed = make_kit(tmp_path / "kit"), tmp_path / "managed.json"
    resources = kit / "local" / "resources.json"
    resources.rename(managed)
    managed.chmod(0o600)
    resources.symlink_to(managed)
    assert run("--kit", kit).exit_code == 0
    assert resources.is_symlink()
    assert managed.stat().st_mode & 0o777 == 0o600
    assert set(class_paths(SITE)) <= set(json.loads(managed.read_text(encoding="utf-8"))["class_allow_list"])


@pytest.mark.parametrize("end", [SERVER, SITE])
def test_it_writes_the_exact_paths_of_our_components_and_keeps_the_rest(tmp_path: Path, end: str) -> None:
    kit = make_kit(tmp_path / "kit", end)
    result = run("--kit", kit)
    assert result.exit_code == 0, result.output
    after = read(kit)
    entries = after.pop("class_allow_list")
    assert after == {key: value for key, value in BEFORE.items() if key != "class_allow_list"}
    assert entries == ["my_hospital.filters.Guard", *class_paths(end)]
    assert not [entry for entry in entries if is_too_wide(entry)]
    assert plus(result) == class_paths(end)
    assert "kept my_hospital.filters.Guard, which is neither this package's nor FLARE's" in result.stdout
    assert result.stderr == ""


STREAMS = {"id": "log", "path": f"{SiteLogStreamer.__module__}.SiteLogStreamer", "args": {}}


def test_a_site_whose_logs_flare_streams_allows_the_class_that_flare_adds_to_each_job(tmp_path: Path) -> None:
    # As FLARE provisions every kit. Without the class, each job would fail there.
    kit = make_kit(tmp_path / "kit", content={**BEFORE, "components": [STREAMS]})
    result = run("--kit", kit)
    assert f"{JobLogStreamer.__module__}.JobLogStreamer" in read(kit)["class_allow_list"]
    assert "Warning: FLARE sends this site's logs, which name its files, to the server" in result.stderr
    assert count_other_components(kit, SITE) == 1, "the operator's own"
    (kit / "local" / "resources.json").write_text(json.dumps({**read(kit), "allow_log_streaming": False}))
    assert count_other_components(kit, SITE) == 2
    assert run("--kit", kit).stderr == ""
    assert read(kit)["class_allow_list"] == ["my_hospital.filters.Guard", *class_paths(SITE)]


def test_no_log_of_a_server_is_streamed(tmp_path: Path) -> None:
    kit = make_kit(tmp_path / "kit", SERVER, content={"components": [STREAMS]})
    assert run("--kit", kit).stderr == ""
    assert set(read(kit)["class_allow_list"]) == set(class_paths(SERVER))


def plus(result: Result) -> list[str]:
    """Return the entries that the command says it adds."""
    return [line.removeprefix("  + ") for line in result.stdout.splitlines() if line.startswith("  + ")]


@pytest.mark.parametrize("end", [SERVER, SITE])
def test_flares_defaults_that_an_earlier_version_wrote_are_taken_out_again(tmp_path: Path, end: str) -> None:
    before = ["my_hospital.filters.Guard", *dict.fromkeys([*DEFAULT_CLASS_ALLOW_LIST, *class_paths(end)])]
    kit = make_kit(tmp_path / "kit", end, content={"class_allow_list": before})
    result = run("--kit", kit)
    assert result.exit_code == 0, result.output
    assert set(read(kit)["class_allow_list"]) == {"my_hospital.filters.Guard", *class_paths(end)}
    needless = set(DEFAULT_CLASS_ALLOW_LIST) - set(class_paths(end))
    assert f"added 0, removed {len(needless)};" in result.stdout
    assert count_other_components(kit, end) == 1


@pytest.mark.parametrize("before", [{}, {"class_allow_list": []}, BEFORE])
def test_flares_defaults_are_kept_on_demand_with_a_warning_of_what_they_open(
    tmp_path: Path, before: dict[str, Any]
) -> None:
    kit = make_kit(tmp_path / "kit", content=before)
    result = run("--kit", kit, "--keep-flare-defaults")
    assert result.exit_code == 0, result.output
    own = before.get("class_allow_list", [])
    assert set(read(kit)["class_allow_list"]) == {*own, *DEFAULT_CLASS_ALLOW_LIST, *class_paths(SITE)}
    assert "Warning: the list holds 88 of FLARE's defaults that no job of this package needs:" in result.stderr
    assert "19 such as nvflare.app_common.ccwf." in result.stderr
    assert "past the filters of results" in result.stderr
    assert plus(result) == class_paths(SITE), "FLARE's are many, and said by groups"
    told = [int(line.split()[0]) for line in result.stderr.splitlines() if line.startswith("  ")]
    assert sum(told) == len(DEFAULT_CLASS_ALLOW_LIST)
    assert run("--kit", kit).exit_code == 0
    assert set(read(kit)["class_allow_list"]) == {*own, *class_paths(SITE)}, "the next run takes them out"


def test_each_of_flares_defaults_is_in_the_group_that_says_what_it_opens() -> None:
    groups = by_group(DEFAULT_CLASS_ALLOW_LIST)
    assert list(groups) == list(GROUPS), "no group is without a member"
    assert sum(map(len, groups.values())) == len(DEFAULT_CLASS_ALLOW_LIST)
    doors = [entry for entry in DEFAULT_CLASS_ALLOW_LIST if opens_side_door(entry)]
    assert doors == groups[GROUPS[0]]
    assert {f"nvflare.app_common.ccwf.{name}ClientController" for name in ("Cyclic", "Swarm", "CrossSiteEval")} < set(
        doors
    )
    assert not [entry for entry in DEFAULT_CLASS_ALLOW_LIST if is_too_wide(entry)]


@pytest.mark.parametrize(
    ("entry", "wide", "door"),
    [
        ("*", True, True),
        ("nvflare.", True, True),
        ("nvflare.app_common", True, True),
        ("nvflare.app_common.ccwf", True, True),
        ("nvflare.app_common.ccwf.", True, True),
        ("nvflare.app_common.ccwf.cyclic_client_ctl", True, True),
        ("nvflare.app_common.ccwf.cyclic_client_ctl.CyclicClientController", False, True),
        ("nvflare.app_common.workflows.", True, False),
        ("my_hospital.", True, False),
        ("fdg_plugins", True, False),
        ("fdg_plugins.executors.SiteExecutor", False, False),
        ("my_hospital.filters.Guard", False, False),
        ("my_hospital.filters", True, False),
        ("fdg_plugins.storage", True, False),
        ("fdg_plugins.storage.Path", False, False),
        ("torch.optim", True, False),
        ("os.path", True, False),
        ("os.getcwd", False, False),
        ("", False, False),
    ],
)
def test_an_entry_is_judged_by_what_flare_reads_it_as(entry: str, wide: bool, door: bool) -> None:
    assert is_too_wide(entry) is wide
    assert opens_side_door(entry) is door


def test_each_end_is_given_what_it_builds_and_no_more() -> None:
    site, server = class_paths(SITE), class_paths(SERVER)
    assert "fdg_plugins.executors.SiteExecutor" in site
    assert "fdg_plugins.controllers.FederationController" in server
    assert not set(site) & set(server)
    assert {*site, *server} == {component.path for component in components()}


def component_paths(value: Any) -> Iterator[str]:
    """Yield every class path in a job's config."""
    if isinstance(value, dict):
        if "path" in value:
            yield value["path"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from component_paths(item)


@pytest.mark.parametrize("job", sorted(path.name for path in JOBS.iterdir() if path.is_dir()))
def test_the_methods_in_a_jobs_name_allow_all_that_the_job_names(job: str) -> None:
    methods = ["+".join(job.split("_")[1:])]
    for end, file in (
        (SERVER, "app_server/config/config_fed_server.json"),
        (SITE, "app_site/config/config_fed_client.json"),
    ):
        paths = set(component_paths(json.loads((JOBS / job / file).read_text(encoding="utf-8"))))
        assert paths
        assert paths <= set(class_paths(end, methods))
        assert flares(paths) == flares(class_paths(end, methods)), "of FLARE's, what the job names and nothing else"


def flares(paths: Iterable[str]) -> set[str]:
    """Return the paths that are not this package's."""
    return {path for path in paths if not path.startswith("fdg_plugins.")}


def test_a_method_is_given_what_it_needs_and_no_more(tmp_path: Path) -> None:
    kit = make_kit(tmp_path / "kit")
    assert run("--kit", kit, "--method", "fedomg").exit_code == 0
    ours = [entry for entry in read(kit)["class_allow_list"] if entry.startswith("fdg_plugins")]
    of_every_method = ["filters.DifferentialPrivacyFilter", "filters.RoundedUpdateSendFilter"]
    assert ours == [f"fdg_plugins.{name}" for name in ("executors.SiteExecutor", *of_every_method)]
    assert run("--kit", kit, "--method", "fedga", "--method", "feddim").exit_code == 0
    ours = [entry for entry in read(kit)["class_allow_list"] if entry.startswith("fdg_plugins")]
    assert sorted(ours) == sorted(class_paths(SITE))
    result = run("--kit", kit, "--method", "fedomg")
    narrow = [f"fdg_plugins.{name}" for name in ("executors.SiteExecutor", *of_every_method)]
    assert read(kit)["class_allow_list"] == ["my_hospital.filters.Guard", *narrow]
    assert f"added 0, removed {len(ours) - len(narrow)};" in result.stdout


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    kit = make_kit(tmp_path / "kit")
    run("--kit", kit)
    file = kit / "local" / "resources.json"
    content, written = file.read_bytes(), file.stat().st_mtime_ns
    result = run("--kit", kit)
    assert (result.exit_code, file.read_bytes(), file.stat().st_mtime_ns) == (0, content, written)
    assert "added 0, removed 0;" in result.stdout
    assert "left as it was" in result.stdout
    assert [path.name for path in file.parent.iterdir()] == ["resources.json"], "nothing temporary is left"


def test_resources_json_is_made_from_the_default_that_it_hides(tmp_path: Path) -> None:
    kit = make_kit(tmp_path / "kit", name="resources.json.default")
    assert run("--kit", kit).exit_code == 0
    assert read(kit)["components"] == BEFORE["components"]
    assert "my_hospital.filters.Guard" in read(kit)["class_allow_list"]
    assert json.loads((kit / "local" / "resources.json.default").read_text(encoding="utf-8")) == BEFORE


def test_a_kit_without_a_list_gets_the_least_one_instead_of_flares_own(tmp_path: Path) -> None:
    kit = make_kit(tmp_path / "kit", content={"format_version": 2})
    assert count_other_components(kit, SITE) == len(DEFAULT_CLASS_ALLOW_LIST)
    assert run("--kit", kit).exit_code == 0
    assert read(kit)["class_allow_list"] == class_paths(SITE)
    assert count_other_components(kit, SITE) == 0


def test_the_warning_names_owner_and_count_and_is_not_given_for_a_least_list() -> None:
    assert warning_of("site photo", 86) == (
        "site photo: its list of allowed classes holds 86 entries that these jobs do not need; "
        "`fdg kit allow --kit` writes the least one."
    )
    assert "holds 1 entry that" in str(warning_of("the server", 1))
    assert warning_of("site photo", 0) is None
    assert warning_of("site photo", None) is None


def test_a_dry_run_says_it_all_and_writes_nothing(tmp_path: Path) -> None:
    kit = make_kit(tmp_path / "kit", name="resources.json.default")
    result = run("--kit", kit, "--dry-run")
    assert result.exit_code == 0
    assert "would add" in result.stdout
    assert "  + fdg_plugins.executors.SiteExecutor" in result.stdout
    assert [path.name for path in (kit / "local").iterdir()] == ["resources.json.default"]


@pytest.mark.parametrize("entry", ["fdg_plugins.", "fdg_plugins.filters", "fdg_plugins.filters.", "*"])
def test_an_entry_that_allows_more_than_components_is_warned_of(tmp_path: Path, entry: str) -> None:
    kit = make_kit(tmp_path / "kit", content={"class_allow_list": [entry]})
    result = run("--kit", kit)
    assert result.exit_code == 0
    assert f"Warning: entry {entry!r}" in result.stderr
    assert "every callable" in result.stderr
    assert entry in read(kit)["class_allow_list"], "it is the operator's own decision"
    assert run("--kit", make_kit(tmp_path / "other"), "--dry-run").stderr == ""


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{broken", "is not valid JSON"),
        ([1, 2], "holds [1, 2], expected an object"),
        ({"class_allow_list": "fdg_plugins."}, "class_allow_list is 'fdg_plugins.', expected a list of class paths"),
        ({"class_allow_list": [1]}, "class_allow_list is [1], expected a list of class paths"),
    ],
)
def test_a_broken_file_ends_in_one_sentence_and_stays_as_it_is(tmp_path: Path, content: Any, sentence: str) -> None:
    kit = make_kit(tmp_path / "kit", content=content)
    before = (kit / "local" / "resources.json").read_bytes()
    check_refusal(run("--kit", kit), sentence)
    assert (kit / "local" / "resources.json").read_bytes() == before


def test_what_is_no_kit_ends_in_one_sentence(tmp_path: Path) -> None:
    check_refusal(run("--kit", tmp_path / "nowhere"), "nowhere is not there")
    check_refusal(run("--kit", tmp_path), "is not a startup kit of a server or site")
    person = make_kit(tmp_path / "person")
    (person / "startup" / "fed_client.json").rename(person / "startup" / "fed_admin.json")
    check_refusal(run("--kit", person), "is not a startup kit of a server or site")
    empty = make_kit(tmp_path / "empty")
    (empty / "local" / "resources.json").unlink()
    check_refusal(run("--kit", empty), "resources.json.default cannot be read: No such file or directory")


def check_refusal(result: Result, sentence: str) -> None:
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stderr.startswith("Error: ")
    assert sentence in result.stderr
    assert result.stdout == ""


PLUGIN = Path(__file__).parents[2] / "custom" / "clipped_fedavg.py"


def test_what_a_plug_in_file_brings_is_allowed_as_explain_says(tmp_path: Path) -> None:
    kit = make_kit(tmp_path / "kit")
    page = CliRunner().invoke(app, ["explain", "clipped_fedavg", "--all", "--plugin", str(PLUGIN)]).stdout
    assert "fdg kit allow --kit KIT --method clipped_fedavg --plugin" in " ".join(page.split())
    result = run("--kit", kit, "--method", "clipped_fedavg", "--plugin", PLUGIN)
    assert result.exit_code == 0
    allowed = read(kit)["class_allow_list"]
    assert "my_hospital.filters.Guard" in allowed
    assert len(allowed) > 1

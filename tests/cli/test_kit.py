# SPDX-License-Identifier: Apache-2.0
"""``fdg kit`` on the files of kits: what it writes and removes, what it leaves, and what it refuses."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
from nvflare.app_common.logging.job_log_streamer import JobLogStreamer
from nvflare.app_common.logging.site_log_streamer import SiteLogStreamer

from fdg_plugins.flare.components import SERVER, SITE, class_paths
from fdg_plugins.flare.kits import count_other_components, is_too_wide
from fdg_plugins.settings.site_config import FILE_NAME, read_site_config
from fdg_plugins.state.folders import DAY_S
from tests.cli.commands import check_refusal, fdg, printed
from tests.cli.kits import BEFORE, GUARD, make_kit

PLUGIN = Path(__file__).parents[2] / "custom" / "clipped_fedavg.py"
OLD, NEW = "3379af42-b0b1-4066-889e-7cf89997f720", "07004046-3976-42f3-876b-d1b6d7403de0"


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    return make_kit(tmp_path / "kit")


def read(kit: Path, name: str = "resources.json") -> Any:
    return json.loads((kit / "local" / name).read_text())


@pytest.mark.parametrize("end", [SERVER, SITE])
def test_the_list_holds_our_components_and_the_operators_own_and_nothing_else_changes(tmp_path: Path, end: str) -> None:
    kit = make_kit(tmp_path / "kit", end, {**BEFORE, "class_allow_list": [GUARD, *DEFAULT_CLASS_ALLOW_LIST]})
    local = kit / "local" / "resources.json"
    local.rename(local.with_name("resources.json.default"))
    result = fdg("kit", "allow", kit)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"kept {GUARD}, which is neither this package's nor FLARE's" in result.stdout
    after = read(kit)
    assert set(after["class_allow_list"]) == {GUARD, *class_paths(end)}
    assert {**after, "class_allow_list": [GUARD]} == BEFORE
    assert not any(map(is_too_wide, after["class_allow_list"]))
    assert count_other_components(kit, end) == 1
    assert "left as it was" in fdg("kit", "allow", kit).stdout
    local.write_text('{"class_allow_list": ["fdg_plugins."]}')
    assert "every callable below it" in fdg("kit", "allow", kit).stderr
    assert "fdg_plugins." in read(kit)["class_allow_list"], "what the operator wrote stays"


def test_a_site_whose_logs_flare_streams_allows_the_class_that_flare_adds_to_each_job(tmp_path: Path) -> None:
    # As FLARE provisions every kit. Without the class, each job would fail there.
    streams = {"id": "log", "path": f"{SiteLogStreamer.__module__}.SiteLogStreamer", "args": {}}
    kit = make_kit(tmp_path / "site", content={"components": [streams]})
    result = fdg("kit", "allow", kit)
    assert f"{JobLogStreamer.__module__}.JobLogStreamer" in read(kit)["class_allow_list"]
    assert "Warning: FLARE sends this site's logs, which name its files, to the server" in result.stderr
    (kit / "local" / "resources.json").write_text(json.dumps({**read(kit), "allow_log_streaming": False}))
    assert fdg("kit", "allow", kit).stderr == ""
    assert read(kit)["class_allow_list"] == class_paths(SITE)


def test_a_method_is_given_what_it_needs_and_no_more(kit: Path) -> None:
    fdg("kit", "allow", kit)
    narrow = ["executors.SiteExecutor", "filters.DifferentialPrivacyFilter", "filters.RoundedUpdateSendFilter"]
    assert fdg("kit", "allow", kit, "--method", "fedomg").exit_code == 0
    assert read(kit)["class_allow_list"] == [GUARD, *(f"fdg_plugins.{name}" for name in narrow)]
    page = fdg("explain", "clipped_fedavg", "--all", "--plugin", PLUGIN).stdout
    assert "fdg kit allow KIT --method clipped_fedavg --plugin" in " ".join(page.split())
    assert fdg("kit", "allow", kit, "--method", "clipped_fedavg", "--plugin", PLUGIN).exit_code == 0


@pytest.mark.parametrize("content", ["{broken", [1, 2], {"class_allow_list": "fdg_plugins."}])
def test_a_broken_file_ends_in_one_sentence_and_stays_as_it_is(tmp_path: Path, content: Any) -> None:
    kit = make_kit(tmp_path / "kit", content=content)
    before = (kit / "local" / "resources.json").read_bytes()
    check_refusal(fdg("kit", "allow", kit))
    assert (kit / "local" / "resources.json").read_bytes() == before


def test_what_is_no_kit_ends_in_one_sentence(tmp_path: Path) -> None:
    for command in ("allow", "site", "harden", "check", "clean"):
        check_refusal(fdg("kit", command, tmp_path), str(tmp_path))


def test_a_site_then_holds_the_domain_and_what_the_file_says_already_stays(kit: Path, tmp_path: Path) -> None:
    (kit / "local" / FILE_NAME).write_text(json.dumps({"site-1": {"threads": 3}, "site-2": {"threads": 1}}))
    printed("kit", "site", kit, "--domain", "photo", "--data-root", tmp_path, "--set", "part=3/10")
    config = read_site_config("site-1", kit / "local" / FILE_NAME, {})
    assert (config.domain, config.data_root, config.part, config.threads) == ("photo", tmp_path, "3/10", 3)
    assert read(kit, FILE_NAME)["site-2"] == {"threads": 1}


def test_a_misspelt_domain_of_a_known_data_set_is_refused(kit: Path, tmp_path: Path) -> None:
    (tmp_path / "pacs" / "sketch").mkdir(parents=True)
    assert fdg("kit", "site", kit, "--domain", "sketch", "--data-root", tmp_path).exit_code == 0
    check_refusal(fdg("kit", "site", kit, "--domain", "sketchh"), "did you mean 'sketch'?")
    check_refusal(fdg("kit", "site", make_kit(tmp_path / "server", SERVER), "--domain", "photo"), "is a server's")
    assert read(kit, FILE_NAME)["site-1"]["domain"] == "sketch"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--set", "devise=cpu"], "did you mean 'device'?"),
        (["--set", "part=5/3"], "part"),
        (["--data-root", "/nowhere/at/all"], "data_root is '/nowhere/at/all', expected a folder"),
        (["--set", "dataset_file=/"], "dataset_file is '/', expected a file"),
        (["--set", "gpus=1"], "gpu_memory is None"),
    ],
)
def test_what_is_invalid_is_named_and_nothing_is_written(kit: Path, arguments: list[str], told: str) -> None:
    check_refusal(fdg("kit", "site", kit, *arguments), told)
    assert not (kit / "local" / FILE_NAME).exists()
    assert read(kit) == BEFORE


def test_a_list_is_written_as_words_or_as_in_a_file(kit: Path) -> None:
    two = ["gap", "statistics"]
    for text, names in ((json.dumps(two), two), ("gap,statistics", two), ("[]", [])):
        assert fdg("kit", "site", kit, "--set", f"allowed_reports={text}").exit_code == 0
        assert read(kit, FILE_NAME)["site-1"]["allowed_reports"] == names


def test_a_path_that_only_the_sites_containers_have_is_written_with_a_warning(tmp_path: Path) -> None:
    kit = make_kit(tmp_path / "kit", content={"components": [{"id": "docker_launcher"}]})
    result = fdg("kit", "site", kit, "--data-root", "/data/default/images")
    assert (result.exit_code, result.stderr[:8]) == (0, "Warning:")
    assert read(kit, FILE_NAME)["site-1"]["data_root"] == "/data/default/images"
    check_refusal(fdg("kit", "site", kit, "--data-root", "images"))


def test_gpus_are_written_for_flares_manager_and_nothing_else_changes(kit: Path) -> None:
    before = [{"id": "x"}, {"id": "resource_manager", "args": {"ignore_host": True}}]
    (kit / "local" / "resources.json").write_text(json.dumps({**BEFORE, "components": before}))
    for settings, lent in ((("gpus=2", "gpu_memory=16"), (2, 16.0)), (("gpus=0",), (0, 0.0))):
        assert fdg("kit", "site", kit, *(word for text in settings for word in ("--set", text))).exit_code == 0
        (found,) = [one["args"] for one in read(kit)["components"] if one["id"] == "resource_manager"]
        assert (found["num_of_gpus"], found["mem_per_gpu_in_GiB"], found["ignore_host"]) == (*lent, True)
    assert read(kit)["class_allow_list"] == [GUARD]
    assert {"id": "x"} in read(kit)["components"]


@pytest.fixture
def used(kit: Path) -> Path:
    """A kit in which two runs have left their state, ten days and half a day ago."""
    for name, days in ((OLD, 10), (NEW, 0.5)):
        folder = kit / "fdg_state" / name
        folder.mkdir(parents=True)
        (folder / "checkpoint.safetensors").write_bytes(b"0" * 1000)
        for path in (*folder.iterdir(), folder):
            os.utime(path, (time.time() - days * DAY_S,) * 2)
    return kit


def left(kit: Path) -> set[str]:
    return {path.name for path in (kit / "fdg_state").iterdir()}


def test_what_has_not_changed_for_a_day_goes_and_a_run_that_is_named(used: Path) -> None:
    assert "would be removed" in fdg("kit", "clean", used, "--dry-run").stdout
    assert left(used) == {OLD, NEW}
    result = fdg("kit", "clean", used)
    assert result.exit_code == 0
    outcomes = [line.split("  ")[-1] for line in result.stdout.splitlines()[1:]]
    assert outcomes == ["kept: it has changed within the last 1 day", "removed"]
    assert left(used) == {NEW}
    assert fdg("kit", "clean", used, "--run", NEW).exit_code == 0
    check_refusal(fdg("kit", "clean", used, "--run", NEW), f"run {NEW} has left nothing")


def test_links_are_not_followed_and_strangers_stay(used: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").touch()
    os.utime(tmp_path / "outside", (0, 0))
    (used / "fdg_state" / "linked").symlink_to(tmp_path / "outside")
    (used / "fdg_state" / "a file").touch()
    for name in ("linked", "../kit", "..", "/", "a/b"):
        fdg("kit", "clean", used, "--run", name)
        assert left(used) == {OLD, NEW, "linked", "a file"}
    assert fdg("kit", "clean", used).stdout.count("it is not the folder of a run") == 2
    assert (tmp_path / "outside" / "precious").exists()
    assert "no run has left anything" in fdg("kit", "clean", make_kit(used.parent / "new")).stdout


def test_hardening_writes_what_is_lacking_and_widens_no_list(tmp_path: Path) -> None:
    kit = make_kit(tmp_path / "kit", content={"components": []})
    (kit / "local" / "authorization.json.default").write_text('{"permissions": {"lead": {}}}')
    first, again = (fdg("kit", "harden", kit).stdout for _ in range(2))
    assert (first.count(": written"), again.count("left as it was")) == (2, 2)
    assert read(kit)["class_allow_list"] == class_paths(SITE)
    assert set(read(kit, "authorization.json")["permissions"]["lead"].values()) == {"none"}
    fdg("kit", "allow", kit, "--method", "fedavg")
    narrow = read(kit)
    assert {*narrow["class_allow_list"]} < {*class_paths(SITE)}
    wide = {**narrow, "class_allow_list": [*DEFAULT_CLASS_ALLOW_LIST, *narrow["class_allow_list"]]}
    (kit / "local" / "resources.json").write_text(json.dumps(wide))
    fdg("kit", "harden", kit)
    assert read(kit) == narrow

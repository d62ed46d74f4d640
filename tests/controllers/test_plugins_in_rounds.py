# SPDX-License-Identifier: Apache-2.0
"""The example plug-in by name, in whole runs of one process: its method, its network and its data set."""

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.executors import SiteExecutor
from fdg_plugins.messages import TASK_CENSUS, TASK_EVALUATE
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.models import NETWORKS
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.recipes import FDGRecipe, make_recipe
from tests.controllers.test_methods_in_rounds import MethodJob, same
from tests.controllers.test_resume import ServerKilled, dying

pytestmark = pytest.mark.usefixtures("wire")

COLOURS = ("blue", "green", "red")
CUSTOM = Path(__file__).parents[2] / "custom"
TINY = {"image_size": 16, "rounds": 2, "local_epochs": 1, "learning_rate": 0.05, "batch_size": 4}


class BlocksJob(MethodJob):
    """A job of the sites of the example plug-in's data set."""

    def __init__(self, folder: Path, **arguments: Any) -> None:
        super().__init__(folder, **arguments)
        self.sites = {colour: SiteExecutor() for colour in COLOURS}
        self.engine.sites = COLOURS

    def allow(self, site: str, *plugins: str) -> None:
        """Let a site's operator, or the server's, allow these plug-ins alone."""
        folder = self.folder / "local" if site == "server" else self.folder / "sites" / site
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "fdg_site.json").write_text(json.dumps({site: {"allowed_plugins": plugins}}), encoding="utf-8")


def arguments(method: str, folder: Path) -> dict[str, Any]:
    """Return what the exported job says, made smaller."""
    recipe = make_recipe(method, "blocks", model="patchnet", pretrained="none", **TINY)
    recipe.export(str(folder))
    config = folder / recipe.name / "app_server" / "config" / "config_fed_server.json"
    said = json.loads(config.read_text(encoding="utf-8"))["workflows"][0]["args"]
    protocol = dict(said["protocol"])
    return {
        "objective": protocol.pop("objective", "erm"),
        "aggregator": said["aggregator"],
        "settings": protocol | WHOLE,
    }


WHOLE = {"max_samples_per_domain": None}


@pytest.fixture
def blocks_root(blocks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDG_DATA_ROOT", str(blocks))


@pytest.mark.usefixtures("installed", "blocks_root")
@pytest.mark.parametrize("method", ["fedproto", "fedomg+proto"])
def test_a_plug_ins_method_network_and_data_set_run_by_name(method: str, tmp_path: Path) -> None:
    job = BlocksJob(tmp_path / "run", **arguments(method, tmp_path)).finished()
    record = job.record
    assert (record.status, record.classes) == ("finished", ("bar", "square"))
    assert record.method.objective == {"name": "proto", "strength": 1.0}
    for versions in (record.versions, *(reply.versions for reply in record.census.values())):
        assert versions["fdg-example-plugin"] == version("fdg-example-plugin")
    assert all(not finished.failures and not finished.refused_reports for finished in record.rounds)
    assert any("patches" in name for name in job.model)


@pytest.mark.usefixtures("installed", "blocks_root")
def test_its_two_halves_matter_and_no_strength_is_fedavg(tmp_path: Path) -> None:
    said = arguments("fedproto", tmp_path)
    plain = BlocksJob(tmp_path / "plain", **{**said, "objective": "erm"}).finished()
    off = BlocksJob(tmp_path / "off", **{**said, "objective": {"name": "proto", "strength": 0.0}}).finished()
    on = BlocksJob(tmp_path / "on", **said).finished()
    assert same(plain, off)
    assert not same(plain, on)


@pytest.mark.usefixtures("installed", "blocks_root")
@pytest.mark.parametrize(
    ("who", "stopped"),
    [
        ("server", "objective 'proto' comes from fdg-example-plugin, which the operator does not allow here"),
        ("red", "site red cannot take part: objective 'proto' comes from a plug-in that the operator does not allow"),
    ],
)
def test_an_operator_refuses_before_the_plug_in_is_loaded(who: str, stopped: str, tmp_path: Path) -> None:
    said = arguments("fedproto", tmp_path)
    job = BlocksJob(tmp_path / "run", **said)
    job.allow(who, "another-plugin")
    job.run()
    (panic,) = job.panics
    assert panic.startswith(stopped)
    allowed = BlocksJob(tmp_path / "allowed", **said)
    allowed.allow(who, "FDG_example-plugin")
    allowed.finished()


def test_a_server_s_list_under_another_name_ends_the_job(tmp_path: Path) -> None:
    job = MethodJob(tmp_path / "run")
    (job.folder / "local").mkdir()
    file = job.folder / "local" / "fdg_site.json"
    file.write_text(json.dumps({"server.fdg.example": {"allowed_plugins": []}}), encoding="utf-8")
    job.run()
    (panic,) = job.panics
    assert panic.endswith("has settings of 'server.fdg.example', expected an entry 'server'.")


@pytest.mark.usefixtures("blocks_root")
def test_a_plug_in_that_is_not_installed_ends_the_job_in_one_sentence(tmp_path: Path) -> None:
    job = BlocksJob(tmp_path / "run", settings={**TINY, **WHOLE, "model": "patchnet"})
    job.run()
    assert job.panics == [
        f"model 'patchnet' is unknown, and no installed plug-in brings it; expected one of {', '.join(NETWORKS.own())}."
    ]


WEIGHTING = """
import torch

from fdg_plugins.aggregators import Weighting
from fdg_plugins.plugins.method import Method, Reference


class First(Weighting):
    def __call__(self, contributions, round_of=None):
        return torch.tensor([1.0] + [0.0] * (len(contributions) - 1), dtype=torch.float64)


METHOD = Method(
    key="fedfirst",
    title="FedFirst",
    part="first",
    line="the first site alone",
    reference=Reference(authors="nobody", title="none", venue="none", year=2026),
    acts=("weighting",),
    weighting=First,
)
"""


@pytest.fixture
def weighting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed plug-in with a weighting, ``first``."""
    site = tmp_path / "site"
    info = site / "first_weighting-1.dist-info"
    info.mkdir(parents=True)
    (site / "first_weighting.py").write_text(WEIGHTING, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: first-weighting\nVersion: 1\n", encoding="utf-8")
    lines = "\n".join(f"{name} = first_weighting:METHOD" for name in ("fedfirst", "first"))
    (info / "entry_points.txt").write_text(f"[fdg_plugins.methods]\n{lines}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(site))
    METHODS.refresh()
    yield
    monkeypatch.undo()
    METHODS.refresh()
    sys.modules.pop("first_weighting", None)


@pytest.mark.usefixtures("weighting")
def test_a_component_s_weighting_is_looked_up_after_the_operator_was_asked(tmp_path: Path) -> None:
    jobs = []
    for name, allowed in (("refused", "another-plugin"), ("allowed", "first-weighting")):
        component = FedAvgAggregator(weighting="first")  # as FLARE builds it, before the workflow runs
        jobs.append(job := MethodJob(tmp_path / name, aggregator=None))
        job.engine.components = {"aggregator": component}
        (job.folder / "local").mkdir()
        file = job.folder / "local" / "fdg_site.json"
        file.write_text(json.dumps({"server": {"allowed_plugins": [allowed]}}), encoding="utf-8")
        assert "first_weighting" not in sys.modules
        job.run()
    refused, used = jobs
    assert refused.panics == [
        "weighting 'first' comes from first-weighting, which the operator does not allow here (allowed_plugins)."
    ]
    assert used.panics == []
    aggregation = used.record.rounds[0].aggregation
    assert aggregation is not None
    assert max(aggregation.weights, key=aggregation.weights.__getitem__) == "angle_15"
    assert aggregation.weights["angle_15"] == pytest.approx(10 / 14), "ten times the odds of its share"


@pytest.mark.usefixtures("weighting")
def test_a_forbidden_weighting_is_not_loaded_either_where_a_job_names_it_in_an_object_that_is_text(
    tmp_path: Path,
) -> None:
    job = MethodJob(tmp_path / "job", stand_in_protocol={"weighting": '{"name": "first"}'})
    (job.folder / "local").mkdir()
    file = job.folder / "local" / "fdg_site.json"
    file.write_text(json.dumps({"server": {"allowed_plugins": []}}), encoding="utf-8")
    job.run()
    assert job.panics == [
        "weighting 'first' comes from first-weighting, which the operator does not allow here (allowed_plugins)."
    ]
    assert "first_weighting" not in sys.modules


# --- a file at hand ---


class FileJob(MethodJob):
    """A job whose apps hold a file of one's own at the server and at the sites, as FLARE unpacks it."""

    def __init__(self, folder: Path, file: Path, **arguments: Any) -> None:
        super().__init__(folder, **arguments)
        for place in (folder, *(folder / "sites" / site for site in self.sites)):
            (place / "custom").mkdir(parents=True)
            shutil.copy(file, place / "custom" / file.name)
        workspace = self.engine.get_workspace()
        workspace.get_app_custom_dir = lambda job: str(folder / "custom")
        self.engine.get_workspace = lambda: workspace  # type: ignore[method-assign]


def file_job(folder: Path) -> dict[str, Any]:
    recipe = FDGRecipe("clipped_fedavg", "rotateddigits", plugins=[CUSTOM / "clipped_fedavg.py"])
    recipe.export(str(folder))
    app = folder / recipe.name / "app_server"
    assert [path.name for path in (app / "custom").iterdir()] == ["clipped_fedavg.py"]
    said = json.loads((app / "config" / "config_fed_server.json").read_text(encoding="utf-8"))["workflows"][0]["args"]
    return {"aggregator": said["aggregator"], "settings": {"plugins": said["protocol"]["plugins"]}}


def test_a_file_at_hand_runs_by_the_name_of_its_method(tmp_path: Path) -> None:
    said = file_job(tmp_path / "job")
    job = FileJob(tmp_path / "run", CUSTOM / "clipped_fedavg.py", **said).finished()
    assert job.record.method.aggregator == "ClippedFedAvgAggregator"
    assert job.record.protocol.plugins == ("clipped_fedavg",)
    assert "clipped_fedavg" not in sys.modules
    digest = hashlib.sha256((CUSTOM / "clipped_fedavg.py").read_bytes()).hexdigest()
    for versions in (job.record.versions, *(reply.versions for reply in job.record.census.values())):
        assert versions["clipped_fedavg.py"] == digest[:16]


def test_a_run_goes_on_with_the_same_file_or_as_it_is_told_with_another(tmp_path: Path) -> None:
    said = file_job(tmp_path / "job")
    job = FileJob(tmp_path / "run", CUSTOM / "clipped_fedavg.py", **said)
    job.meddle = dying(TASK_EVALUATE, 2)  # in round 2
    with pytest.raises(ServerKilled):
        job.run()
    edited = tmp_path / "clipped_fedavg.py"
    edited.write_text(f"{(CUSTOM / 'clipped_fedavg.py').read_text(encoding='utf-8')}\n# edited\n", encoding="utf-8")
    states = [tmp_path / "run" / "fdg_state", *(tmp_path / "run" / "sites").glob("*/fdg_state")]
    same, told = CUSTOM / "clipped_fedavg.py", {"with_current_plugin": True}
    for folder, file, options in (("again", edited, {}), ("same", same, {}), ("told", edited, told)):
        other = FileJob(tmp_path / folder, file, resume="job", **said, **options)
        for state in states:
            shutil.copytree(state, tmp_path / folder / state.relative_to(tmp_path / "run"))
        other.run()
        if folder == "again":
            (panic,) = other.panics
            assert panic.startswith("run job cannot go on: its clipped_fedavg.py was ")
        else:
            assert (other.panics, other.record.resumed_after) == ([], [1])
            changed = {"clipped_fedavg.py": hashlib.sha256(edited.read_bytes()).hexdigest()[:16]}
            assert other.record.resumed_with[0].get("server") == (changed if options else None)


def test_a_site_with_another_file_than_the_server_ends_the_job_at_the_census(tmp_path: Path) -> None:
    job = FileJob(tmp_path / "run", CUSTOM / "clipped_fedavg.py", **file_job(tmp_path / "job"))
    with (tmp_path / "run" / "sites" / "angle_45" / "custom" / "clipped_fedavg.py").open("a") as file:
        file.write("# edited\n")
    job.run()
    (panic,) = job.panics
    assert panic.startswith("site angle_45 runs clipped_fedavg.py ")
    assert panic.endswith(": one job needs one version everywhere.")
    assert {task for task, _ in job.asked} == {TASK_CENSUS}


def test_a_site_with_a_list_refuses_files_unless_it_has_custom(tmp_path: Path) -> None:
    said = file_job(tmp_path / "job")
    job = FileJob(tmp_path / "run", CUSTOM / "clipped_fedavg.py", **said)
    path = tmp_path / "run" / "sites" / "angle_15" / "fdg_site.json"
    path.write_text(json.dumps({"angle_15": {"allowed_plugins": []}}), encoding="utf-8")
    job.run()
    (panic,) = job.panics
    assert panic.startswith("site angle_15 cannot take part: the job brings plug-in files")
    path.write_text(json.dumps({"angle_15": {"allowed_plugins": ["custom"]}}), encoding="utf-8")
    again = FileJob(tmp_path / "again", CUSTOM / "clipped_fedavg.py", **said)
    (tmp_path / "again" / "sites" / "angle_15" / "fdg_site.json").write_bytes(path.read_bytes())
    again.finished()


def test_a_job_without_the_file_that_it_names_ends_in_one_sentence(tmp_path: Path) -> None:
    job = FileJob(tmp_path / "run", CUSTOM / "clipped_fedavg.py", settings={"plugins": ["absent"]})
    job.run()
    (panic,) = job.panics
    assert panic.startswith("plug-in file absent.py is not in the job's folder custom/")

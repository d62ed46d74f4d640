# SPDX-License-Identifier: Apache-2.0
"""The example plug-in by name, in whole runs of one process: its method, its network and its data set."""

import hashlib
import json
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.messages import TASK_EVALUATE
from fdg_plugins.recipes import FDGRecipe, make_recipe
from tests.controllers.jobs import MethodJob, said_by
from tests.controllers.test_resume import ServerKilled, dying
from tests.recipes.exported_jobs import workflow

pytestmark = pytest.mark.usefixtures("wire")

COLOURS = ("blue", "green", "red")
CUSTOM = Path(__file__).parents[2] / "custom"
TINY = {"image_size": 16, "rounds": 2, "local_epochs": 1, "learning_rate": 0.05, "batch_size": 4}


class BlocksJob(MethodJob):
    """A job of the sites of the example plug-in's data set."""

    def __init__(self, folder: Path, **arguments: Any) -> None:
        super().__init__(folder, sites=COLOURS, **arguments)

    def allow(self, site: str, *plugins: str) -> None:
        """Let a site's operator, or the server's, allow these plug-ins alone."""
        folder = (self.folder if site == "server" else self.folder / "sites" / site) / "local"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "fdg_site.json").write_text(json.dumps({site: {"allowed_plugins": plugins}}), encoding="utf-8")


def arguments(method: str, folder: Path) -> dict[str, Any]:
    """Return what the exported job says, made smaller."""
    recipe = make_recipe(method, "blocks", model="patchnet", pretrained="none", **TINY)
    said = said_by(recipe, folder)
    return {**said, "settings": {**said["settings"], "max_samples_per_domain": None}}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("who", "stopped"),
    [
        ("server", "objective 'proto' comes from fdg-example-plugin, which the operator does not allow here"),
        ("red", "site red cannot take part: objective 'proto' comes from a plug-in that the operator does not allow"),
    ],
)
def test_a_plug_in_runs_by_name_unless_an_operator_refuses_it(
    who: str, stopped: str, blocks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FDG_DATA_ROOT", str(blocks))
    said = arguments("fedproto", tmp_path)
    job = BlocksJob(tmp_path / "run", **said)
    job.allow(who, "another-plugin")
    job.run()
    (panic,) = job.panics
    assert panic.startswith(stopped)
    allowed = BlocksJob(tmp_path / "allowed", **said)
    allowed.allow(who, "FDG_example-plugin")
    record = allowed.finished().record
    for versions in (record.versions, *(reply.versions for reply in record.census.values())):
        assert versions["fdg-example-plugin"] == version("fdg-example-plugin")
    assert record.classes == ("bar", "square")
    assert any("patches" in name for name in allowed.model)


class FileJob(MethodJob):
    """A job whose apps hold a file of one's own at the server and at the sites, as FLARE unpacks it."""

    def __init__(self, folder: Path, file: Path, **arguments: Any) -> None:
        super().__init__(folder, **arguments)
        for place in (folder, *(folder / "sites" / site / "job" / f"app_{site}" for site in self.sites)):
            (place / "custom").mkdir(parents=True)
            shutil.copy(file, place / "custom" / file.name)
        workspace = self.engine.get_workspace()
        workspace.get_app_custom_dir = lambda job: str(folder / "custom")
        self.engine.get_workspace = lambda: workspace  # type: ignore[method-assign]


def file_job(folder: Path) -> dict[str, Any]:
    recipe = FDGRecipe("clipped_fedavg", "rotateddigits", plugins=[CUSTOM / "clipped_fedavg.py"])
    recipe.export(str(folder))
    assert [path.name for path in (folder / recipe.name / "app_server" / "custom").iterdir()] == ["clipped_fedavg.py"]
    said = workflow(folder / recipe.name)
    return {"aggregator": said["aggregator"], "settings": {"plugins": said["protocol"]["plugins"]}}


def test_a_run_goes_on_with_the_same_file_or_as_it_is_told_with_another(tmp_path: Path) -> None:
    said = file_job(tmp_path / "job")
    job = FileJob(tmp_path / "run", CUSTOM / "clipped_fedavg.py", **said)
    job.meddle = dying(TASK_EVALUATE, 2)  # in round 2
    with pytest.raises(ServerKilled):
        job.run()
    assert "clipped_fedavg" not in sys.modules
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
            assert other.record.method.aggregator == "ClippedFedAvgAggregator"
            assert all("clipped_fedavg.py" in reply.versions for reply in other.record.census.values())
            changed = {"clipped_fedavg.py": hashlib.sha256(edited.read_bytes()).hexdigest()[:16]}
            assert other.record.resumed_with[0].get("server") == (changed if options else None)

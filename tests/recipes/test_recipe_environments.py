# SPDX-License-Identifier: Apache-2.0
"""SimEnv, PocEnv and ProdEnv: what each is handed, and one real run."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from nvflare.job_config.fed_job_config import FedJobConfig

from fdg_plugins.controllers import RunRecord
from fdg_plugins.recipes import FDGRecipe, PocEnv, ProdEnv, SimEnv, results_file
from tests.processes import printed_by
from tests.recipes.exported_jobs import files

NOTES = {f"pacs_fedomg/{app}/custom/README.md" for app in ("app_server", "app_site")}


class Submissions:
    """Stands in for FLARE's session: keeps what would be submitted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def submit_job(self, job: Any) -> str:
        job.export_job(str(self.folder))
        return "17"


def test_a_job_for_the_simulator_or_a_poc_has_the_note_that_lets_them_load_the_components(tmp_path: Path) -> None:
    recipe = FDGRecipe("fedomg")
    recipe.export(str(tmp_path / "plain"))
    recipe.export(str(tmp_path / "sim"), env=SimEnv(clients=recipe.sites))
    recipe.export(str(tmp_path / "poc"), env=PocEnv(num_clients=len(recipe.sites), clients=recipe.sites))
    assert files(tmp_path / "plain") == files(tmp_path / "sim") == files(tmp_path / "poc")
    assert set(files(tmp_path / "plain")) >= NOTES


def test_a_job_for_production_is_the_same_job_and_brings_no_custom_folder(tmp_path: Path) -> None:
    recipe, submissions = FDGRecipe("fedomg"), Submissions(tmp_path / "submitted")
    (tmp_path / "kit").mkdir()
    env = ProdEnv(str(tmp_path / "kit"))
    env._session_manager = submissions
    run = recipe.execute(env)
    recipe.export(str(tmp_path / "plain"))
    assert run.get_job_id() == "17"
    assert not list(submissions.folder.rglob("custom"))
    plain = files(tmp_path / "plain")
    assert files(submissions.folder) == {path: content for path, content in plain.items() if path not in NOTES}
    assert set(plain) >= NOTES, "one environment leaves no trace in the next export"


def test_simulator_has_the_names_of_the_sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []

    def start(self: Any, workspace: str, **options: Any) -> int:
        started.append(options)
        return 0

    monkeypatch.setattr(FedJobConfig, "simulator_run", start)
    for env in (SimEnv(num_clients=4), SimEnv(clients=["sketch", "photo", "cartoon"])):
        recipe = FDGRecipe("fedomg")
        env.workspace_root = str(tmp_path)
        assert recipe.execute(env).get_result() == str(tmp_path / "pacs_fedomg")
        assert started[-1]["clients"].split(",") == (env.clients or recipe.sites)
        assert started[-1]["threads"] == env.num_clients


@pytest.mark.slow
@pytest.mark.usefixtures("no_fdg_variables")
def test_a_recipe_runs_in_the_simulator_and_leaves_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDG_THREADS", "1")
    small: dict[str, Any] = {"rounds": 2, "local_epochs": 1, "image_size": 16, "max_samples_per_domain": 40}
    sites = ["angle_0", "angle_15", "angle_30"]
    recipe = FDGRecipe("fedomg", "rotateddigits", sites=sites, weighting="ga", kappa=0.25, **small)
    run = recipe.execute(SimEnv(clients=recipe.sites, workspace_root=str(tmp_path)))
    record = RunRecord.model_validate_json(results_file(run.get_result()).read_bytes())
    assert (record.status, record.data, len(record.rounds)) == ("finished", "RotatedDigits", 2)
    assert (record.sources, record.held_out) == (("angle_15", "angle_30"), ("angle_0",))
    assert record.method.settings["kappa"] == 0.25
    assert all(finished.failures == {} for finished in record.rounds)
    assert record.rounds[1].aggregation is not None
    assert record.rounds[1].aggregation.gaps is not None


# --- the command line, of which FLARE's recipe module takes two flags on import; only a recipe's script may let it ---

EXAMPLES = Path(__file__).parents[2] / "examples"
FLAGS = ["--export", "--export-dir", "elsewhere", "--mine"]
OUR_COMMANDS = """
import json, sys
import fdg_plugins.cli.main, fdg_plugins.plans
assert "nvflare.recipe" not in sys.modules
from fdg_plugins.cli.jobs import own_arguments
with own_arguments():
    from fdg_plugins.recipes import FDGRecipe
from nvflare.recipe.spec import _peek_recipe_args
print(json.dumps([sys.argv[1:], _peek_recipe_args()[0]]))
"""


@pytest.mark.slow
def test_the_command_line_stays_whole_and_nothing_will_be_exported(tmp_path: Path) -> None:
    printed = printed_by(sys.executable, "-c", OUR_COMMANDS, *FLAGS, folder=tmp_path)
    assert json.loads(printed.splitlines()[-1]) == [FLAGS, False]


@pytest.mark.slow
def test_a_script_that_executes_a_recipe_can_be_asked_to_export_it(tmp_path: Path) -> None:
    printed_by(sys.executable, EXAMPLES / "fedomg.py", "--export", "--export-dir", "out", folder=tmp_path)
    FDGRecipe("fedomg", "pacs", target="sketch", kappa=0.5).export(str(tmp_path / "expected"))
    assert files(tmp_path / "out") == files(tmp_path / "expected")

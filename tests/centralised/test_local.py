# SPDX-License-Identifier: Apache-2.0
"""Sites that train alone: what FedAvg is with one site, under every task; who chooses; and what the record tells."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from safetensors import safe_open

from fdg_plugins.controllers import RunRecord
from fdg_plugins.data import SharedDomains, own_data
from fdg_plugins.errors import SettingsError
from fdg_plugins.executors.work import SiteWork
from fdg_plugins.lab.centralised.plan import make_plan
from fdg_plugins.lab.centralised.run import run_centralised
from fdg_plugins.lab.engine.one_process import OneProcessJob
from fdg_plugins.lab.sweep.jobs import make_job
from fdg_plugins.lab.sweep.plan import Request
from fdg_plugins.lab.sweep.prepare import runs_of
from fdg_plugins.messages import ScoreSum
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.recipes import FDGRecipe
from fdg_plugins.record.run_files import LOCAL_FOLDER, RESULTS_FILE, SIMULATOR_FOLDER
from fdg_plugins.settings.site_config import FILE_NAME, SiteConfig
from fdg_plugins.storage import read_json, write_json
from tests.cli.commands import fdg
from tests.data.pair_drawings import draw_photo, eyes, known

pytestmark = pytest.mark.usefixtures("no_fdg_variables")

SHORT: dict[str, Any] = {"rounds": 2, "local_epochs": 1, "batch_size": 4, "learning_rate": 0.05, "pretrained": "none"}
DIGITS = {**SHORT, "image_size": 16, "max_samples_per_domain": 20}


def alone(folder: Path, dataset: DatasetRef, target: str, settings: dict[str, Any], **config: Any) -> RunRecord:
    plan = make_plan("local", dataset, target, 0, settings)
    return run_centralised(plan, SiteConfig(device="cpu", least_count=1, **config), None, folder)


def fedavg(folder: Path, dataset: DatasetRef, sites: list[str], settings: dict[str, Any], **config: Any) -> RunRecord:
    recipe = FDGRecipe("fedavg", dataset, sites=sites, target=sites[1], min_sites=1, **settings)
    recipe.export(str(folder))
    place = {name: str(value) for name, value in config.items()}
    write_json(folder / "workspace" / "local" / FILE_NAME, {site: {"device": "cpu", **place} for site in recipe.sites})
    assert OneProcessJob(folder / recipe.name, folder / "workspace", SiteWork(SharedDomains())).run()
    return RunRecord.model_validate(read_json(folder / "workspace" / SIMULATOR_FOLDER / RESULTS_FILE))


def is_fedavg_of_one_site(folder: Path, dataset: DatasetRef, settings: dict[str, Any], sites: list[str]) -> None:
    """Check that a site alone has the very scores of a federation whose only source it is; the second is held out."""
    one = alone(folder / "alone", dataset, sites[1], settings, data_root=folder)
    other = fedavg(folder / "federated", dataset, sites, settings, data_root=folder)
    mine = one.of_site(sites[0])
    assert [(choice.rule, choice.after_round) for choice in mine.choices] == [
        (choice.rule, choice.after_round) for choice in other.choices
    ]
    assert [one.model_dump() for one in mine.evaluations] == [one.model_dump() for one in other.evaluations]
    assert len(mine.evaluations) == 3


def test_one_site_is_fedavg_on_images_of_several_classes(tmp_path: Path) -> None:
    rows = ["image,edema,nodule", *(f"{number}.png,{number % 2},{int(number > 6)}" for number in range(12))]
    for domain in ("north", "south", "west"):
        (tmp_path / domain).mkdir()
        (tmp_path / domain / "labels.csv").write_text("\n".join(rows), encoding="utf-8")
        for number in range(12):
            Image.new("RGB", (16, 16), (20 * number, 0, 0)).save(tmp_path / domain / f"{number}.png")
    (tmp_path / "dataset.toml").write_text('task = "multilabel"\nclasses = ["edema", "nodule"]\n', encoding="utf-8")
    settings = {**SHORT, "image_size": 16, "model": "convnet", "scores": "auroc", "batch_norm": "reestimate"}
    is_fedavg_of_one_site(tmp_path, own_data(tmp_path).dataset, settings, ["north", "south"])


def test_one_site_is_fedavg_on_masks(tmp_path: Path) -> None:
    for number in range(6):
        for domain in ("left", "right"):
            draw_photo(tmp_path / "eyes" / domain, str(number), (32, 32), number)
    with known(eyes()):
        settings = {**SHORT, "image_size": 32, "model": "monai_unet"}
        is_fedavg_of_one_site(tmp_path, "eyes", settings, ["left", "right"])


def test_no_site_learns_from_another_and_each_chooses_by_its_own_images(tmp_path: Path) -> None:
    settings = {**DIGITS, "sites": 7, "sites_per_round": 6}
    record = alone(tmp_path, "rotateddigits", "angle_0", settings)
    first, *later = record.evaluations
    assert all(len({found[at].value("accuracy") for found in first.own.values()}) == 1 for at in first.sites)
    for evaluated in later:
        assert {site: own[site] for site, own in evaluated.own.items()}.items() < evaluated.sites.items()
        on_target = [own["angle_0"].value("accuracy") for own in evaluated.own.values()]
        assert evaluated.target == pytest.approx(sum(on_target) / 7)
    drawn = [record.protocol.draw_sites(record.sources, number) for number in (1, 2)]
    assert [finished.sites for finished in record.rounds] == drawn
    assert {path.stem for path in (tmp_path / LOCAL_FOLDER).iterdir()} == {*record.sources}
    for site, mine in zip(record.sources, record.alone, strict=True):
        with safe_open(tmp_path / LOCAL_FOLDER / f"{site}.safetensors", framework="pt") as file:
            assert int(file.metadata()["after_round"]) == mine.choices[1].after_round
    other = record.model_copy(deep=True)
    for own in (own for evaluated in other.evaluations for own in evaluated.own.values()):
        own["angle_0"] = own["angle_0"].model_copy(update={"sums": {"accuracy": ScoreSum(sum=0.0, count=20)}})
    for mine, theirs in zip(record.alone, other.alone, strict=True):
        assert mine.choices[:2] == theirs.choices[:2], "the held-out domain has no influence"
    ends = [
        alone(tmp_path / target, "rotateddigits", target, DIGITS).evaluations[-1] for target in ("angle_0", "angle_15")
    ]
    assert ends[0].own["angle_60"]["angle_60"] == ends[1].own["angle_60"]["angle_60"]


def test_the_command_ends_with_the_models_at_each_site_and_report_and_figure_take_the_record(tmp_path: Path) -> None:
    def call(*words: object) -> list[str]:
        result = fdg(*words)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout.splitlines()

    given = [word for name, value in {**DIGITS, "rounds": 1}.items() for word in ("--set", f"{name}={value}")]
    lines = call("run", "local", "--dataset", "rotateddigits", "--to", tmp_path / "run", *given)
    assert lines[1].startswith("round 1/1 | sites 5/5 ")
    assert [line.split()[0] for line in lines if "(round " in line] == [f"angle_{angle}" for angle in range(15, 76, 15)]
    assert any(line.startswith("Local ") for line in call("report", tmp_path))
    call("plot", "convergence", tmp_path, "--to", tmp_path / "figures")


@pytest.mark.parametrize("stand_in", [False, True])
def test_a_sweep_gives_sites_alone_the_protocol_of_fedavg_apart_from_the_servers_step(*, stand_in: bool) -> None:
    asked = {"dataset": "pacs", "protocol": "fedomg", "methods": ("local", "fedavg"), "targets": ("sketch",)}
    request = Request(**asked, seeds=(3,), settings={"rounds": (7,), "server_lr": (0.5,)})
    found = [make_job(run, stand_in=stand_in) for run in runs_of(request)[0]]
    assert found[0].protocol == found[1].protocol
    assert [job.sites for job in found] == [1, 4]
    with pytest.raises(SettingsError):
        make_plan("local", "pacs", "sketch", 0, {"server_lr": 0.5})

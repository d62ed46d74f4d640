# SPDX-License-Identifier: Apache-2.0
"""``fdg evaluate``: what it computes on this machine, the job that it writes, and what it refuses."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from fdg_plugins.cli.jobs import check_job
from fdg_plugins.lab.engine.evaluation import read_result
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.record.run_files import EVALUATION_FILE, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.storage import read_json, save_tensors, write_json
from tests.cli.commands import check_refusal, fdg
from tests.controllers.federation_stubs import run_record
from tests.data.pair_drawings import draw_photo
from tests.evaluation.finished import finished_run, probabilities
from tests.recipes.exported_jobs import workflow

DOMAINS = ("art_painting", "sketch")  # on which neither of the models was trained


@pytest.fixture(scope="module")
def evaluated(runs: list[Path], data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluation") / "out"
    done = fdg("evaluate", *runs, "--data", data_root, "--to", folder)
    assert done.exit_code == 0, done.output
    return folder


def numbers(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "evaluation.csv").set_index(["site", "model"])


def test_counts_of_both_models_and_of_their_pairs_are_those_of_the_images(
    evaluated: Path, networks: list[ExtractorClassifier], data_root: Path
) -> None:
    result = read_result(evaluated / EVALUATION_FILE)
    assert tuple(result.sites) == DOMAINS
    assert result.left_out == {}
    for domain, site in result.sites.items():
        right = []
        for network in networks:
            found, labels = probabilities(network, data_root, domain)
            right.append(found.argmax(dim=1) == labels)
        first, second = right
        assert [site.models[name].sums["accuracy"].sum for name in ("fedavg", "fedomg")] == [first.sum(), second.sum()]
        pair = [(one & other).sum() for one, other in ((first, second), (first, ~second), (~first, second))]
        assert site.models["fedomg"].pairs["0"] == (*pair, site.images - sum(pair))
    pooled = numbers(evaluated).loc["all sites", "fedavg"]
    told = [site.models["fedavg"].sums["accuracy"].sum for site in result.sites.values()]
    assert (pooled["images"], pooled["score"]) == (56, pytest.approx(sum(told) / 56))
    assert pooled["auroc_low"] <= pooled["auroc"] <= pooled["auroc_high"]
    assert "sensitivity_at_90" in pooled, "which the runs asked for"


def test_a_result_is_shown_again_without_a_site_that_failed(evaluated: Path, tmp_path: Path) -> None:
    content = read_json(evaluated / EVALUATION_FILE)
    content["sites"]["cartoon"] = content["sites"]["sketch"] | {"models": {}, "failures": {"fedomg": "no memory"}}
    place = tmp_path / "downloaded" / "workspace"
    write_json(place / EVALUATION_FILE, content)
    assert "minus fedavg" in fdg("evaluate", tmp_path / "downloaded").stdout
    assert numbers(place).equals(numbers(evaluated))


def test_the_page_of_an_evaluation_is_also_that_of_a_report(evaluated: Path, runs: list[Path], tmp_path: Path) -> None:
    page, brought = tmp_path / "page.html", tmp_path / "downloaded" / "job" / "app_server" / "models" / "fedavg"
    shutil.copytree(evaluated, tmp_path / "downloaded" / "workspace")
    shutil.copytree(runs[0], brought)
    done = fdg("report", tmp_path / "downloaded", "--html", page)
    assert (done.exit_code, done.stderr) == (0, "")
    assert page.read_text() == (evaluated / "evaluation.html").read_text()
    assert "<td>art_painting</td>" in page.read_text()
    assert "data:image/svg+xml;base64," in page.read_text()
    check_refusal(fdg("report", tmp_path / "downloaded", "--to", tmp_path / "t.md", "--html", page), "'.md'")


def test_an_earlier_result_does_not_take_the_place_of_an_evaluation(
    runs: list[Path], data_root: Path, tmp_path: Path, evaluated: Path
) -> None:
    shutil.copytree(runs[0], tmp_path / "run")
    shutil.copytree(evaluated, tmp_path / "run" / "earlier")
    done = fdg("evaluate", tmp_path / "run", "--data", data_root, "--to", tmp_path / "out")
    assert (done.exit_code, (tmp_path / "out" / EVALUATION_FILE).is_file()) == (0, True), done.output
    check_refusal(fdg("evaluate", tmp_path), "evaluations is 2, expected one")


def test_your_own_images_are_new_to_a_model_whatever_their_folder_is_called(
    runs: list[Path], data_root: Path, tmp_path: Path
) -> None:
    hospital = tmp_path / "hospital"
    shutil.copytree(data_root / "pacs" / "photo", hospital / "ward 3")
    shutil.rmtree(hospital / "ward 3" / "giraffe")
    done = fdg("evaluate", runs[0], "--data", hospital, "--to", tmp_path / "out")
    assert done.exit_code == 0, done.output
    result = read_result(tmp_path / "out" / EVALUATION_FILE)
    assert [(one.domain, one.images) for one in result.sites.values()] == [("ward 3", 24)]
    assert "fewer than 30 images" in done.stdout
    (hospital / "dataset.toml").write_text('domains = ["ward 3"]')
    assert fdg("evaluate", runs[0], "--data", hospital, "--to", tmp_path / "named").exit_code == 0
    (hospital / "ward 3" / "zebra").mkdir()
    shutil.copy(next((data_root / "pacs" / "photo" / "dog").iterdir()), hospital / "ward 3" / "zebra")
    check_refusal(fdg("evaluate", runs[0], "--data", hospital, "--to", tmp_path / "more"), "zebra")


def test_a_segmentation_has_dice_and_hausdorff_distances_with_intervals(tmp_path: Path) -> None:
    runs, ward = [tmp_path / "unet", tmp_path / "other"], tmp_path / "hospital" / "ward"
    record = run_record(dataset="vessels", target="hrf", task="segmentation", model="monai_unet", image_size=32)
    record = record.model_copy(update={"status": "finished", "classes": ("background", "cup", "disc")})
    for seed, run in enumerate(runs):
        write_json(run / RESULTS_FILE, record.model_dump(mode="json"))
        save_tensors(run / SELECTED_FILE, build_model("monai_unet", 3, seed=seed).state_dict())
    for number in range(4):
        draw_photo(ward, f"{number}", (32, 32), number)
    words = 'task = "segmentation"', 'classes = ["background", "cup", "disc"]', "mask_values = [[0], [100], [200]]"
    (ward.parent / "dataset.toml").write_text("\n".join(words))
    done = fdg("evaluate", *runs, "--data", ward.parent, "--to", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "Hausdorff distance at 95 %" in done.stdout
    assert "ward: fewer than 30 images" in done.stdout
    found = numbers(tmp_path / "out").loc["ward", "unet"]
    for name in ("score", "hausdorff_95"):
        assert found[f"{name}_low"] < found[name] < found[f"{name}_high"]
    other = numbers(tmp_path / "out").loc["ward", "other"]
    assert other["difference"] == pytest.approx(other["score"] - found["score"])
    assert other["difference_low"] - 0.0025 <= other["difference"] <= other["difference_high"] + 0.0025
    (site,) = read_result(tmp_path / "out" / EVALUATION_FILE).sites.values()
    assert found["score"] == pytest.approx(site.models["unet"].sums["dice"].sum / 4)
    assert not (tmp_path / "out" / "reliability.csv").exists()


def test_the_job_for_a_federation_brings_models_and_no_code(runs: list[Path], data_root: Path, tmp_path: Path) -> None:
    done = fdg("evaluate", *runs, "--sites", "hospital-a, hospital-b", "--to", tmp_path)
    assert done.exit_code == 0, done.output
    job = tmp_path / "evaluate"
    assert check_job(job)["deploy_map"]["app_site"] == ["hospital-a", "hospital-b"]
    assert not list(job.rglob("custom"))
    for run in ("fedavg", "fedomg"):
        brought = {path.name for path in (job / "app_server" / "models" / run).iterdir()}
        assert brought == {"global_model.safetensors", RESULTS_FILE}
    assert workflow(job) == {"models": ["fedavg", "fedomg"], "dataset": "pacs"}
    own = data_root / "pacs"
    assert fdg("evaluate", runs[0], "--data", own, "--sites", "photo,ward", "--to", tmp_path / "own").exit_code == 0
    assert workflow(tmp_path / "own" / "evaluate")["dataset"]["domains"] == [
        "art_painting",
        "cartoon",
        "photo",
        "sketch",
        "ward",
    ]


def test_a_sites_own_model_is_one_of_its_run(runs: list[Path], data_root: Path, tmp_path: Path) -> None:
    own = tmp_path / "local" / "local_models" / "photo.safetensors"
    shutil.copytree(runs[0], tmp_path / "local")
    own.parent.mkdir()
    shutil.move(tmp_path / "local" / SELECTED_FILE, own)
    done = fdg("evaluate", own, runs[1], "--data", data_root, "--to", tmp_path / "out")
    assert (done.exit_code, "minus local-photo" in done.stdout) == (0, True), done.output


def test_what_is_no_finished_model_is_refused(
    runs: list[Path], networks: list[ExtractorClassifier], data_root: Path, tmp_path: Path
) -> None:
    pickled = tmp_path / "model.pth"
    pickled.write_bytes(b"\x80\x04.")
    check_refusal(fdg("evaluate", pickled, "--data", data_root), "safetensors")
    check_refusal(fdg("evaluate", tmp_path, "--data", data_root), "safetensors")
    unfinished = finished_run(tmp_path / "unfinished", networks[0], status="stopped")
    check_refusal(fdg("evaluate", unfinished, "--data", data_root), "finished")
    other = finished_run(tmp_path / "other", networks[0], classes=("cat", "dog"))
    check_refusal(fdg("evaluate", runs[0], other, "--data", data_root), "classes")
    damaged = finished_run(tmp_path / "damaged", networks[0])
    (damaged / SELECTED_FILE).write_bytes(b"\x80\x04.")
    failed = fdg("evaluate", damaged, "--data", data_root, "--to", tmp_path / "out")
    assert (failed.exit_code, list((tmp_path / "out").iterdir())) == (2, [])


def test_domains_of_the_training_are_refused_and_no_report_reads_an_evaluation(
    runs: list[Path], data_root: Path, tmp_path: Path, evaluated: Path
) -> None:
    record = read_json(runs[0] / RESULTS_FILE)
    for site, domain in zip(("cartoon", "photo-1", "photo-2"), ("cartoon", "art_painting", "sketch"), strict=True):
        record["census"][site]["domain"] = domain
    record["census"]["sketch"]["domain"] = "photo"
    record["sources"] = [*record["sources"], "sketch"]
    shutil.copytree(runs[0], tmp_path / "all")
    write_json(tmp_path / "all" / RESULTS_FILE, record)
    check_refusal(fdg("evaluate", tmp_path / "all", "--data", data_root), "none of the models was trained")
    check_refusal(fdg("report", evaluated), "results.json")


def test_a_damaged_result_is_refused_and_left_out_of_a_page(evaluated: Path, tmp_path: Path) -> None:
    content = read_json(evaluated / EVALUATION_FILE)
    content["sites"]["sketch"]["models"]["fedavg"]["counts"]["confusion"] = [1]
    write_json(tmp_path / EVALUATION_FILE, content)
    check_refusal(fdg("evaluate", tmp_path), EVALUATION_FILE, "1 counts, expected 49")
    done = fdg("report", evaluated, tmp_path, "--html", tmp_path / "page.html")
    assert (done.exit_code, "is left out" in done.stderr) == (0, True), done.output


def test_without_scores_nothing_is_drawn(evaluated: Path, tmp_path: Path) -> None:
    content = read_json(evaluated / EVALUATION_FILE)
    for site in content["sites"].values():
        site.update(models={}, failures={"fedavg": "no memory", "fedomg": "no memory"})
    write_json(tmp_path / EVALUATION_FILE, content)
    shown = fdg("evaluate", tmp_path)
    assert (shown.exit_code, "not evaluated: sketch, fedomg: no memory" in shown.stdout) == (0, True), shown.output
    assert {path.name for path in tmp_path.iterdir()} == {EVALUATION_FILE, "evaluation.html"}

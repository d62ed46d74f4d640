# SPDX-License-Identifier: Apache-2.0
"""Features by t-SNE: which images, of which model, and the same places every time."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fdg_plugins.data import PACS, Sample, evaluation_batches, open_domain
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis import Run
from fdg_plugins.lab.analysis.figures import Request, Scatter, make_pictures
from fdg_plugins.lab.analysis.figures.features import extract, lay_out, perplexity_of
from fdg_plugins.lab.analysis.figures.material import balanced
from fdg_plugins.models import build_model
from fdg_plugins.storage import load_tensors, save_tensors
from tests.figures.figure_stubs import census_reply


def features_of(run: Run, data_root: Path | None, **request: Any) -> Scatter:
    (scatter,) = make_pictures("features", [run], Request(**{"data_root": data_root, **request}))
    assert isinstance(scatter, Scatter)
    return scatter


@pytest.fixture(scope="module")
def scatter(trained_run: Run, data_root: Path) -> Scatter:
    return features_of(trained_run, data_root, samples=14)


def test_images_of_all_domains_that_took_no_part_in_training_are_shown(scatter: Scatter, data_root: Path) -> None:
    for domain in PACS.domains:
        data = open_domain(data_root, "pacs", domain, seed=0)
        shown = {point.file for point in scatter.points if point.domain == domain}
        if domain == "photo":
            assert len(shown) == 14
            classes = Counter(point.class_name for point in scatter.points if point.domain == domain)
            assert set(classes.values()) == {2}
        else:
            assert shown == {sample.file for sample in data.validation}
    assert (tuple(scatter.domain_looks), tuple(scatter.class_looks)) == (PACS.domains, PACS.classes)
    assert scatter.held_out == "photo"
    assert "t-SNE, perplexity 11.3333" in scatter.caption  # 14 + 3 * 7 = 35 images


def test_the_same_run_gives_the_same_places(scatter: Scatter, trained_run: Run, data_root: Path) -> None:
    assert features_of(trained_run, data_root, samples=14) == scatter


def test_the_model_is_the_one_that_the_rule_chose(scatter: Scatter, trained_run: Run, data_root: Path) -> None:
    last = features_of(trained_run, data_root, samples=14, selection="last")
    assert last.title == "Features of the global model after round 1, FedAvg"
    assert [point.file for point in last.points] == [point.file for point in scatter.points]
    assert [point.x for point in last.points] != [point.x for point in scatter.points]


def test_features_are_the_extractors_in_evaluation_mode(trained_run: Run, data_root: Path) -> None:
    model = build_model("convnet", 7, seed=0)
    model.load_state_dict(load_tensors(trained_run.folder / "global_model.safetensors"))
    data = open_domain(data_root, "pacs", "photo", seed=0)
    batches = list(evaluation_batches(data, data.test[:5], image_size=16, batch_size=2))
    found = extract(model, batches)
    with torch.inference_mode():
        expected = model.eval().features(torch.cat([images for images, _ in batches]))
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_clusters_far_apart_stay_apart_and_threads_change_nothing() -> None:
    generator = np.random.default_rng(0)
    vectors = np.concatenate([generator.normal(shift, 0.1, size=(15, 6)) for shift in (0.0, 50.0)]).astype(np.float32)
    places = lay_out(vectors, seed=0)
    np.testing.assert_array_equal(places, lay_out(vectors, seed=0))
    within = max(float(np.ptp(places[part], axis=0).max()) for part in (slice(15), slice(15, None)))
    assert np.linalg.norm(places[:15].mean(axis=0) - places[15:].mean(axis=0)) > within


def test_few_images_lower_the_perplexity_and_too_few_are_refused() -> None:
    assert [perplexity_of(count) for count in (4, 31, 91, 1000)] == [1.0, 10.0, 30.0, 30.0]
    with pytest.raises(DataError, match="there are 3 images that took no part in training; expected at least 4"):
        lay_out(np.zeros((3, 2), dtype=np.float32), seed=0)


@pytest.mark.parametrize("count", range(8))
def test_a_balanced_choice_takes_a_class_twice_only_when_every_class_was_taken(count: int) -> None:
    samples = [Sample(f"{label}/{number}", label) for label, size in ((0, 5), (1, 1), (2, 2)) for number in range(size)]
    chosen = balanced(samples, count)
    counts = Counter(sample.label for sample in chosen)
    assert len(chosen) == len(set(chosen)) == min(count, 8)
    sizes = {0: 5, 1: 1, 2: 2}
    for label, size in sizes.items():
        assert all(counts[other] <= counts[label] + 1 for other in sizes) or counts[label] == size


def test_a_rule_without_a_kept_model_and_a_missing_file_are_refused(own_run: Run, data_root: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"kept no model of the rule oracle .* expected one of last, source_validation"
    ):
        features_of(own_run, data_root, selection="oracle")
    (own_run.folder / "global_model_selected.safetensors").unlink()
    with pytest.raises(DataError, match=r"kept no global_model_selected\.safetensors"):
        features_of(own_run, data_root)


@pytest.mark.parametrize("kind", ["features", "surface", "overlays"])
def test_models_are_those_of_the_last_round_and_of_no_earlier_one(own_run: Run, data_root: Path, kind: str) -> None:
    with pytest.raises(SettingsError, match=r"has none of an earlier round; expected no --rounds\.$"):
        make_pictures(kind, [replace(own_run, planned=9)], Request(data_root=data_root))


def test_a_record_that_names_a_model_elsewhere_is_refused(own_run: Run, data_root: Path) -> None:
    elsewhere = own_run.folder.parent / "elsewhere.safetensors"
    (own_run.folder / "global_model.safetensors").rename(elsewhere)
    for name in (f"../{elsewhere.name}", str(elsewhere), "results.json"):
        choices = [choice.model_copy(update={"file": name}) for choice in own_run.record.choices]
        led_away = Run(own_run.folder, own_run.record.model_copy(update={"choices": choices}))
        with pytest.raises(DataError, match=r"names the model .*, expected global_model\.safetensors or"):
            features_of(led_away, data_root, selection="last")


def test_a_model_that_is_not_finite_is_named(own_run: Run, data_root: Path) -> None:
    file = own_run.folder / "global_model.safetensors"
    save_tensors(
        file,
        {name: value * torch.nan if value.is_floating_point() else value for name, value in load_tensors(file).items()},
    )
    with pytest.raises(DataError, match="features of its model after round 1 are not finite"):
        features_of(own_run, data_root, selection="last")


def test_a_part_of_a_domain_is_recognised_as_a_part_of_it(trained_run: Run, data_root: Path) -> None:
    census = dict(trained_run.record.census)
    split, whole = census["cartoon"].split, census["cartoon"].split_hash
    census["cartoon"] = census_reply("cartoon", 0, split=f"{split}/part1of2", split_hash="of the part")
    parted = replace(trained_run, record=trained_run.record.model_copy(update={"census": census}))
    assert features_of(parted, data_root, samples=2).points
    census["cartoon"] = census_reply(
        "cartoon", 0, split=f"{split}/equal@{trained_run.seed}-{whole}/part1of2", split_hash="of the part"
    )
    assert features_of(parted, data_root, samples=2).points
    for other in ("pacs/kfold/part1of2", f"{split}/equal@{trained_run.seed}-{whole[::-1]}/part1of2"):
        census["cartoon"] = census_reply("cartoon", 0, split=other, split_hash="of the part")
        with pytest.raises(DataError, match=rf"domain cartoon .* but run .* had {other}"):
            features_of(parted, data_root, samples=2)


def test_features_of_pixels_are_refused(trained_run: Run, data_root: Path) -> None:
    protocol = trained_run.record.protocol.model_copy(update={"task": "segmentation"})
    run = replace(trained_run, record=trained_run.record.model_copy(update={"protocol": protocol}))
    with pytest.raises(SettingsError, match="learned the task 'segmentation', whose features are of pixels"):
        features_of(run, data_root)

# SPDX-License-Identifier: Apache-2.0
"""Worst-group accuracy from a recipe to the record of a run, in one process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fdg_plugins.controllers import RunRecord
from fdg_plugins.data import Partition, evaluation_batches, open_domain, stand_in
from fdg_plugins.objectives import build_network
from fdg_plugins.recipes import make_recipe
from fdg_plugins.record.run_files import LAST_FILE, SIMULATOR_FOLDER
from fdg_plugins.storage import load_tensors
from tests.controllers.test_one_process import made, record_in

SITES, ALPHA, LEAST, SEED = 3, 0.5, 8, 1
WORST = "worst_group_accuracy"
METHOD = "fedomg+ga+dim"  # a report of features, and a gap on the training split


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a finished run on three skewed sites, on few drawings in a data root beside the run."""
    place = tmp_path_factory.mktemp("faces")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stand_in, "PORTRAITS", {"0": (24, 20, 12, 0), "1": (1, 1, 1, 1), "2": (6, 6, 6, 3)})
        patch.setenv("FDG_DATA_ROOT", str(stand_in.write_stand_in(place / "root", "celeba")))
        sizes = {"rounds": 1, "local_epochs": 1, "batch_size": 8, "image_size": 20, "seed": SEED}
        skew = {"sites_per_domain": SITES, "dirichlet_alpha": ALPHA, "least_images": LEAST, "gap_split": "train"}
        make_recipe(METHOD, "celeba", name="job", **sizes, **skew).export(str(place))
        assert made(place / "job").run()
        yield place


@pytest.fixture(scope="module")
def record(folder: Path) -> RunRecord:
    return record_in(folder)


def by_hand(folder: Path, record: RunRecord, domain: str) -> dict[tuple[int, int], list[bool]]:
    """Return whether the last model is right on each image of the groups of a domain, as all its sites judged it."""
    network = build_network(record.protocol, len(record.classes)).eval()
    network.load_state_dict(load_tensors(folder / "workspace" / SIMULATOR_FOLDER / LAST_FILE))
    skew = Partition("dirichlet", ALPHA, LEAST)
    parts = [None] if domain == "test" else [(number, SITES) for number in range(1, SITES + 1)]
    found: dict[tuple[int, int], list[bool]] = {}
    for part in parts:
        data = open_domain(folder / "root", "celeba", domain, seed=SEED, part=part, partition=skew)
        samples = data.test if part is None else data.validation
        for images, targets in evaluation_batches(data, samples, image_size=20, batch_size=1):
            with torch.no_grad():
                right = int(network(images).argmax()) == int(targets[0, 0])
            found.setdefault((int(targets[0, 0]), int(targets[0, 1])), []).append(right)
    return found


@pytest.mark.parametrize(("domain", "groups"), [("test", 4), ("train", 3)])
def test_the_record_has_the_worst_group_of_all_images_of_a_domain(
    folder: Path, record: RunRecord, domain: str, groups: int
) -> None:
    last, found = record.evaluations[-1], by_hand(folder, record, domain)
    assert record.status == "finished"
    assert len(found) == groups
    assert last.derived[WORST][domain] == min(sum(right) / len(right) for right in found.values())
    everything = [right for group in found.values() for right in group]
    assert last.domains[domain] == sum(everything) / len(everything)
    for (label, attribute), right in found.items():
        total, count = record.sums_by_domain(last.sites)[domain][f"accuracy_{label}_{attribute}"]
        assert (total, count) == (sum(right), len(right))

# SPDX-License-Identifier: Apache-2.0
"""Images with any number of classes: what a list says, what is refused, and what a network is trained on."""

import os
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.nn.functional import binary_cross_entropy_with_logits

from fdg_plugins.data import dataset_spec, open_domain, own_data
from fdg_plugins.data.images import evaluation_batches
from fdg_plugins.data.own_files import OwnData
from fdg_plugins.errors import DataError
from fdg_plugins.settings.defaults import dataset_protocol
from fdg_plugins.tasks import MULTILABEL
from tests.data.conftest import move_out, refused
from tests.random_tensors import normal

CLASSES = ("edema", "fracture", "nodule")
DOMAINS = ("north", "south", "west")
ROWS = [f"scans/{number}.png,{number},{number % 2},{int(number > 10)},{int(number % 5 == 0)}.0" for number in range(20)]
HEAD = "image,age,edema,fracture,nodule"


@pytest.fixture
def scans(tmp_path: Path) -> OwnData:
    """Three domains with a list of twenty images each, which the test may damage."""
    root = tmp_path / "scans"
    for domain in DOMAINS:
        (root / domain / "scans").mkdir(parents=True)
        for number in range(20):
            Image.new("RGB", (8, 8), (12 * number, 0, 0)).save(root / domain / "scans" / f"{number}.png")
        write(root, domain, ROWS)
    text = 'task = "multilabel"\nclasses = ["edema", "fracture", "nodule"]\nexclude = ["*/scans/7.png"]\n'
    (root / "dataset.toml").write_text(text, encoding="utf-8")
    return own_data(root)


def write(root: Path, domain: str, rows: list[str], head: str = HEAD) -> None:
    (root / domain / "labels.csv").write_text("\n".join([head, *rows, ""]), encoding="utf-8")


def test_a_list_gives_each_image_its_classes(scans: OwnData) -> None:
    assert (scans.dataset.domains, scans.dataset.classes, scans.dataset.task) == (DOMAINS, CLASSES, "multilabel")
    assert dataset_protocol(scans.dataset).protocol["task"] == "multilabel"
    assert dataset_spec(scans.dataset).task == "multilabel"
    data = open_domain(scans.root, scans.dataset, "south", seed=0)
    assert (len(data.test), data.skipped) == (19, ("south/scans/7.png",))
    assert {*data.train} | {*data.validation} == {*data.test}
    assert not {*data.train} & {*data.validation}
    assert MULTILABEL.class_counts(data.test, 3) == (9, 9, 4)
    images, targets = next(iter(evaluation_batches(data, data.test, image_size=16, batch_size=32)))
    assert (images.shape[0], targets.shape, targets.dtype) == (19, (19, 3), torch.float32)
    assert targets.sum(dim=0).tolist() == [9.0, 9.0, 4.0]


@pytest.mark.parametrize(
    "row",
    [
        *(ROWS[0], "scans/99.png,1,0,0,0", "scans/20.png,1,0,0", "scans/1.png,1,0,2,0", "../north/scans/1.png,1,0,0,0"),
        *('"', "x" * 200_000),
    ],
)
def test_a_list_with_a_line_of_another_form_is_refused(scans: OwnData, row: str) -> None:
    write(scans.root, "west", [*ROWS, row])
    with refused("line 22"):
        open_domain(scans.root, scans.dataset, "west", seed=0)


def test_a_list_without_a_class_is_refused_and_so_are_classes_that_nobody_names(scans: OwnData) -> None:
    write(scans.root, "west", ROWS, head="image,age,edema,fracture,mass")
    with refused("line 1"):
        open_domain(scans.root, scans.dataset, "west", seed=0)
    (scans.root / "dataset.toml").write_text('task = "multilabel"\n', encoding="utf-8")
    with pytest.raises(DataError):
        own_data(scans.root)


def test_a_list_that_is_a_pipe_is_not_waited_for(scans: OwnData) -> None:
    (scans.root / "south" / "labels.csv").unlink()
    os.mkfifo(scans.root / "south" / "labels.csv")
    with pytest.raises(DataError):
        open_domain(scans.root, scans.dataset, "south", seed=0)


def test_a_link_out_of_the_data_root_is_refused(scans: OwnData) -> None:
    move_out(scans.root / "west" / "scans" / "3.png", scans.root)
    with refused("link"):
        open_domain(scans.root, scans.dataset, "west", seed=0)


def test_the_loss_is_the_binary_cross_entropy_and_sums_add_up() -> None:
    logits, targets = normal(3, 8, 3), (normal(4, 8, 3) > 0).float()
    assert torch.equal(MULTILABEL.loss(logits, targets), binary_cross_entropy_with_logits(logits, targets))
    each = [MULTILABEL.summed_loss(logits[i : i + 1], targets[i : i + 1]) for i in range(8)]
    assert torch.allclose(8 * MULTILABEL.loss(logits, targets), torch.stack(each).sum())
    score = MULTILABEL.sums(logits, targets)["label_accuracy"]
    assert float(score.total) == pytest.approx(float(((logits > 0) == targets.bool()).double().mean() * 8))

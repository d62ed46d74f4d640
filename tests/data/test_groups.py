# SPDX-License-Identifier: Apache-2.0
"""Groups of images, such as those of one patient: declared by a pattern or a column, and in one part of a division."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.data import PACS, DomainData, open_domain, own_data
from fdg_plugins.data.catalogue import VESSELS
from fdg_plugins.data.specs import DatasetSpec, Listing, Sample
from fdg_plugins.data.splits import Partition, Split, seeded_split, split_of
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.preparation.facts import likely_groups
from tests.cli.commands import fdg
from tests.data.conftest import refused
from tests.own_drawings import draw_own

PATTERN = 'group = "patient"\ngroup_pattern = "^(p[0-9]+)_"\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three domains, two classes, and in each class five images of each of eight patients; four are in both."""
    for domain in ("a", "b", "c"):
        for label, name in enumerate(("x", "y")):
            folder = tmp_path / "scans" / domain / name
            folder.mkdir(parents=True)
            for patient in range(8):
                for number in range(5):
                    (folder / f"p{patient + 4 * label}_{number}.png").touch()
    return tmp_path / "scans"


def opened(root: Path, text: str) -> DomainData:
    (root / "dataset.toml").write_text(text)
    return open_domain(root, own_data(root).dataset, "a", seed=0)


def patients(samples: tuple[Sample, ...]) -> set[str]:
    return {sample.file.rpartition("/")[2].partition("_")[0] for sample in samples}


@settings(derandomize=True, deadline=None)
@given(sizes=st.lists(st.integers(1, 12), min_size=2, max_size=40), seed=st.integers(0, 2**31), masks=st.booleans())
def test_no_group_is_in_two_parts_and_validation_misses_a_tenth_by_less_than_a_group(
    sizes: list[int], seed: int, masks: bool
) -> None:
    samples: list[Sample] = []
    for group, size in enumerate(sizes):
        files = [f"drive/{group}_{number}.png" for number in range(size)]
        label, suffix = (0, ".mask") if masks else (group % 7, "")
        samples += [Sample(file, label, group=f"{group}", mask=suffix and file + suffix) for file in files]
    spec: DatasetSpec = VESSELS if masks else PACS
    split = seeded_split(samples, spec, "drive", seed=seed, group="patient")
    assert sorted((*split.train, *split.validation), key=lambda one: one.file) == [*split.test]
    assert not {one.group for one in split.train} & {one.group for one in split.validation}
    asked = {label: max(1, (count + 5) // 10) for label, count in Counter(one.label for one in samples).items()}
    held = Counter(one.label for one in split.validation)
    for label, wanted in asked.items():
        assert held[label] <= wanted + max(sizes)
        if len({one.group for one in samples if one.label == label}) > 1:
            assert abs(held[label] - wanted) <= max(sizes)
    again = seeded_split(samples[::-1], spec, "drive", seed=seed, group="patient")
    assert (again, again.digest) == (split, split.digest)


def test_a_class_keeps_images_to_train_on_and_a_single_group_trains() -> None:
    mixed = [Sample(f"{group}/{n}.png", n % 2, group=group) for group in ("p", "q") for n in range(6)]
    split = seeded_split([*mixed, Sample("r/0.png", 2, group="r")], PACS, "photo", seed=0, group="patient")
    assert {one.group for one in split.train} in ({"p", "r"}, {"q", "r"})
    alone = seeded_split(mixed[:6], PACS, "photo", seed=0, group="patient")
    assert (len(alone.train), alone.validation) == (6, ())


def test_a_pattern_over_the_names_keeps_patients_together_at_the_site(root: Path) -> None:
    plain, data = opened(root, ""), opened(root, PATTERN)
    assert patients(plain.train) & patients(plain.validation)
    assert not patients(data.train) & patients(data.validation)
    assert (len(data.test), data.name) == (80, "scans/90-10-by-patient@0")
    assert {patient: one.group for one in data.test for patient in patients((one,))} == {
        f"p{n}": f"p{n}" for n in range(12)
    }
    shares = [open_domain(root, own_data(root).dataset, "a", seed=0, part=(number, 2)) for number in (1, 2)]
    assert not any(patients(one.train) & patients(other.validation) for one in shares for other in shares)
    with pytest.raises(SettingsError) as caught:
        open_domain(root, own_data(root).dataset, "a", seed=0, part=(1, 2), partition=Partition("iid"))
    assert caught.value.field == "partition"
    (root / "a" / "x" / "other.png").touch()
    with refused("group", "1 of 81 images"):
        opened(root, PATTERN)


def test_a_column_of_the_lists_says_the_group_and_lists_that_tear_one_are_refused(root: Path) -> None:
    rows = {name: [f"{name}/p{n + 4 * label}_{i}.png,left,p{n + 4 * label}" for n in range(8) for i in range(5)]
            for label, name in enumerate(("x", "y"))}  # fmt: skip
    (root / "a.csv").write_text("\n".join(["image,side,patient", *rows["x"], *rows["y"]]))
    one_list = '[lists]\ntrain = "{domain}.csv"\n'
    data = opened(root, f'group = "patient"\n{one_list}')
    assert not patients(data.train) & patients(data.validation)
    assert (len((*data.train, *data.validation)), data.name) == (80, "scans/lists-by-patient+90-10@0")
    with refused("group", "80 of 80 images have no patient"):
        opened(root, 'group = "patient"')
    with refused("line 1"):
        opened(root, f'group = "case"\n{one_list}')
    (root / "a_val.csv").write_text("\n".join(["image,side,patient", *rows["y"]]))
    (root / "a.csv").write_text("\n".join(["image,side,patient", *rows["x"]]))
    with refused("parts", "such as 'p4' in training and validation"):
        opened(root, f'group = "patient"\n{one_list}validation = "{{domain}}_val.csv"\n')
    (root / "a.csv").write_text("image,side,patient\nx/p0_0.png,left\n")
    with refused("line 2"):
        opened(root, f'group = "patient"\n{one_list}')


def test_images_with_masks_have_their_group_in_the_name_or_in_the_data_list(root: Path) -> None:
    for domain in ("a", "b", "c"):
        (root / domain / "x").rename(root / domain / "images")
        shutil.rmtree(root / domain / "y")
        shutil.copytree(root / domain / "images", root / domain / "masks")
    masks = 'task = "segmentation"\nclasses = ["ground", "cell"]\n'
    data = opened(root, masks + PATTERN)
    assert not patients(data.train) & patients(data.validation)
    assert len((*data.train, *data.validation)) == 40
    entries = [{"image": f"images/{path.name}", "label": f"masks/{path.name}", "patient": path.name[:2]}
               for path in sorted((root / "a" / "images").iterdir())]  # fmt: skip
    lists = root / "a" / "dataset.json"
    lists.write_text(json.dumps({"training": entries}))
    listed = opened(root, f'{masks}group = "patient"\n')
    assert (listed.train, listed.validation, listed.digest) == (data.train, data.validation, data.digest)
    lists.write_text(json.dumps({"training": entries[:38], "test": entries[38:]}))
    with refused("parts", "such as 'p7' in test and training"):
        opened(root, f'{masks}group = "patient"\n')
    del entries[3]["patient"]
    lists.write_text(json.dumps({"training": entries}))
    with refused("image", "a/images/p0_3.png"):
        opened(root, f'{masks}group = "patient"\n')


def test_check_warns_of_names_that_look_like_groups_and_counts_those_that_are_declared(tmp_path: Path) -> None:
    folder = draw_own(tmp_path / "scans", 8)
    for number, path in enumerate(sorted(folder.rglob("*.*"))):
        path.rename(path.with_name(f"p{number // 3}_{number}{path.suffix}"))
    warned = fdg("data", "check", folder)
    assert "beginnings of file names have several images, such as 'p0' with 3" in warned.stderr
    (folder / "dataset.toml").write_text(PATTERN)
    told = fdg("data", "check", folder)
    assert told.stderr == ""
    assert re.search(r"^photo +24 .* 8 ", told.stdout, re.MULTILINE)
    (folder / "photo" / "Hund" / "p0_99.png").write_bytes(next(folder.rglob("p8_24.*")).read_bytes())
    assert "images of patient p0, among 1, are in several domains" in fdg("data", "check", folder).stderr


def test_the_hash_of_a_division_covers_the_groups_and_is_as_before_without() -> None:
    samples = [Sample(f"photo/dog/{number}.png", 0) for number in range(3)]
    plain = split_of(Listing(tuple(samples)), PACS, "photo", seed=0)
    grouped = [Split((Sample("a", 0, group=group),), (), (), "").digest for group in ("", "p", "q")]
    assert len(set(grouped)) == 3
    assert plain.digest == "1be97e1d091e3447"


def test_numbers_of_images_do_not_look_like_groups() -> None:
    def found(pattern: str) -> str | None:
        return likely_groups([Sample(f"a/x/{pattern.format(n // 4, n)}", 0) for n in range(40)], 2)

    assert all(map(found, ("patient_{:02}_slice_{:03}.png", "P{}-{}.png", "{}_left_{}.jpg")))
    assert not any(map(found, ("{1}.png", "frame_{1:04}.png", "056_{1:04}.jpg", "IMG_{1}_{1}.jpg")))

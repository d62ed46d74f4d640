# SPDX-License-Identifier: Apache-2.0
"""Contact sheets and facts of masks: what is coloured, and what is counted."""

from pathlib import Path

import nibabel
import numpy as np
import pytest

from fdg_plugins.data.catalogue import VESSELS
from fdg_plugins.data.facts import mask_facts
from fdg_plugins.data.pairs import list_pairs
from tests.data.pair_drawings import draw_volume
from tests.data.published import write_files
from tests.data.published_vessels import annotation, photograph


def test_facts_count_sizes_and_fractions_and_keep_the_damaged_apart(tmp_path: Path) -> None:
    files = {
        "a": (photograph(1, "PNG"), annotation(1, "PNG")),
        "b": (photograph(2, "PNG", (10, 10)), annotation(2, "PNG", size=(10, 10))),
        "c": (photograph(3, "PNG")[:60], annotation(3, "PNG")),
        "d": (photograph(3, "PNG"), annotation(3, "PNG", size=(10, 10))),
        "e": (photograph(3, "PNG"), photograph(4, "PNG")),
    }
    for stem, (image, mask) in files.items():
        write_files(tmp_path, {f"vessels/hrf/images/{stem}.png": image, f"vessels/hrf/masks/{stem}.png": mask})
    facts = mask_facts(tmp_path, VESSELS, list_pairs(tmp_path, VESSELS, "hrf")[0].all)
    assert facts.pairs == 5
    assert facts.sizes == ((20, 24), (10, 10))
    np.testing.assert_allclose(facts.shares, [[0.95, 0.05], [0.9, 0.1]])
    assert {pair.file: str(error).split(" ")[0] for pair, error in facts.damaged.items()} == {
        "hrf/images/c.png": "image",
        "hrf/images/d.png": "mask",
        "hrf/images/e.png": "mask",
    }


@pytest.mark.parametrize(
    ("change", "elsewhere"),
    [
        ((), False),
        (((0, 3, 0.04),), False),  # mm: less than a tenth of a voxel
        (((0, 3, 5.0),), True),
        (((1, 1, 0.7),), True),
        (((1, 1, 0.601), (2, 0, 0.001)), False),  # a rounded rotation, which moves the corners by less than that
    ],
)
def test_masks_that_lie_elsewhere_than_their_images_are_told(
    tmp_path: Path, change: tuple[tuple[int, int, float], ...], elsewhere: bool
) -> None:
    image, mask = (tmp_path / "vessels" / "hrf" / part / "a.nii.gz" for part in ("images", "masks"))
    draw_volume(image, mask, (20, 24, 1))
    affine = np.diag([0.5, 0.6, 3.0, 1.0])
    for row, column, value in change:
        affine[row, column] = value
    nibabel.save(nibabel.Nifti1Image(np.zeros((20, 24, 1), dtype=np.uint8), affine), mask)
    facts = mask_facts(tmp_path, VESSELS, list_pairs(tmp_path, VESSELS, "hrf")[0].all)
    assert not facts.damaged
    assert [pair.mask for pair in facts.elsewhere] == ["hrf/masks/a.nii.gz"] * elsewhere

# SPDX-License-Identifier: Apache-2.0
"""The drawn faces: CelebA's files, equal for everyone, and a class that the tone of the hair tells."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fdg_plugins.data import CELEBA, find_data_root, open_domain
from fdg_plugins.data import stand_in_faces as faces
from fdg_plugins.data.attribute_lists import list_attributed
from fdg_plugins.data.stand_in_faces import FACES, Face, draw_face, ensure_faces

FEW = {"0": (6, 5, 4, 2), "1": (1, 1, 1, 1), "2": (3, 3, 2, 2)}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with few drawings."""
    monkeypatch.setattr(faces, "FACES", FEW)
    return ensure_faces(tmp_path)


def test_a_site_without_data_root_gets_the_drawings_with_the_groups_as_planned(root: Path, tmp_path: Path) -> None:
    found = find_data_root("celeba", None, tmp_path)
    assert (found.path, found.stand_in) == (root, True)
    assert find_data_root("celeba", root, None).stand_in
    for domain, part in CELEBA.parts.items():
        _, samples = list_attributed(root, CELEBA, domain)
        counts = Counter((sample.label, sample.attribute) for sample in samples)
        assert [counts[group] for group in ((1, 0), (1, 1), (0, 0), (0, 1))] == list(FEW[part])
        assert len(open_domain(root, "celeba", domain, seed=0).test) == sum(FEW[part])


def test_the_drawings_are_the_same_for_everyone_and_no_two_are_equal() -> None:
    face = Face(fair=True, beard=False, smiling=True)
    assert draw_face(face, "0", 3).tobytes() == draw_face(face, "0", 3).tobytes()
    pictures = {draw_face(face, part, index).tobytes() for part in FACES for index in range(3)}
    assert len(pictures) == 9


def test_class_and_attribute_go_together_in_training_and_the_hair_alone_tells_the_class() -> None:
    dark, bearded, fair, both = FACES["0"]
    assert both / (both + fair) < 0.25 < bearded / (bearded + dark)
    tones = {fair: [hair(Face(fair, beard, False), index) for beard in (False, True) for index in range(20)]
             for fair in (False, True)}  # fmt: skip
    assert np.mean(tones[True]) - np.mean(tones[False]) > 60
    assert np.percentile(tones[True], 10) > np.percentile(tones[False], 90)


def hair(face: Face, index: int) -> float:
    """Return the brightness where the hair is on every face: above its middle, below the upper end."""
    pixels = np.asarray(draw_face(face, "0", index), dtype=np.float64)
    return float(pixels[10:13, 20:28].mean())

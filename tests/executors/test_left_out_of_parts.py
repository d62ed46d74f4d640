# SPDX-License-Identifier: Apache-2.0
"""A damaged image is left out of a domain before its sites divide it, so the parts of all fit together."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fdg_plugins.data import SharedDomains
from fdg_plugins.plugins.own_dataset import OwnDataset
from fdg_plugins.settings.protocol import make_protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training.session import SiteSession

SITES = ("a-1of3", "a-2of3", "a-3of3")
PER_CLASS, DAMAGED = 40, "a/x/07.png"
OWN = OwnDataset(name="own", domains=("a", "b"), classes=("x", "y"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two domains of images of one's own, one of which is damaged."""
    generator = np.random.default_rng(0)
    for folder in (tmp_path / domain / name for domain in OWN.domains for name in OWN.classes):
        folder.mkdir(parents=True)
        for number in range(PER_CLASS):
            pixels = generator.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number:02d}.png")
    (tmp_path / DAMAGED).write_bytes(b"no image")
    return tmp_path


@pytest.mark.parametrize("partition", ["equal", "dirichlet"])
@pytest.mark.parametrize("in_one_process", [False, True])
def test_every_other_image_is_at_one_site_and_in_one_split(root: Path, partition: str, in_one_process: bool) -> None:
    asked = {"dataset": OWN, "target": "b", "partition": partition, "dirichlet_alpha": 1.0, "image_size": 32}
    protocol = make_protocol([asked])
    config = SiteConfig(data_root=root, device="cpu", damaged_images="leave_out")
    shared = SharedDomains() if in_one_process else None
    sessions = [SiteSession(site, config, protocol, None, frozenset(), shared) for site in SITES]
    replies = [session.census() for session in sessions]
    at = [sample.file for one in sessions for sample in (*one.data.train, *one.data.validation)]
    everything = {f"a/{name}/{number:02d}.png" for name in OWN.classes for number in range(PER_CLASS)}
    assert len(at) == len(set(at))
    assert set(at) == everything - {DAMAGED}
    assert len({reply.split.rsplit("/part", 1)[0] for reply in replies}) == 1
    again = SiteSession(SITES[0], config, protocol, None, sessions[0].images.left_out, shared)
    assert again.data.split_hash == sessions[0].data.split_hash

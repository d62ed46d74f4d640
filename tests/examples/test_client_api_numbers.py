# SPDX-License-Identifier: Apache-2.0
"""The numbers of the example of a user's own script: a reader gets those that the page prints."""

import runpy
from pathlib import Path

import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "client_api" / "small_domains.py"


def test_the_server_begins_with_the_same_model_and_the_sites_with_the_same_images_every_time() -> None:
    first, second = (runpy.run_path(str(EXAMPLE)) for _ in range(2))
    with torch.random.fork_rng():
        one, other = first["Net"]().state_dict(), second["Net"]().state_dict()
        for name, value in one.items():
            torch.testing.assert_close(other[name], value, rtol=0, atol=0)
        for drawn, again in zip(first["load"]("site-2"), second["load"]("site-2"), strict=True):
            for (images, labels), (same_images, same_labels) in zip(drawn, again, strict=True):
                assert torch.equal(images, same_images)
                assert torch.equal(labels, same_labels)

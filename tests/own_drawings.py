# SPDX-License-Identifier: Apache-2.0
"""A small data set as a user has it: names with spaces and umlauts, grey and colour, several formats and sizes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

DOMAINS = ("Bäder & Küchen", "photo", "sketch", "Öl gemälde")
CLASSES = ("Hund", "große Katze", "vogel")
SUFFIXES = (".png", ".jpg", ".webp", ".bmp", ".tiff")


def draw_own(root: Path, count: int = 5, domains: Sequence[str] = DOMAINS) -> Path:
    """Draw ``count`` images of each class in each domain, those of sketch in grey; return the folder."""
    generator = np.random.default_rng(0)
    for domain in domains:
        for name in CLASSES:
            folder = root / domain / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = generator.integers(0, 256, size=(9 + number, 12, 3), dtype=np.uint8)
                image = Image.fromarray(pixels).convert("L" if domain == "sketch" else "RGB")
                image.save(folder / f"bild {number}{SUFFIXES[number % len(SUFFIXES)]}")
    return root

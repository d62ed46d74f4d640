# SPDX-License-Identifier: Apache-2.0
"""PNG and TIFF files with several channels of 16 bits, which Pillow reads but does not write."""

import struct
import zlib
from pathlib import Path

import numpy as np

_PNG_TYPES = {2: 4, 3: 2, 4: 6}  # number of channels -> grey with alpha, colours, colours with alpha
_SHORT, _LONG = 3, 4  # types of a TIFF entry


def save_deep(path: Path, values: np.ndarray) -> Path:
    """Write ``values``, uint16 ``[H, W, C]``, as PNG or uncompressed TIFF, by the suffix; return the path."""
    path.write_bytes(_png(values) if path.suffix == ".png" else _tiff(values))
    return path


def _png(values: np.ndarray) -> bytes:
    height, width, channels = values.shape
    header = struct.pack(">IIBBBBB", width, height, 16, _PNG_TYPES[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )


def _tiff(values: np.ndarray) -> bytes:
    height, width, channels = values.shape
    pixels = values.astype("<u2").tobytes()
    bits = struct.pack(f"<{channels}H", *[16] * channels)
    entries = [
        (256, _LONG, 1, width),
        (257, _LONG, 1, height),
        (258, _SHORT, channels, 8 + len(pixels)),
        (259, _SHORT, 1, 1),
        (262, _SHORT, 1, 2),  # RGB
        (273, _LONG, 1, 8),
        (277, _SHORT, 1, channels),
        (278, _LONG, 1, height),
        (279, _LONG, 1, len(pixels)),
        *([(338, _SHORT, 1, 2)] if channels > 3 else []),  # the fourth is alpha
    ]
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<I", 8 + len(pixels) + len(bits)) + pixels + bits + directory + bytes(4)

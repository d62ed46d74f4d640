# SPDX-License-Identifier: Apache-2.0
"""The SHA-256 of files: of their bytes, and computed in one place."""

import hashlib
from pathlib import Path

import pytest

from fdg_plugins.digests import sha256_of


@pytest.mark.parametrize("size", [0, 1, 2**20 + 7])
def test_the_digest_is_that_of_the_bytes_of_a_file(tmp_path: Path, size: int) -> None:
    file = tmp_path / "file"
    file.write_bytes(size * b"x")
    assert sha256_of(file) == hashlib.sha256(size * b"x").hexdigest()


def test_a_file_that_cannot_be_read_is_an_error_of_the_system_which_the_caller_words(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sha256_of(tmp_path / "absent")

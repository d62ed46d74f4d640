# SPDX-License-Identifier: Apache-2.0
"""The part of a run's model that no step changes, as the site received it, so that the server need send it only once.

It is one file in the run's folder. Its name for itself is the server's, which the site does not check against the
values: a filter between the two may have rounded them.
"""

from collections.abc import Mapping
from pathlib import Path

import torch

from fdg_plugins.errors import DataError
from fdg_plugins.state.checked_files import VERSION, load_checked_tensors, save_checked_tensors
from fdg_plugins.state.site_memory import FIXED_FILE

FIXED_VERSION = "1"
_ID = "id"


def write_fixed(folder: Path, name: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Save ``tensors`` as the fixed part that the server calls ``name``; this replaces an earlier one.

    Raises ``DataError`` naming the file if it cannot be written.
    """
    save_checked_tensors(folder / FIXED_FILE, tensors, {VERSION: FIXED_VERSION, _ID: name})


def read_fixed(folder: Path, name: str) -> dict[str, torch.Tensor]:
    """Return the fixed part that the server calls ``name``.

    Raises ``DataError`` naming the file if it is missing, damaged or another one.
    """
    path = folder / FIXED_FILE
    public = "it does not hold the model's fixed part, which the server sends again with the next task."
    if not path.exists():
        raise DataError(f"file {path} is missing, which should hold the model's fixed part.", public=public)
    try:
        tensors, metadata = load_checked_tensors(path)
    except DataError as error:
        raise DataError(str(error), public=public) from error
    if metadata != {VERSION: FIXED_VERSION, _ID: name}:
        raise DataError(f"file {path} does not hold the fixed part of this run's model.", public=public)
    return tensors

# SPDX-License-Identifier: Apache-2.0
"""One file to create in a data set, from one file of a source."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """One file to create: ``target`` is its path below the data set's folder.

    If ``packed``, the source's file is gunzipped. ``convert`` then makes the content of the target from it, given also
    a name of the file for errors; None: the content is copied.
    """

    source: str
    target: str
    packed: bool = False
    convert: Callable[[bytes, str], bytes] | None = None

    @property
    def is_copied(self) -> bool:
        """Whether the target has the bytes of the source's file."""
        return not self.packed and self.convert is None

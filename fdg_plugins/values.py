# SPDX-License-Identifier: Apache-2.0
"""Moved to :mod:`fdg_plugins.errors`."""

from collections.abc import Mapping
from typing import Any

from fdg_plugins.errors import LARGEST as LARGEST
from fdg_plugins.errors import LONGEST_QUOTE as LONGEST_QUOTE
from fdg_plugins.errors import LONGEST_REASON as LONGEST_REASON
from fdg_plugins.errors import check_choice as check_choice
from fdg_plugins.errors import check_count as check_count
from fdg_plugins.errors import check_number as check_number
from fdg_plugins.errors import check_settings_known as check_settings_known
from fdg_plugins.errors import check_truth as check_truth
from fdg_plugins.errors import counted as counted
from fdg_plugins.errors import first_problem as first_problem
from fdg_plugins.errors import is_number as is_number
from fdg_plugins.errors import one_line as one_line
from fdg_plugins.errors import parsed_object as parsed_object
from fdg_plugins.errors import read_like as read_like
from fdg_plugins.errors import shorten as shorten
from fdg_plugins.errors import visible as visible


def depth_exceeds(value: Any, levels: int) -> bool:
    """Return whether lists and mappings, such as those of a JSON value, are nested more than ``levels`` deep."""
    level = [value]
    for _ in range(levels):
        level = [
            child
            for one in level
            if isinstance(one, Mapping | list | tuple)
            for child in (one.values() if isinstance(one, Mapping) else one)
        ]
    return any(isinstance(one, Mapping | list | tuple) for one in level)

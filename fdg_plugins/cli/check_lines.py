# SPDX-License-Identifier: Apache-2.0
"""What ``fdg data check`` says of labelled images and of images with masks alike."""

from collections.abc import Iterator, Mapping, Sequence

from fdg_plugins.cli.console import say
from fdg_plugins.errors import DataError

SHOWN = 10


def unused_lines(unused: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a line for each domain that has files and folders that a run would pass over."""
    for domain, found in unused.items():
        for phrase in found:
            yield f"not used    {domain}: {phrase}"


def duplicate_lines(groups: Sequence[Sequence[str]], shared: int, also: str = "") -> Iterator[str]:
    """Yield lines on groups of images with the same bytes, none if there are no groups.

    ``shared``: the number of groups in several domains. ``also``: ends the first line.
    """
    if not groups:
        return
    count = f"{len(groups):,} images are there more than once"
    yield f"duplicates  {count} (same bytes): {shared:,} in several domains{also}"
    for group in groups[:SHOWN]:
        yield f"  {' = '.join(group)}"
    if len(groups) > SHOWN:
        yield f"  ... and {len(groups) - SHOWN:,} more"


def refuse_damaged(damaged: Sequence[DataError], of: str) -> None:
    """Print why images or pairs cannot be used, and raise ``DataError``, if there are any; ``of``: of how many."""
    for error in damaged:
        say(f"unusable    {error}")
    if damaged:
        raise DataError(f"of {of}, {len(damaged):,} cannot be used.")

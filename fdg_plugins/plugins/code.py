# SPDX-License-Identifier: Apache-2.0
"""The code behind the plug-ins that a run uses, as entries among the recorded versions of packages."""

from collections.abc import Collection, Iterable
from importlib.metadata import version

from fdg_plugins.plugins.files import SUFFIX, digest_of, files_behind
from fdg_plugins.plugins.kinds import registry_of
from fdg_plugins.plugins.registry import FILE

DIGITS = 16  # of a SHA-256, enough to tell two states of a file apart


def code_of(uses: Collection[tuple[str, str]], files: Iterable[str]) -> dict[str, str]:
    """Return what is behind the plug-ins in use, which are admitted: versions of distributions, digests of files.

    Args:
        uses: pairs of a setting and a record's name: ``("model", "my_net")``. This package's own have no entry.
        files: names of loaded plug-in files, without ``.py``, in addition to those behind ``uses``.

    Returns:
        The version by the distribution's name; the first digits of the SHA-256 by the file's name, with ``.py``.
    """
    origins = {registry_of(setting).origin(name) for setting, name in uses}
    found = {origin: version(origin) for origin in origins if origin is not None and origin != FILE}
    found |= {f"{name}{SUFFIX}": digest_of(name)[:DIGITS] for name in {*files, *files_behind(uses)}}
    return dict(sorted(found.items()))

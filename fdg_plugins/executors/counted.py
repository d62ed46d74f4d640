# SPDX-License-Identifier: Apache-2.0
"""What a site has counted in the census, kept in its folder of the run: later tasks, and jobs, must find it again.

A site that comes back to a running job takes no new census, so a process compares what it finds with the file.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.messages import CensusReply
from fdg_plugins.plans.uses import names_in
from fdg_plugins.plugins.code import code_of
from fdg_plugins.storage import read_json, write_json
from fdg_plugins.values import shorten
from fdg_plugins.versions import OF_SITE, installed_versions, must_be_equal

if TYPE_CHECKING:
    from fdg_plugins.training.session import SiteSession

CENSUS_FILE = "fdg_census.json"
_COUNTED = {"split", "split_hash", "precision"}  # of the reply
_VERSIONS = "versions"
LEFT_OUT = "left_out"


def versions_of(session: "SiteSession") -> dict[str, str]:
    """Return with which packages, and plug-ins in use, this process computes."""
    return {**installed_versions(OF_SITE), **code_of(names_in(session.protocol), session.protocol.plugins)}


def keep_counted(folder: Path, job: str, reply: CensusReply, left_out: Iterable[str]) -> None:
    """Write what the census of ``job`` has counted, and the damaged images that it has ``left_out``.

    Every later task uses the same split, without decoding all images again, which can take longer than a round.
    """
    counted = {"job": job, **reply.model_dump(include=_COUNTED), _VERSIONS: reply.versions, LEFT_OUT: sorted(left_out)}
    write_json(folder / CENSUS_FILE, counted, private=True)


def counted_in(folder: Path, job: str) -> dict[str, Any]:
    """Return what the census of ``job`` wrote to a run's folder; another process may have answered it.

    Raises ``SettingsError`` if there is nothing for this job; the file may stem from another job of the run.
    """
    counted = _read(folder)
    if counted.get("job") != job:
        raise SettingsError(
            "the site has not answered the census of this job, and does no other task of it before.", public=True
        )
    return counted


def check_counted(session: "SiteSession", counted: Mapping[str, Any]) -> None:
    """Raise ``DataError`` or ``SettingsError`` if the data, or how the site computes, are not as they were counted."""
    if counted.get("split_hash") != session.data.split_hash:
        raise DataError(
            f"split {session.data.split} has the hash {session.data.split_hash}, "
            f"but the census counted {counted.get('split_hash')}: the data folder has changed.",
            public=True,
        )
    used = session.policy.precision
    if (told := counted.get("precision", used)) != used:  # the site has moved to another machine
        raise SettingsError(
            f"precision 'auto' means {used} on this machine, but meant {told} in the census.", public=True
        )


def check_process(session: "SiteSession", counted: Mapping[str, Any]) -> None:
    """Raise ``SettingsError`` if this process computes with other versions than the one that took the census."""
    now, then = versions_of(session), counted.get(_VERSIONS)
    for package, version in then.items() if isinstance(then, dict) else ():
        if must_be_equal(package) and (found := now.get(package)) != version:
            raise SettingsError(
                f"the site runs {package} {found}, but ran {shorten(version)} in the census: one job needs one version "
                "everywhere.",
                public=True,
            )


def _read(folder: Path) -> dict[str, Any]:
    """Return what the last census wrote to a run's folder; empty without one, or if it is something else."""
    path = folder / CENSUS_FILE
    counted = read_json(path) if path.exists() else {}
    return counted if isinstance(counted, dict) else {}

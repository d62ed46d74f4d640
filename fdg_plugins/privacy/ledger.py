# SPDX-License-Identifier: Apache-2.0
"""A site's privacy ledger, which records the budget spent across jobs and restarts, and its privacy policy.

Both are in the ``local`` folder of the site's FLARE workspace, which its administrator owns and FLARE never clears:

- ``local/fdg_privacy/ledger.json``: every release of the site in any job. It is on disk *before* a release is returned,
  so a crash in between costs budget, never privacy. Deleting the file discards the record of the spent budget.
- ``local/fdg_privacy.json``, optional: limits that no job can loosen. The stricter of each limit and the filter's own
  argument applies. It can name another folder for the ledger, for a site whose jobs may not write to ``local``.

An existing file that cannot be read reliably raises an error, so nothing is released. The ledger has a checksum.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from fdg_plugins.core.accounting import gaussian_epsilon
from fdg_plugins.errors import DataError, FDGError, SettingsError
from fdg_plugins.messages import Checked
from fdg_plugins.storage import CHECKSUM, locked, make_private_folder, read_json, write_json

POLICY_FILE = "fdg_privacy.json"
LEDGER_FOLDER = "fdg_privacy"
LEDGER_FILE = "ledger.json"
DEFAULT_DELTA = 1e-5  # of a policy and of the filter, where they name none

Positive = Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, pydantic.Field(gt=0, lt=1)]


class BudgetSpentError(FDGError):
    """The next release would exceed the ceiling on the site's total epsilon."""


class Policy(Checked, strict=True):
    """The limits that a site's administrator sets for every release; the filter's arguments supply those not set.

    ``ledger``: the folder of the ledger, which must exist; None for ``fdg_privacy`` beside the policy.
    """

    clip_norm: Positive | None = None
    noise_multiplier: Positive | None = None
    max_epsilon: Positive | None = None
    delta: Fraction | None = None
    ledger: str | None = None

    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by name."""
        return self.model_dump(exclude_none=True, exclude={"ledger"})


class Limits(Checked, strict=True):
    """The parameters of a release, and the ceiling on the total cost of all releases of a site.

    Args:
        clip_norm: C > 0, maximum L2 norm of an update, in the update's units; smaller is stricter.
        noise_multiplier: sigma > 0, standard deviation of the noise in units of C; larger is stricter.
        max_epsilon: > 0, ceiling on the total epsilon of all releases in the ledger; smaller is stricter.
        delta: in (0, 1), the delta at which epsilon is computed; smaller is stricter.
    """

    clip_norm: Positive
    noise_multiplier: Positive
    max_epsilon: Positive
    delta: Fraction


def strictest(limits: Limits, *others: Limits | Policy) -> Limits:
    """Return limits that combine the strictest value of each; a policy may lack some."""
    chosen = limits.model_dump()
    for other in others:
        for name, value in other.model_dump(exclude_none=True, include=set(chosen)).items():
            chosen[name] = (max if name == "noise_multiplier" else min)(chosen[name], value)
    return Limits(**chosen)


class Release(Checked, strict=True):
    """One release: job, round (counted from 0), clip norm, noise multiplier, and time (ISO 8601, UTC)."""

    job: str
    round: int = pydantic.Field(ge=0)
    clip_norm: Positive
    noise_multiplier: Positive
    time: str


class LedgerContent(Checked):  # not strict: JSON has no tuples
    """The content of the ledger file."""

    version: Literal[2] = 2
    site: str
    releases: tuple[Release, ...] = ()


def read_policy(site: str, path: Path) -> Policy:
    """Return the site's policy, an empty one if the file does not exist; raise ``SettingsError`` if it is invalid."""
    if not os.path.lexists(path):
        return Policy()
    about = f"site {site}: privacy policy {path}"
    try:
        value = read_json(path)
    except DataError as error:
        raise SettingsError(f"{about}: {error}") from error
    return Policy.read(value, about, SettingsError)


def ledger_file(site: str, local: Path) -> Path:
    """Return the site's ledger file: in the folder that the policy in ``local`` names, else in one of ``local``.

    Raises ``SettingsError`` for an invalid policy, for a named folder that is not there (one that is made in a
    container would be gone with it, and the ledger too), and while a ledger in ``local`` would be forgotten.
    """
    own, policy = local / LEDGER_FOLDER / LEDGER_FILE, local / POLICY_FILE
    if (named := read_policy(site, policy).ledger) is None:
        return own
    folder = Path(named)
    if not folder.is_absolute() or not folder.is_dir():
        where, expected = f"site {site}: privacy policy {policy}", "the absolute path of a folder that exists"
        raise SettingsError(site=where, field="ledger", value=named, expected=expected)
    if os.path.lexists(own) and not folder.samefile(own.parent):
        raise SettingsError(
            f"site {site}: the privacy ledger is {own}, and the policy names the folder {folder}: move the file there."
        )
    return folder / LEDGER_FILE


def read_ledger(path: Path, site: str | None = None) -> LedgerContent:
    """Return the ledger in ``path``; raise ``DataError`` naming the file if it is invalid, or not that of ``site``."""
    about = f"privacy ledger {path}" if site is None else f"site {site}: privacy ledger {path}"
    value = read_json(path)
    if not isinstance(value, dict) or value.pop(CHECKSUM, None) != _checksum(value):
        raise DataError(f"{about}: the file is damaged: its checksum is not that of its content.")
    content = LedgerContent.read(value, about, DataError)
    if site not in (None, content.site):
        raise DataError(f"{about} is that of site {content.site!r}.")
    return content


def _checksum(value: Mapping[str, Any]) -> str:
    """Return the digest of a ledger's content as it is read back; it detects damage, not forgery."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Ledger:
    """The releases of one site. Several processes may use it concurrently; each holds a lock while it spends.

    Args:
        path: the ledger file; its folder is created if needed.
        site: name of the site, which must match the name in the file.
    """

    def __init__(self, path: Path, site: str) -> None:
        self.path = path
        self.site = site

    def spend(self, job: str, round_number: int, limits: Limits) -> float:
        """Enter one release and return the total epsilon of all releases, including this one, at ``limits.delta``.

        ``round_number`` is counted from 0. Raises ``BudgetSpentError``, without entering anything, if the total would
        exceed ``limits.max_epsilon``, and ``DataError`` if the file cannot be read or written. When this returns, the
        entry is on disk.
        """
        try:
            make_private_folder(self.path.parent)
            with locked(self.path.with_suffix(".lock"), private=True) as handle:
                with suppress(PermissionError):  # owned by another user, with access for the site
                    os.fchmod(handle, 0o600)
                return self._spend(job, round_number, limits)
        except OSError as error:
            reason = f"cannot be locked: {error.strerror}."
            raise DataError(f"site {self.site}: privacy ledger {self.path} {reason}") from error

    def _spend(self, job: str, round_number: int, limits: Limits) -> float:
        content = self.read()
        release = Release(
            job=job,
            round=round_number,
            clip_norm=limits.clip_norm,
            noise_multiplier=limits.noise_multiplier,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        noises = [one.noise_multiplier for one in (*content.releases, release)]
        spent, cost = gaussian_epsilon(noises[:-1], limits.delta), gaussian_epsilon(noises, limits.delta)
        if not cost <= limits.max_epsilon:
            raise BudgetSpentError(
                f"site {self.site}: its privacy budget is spent: epsilon is {spent:.4g} at delta {limits.delta:g}, "
                f"one more release would make it {cost:.4g}, and the ceiling is {limits.max_epsilon:g}.",
                public=True,
            )
        value = LedgerContent(site=content.site, releases=(*content.releases, release)).model_dump(mode="json")
        write_json(self.path, {**value, CHECKSUM: _checksum(value)}, private=True)
        return cost

    def read(self) -> LedgerContent:
        """Return the ledger's content, without releases if the file does not exist.

        Raises ``DataError`` if the file is invalid or belongs to another site, or is a link, which would be replaced
        by a file, so that whoever shares the ledger would not learn of a release.
        """
        if self.path.is_symlink():
            raise DataError(
                f"site {self.site}: privacy ledger {self.path} is a symbolic link, expected a file; ledger in "
                f"{POLICY_FILE} names another folder."
            )
        return read_ledger(self.path, self.site) if os.path.lexists(self.path) else LedgerContent(site=self.site)

# SPDX-License-Identifier: Apache-2.0
"""What a site has spent of its privacy, in a file of its own that outlives jobs and restarts; and its policy.

Both lie in the ``local`` folder of the site's FLARE workspace, which its administrator owns and FLARE never clears:

- ``local/fdg_privacy/ledger.json``: every release of the site, whatever the job. Written, and on disk, *before* a
  release is handed out: a crash in between costs budget, never privacy. Deleting it forgets what was spent.
- ``local/fdg_privacy.json``, optional: bounds that no job can loosen; of each bound and the filter's own argument
  the stricter counts.

A file that is there but cannot be read for certain raises, so that nothing is released. The ledger carries a checksum;
one of version 0.1.0 has none, is read as it is, and gets one with the next release.
"""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pydantic

from fdg_plugins.core.accounting import gaussian_epsilon
from fdg_plugins.errors import DataError, FDGError, SettingsError
from fdg_plugins.messages import first_problem
from fdg_plugins.state.checked_files import read_checked_json, write_checked_json
from fdg_plugins.storage import locked, make_private_folder, read_json

POLICY_FILE = "fdg_privacy.json"
LEDGER_FOLDER = "fdg_privacy"
LEDGER_FILE = "ledger.json"
LEDGER_VERSION: Literal[2] = 2
UNCHECKED_VERSION: Literal[1] = 1

Positive = Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, pydantic.Field(gt=0, lt=1)]
Checked = TypeVar("Checked", bound=pydantic.BaseModel)

_STRICT = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)


class BudgetSpentError(FDGError):
    """The next release would exceed the ceiling on the site's privacy loss."""


class Policy(pydantic.BaseModel):
    """The limits that a site's administrator sets for every release; the filter's arguments fill in the rest."""

    model_config = _STRICT

    clip_norm: Positive | None = None
    noise_multiplier: Positive | None = None
    max_epsilon: Positive | None = None
    delta: Fraction | None = None


class Limits(pydantic.BaseModel):
    """The parameters of a release, and the ceiling on the cost of all of a site's releases together.

    Args:
        clip_norm: C > 0, largest length of an update, in its own units; smaller is stricter.
        noise_multiplier: sigma > 0, deviation of the noise in units of C; larger is stricter.
        max_epsilon: ceiling on the epsilon of all releases in the ledger; smaller is stricter.
        delta: in (0, 1), at which epsilon is computed; smaller is stricter.
    """

    model_config = _STRICT

    clip_norm: Positive
    noise_multiplier: Positive
    max_epsilon: Positive
    delta: Fraction

    def under(self, policy: Policy) -> "Limits":
        """Return the stricter of each of these limits and the policy's."""
        return Limits(
            clip_norm=min(self.clip_norm, policy.clip_norm or self.clip_norm),
            noise_multiplier=max(self.noise_multiplier, policy.noise_multiplier or self.noise_multiplier),
            max_epsilon=min(self.max_epsilon, policy.max_epsilon or self.max_epsilon),
            delta=min(self.delta, policy.delta or self.delta),
        )


class Release(pydantic.BaseModel):
    """One release: for which job and round (counted from 0), with what clip norm and noise, and when (UTC)."""

    model_config = _STRICT

    job: str
    round: int
    clip_norm: Positive
    noise_multiplier: Positive
    time: str


class LedgerContent(pydantic.BaseModel):
    """The content of the ledger's file."""

    # Not strict: JSON has no tuples.
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    version: Literal[1, 2] = LEDGER_VERSION
    site: str
    releases: tuple[Release, ...] = ()


def read_limits(arguments: dict[str, Any]) -> Limits:
    """Return the limits in a filter's arguments; raise ``SettingsError`` naming the one that is out of range."""
    try:
        return Limits.model_validate(arguments)
    except pydantic.ValidationError as error:
        raise SettingsError(f"differential privacy: {first_problem(error)}") from error


def read_policy(site: str, path: Path) -> Policy:
    """Return the site's policy, without demands if there is no file; raise ``SettingsError`` for a broken one."""
    if not os.path.lexists(path):
        return Policy()
    try:
        return Policy.model_validate(read_json(path))
    except (DataError, pydantic.ValidationError) as error:
        raise SettingsError(f"site {site}: privacy policy {path}: {_reason(error)}") from error


def read_ledger(path: Path, site: str | None = None) -> LedgerContent:
    """Return the ledger in ``path``; raise ``DataError`` naming it, and ``site`` if given, for a broken one."""
    try:
        return LedgerContent.model_validate(read_checked_json(path, UNCHECKED_VERSION))
    except (DataError, pydantic.ValidationError) as error:
        about = "" if site is None else f"site {site}: "
        raise DataError(f"{about}privacy ledger {path}: {_reason(error)}") from error


class Ledger:
    """The releases of one site. Several processes may spend from it at once; each holds a lock while it does.

    Args:
        path: the file; its folder is made.
        site: name of the site, which must be that in the file.
    """

    def __init__(self, path: Path, site: str) -> None:
        self.path = path
        self.site = site

    def spend(self, job: str, round_number: int, limits: Limits) -> float:
        """Enter one release and return the epsilon of all, this one included, at ``limits.delta``.

        Raises ``BudgetSpentError``, entering nothing, if that would exceed ``limits.max_epsilon``, and ``DataError``
        if the file cannot be read or written. When this returns, the entry is on disk.
        """
        with self._locked():
            content = self.read()
            release = Release(
                job=job,
                round=round_number,
                clip_norm=limits.clip_norm,
                noise_multiplier=limits.noise_multiplier,
                time=datetime.now(UTC).isoformat(timespec="seconds"),
            )
            cost = gaussian_epsilon([one.noise_multiplier for one in (*content.releases, release)], limits.delta)
            if not cost <= limits.max_epsilon:
                spent = gaussian_epsilon([one.noise_multiplier for one in content.releases], limits.delta)
                raise BudgetSpentError(
                    f"site {self.site}: its privacy budget is spent: epsilon is {spent:.4g} at delta {limits.delta:g}, "
                    f"one more release would make it {cost:.4g}, and the ceiling is {limits.max_epsilon:g}.",
                    public=True,
                )
            self._write(LedgerContent(site=content.site, releases=(*content.releases, release)))
            return cost

    def read(self) -> LedgerContent:
        """Return the entries, none if the file does not exist; ``DataError`` if it is broken or another site's."""
        if not os.path.lexists(self.path):
            return LedgerContent(site=self.site)
        content = read_ledger(self.path, self.site)
        if content.site != self.site:
            raise DataError(f"site {self.site}: privacy ledger {self.path} is that of site {content.site!r}.")
        return content

    def _write(self, content: LedgerContent) -> None:
        try:
            write_checked_json(self.path, content.model_dump(mode="json"))
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # else a power failure could bring the old file back after the release
            finally:
                os.close(folder)
        except OSError as error:
            raise DataError(self._failed("written", error)) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            try:
                make_private_folder(self.path.parent)
                handle = stack.enter_context(locked(self.path.with_suffix(".lock"), private=True))
                with contextlib.suppress(PermissionError):  # another's, which the administrator lets the site use
                    os.fchmod(handle, 0o600)
            except OSError as error:
                raise DataError(self._failed("locked", error)) from error
            yield

    def _failed(self, what: str, error: OSError) -> str:
        return f"site {self.site}: privacy ledger {self.path} cannot be {what}: {error.strerror}."


def _reason(error: Exception) -> str:
    return first_problem(error) if isinstance(error, pydantic.ValidationError) else str(error)

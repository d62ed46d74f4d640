# SPDX-License-Identifier: Apache-2.0
"""Errors that a user can cause. Each message is one sentence: site, file or parameter, what came, what was expected."""


class FDGError(Exception):
    """Base of everything this package raises for bad input; its text is meant to be shown as it is."""


class SettingsError(FDGError, ValueError):
    """A setting of the job, the environment or a site's own config is unknown or out of range."""


class DataError(FDGError):
    """A data root, a folder, an image or a split is missing, unreadable or not as declared."""


class CensusError(FDGError):
    """The sites do not fit together; no round was started."""


class ContributionError(FDGError, ValueError):
    """One site's contribution cannot be used; the round goes on without it."""

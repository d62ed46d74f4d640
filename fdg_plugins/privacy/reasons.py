# SPDX-License-Identifier: Apache-2.0
"""The reason why a site did not do a task: the full text for its own log, and a form that may leave the site.

The public form names no file, folder or image and quotes no exception. If the log holds more detail, both texts carry
the same random id, with which the site's operator can find the full text; the public form then is at most as long as
what the server reads, so that the id arrives.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from nvflare.apis.fl_context import FLContext

from fdg_plugins.errors import LONGEST_QUOTE, FDGError, PartError, one_line, raised_at, visible
from fdg_plugins.flare.context import is_simulated_site, site_config_of


class Reason(NamedTuple):
    """One reason in two forms: ``told`` to the server, ``logged`` at the site."""

    told: str
    logged: str


def texts_of(error: Exception) -> tuple[str, str]:
    """Return an error's text for the site's own log, and the text that may leave the site.

    Of an unexpected error, only the type may leave, because the text may quote anything.
    """
    if isinstance(error, FDGError | PartError):
        return str(error), error.public
    kind = type(error).__name__
    place = f" (in {raised_at(error)})" if error.__traceback__ else ""
    return f"{kind}: {(str(error).splitlines() or ['no message'])[0]}{place}", f"unforeseen error ({kind})."


class RefusedError(FDGError):
    """An answer does not leave the site: its rules do not cover it, or cannot be kept."""


@contextmanager
def failing_closed(what: str) -> Iterator[None]:
    """Raise ``RefusedError`` for any unforeseen error of ``what``, with its type alone: its text may quote the data."""
    try:
        yield
    except FDGError:
        raise
    except Exception as error:
        raise RefusedError(f"{what} failed with {type(error).__name__}.", public=True) from error


def make_reason(full: str, public: str, *, names: bool) -> Reason:
    """Return the reason for the two texts of :func:`texts_of`; ``names``: the operator lets the full text leave."""
    full, public = visible(full), visible(public)
    if names or public == full:
        return Reason(full, full)
    number = secrets.token_hex(4)
    details = f" (details in the site's own log under {number})."
    start = public.rstrip(".")
    if len(start) + len(details) > LONGEST_QUOTE:  # what the server would cut off
        start = one_line(start, LONGEST_QUOTE - len(details) - len("... (12345 characters)"))
    return Reason(start + details, f"{full} [{number}]")


def reason_of(error: Exception, fl_ctx: FLContext) -> Reason:
    """Return the reason for an error, of which the full text leaves if :func:`may_tell_names` says so."""
    return make_reason(*texts_of(error), names=may_tell_names(fl_ctx))


def may_tell_names(fl_ctx: FLContext) -> bool:
    """Return whether names may leave the site: as its operator says (``report_names``), else in a simulation only."""
    try:
        allowed = site_config_of(str(fl_ctx.get_identity_name()), fl_ctx).report_names
    except FDGError:  # an invalid config allows nothing
        return False
    return is_simulated_site(fl_ctx) if allowed is None else allowed

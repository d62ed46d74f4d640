# SPDX-License-Identifier: Apache-2.0
"""Which kind of run a method is, by its name alone."""

from difflib import get_close_matches

from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import shorten
from fdg_plugins.sweep.jobs import FederatedRuns
from fdg_plugins.sweep.references import ReferenceRuns
from fdg_plugins.sweep.run_kind import RunKind

KINDS: tuple[RunKind, ...] = (FederatedRuns(), ReferenceRuns())


def kind_of(method: str) -> RunKind:
    """Return the kind of run that ``method`` is; ``SettingsError``, with a near match, if no kind has the name."""
    for kind in KINDS:
        if kind.knows(method):
            return kind
    known = [name for kind in KINDS for name in kind.names]
    near = get_close_matches(method.split("+")[0], known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}."
    raise SettingsError(
        f"method is {shorten(method)}, which is neither a federated method nor a centralised reference; {hint}"
    )


def canonical_method(text: str) -> str:
    """Return the one name of the method that ``text`` names; ``SettingsError`` if there is none."""
    return kind_of(text).canonical_name(text)

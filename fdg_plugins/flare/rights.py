# SPDX-License-Identifier: Apache-2.0
"""The rights that a participant's authorization policy gives, as FLARE reads it."""

from collections.abc import Mapping
from typing import Any

from fdg_plugins.errors import SettingsError, shorten
from fdg_plugins.flare.internals import fetch

SHELL = "shell_commands"
OPERATE = "operate"  # shut down, restart, remove and disable sites, configure logs, report the environment
EVERY = "*"  # takes precedence over all rights that are named
_NEVER = {"none", "no"}
_ALWAYS = {"any", "all"}


def roles_with(policy: Mapping[str, Any], right: str) -> list[str]:
    """Return the roles to whom ``policy`` may give ``right``, or any command of the category of that name.

    A right that holds under a condition counts. Raises ``SettingsError`` if FLARE cannot read the policy.
    """
    categories = fetch("COMMAND_CATEGORIES")
    try:
        read, problem = fetch("parse_policy_config")(policy, categories)
    except (TypeError, AttributeError) as error:
        read, problem = None, str(error)
    if read is None:
        raise SettingsError(f"FLARE cannot read the policy: {shorten(problem)}.")
    commands = [command for command, category in categories.items() if category == right] or [right]
    return sorted(
        role
        for role, given in read.role_rights.items()
        if any(_can_hold(given[one]) for one in ([EVERY] if EVERY in given else commands) if one in given)
    )


def _can_hold(expression: str | list[str]) -> bool:
    """Return whether a condition, or one of several, is ever met; those with "not" block whatever the others allow."""
    conditions = [expression] if isinstance(expression, str) else expression
    words = [" ".join(condition.lower().split()) for condition in conditions]
    allowing = [word for word in words if not word.startswith("not ")]
    blocked = any(word.removeprefix("not ") in _ALWAYS for word in words if word not in allowing)
    return not blocked and (not allowing or any(word not in _NEVER for word in allowing))

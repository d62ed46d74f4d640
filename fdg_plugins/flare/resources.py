# SPDX-License-Identifier: Apache-2.0
"""The components that a participant's own resources (``local/resources.json``) declare."""

from collections.abc import Mapping
from typing import Any


def declared_components(resources: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the components that resources declare, without entries that are not objects, which FLARE refuses."""
    declared = resources.get("components")
    return [one for one in declared if isinstance(one, dict)] if isinstance(declared, list) else []


def declared_component(resources: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return the first component with the id ``name``; None if resources declare none."""
    return next((one for one in declared_components(resources) if one.get("id") == name), None)

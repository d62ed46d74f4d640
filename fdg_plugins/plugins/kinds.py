# SPDX-License-Identifier: Apache-2.0
"""Moved to :mod:`fdg_plugins.plugins.registry`."""

from fdg_plugins.plugins.registry import REGISTRY_OF as REGISTRY_OF
from fdg_plugins.plugins.registry import registries as registries
from fdg_plugins.plugins.registry import registry_of as registry_of

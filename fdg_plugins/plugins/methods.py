# SPDX-License-Identifier: Apache-2.0
"""The registry of methods: those of ``fdg_plugins.methods``, of installed plug-ins, and of plug-in files."""

from fdg_plugins.plugins.method import Method
from fdg_plugins.plugins.registry import Registry

METHODS: Registry[Method] = Registry("method", "fdg_plugins.methods", ["fdg_plugins.methods"], Method)

# SPDX-License-Identifier: Apache-2.0
"""Moved to :mod:`fdg_plugins.plugins.versions`."""

from fdg_plugins.plugins.versions import code_of as code_of

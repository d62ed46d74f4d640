# SPDX-License-Identifier: Apache-2.0
"""Moved to :mod:`fdg_plugins.plans.plans`."""

from fdg_plugins.plans.plans import names_in as names_in
from fdg_plugins.plans.plans import uses_of as uses_of

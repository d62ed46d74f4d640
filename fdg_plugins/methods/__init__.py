# SPDX-License-Identifier: Apache-2.0
"""One record for each published method: the front door. Found by name through ``fdg_plugins.plugins``."""

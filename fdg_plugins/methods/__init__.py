# SPDX-License-Identifier: Apache-2.0
"""The records of the published methods, one module each; ``fdg_plugins.plugins`` finds them by name."""

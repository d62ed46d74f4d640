# SPDX-License-Identifier: Apache-2.0
"""The command ``fdg``: an operator's or lead's tasks with this package outside a run."""

# SPDX-License-Identifier: Apache-2.0
"""The names of the engines; loads nothing, so that the command's help appears at once."""

from enum import StrEnum


class EngineName(StrEnum):
    """What executes a run; each has an entry in :data:`fdg_plugins.lab.engine.engines.ENGINES`."""

    SIMULATOR = "simulator"
    PROCESS = "process"
    POC = "poc"

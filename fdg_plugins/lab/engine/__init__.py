# SPDX-License-Identifier: Apache-2.0
"""One run on this machine, from a method by name or a job folder to a folder that holds its results.

``sources`` describes the run, ``run`` checks and executes it. The command is ``fdg run``.
"""

from enum import StrEnum


class EngineName(StrEnum):
    """What executes a run; each has an entry in :data:`fdg_plugins.lab.engine.run.ENGINES`."""

    SIMULATOR = "simulator"
    PROCESS = "process"
    POC = "poc"

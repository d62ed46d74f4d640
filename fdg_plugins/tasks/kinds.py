# SPDX-License-Identifier: Apache-2.0
"""The registry of tasks: those of ``fdg_plugins.tasks``, of installed plug-ins, and of plug-in files."""

from fdg_plugins.plugins.registry import Registry
from fdg_plugins.tasks.task import Task

TASKS: Registry[Task] = Registry("task", "fdg_plugins.tasks", ["fdg_plugins.tasks"], Task)

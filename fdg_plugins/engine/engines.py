# SPDX-License-Identifier: Apache-2.0
"""The engines by name."""

from collections.abc import Mapping
from types import MappingProxyType

from fdg_plugins.engine.engine import Engine
from fdg_plugins.engine.names import EngineName
from fdg_plugins.engine.poc import PocEngine
from fdg_plugins.engine.process import ProcessEngine
from fdg_plugins.engine.simulator import SimulatorEngine

ENGINES: Mapping[EngineName, Engine] = MappingProxyType(
    {EngineName.SIMULATOR: SimulatorEngine(), EngineName.PROCESS: ProcessEngine(), EngineName.POC: PocEngine()}
)

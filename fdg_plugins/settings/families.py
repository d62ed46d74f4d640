# SPDX-License-Identifier: Apache-2.0
"""Moved to :mod:`fdg_plugins.settings.protocols`."""

from fdg_plugins.settings.defaults import dataset_protocol as dataset_protocol
from fdg_plugins.settings.protocols import FAMILIES as FAMILIES
from fdg_plugins.settings.protocols import SEGMENTATION as SEGMENTATION
from fdg_plugins.settings.protocols import DatasetProtocol as DatasetProtocol
from fdg_plugins.settings.protocols import Settings as Settings

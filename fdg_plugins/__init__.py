# SPDX-License-Identifier: Apache-2.0
"""Federated domain generalization on NVIDIA FLARE.

Sites hold images of different domains that they may not share; together they train a model for a
domain that none of them has. See :mod:`fdg_plugins.aggregators`, :mod:`fdg_plugins.controllers` and
:mod:`fdg_plugins.executors` for the FLARE components and :mod:`fdg_plugins.core` for the mathematics.
"""

from importlib.metadata import version

__version__ = version("fdg-plugins")

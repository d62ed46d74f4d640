# SPDX-License-Identifier: Apache-2.0
"""Federated domain generalization on NVIDIA FLARE.

Sites hold images of different domains that they may not share; together they train a model for a
domain that none of them has. See :mod:`fdg_plugins.aggregators`, :mod:`fdg_plugins.controllers` and
:mod:`fdg_plugins.executors` for the FLARE components and :mod:`fdg_plugins.core` for the mathematics.
"""

import os
from importlib.metadata import version

# How often a thread of torch's arithmetic looks for more work before it sleeps; OpenMP reads it when torch is loaded.
# By default it looks for milliseconds. Beside another process on the same core, a step of two threads then takes four
# times as long; one whose threads soon sleep does not, and costs a site alone nothing that can be measured.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

__version__ = version("fdg-plugins")

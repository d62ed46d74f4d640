# SPDX-License-Identifier: Apache-2.0
"""The parts of ``soak.py``: what is sampled, the faults, when a series is flat, and the figure."""

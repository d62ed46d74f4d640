# SPDX-License-Identifier: Apache-2.0
"""The record of a run, ``results.json``: census, rounds, evaluations, and their text for console and tables."""

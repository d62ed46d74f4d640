# SPDX-License-Identifier: Apache-2.0
"""Whatever touches FLARE's internals, each with its presence check: a new FLARE version is work in one room."""

# SPDX-License-Identifier: Apache-2.0
"""All access to FLARE's internals, each with a presence check, so that a new FLARE version affects one package."""

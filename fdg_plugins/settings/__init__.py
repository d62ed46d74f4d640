# SPDX-License-Identifier: Apache-2.0
"""The settings of a run: the protocol, protocols by name, the plans a job derives from them, a site's own config."""

# SPDX-License-Identifier: Apache-2.0
"""The settings of a run: the protocol, protocols by name, the plans a job makes of them, a site's own config."""

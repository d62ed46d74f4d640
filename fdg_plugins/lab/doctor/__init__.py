# SPDX-License-Identifier: Apache-2.0
"""Is this machine ready for a run: software, hardware, data and settings; what to type; what a startup kit allows."""

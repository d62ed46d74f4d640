# SPDX-License-Identifier: Apache-2.0
"""Local training and evaluation without FLARE: the loop, a site's session, judging, the global model's start."""

# SPDX-License-Identifier: Apache-2.0
"""Training without FLARE: the local loop and evaluation, a site's session, the initial global model."""

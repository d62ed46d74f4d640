# SPDX-License-Identifier: Apache-2.0
"""A site's privacy budget: the exact cost of Gaussian releases, and the ledger that records them.

>>> from fdg_plugins.privacy import gaussian_epsilon, gaussian_noise_multiplier
>>> round(gaussian_epsilon([4.0] * 10, delta=1e-5), 3)
7.511
>>> round(gaussian_noise_multiplier(3.0, delta=1e-5, releases=100), 2)
27.81
"""

from fdg_plugins.core.accounting import gaussian_epsilon, gaussian_noise_multiplier

__all__ = ["gaussian_epsilon", "gaussian_noise_multiplier"]

# SPDX-License-Identifier: Apache-2.0
r"""The direction closest to the mean update that no site's update opposes.

Where the updates of a round can be averaged to zero (zero lies in their convex hull), no direction agrees with all of
them: for every d, some ``<g_u, d> <= 0``. FedOMG's matched update is then zero, and Eq. 16 gives nothing but the mean
update, which may oppose some sites. The least worst inner product that any direction can have is then zero, and

    ``min |d - g_FL|**2``  over  ``<g_u, d> >= 0`` for all u

is the direction that reaches it and is closest to g_FL: the projection of g_FL on the dual cone of the updates, which
continual learning knows as gradient episodic memory (Lopez-Paz and Ranzato, NeurIPS 2017, Eq. 11). By its dual problem,
``d = g_FL + sum_u v_u g_u`` with the v >= 0 that make d shortest: non-negative least squares (Lawson and Hanson, 1974).

Eq. 15 also tells the two cases apart: its matched update is zero only if zero is in the hull and kappa is large enough
for the ball around g_FL to reach this d. With a smaller kappa, Eq. 16 gives the least worst direction within the ball.

Shapes: Gram matrix ``[U, U]``, reference weights p and coefficients ``[U]``; U sites.
"""

from collections.abc import Sequence

import numpy as np
import torch

from fdg_plugins.core.weighting import check_weights

RANK = 1e-14  # relative to the largest, the eigenvalue of a Gram matrix that is rounding


def least_conflict(gram: torch.Tensor, reference: torch.Tensor | Sequence[float]) -> torch.Tensor:
    """Return the coefficients ``[U]``, float64, of the updates in d, from ``gram [U, U]`` and p ``[U]`` on the simplex.

    >>> least_conflict(torch.tensor([[1.0, -2.0], [-2.0, 4.0]]), [0.5, 0.5]).tolist()  # g and -2 g
    [1.0, 0.5]
    """
    from scipy.optimize import nnls  # imported on use, so that sites never load scipy

    matrix = gram.to(dtype=torch.float64, device="cpu").numpy()
    p = check_weights(reference, len(matrix)).numpy()
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = values > RANK * max(values.max(initial=0.0), 0.0)
    updates = vectors[:, kept] * np.sqrt(values[kept])  # [U, rank]; the same inner products as the updates
    if updates.shape[1] == 0:
        return torch.from_numpy(p.copy())
    added, _ = nnls(updates.T, -(p @ updates))
    return torch.from_numpy(p + added)

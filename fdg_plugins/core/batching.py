# SPDX-License-Identifier: Apache-2.0
"""The number of batches in an epoch: one rule for the sites that train and the server that checks their reports."""


def batches_per_epoch(count: int, batch_size: int) -> int:
    """Return the number of batches that ``count`` samples make; the last batch may be smaller.

    A single remaining sample joins the previous batch, because batch normalisation cannot train on one sample.

    >>> batches_per_epoch(100, 32), batches_per_epoch(97, 32)
    (4, 3)
    """
    whole, left_over = divmod(count, batch_size)
    return whole + (left_over > 1 or (left_over == 1 and whole == 0))

# SPDX-License-Identifier: Apache-2.0
"""How many batches an epoch has, by a rule that sites train by and the server reckons with."""


def batches_per_epoch(count: int, batch_size: int) -> int:
    """Return the number of batches of ``count`` samples: a last one may be smaller.

    A single left-over sample joins the batch before it, because batch normalisation cannot train on one sample.
    """
    whole, left_over = divmod(count, batch_size)
    return whole + (left_over > 1 or (left_over == 1 and whole == 0))

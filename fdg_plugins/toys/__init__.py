# SPDX-License-Identifier: Apache-2.0
"""Examples small enough to be drawn: the mathematics of :mod:`fdg_plugins.core` on them, without FLARE.

>>> from fdg_plugins.toys import make_domains, play_round
>>> domains = make_domains()
>>> result = play_round(domains, sources=("A", "B", "C"), judged=("D",))
>>> [step.name for step in result.steps]
['FedAvg', 'FedOMG', 'ERM']
"""

from fdg_plugins.toys.rect4 import Domain, Round, Step, loss, make_domains, optimum, play_round
from fdg_plugins.toys.rect4_tables import held_out_table, round_table

__all__ = [
    "Domain",
    "Round",
    "Step",
    "held_out_table",
    "loss",
    "make_domains",
    "optimum",
    "play_round",
    "round_table",
]

# SPDX-License-Identifier: Apache-2.0
"""What each method does, as data: one ``<method>.toml`` here for each, read and checked as an :class:`Explanation`.

A method is added by its file alone. Settings are named there with what the paper and the authors' code use; their
defaults here stand nowhere but in the code, from which :mod:`fdg_plugins.explained.in_code` reads them.

    >>> from fdg_plugins.explained import compose, method_names, read_explanation
    >>> method_names()[:3]
    ('am', 'arfl', 'fedavg')
    >>> read_explanation("fedomg").equations[2].formula
    'θ⁺ = θ + η d'
    >>> compose("omg + ga").name
    'fedomg+fedga'
"""

from fdg_plugins.explained.composition import Composition, compose
from fdg_plugins.explained.entry import (
    Difference,
    Equation,
    Explanation,
    Leaving,
    SettingSource,
    method_names,
    read_explanation,
)

__all__ = [
    "Composition",
    "Difference",
    "Equation",
    "Explanation",
    "Leaving",
    "SettingSource",
    "compose",
    "method_names",
    "read_explanation",
]

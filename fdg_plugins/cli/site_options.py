# SPDX-License-Identifier: Apache-2.0
"""``--alpha`` and ``--participation``: settings of many sites, in the terms of papers."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from fdg_plugins.errors import SettingsError

AlphaOption = Annotated[
    float | None,
    typer.Option(
        min=1e-6,
        metavar="A",
        help="Divide a domain over its sites with class proportions drawn from a Dirichlet distribution "
        "with this parameter (partition, dirichlet_alpha).",
        show_default=False,
    ),
]
ParticipationOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        metavar="SHARE",
        help="Share of the sites drawn for a round, such as 0.4 (sites_per_round).",
        show_default=False,
    ),
]


def with_alpha(values: Mapping[str, Any], alpha: float | None, participation: float | None) -> dict[str, Any]:
    """Return the settings of a run, those of ``--alpha`` included; raise ``SettingsError`` for one given twice.

    ``sites_per_round`` follows from the participation once the sites of the run are known.
    """
    own: dict[str, Any] = {} if alpha is None else {"partition": "dirichlet", "dirichlet_alpha": alpha}
    for name in (*own, *([] if participation is None else ["sites_per_round"])):
        if name in values:
            raise SettingsError(f"--set names {name!r}, which --alpha or --participation sets, expected one of them.")
    return {**values, **own}

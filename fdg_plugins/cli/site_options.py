# SPDX-License-Identifier: Apache-2.0
"""``--alpha`` and ``--participation``: settings of many sites, in the terms of papers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdg_plugins.errors import SettingsError

if TYPE_CHECKING:
    from fdg_plugins.plugins.own_dataset import DatasetRef

AlphaOption = Annotated[
    float | None,
    typer.Option(
        min=1e-6,
        metavar="A",
        help="Divide a domain over its sites by a Dirichlet law of the classes with this parameter "
        "(partition, dirichlet_alpha).",
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


def with_sites(
    values: Mapping[str, Any],
    dataset: "DatasetRef | None",
    protocol: str,
    alpha: float | None,
    participation: float | None,
) -> dict[str, Any]:
    """Return the settings of a run, those of the options included; raise ``SettingsError`` for one given twice."""
    own: dict[str, Any] = {} if alpha is None else {"partition": "dirichlet", "dirichlet_alpha": alpha}
    if participation is not None:
        own["sites_per_round"] = _drawn(values, dataset, protocol, participation)
    for name in own:
        if name in values:
            raise SettingsError(f"--set names {name!r}, which --alpha or --participation sets, expected one of them.")
    return {**values, **own}


def _drawn(values: Mapping[str, Any], dataset: "DatasetRef | None", protocol: str, share: float) -> int | None:
    from fdg_plugins.engine.sources import DATASET
    from fdg_plugins.settings.named_protocols import protocol_settings
    from fdg_plugins.settings.participation import drawn_sites, source_sites

    chosen = dataset or DATASET
    return drawn_sites(share, source_sites(chosen, {**protocol_settings(protocol, chosen), **values}))

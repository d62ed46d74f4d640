# SPDX-License-Identifier: Apache-2.0
"""The record of a run that is about to start."""

from collections.abc import Mapping
from datetime import UTC, datetime

from fdg_plugins.data import dataset_spec
from fdg_plugins.record.census import Federation
from fdg_plugins.record.run_record import InitialWeights, Method, RunRecord
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.versions import OF_SERVER, installed_versions


def new_record(
    federation: Federation, protocol: Protocol, method: Method, weights: InitialWeights, code: Mapping[str, str]
) -> RunRecord:
    """Return the record of a run that is about to start; ``code`` is that of the plug-ins that it uses."""
    title = dataset_spec(protocol.dataset).title
    return RunRecord(
        stand_in=federation.stand_in,
        data=f"STAND-IN for {title}" if federation.stand_in else title,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        protocol=protocol,
        method=method,
        initial_weights=weights,
        versions={**installed_versions(OF_SERVER), **code},
        classes=federation.classes,
        sources=federation.sources,
        held_out=federation.held_out,
        census=federation.replies,
    )

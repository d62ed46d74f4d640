# SPDX-License-Identifier: Apache-2.0
"""FLARE's workflow of this package: census, rounds, evaluation on the held-out domain, record of the run."""

from fdg_plugins.controllers.federation import FederationController
from fdg_plugins.record.run_record import SCHEMA_VERSION, RunRecord

__all__ = ["SCHEMA_VERSION", "FederationController", "RunRecord"]

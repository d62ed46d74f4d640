# SPDX-License-Identifier: Apache-2.0
"""This package's FLARE workflow: census, rounds, evaluation on the held-out domain, and the run record."""

from fdg_plugins.controllers.federation import FederationController
from fdg_plugins.record.run_record import SCHEMA_VERSION, RunRecord

__all__ = ["SCHEMA_VERSION", "FederationController", "RunRecord"]

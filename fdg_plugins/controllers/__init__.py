# SPDX-License-Identifier: Apache-2.0
"""This package's FLARE workflows: a run with census, rounds and record, and the evaluation of finished models."""

from fdg_plugins.controllers.evaluation import EvaluationController
from fdg_plugins.controllers.federation import FederationController
from fdg_plugins.record.run_record import RunRecord

__all__ = ["EvaluationController", "FederationController", "RunRecord"]

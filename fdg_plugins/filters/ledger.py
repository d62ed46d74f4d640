# SPDX-License-Identifier: Apache-2.0
"""The location of :mod:`fdg_plugins.privacy.ledger` in version 0.1.0; its names can still be imported from here."""

from fdg_plugins.privacy.ledger import (
    LEDGER_FILE,
    LEDGER_FOLDER,
    LEDGER_VERSION,
    POLICY_FILE,
    BudgetSpentError,
    Fraction,
    Ledger,
    LedgerContent,
    Limits,
    Policy,
    Positive,
    Release,
    ledger_file,
    read_ledger,
    read_limits,
    read_policy,
)

__all__ = [
    "LEDGER_FILE",
    "LEDGER_FOLDER",
    "LEDGER_VERSION",
    "POLICY_FILE",
    "BudgetSpentError",
    "Fraction",
    "Ledger",
    "LedgerContent",
    "Limits",
    "Policy",
    "Positive",
    "Release",
    "ledger_file",
    "read_ledger",
    "read_limits",
    "read_policy",
]

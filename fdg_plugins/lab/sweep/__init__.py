# SPDX-License-Identifier: Apache-2.0
"""A sweep: held-out domains x seeds x methods x settings on one machine, several runs at once, each of them kept."""

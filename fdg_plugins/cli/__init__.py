# SPDX-License-Identifier: Apache-2.0
"""The command ``fdg``: what an operator or a lead does with this package outside a run."""

# SPDX-License-Identifier: Apache-2.0
"""What a researcher needs and a site never: engines, sweeps, references, tables, figures, data preparation, checks.

Nothing outside this wing and the command line imports it.
"""

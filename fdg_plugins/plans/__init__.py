# SPDX-License-Identifier: Apache-2.0
"""What a run will do: plans from config and environment, and whether the parts of a method go together."""

# SPDX-License-Identifier: Apache-2.0
"""The benchmarks are scripts beside the package: their folder is found as it is when one of them runs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

# SPDX-License-Identifier: Apache-2.0
"""One run on this machine, from a method by name or a job folder to a folder that holds its results: ``fdg run``."""

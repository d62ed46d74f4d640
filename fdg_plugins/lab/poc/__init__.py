# SPDX-License-Identifier: Apache-2.0
"""A federation on one machine: provisioned, mutually authenticated, one process tree per participant."""

# SPDX-License-Identifier: Apache-2.0
"""What can be plugged in by name: methods, networks, data sets and tasks, their registries, and who may bring them."""

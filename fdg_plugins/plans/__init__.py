# SPDX-License-Identifier: Apache-2.0
"""The plan of a run: protocol and settings from config and environment, and checks that a method's parts fit."""

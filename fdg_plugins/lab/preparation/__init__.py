# SPDX-License-Identifier: Apache-2.0
"""Data sets as published: brought into the layout of a data root, counted, hashed and compared with a manifest."""

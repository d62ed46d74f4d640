# SPDX-License-Identifier: Apache-2.0
"""State that outlives a round or a process: run folders, files with checksums, a site's memory, and leftovers."""

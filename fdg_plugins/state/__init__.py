# SPDX-License-Identifier: Apache-2.0
"""What outlives a round or a process: the folders of runs, files with checksums, a site's memory, what runs left."""

# SPDX-License-Identifier: Apache-2.0
"""The audit of what leaves a site: what an answer holds, the auditor that notes it, the file and how it is read."""

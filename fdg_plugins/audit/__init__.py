# SPDX-License-Identifier: Apache-2.0
"""The audit of what leaves a site: the contents of an answer, the auditor that records them, and the audit file."""

# SPDX-License-Identifier: Apache-2.0
"""The audit of everything that leaves a site: an answer's contents, the auditor that records them, the audit file."""

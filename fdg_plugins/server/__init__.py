# SPDX-License-Identifier: Apache-2.0
"""Components of the server's own process, which its operator puts into ``local/resources.json``; no job names them.

:mod:`fdg_plugins.flare.rejoin` lets a site that was lost take part again in the jobs that still run.
"""

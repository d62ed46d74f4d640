# SPDX-License-Identifier: Apache-2.0
"""One run on this machine, from a method by name or a job folder to a folder that holds its results.

``prepare`` checks the request and describes the run; ``engine`` is the interface of what executes its job, ``engines``
has the implementations by name, FLARE's simulator the first of them. ``execute`` follows a run to its end,
``folder`` keeps what it leaves, ``progress`` shows it. The command is ``fdg run``; the pieces that runs of a sweep
have too are in ``sweep``.
"""

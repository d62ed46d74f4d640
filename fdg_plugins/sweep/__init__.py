# SPDX-License-Identifier: Apache-2.0
"""A sweep: held-out domains x seeds x methods x settings on one machine, several runs at once, each one kept.

``request`` is what was asked for and ``plan`` what follows from it; ``prepare`` checks all of it before anything
starts. ``execute`` carries the runs out, one ``run_process`` each, in the folders of ``store``; ``estimate`` says how
long that takes and ``progress`` how far it is. The command is ``fdg sweep``.
"""

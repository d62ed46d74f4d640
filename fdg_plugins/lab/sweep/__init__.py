# SPDX-License-Identifier: Apache-2.0
"""A sweep: held-out domains x seeds x methods x settings on one machine, several runs at once, each of them kept.

``request`` defines the request and ``plan`` derives the runs from it; ``prepare`` checks everything before a run
starts. ``execute`` executes the runs, one ``run_process`` each, in the folders of ``store``; ``estimate`` predicts
durations and ``progress`` displays the state. The command is ``fdg sweep``.
"""

# SPDX-License-Identifier: Apache-2.0
"""Check whether this machine is ready for a run: software, hardware, data and settings, each as a :class:`Finding`.

    >>> from fdg_plugins.doctor import recommend
    >>> recommend(cores=2, gpus=(), sites=4, processes=8).command
    'FDG_THREADS=1 FDG_WORKERS=0 nvflare simulator jobs/pacs_fedomg -t 4'
    >>> recommend(cores=16, gpus=("0",), sites=4, processes=8).command
    'FDG_THREADS=4 FDG_WORKERS=3 nvflare simulator jobs/pacs_fedomg -gpu 0,0,0,0'

Nothing is changed, downloaded or sent: the checks look at files, read versions, and try two ports.
"""

from fdg_plugins.doctor.advice import Advice, recommend
from fdg_plugins.doctor.examination import Examination, examine
from fdg_plugins.doctor.finding import Finding, Status, worst

__all__ = ["Advice", "Examination", "Finding", "Status", "examine", "recommend", "worst"]

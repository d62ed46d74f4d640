# SPDX-License-Identifier: Apache-2.0
"""Reports: what sites share in addition to their updates, by name. Each report is declared once.

A method declares its reports in its record, as the :class:`~fdg_plugins.plugins.method.Leaving` entries with the
report's name; reports that belong to a setting or a task rather than a method are declared below. The allowed values of
a site's ``allowed_reports`` and the disclosure table are derived from these declarations.

A filter at the server validates each report, adds its value to the answer's :class:`CheckedReports` and changes nothing
else. The workflow commits an update and its reports together.
"""

from dataclasses import replace
from typing import Any

from fdg_plugins.plugins.method import NORMALIZATION, TRAINING_LOSS, Leaving

REPORT_LOCAL_MODEL = "local_model"
REPORT_STATISTICS = "normalization_statistics"
REPORT_GROUPS = "group_scores"
REPORT_SCORES = "score_counts"
REPORT_EVALUATION = "evaluation"

OF_SETTINGS = (
    Leaving(
        what="the model that the site trained in the last round, kept among the job's results (`keep_local_models`)",
        shape="the model",
        when="the last round",
        reveals="what the update tells, to whoever downloads the results",
        report=REPORT_LOCAL_MODEL,
    ),
    NORMALIZATION,
    replace(TRAINING_LOSS, when="only with gap_split train"),
    Leaving(
        what="how many images of each group (a class with or without an attribute) there are, and how many of them a "
        "model classifies correctly, with every loss and accuracy of that model",
        shape="4 numbers per class",
        when="only with task group_classification: every evaluation, those of the held-out site among them",
        reveals="how many images of each class have the attribute; of a group of one image, whether it is classified "
        "correctly",
        report=REPORT_GROUPS,
    ),
    Leaving(
        what="how many pixels (voxels) of each class but the background a model finds, misses, and finds where there "
        "are none, with every loss and score of that model",
        shape="3 numbers per class",
        when="only with task segmentation: every evaluation, those of the held-out site among them",
        reveals="the area (volume) of each class in all images of the split; with one validation image, in that image",
    ),
    Leaving(
        what="how many images have each label, and how many of them a model gives which class and which probability, "
        "in 512 bins; of masks, mean distances",
        shape="at most 1,026 + Y numbers per class",
        when="only with `scores`: every evaluation of a model that was sent, those of the held-out site among them",
        reveals="how many images of each class there are, and how sure a model is of at least `least_count` of them",
        report=REPORT_SCORES,
    ),
    Leaving(
        what="the scores of a finished model as sums and counts, and how many images it and another model classify "
        "correctly; none of a histogram with fewer images than the site's `least_count`",
        shape="1,026 + Y numbers per class, 4 per pair of models",
        when="only in the job evaluate",
        reveals="how well the models do on the site's images",
        report=REPORT_EVALUATION,
    ),
)


class CheckedReports(dict[str, Any]):
    """The values that the server's filters have read from the reports in one answer, by report.

    Instances are created only in the server's process: data that a site sends under the same key is never an instance
    of this class. ``looked_at`` are the reports that a filter looked for, ``refused`` the reasons for those it could
    not use, ``num_bytes`` the number of bytes received.
    """

    def __init__(self) -> None:
        super().__init__()
        self.looked_at: set[str] = set()
        self.refused: dict[str, str] = {}
        self.num_bytes = 0

    @classmethod
    def of(cls, found: Any) -> "CheckedReports":
        """Return a copy of the results of earlier filters; an empty one if the value came from the site itself."""
        copy = cls()
        if isinstance(found, cls):
            copy.update(found)
            copy.looked_at, copy.refused = set(found.looked_at), dict(found.refused)
            copy.num_bytes = found.num_bytes
        return copy

    def note(self, name: str, value: Any = None, *, refused: str | None = None, num_bytes: int = 0) -> None:
        """Record the outcome for the report ``name``: its value, or why it cannot be used, or that none came."""
        self.looked_at.add(name)
        self.num_bytes += num_bytes
        if refused is not None:
            self.refused[name] = refused
        elif value is not None:
            self[name] = value

# SPDX-License-Identifier: Apache-2.0
"""FLARE's workflow for the evaluation of finished models at sites that never trained: census, one task per model."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.controllers.messenger import Messenger, Request, task_message
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import CensusError, ContributionError, SettingsError
from fdg_plugins.flare.context import allowed_at_server, named_sites
from fdg_plugins.messages import MOST_MODELS, TASK_SCORE, CensusReply, CensusRequest, ModelScores, TaskRequest
from fdg_plugins.plugins.files import admit
from fdg_plugins.plugins.own_dataset import DatasetRef, read_own_dataset
from fdg_plugins.plugins.versions import OF_AUDIT, OF_SERVER, installed_versions
from fdg_plugins.record.census import Federation, check_versions, take_census
from fdg_plugins.record.evaluation import (
    EvaluatedModel,
    EvaluationResult,
    FinishedModel,
    SiteScores,
    check_models,
    read_model,
)
from fdg_plugins.record.method_settings import method_label
from fdg_plugins.record.run_files import EVALUATION_FILE, MODELS_FOLDER
from fdg_plugins.settings.protocol import EVERY
from fdg_plugins.storage import load_tensors, sha256_of, write_json
from fdg_plugins.tasks import Counts
from fdg_plugins.tasks.counts import CONFIDENCE, CONFUSION, PROBABILITIES


class EvaluationController(Messenger):
    """Has every site evaluate the models in the job's server app, ``models/<name>/``; nothing is trained.

    A site that cannot take part, forbids it, or holds a domain on which a model was trained is left out with the
    reason. The result is ``evaluation.json``.

    The constructor validates nothing.

    Args:
        models: names of these folders; the others are compared with the first. Default: all, sorted.
        dataset: the data set of the sites, a name or the description of one's own; default: that of the first model.
    """

    def __init__(self, models: list[str] | None = None, dataset: str | dict[str, Any] | None = None) -> None:
        super().__init__()
        self.models = models
        self.dataset = dataset

    def carry_out(self) -> None:
        """Evaluate the models one after the other, and write the result."""
        models = self._models()
        given = models[0].record.protocol.dataset if self.dataset is None else self.dataset
        dataset = read_own_dataset(given) if isinstance(given, dict) else given
        check_models(models, dataset)
        federation, left_out = self._census(models, dataset)
        result = _new_result(str(self.fl_ctx.get_job_id()), models, dataset, federation, left_out)
        self._mark = "STAND-IN" if result.stand_in else ""
        for number, model in enumerate(models):
            self._evaluate(number, model, dataset, federation, result)
        write_json(Path(self.get_run_dir()) / EVALUATION_FILE, result.model_dump(mode="json"))
        self.say(f"finished; the result is {EVALUATION_FILE}")

    def _models(self) -> list[FinishedModel]:
        folder = Path(self.engine.get_workspace().get_app_dir(self.fl_ctx.get_job_id())) / MODELS_FOLDER[-1]
        there = sorted(place.name for place in folder.glob("*") if place.is_dir())
        names = there if self.models is None else self.models
        if not isinstance(names, list) or not 1 <= len(names) <= MOST_MODELS or any(one not in there for one in names):
            expected = f"1 to {MOST_MODELS} folders of finished runs in {folder.name}/ of the job's server app"
            raise SettingsError(field="models", value=names, expected=expected)
        models = [read_model(folder / name) for name in names]
        for model in models:
            admit(model.record.protocol.uses, (), None, allowed_at_server(self.fl_ctx))
        return models

    def _census(self, models: Sequence[FinishedModel], dataset: DatasetRef) -> tuple[Federation, dict[str, str]]:
        protocol, run = models[0].protocol(dataset, len(models)), str(self.fl_ctx.get_job_id())
        request = CensusRequest(protocol=protocol, stand_in_protocol=protocol, run=run, goes_on=False)
        replies, left_out = self.count_images(request, protocol.task_timeout)
        absent = named_sites(self.fl_ctx) - replies.keys() - left_out.keys()
        left_out |= dict.fromkeys(absent, "was not connected when the job started.")
        for model in models:
            for site, reply in [*replies.items()]:
                if model.trained_on(dataset, reply.domain, stand_in=reply.stand_in):
                    left_out[site] = f"model {model.name} was trained on its domain, {reply.domain!r}."
                    del replies[site]
        if not replies:
            told = "; ".join(f"{site}: {reason}" for site, reason in sorted(left_out.items()))
            raise CensusError(f"no site evaluates these models: {told}")
        federation = take_census(replies, {}, EVERY, protocol.learned)
        check_versions(federation, installed_versions(OF_AUDIT))
        return federation, dict(sorted(left_out.items()))

    def _evaluate(
        self, number: int, model: FinishedModel, dataset: DatasetRef, federation: Federation, result: EvaluationResult
    ) -> None:
        protocol = model.protocol(dataset, len(result.models))
        request = TaskRequest(protocol=protocol, stand_in=result.stand_in, run=result.job)
        data = task_message(request, number + 1, load_tensors(model.file))
        take = partial(take_scores, number, result, federation.replies)
        failures = self.ask([Request(TASK_SCORE, federation.held_out, data, take)], protocol.task_timeout)
        for site, reason in failures.items():
            result.sites[site].failures[model.name] = reason
        answered = len(federation.held_out) - len(failures)
        self.say(f"model {model.name}: evaluated by {answered} of {len(federation.held_out)} sites")


def _new_result(
    job: str, models: Sequence[FinishedModel], dataset: DatasetRef, federation: Federation, left_out: dict[str, str]
) -> EvaluationResult:
    title, protocol = dataset_spec(dataset).title, models[0].protocol(dataset, len(models))
    told = [
        EvaluatedModel(
            name=one.name,
            sha256=sha256_of(one.file),
            method=method_label(one.record),
            trained_on=one.record.data,
            sources=one.source_domains,
        )
        for one in models
    ]
    return EvaluationResult(
        job=job,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        task=protocol.task,
        scores=protocol.scores,
        data=f"STAND-IN for {title}" if federation.stand_in else title,
        stand_in=federation.stand_in,
        classes=federation.classes,
        models=tuple(told),
        sites={site: SiteScores(domain=one.domain, images=one.num_test) for site, one in federation.replies.items()},
        left_out=left_out,
        versions=installed_versions(OF_SERVER),
    )


def take_scores(
    number: int, result: EvaluationResult, census: Mapping[str, CensusReply], site: str, answer: FLModel
) -> None:
    """Add a site's scores of a model to the result; raise ``ContributionError`` if they contradict what is known."""
    found = ModelScores.read(answer.metrics, f"site {site}: scores", ContributionError)
    own, names = result.sites[site].models, [model.name for model in result.models]
    try:
        counts = result.checked(site, number, found)
        if result.learned.one_class_per_image:
            _check_classes(counts, found, census[site])
    except ValueError as error:
        raise ContributionError(f"site {site}: {error}.") from error
    pairs = {other: pair for other, pair in found.pairs.items() if names[int(other)] in own}
    own[names[number]] = found.model_copy(update={"pairs": pairs})


def _check_classes(counts: Counts, found: ModelScores, reply: CensusReply) -> None:
    """Raise ``ValueError`` if counts are not of the images of each class in the census; those withheld are 0."""
    there = ~np.isin(np.arange(len(reply.class_counts)), found.withheld)
    if len(found.withheld) != (~there).sum():
        raise ValueError("it withholds the counts of other classes than it has")
    members = there * np.array(reply.class_counts)
    expected = {
        PROBABILITIES: np.stack([there * found.count - members, members], axis=1),
        CONFUSION: members,
        CONFIDENCE: [found.count],
    }
    for name, one in counts.items():
        images = one.sum(axis=(1, 2)) if name == CONFIDENCE else one.sum(axis=-1)
        if not np.array_equal(images, expected[name]):
            raise ValueError(f"its {name} are not of the images that it counted in the census")

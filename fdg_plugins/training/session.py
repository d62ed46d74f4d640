# SPDX-License-Identifier: Apache-2.0
"""One site's work under one protocol: its data, and each task on the received model."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from fdg_plugins.calling import calling
from fdg_plugins.core.steps import effective_steps
from fdg_plugins.core.travel import Rule
from fdg_plugins.data import (
    DomainData,
    SharedDomains,
)
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.messages import (
    MOST_NAMES,
    CensusReply,
    Evaluation,
    TrainReport,
)
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.models.batch_norm import batch_norm_layers, norm_layers
from fdg_plugins.objectives import (
    FeatureBatch,
    SiteRound,
    Trained,
    build_network,
    image_shape,
    kept_names,
    make_objective,
    reestimated_layers,
    see,
    travel_rules,
)
from fdg_plugins.randomness import seeded
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.state.site_memory import Kept
from fdg_plugins.tasks import TASKS
from fdg_plugins.training.compiling import BACKEND, check_compiler
from fdg_plugins.training.judging import Report, report_and_judge
from fdg_plugins.training.loop import (
    Batches,
    DevicePolicy,
    LocalTraining,
    ShouldStop,
    evaluate,
    placed,
    train_locally,
)
from fdg_plugins.training.networks import SharedNetworks
from fdg_plugins.training.optimizers import make_optimizer, momentum_of, restore_momentum
from fdg_plugins.training.parts import local_objective, memory_of, own_model, report_of, reporting
from fdg_plugins.training.permissions import check_reports_allowed, check_statistics_allowed, refuse_held_out
from fdg_plugins.training.personal import fine_tune
from fdg_plugins.training.precision import device_policy
from fdg_plugins.training.results import TrainResult, evaluation_of, make_update, personal_part
from fdg_plugins.training.site_images import SiteImages
from fdg_plugins.training.statistics import measure_statistics, payload_of, reestimate
from fdg_plugins.versions import OF_SITE, installed_versions


class SiteSession:
    """A site's tasks under one protocol. Opens the data once; holds no state that must survive a round.

    ``cache``, ``left_out``, ``shared``: as in :class:`~fdg_plugins.training.site_images.SiteImages`. ``networks``: the
    network that has been built for other sites of this process.
    """

    def __init__(
        self,
        site: str,
        config: SiteConfig,
        protocol: Protocol,
        cache: Path | None = None,
        left_out: frozenset[str] = frozenset(),
        shared: SharedDomains | None = None,
        networks: SharedNetworks | None = None,
    ) -> None:
        self.site = site
        self.config = config
        self.protocol = protocol
        self.task = TASKS.get(protocol.task)
        self.objective = make_objective(protocol.objective)
        self._build_network = build_network if networks is None else networks.build
        self.policy: DevicePolicy = device_policy(protocol, config.torch_device())
        self.images = SiteImages(site, config, protocol, self.policy.device, cache, left_out, shared)

    @property
    def data(self) -> DomainData:
        """The site's images and classes; a census may replace them."""
        return self.images.data

    def census(self, should_stop: ShouldStop = lambda: False) -> CensusReply:
        """Decode every image once and return the site's counts, without information on any single image.

        Damaged images raise ``DataError`` or are left out from now on, as the site's config says. Raises
        :class:`Stopped` within one image once ``should_stop()`` is true.
        """
        if self.config.compile:
            check_compiler(self.policy.device)
        self.images.look(should_stop)
        data = self.data
        return CensusReply(
            domain=self.images.domain,
            dataset=data.dataset,
            stand_in=self.images.stand_in,
            classes=data.classes,
            class_counts=self.task.class_counts(self._used(), len(data.classes)),
            num_train=len(data.train),
            num_validation=len(data.validation),
            num_test=len(data.test),
            split=data.split,
            split_hash=data.split_hash,
            skipped=data.skipped[:MOST_NAMES] if self.config.report_names else (),
            num_skipped=len(data.skipped),
            num_damaged=len(data.left_out),
            role=self.config.role,
            allowed_reports=self.config.allowed_reports,
            device=str(self.policy.device),
            precision=self.policy.precision,
            compiled=self.config.compile,
            versions=installed_versions(OF_SITE),
        )

    def _used(self) -> tuple[Any, ...]:
        """Return the site's images in the run: those it trains and validates on, or on which the target is judged.

        A list of the site's own, and the share of a domain, may leave a source others to be judged on.
        """
        data = self.data
        return data.test if self.images.domain == self.protocol.target else (*data.train, *data.validation)

    def load(
        self, state: Mapping[str, torch.Tensor], personal: Mapping[str, torch.Tensor] | None = None
    ) -> ExtractorClassifier:
        """Return the protocol's model with the received parameters, on the site's device; frozen parameters are fixed.

        ``personal``: the site's own parameters and buffers; without them, the received values are used. Raises
        ``SettingsError`` if a received shape differs from the model's, ``DataError`` if ``personal`` does not fit.
        """
        model = self._build_network(self.protocol, len(self.data.classes))
        expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        received = {name: tuple(value.shape) for name, value in state.items()}
        if expected != received:
            name = min(set(expected.items()) ^ set(received.items()))[0]
            raise SettingsError(
                f"parameter {name!r} of the model received has shape {received.get(name)}, "
                f"but {self.protocol.model!r} here has {expected.get(name)}.",
                public=True,
            )
        rules = travel_rules(model, self.protocol)
        own = _own(kept_names(model, self.protocol), expected, personal or {})
        model.load_state_dict({**state, **own})
        model.hold(rules.names(Rule.FROZEN))
        return self.policy.place(model)

    def evaluate(
        self, model: torch.nn.Module, split: Literal["train", "validation", "test"], should_stop: ShouldStop
    ) -> Evaluation:
        """Return the score of ``model`` on one split of the site's domain."""
        batches = self.images.unchanged(getattr(self.data, split))
        size = self.protocol.image_size
        return evaluation_of(split, evaluate(model, batches, self.policy, should_stop, self.task, size))

    def evaluate_own(
        self,
        state: Mapping[str, torch.Tensor],
        round_number: int,
        should_stop: ShouldStop,
        received: Mapping[str, torch.Tensor] | None = None,
        memory: Mapping[str, torch.Tensor] | None = None,
        personal: Mapping[str, torch.Tensor] | None = None,
    ) -> Evaluation:
        """Return the score of the site's own model on its validation split, as the method makes it from ``state``.

        The arguments are those of :meth:`train`. The method must have such models (``Objective.personalises``).
        """
        rate = self.protocol.learning_rate_at(round_number)
        site_round = self._site_round(round_number, memory or {})
        model = self.load(state, personal)
        own = own_model(self.objective, model, received or {}, site_round)
        if own.tuning is not None:
            self._check_batches(model)
            with seeded(self.protocol.seed, self.site, round_number, "personal layers", device=self.policy.device):
                fine_tune(
                    model,
                    own.tuning,
                    lambda count: self.images.epochs(count, round_number, "personal"),
                    rate,
                    self.protocol,
                    self.task,
                    self.policy,
                    should_stop,
                    len(self.data.train),
                )
            self._reestimate(model, should_stop)
        return self.evaluate(own.network, "validation", should_stop)

    def statistics(
        self,
        state: Mapping[str, torch.Tensor],
        should_stop: ShouldStop,
        personal: Mapping[str, torch.Tensor] | None = None,
    ) -> dict[str, torch.Tensor]:
        """Return the sums over the inputs of the received model's BatchNorm layers, as ``payload_of`` names them.

        Raises ``SettingsError`` if the site's domain is held out or the site forbids this report.
        """
        refuse_held_out(self.images.domain, self.protocol)
        check_statistics_allowed(self.config.allowed_reports)
        model = self.load(state, personal)
        layers = reestimated_layers(model, self.protocol)
        return payload_of(
            measure_statistics(model, layers, self._training_images(should_stop, shuffled=True), self.policy)
        )

    def probe(
        self,
        state: Mapping[str, torch.Tensor],
        should_stop: ShouldStop,
        personal: Mapping[str, torch.Tensor] | None = None,
    ) -> dict[str, torch.Tensor]:
        """Return the method's report on the received model, before any training.

        Raises ``SettingsError`` if the site's domain is held out or the site forbids a report that is needed.
        """
        self._check_may_train()
        model = self.load(state, personal)
        return self._report_of(reporting(self.objective, self.objective.report_received), model, should_stop)

    def train(
        self,
        state: Mapping[str, torch.Tensor],
        round_number: int,
        should_stop: ShouldStop,
        on_epoch: Callable[[int, float], None],
        received: Mapping[str, torch.Tensor] | None = None,
        kept: Kept | None = None,
    ) -> TrainResult:
        """Train for one round, counted from 0, and return the result.

        ``received``: the method's tensors sent with the model. ``kept``: what the site kept when it last trained.
        Raises ``SettingsError`` if the site's domain is held out, the site forbids a report that is needed, or
        BatchNorm cannot train on its batches; ``DataError`` if what it kept does not fit.
        """
        self._check_may_train()
        kept = kept or Kept()
        model, objective = self.load(state, kept.personal), self.objective
        rules = travel_rules(model, self.protocol)
        if self.config.compile:
            model.compile_for_training(BACKEND)
        learning_rate = self.protocol.learning_rate_at(round_number)
        own_score = None
        if objective.personalises:
            own_score = self.evaluate_own(state, round_number, should_stop, received, kept.memory, kept.personal)
        site_round = self._site_round(round_number, kept.memory)
        local = local_objective(objective, received or {}, model, site_round)
        self._check_batches(model)
        before, tensors = self._judge(model, should_stop, None if objective.probes else objective.report_received)
        with calling("objective", local):
            local.observe_received(model, *self._seen(model, should_stop, shuffled=True))
        trained = {**dict(model.named_parameters()), **_named(local.parameters())}
        optimizer = make_optimizer(trained.values(), self.protocol, learning_rate, self.policy.device)
        restore_momentum(optimizer, trained, kept.momentum if self.protocol.keep_momentum else {})
        epochs = self.images.epochs(self.protocol.local_epochs + objective.more_epochs, round_number)
        with seeded(self.protocol.seed, self.site, round_number, "layers", device=self.policy.device):  # dropout
            training = train_locally(model, local, epochs, optimizer, self.policy, should_stop, on_epoch)
        self._reestimate(model, should_stop)
        after, more = self._judge(model, should_stop, objective.report_trained)
        with calling("objective", local):
            local.observe_trained(model, *self._seen(model, should_stop, shuffled=True))
        report = self._report(before, after, training, learning_rate, own_score)
        update = make_update(model.state_dict(), {name: state[name] for name in rules.names(Rule.SHARED)})
        done = Trained(update, report.steps, report.effective_steps)
        tensors |= more | report_of(objective, local, done)
        own = personal_part(model, kept_names(model, self.protocol))
        momentum = momentum_of(optimizer, trained) if self.protocol.keep_momentum else {}
        return TrainResult(update, report, tensors, Kept(memory_of(objective, local, done), own, momentum))

    def _reestimate(self, model: ExtractorClassifier, should_stop: ShouldStop) -> None:
        """Replace the statistics of a trained model before it is judged, if those of the model received are."""
        if layers := reestimated_layers(model, self.protocol):
            reestimate(model, layers, self._training_images(should_stop, shuffled=True), self.policy)

    def _check_batches(self, model: ExtractorClassifier) -> None:
        """Raise ``SettingsError`` if batches have one image, of which a BatchNorm layer would see a single position."""
        num_train, batch_size = len(self.data.train), self.protocol.batch_size
        if min(num_train, batch_size) > 1:  # a single image that is left over joins the batch before it
            return
        trained = [name for name, layer in batch_norm_layers(model).items() if not model.holds(layer)]
        image = torch.zeros(image_shape(self.protocol), device=self.policy.device)
        small = [name for name, layer in norm_layers(model, trained, image).items() if layer.positions == 1]
        if small:
            raise SettingsError(
                f"batches have one image (of {num_train} for training, with batch_size {batch_size}), and BatchNorm "
                f"cannot train {small[0]!r} on it, where {self.protocol.image_size} pixels leave one position: "
                "expected batches of two, larger images, or a network without BatchNorm.",
                public=True,
            )

    def _check_may_train(self) -> None:
        refuse_held_out(self.images.domain, self.protocol)
        check_reports_allowed(self.config.allowed_reports, self.protocol, self.objective)

    def _site_round(self, round_number: int, memory: Mapping[str, torch.Tensor]) -> SiteRound:
        """Return what an objective knows of the site and the round."""
        protocol = self.protocol
        learning_rate = protocol.learning_rate_at(round_number)
        counts = self.task.class_counts(self.data.train, len(self.data.classes))
        return SiteRound(
            self.site,
            round_number,
            protocol.seed,
            learning_rate,
            protocol.momentum,
            memory,
            self.task,
            protocol.local_epochs,
            counts,
        )

    def _judge(
        self, model: ExtractorClassifier, should_stop: ShouldStop, report: Report | None
    ) -> tuple[list[Evaluation], dict[str, torch.Tensor]]:
        """Return the scores and the tensors that ``report`` computes on the training split, if it is given.

        The scores are on the validation split and, if the gap is measured there, also on the training split.
        """
        report = report and reporting(self.objective, report)
        scores = [self.evaluate(model, "validation", should_stop)]
        if self.protocol.gap_split != "train":
            return scores, {} if report is None else self._report_of(report, model, should_stop)
        if report is None or self.data.images.reports_differ:
            tensors = {} if report is None else self._report_of(report, model, should_stop)
            return [*scores, self.evaluate(model, "train", should_stop)], tensors
        images, classes = self._training_images(should_stop), len(self.data.classes)
        size = self.protocol.image_size
        tensors, score = report_and_judge(report, model, images, classes, self.policy, self.task, size)
        return [*scores, evaluation_of("train", score)], tensors

    def _report_of(
        self, report: Report, model: ExtractorClassifier, should_stop: ShouldStop
    ) -> dict[str, torch.Tensor]:
        return report(model, *self._seen(model, should_stop))

    def _seen(
        self, model: ExtractorClassifier, should_stop: ShouldStop, *, shuffled: bool = False
    ) -> tuple[Iterator[FeatureBatch], int]:
        """Return the features of the training split, computed on reading, and the number of classes."""

        def batches() -> Batches:  # a generator, because most methods read none of them
            yield from self._training_images(should_stop, shuffled=shuffled)

        return see(model, batches(), self.task, self.protocol.image_size), len(self.data.classes)

    def _training_images(self, should_stop: ShouldStop, *, shuffled: bool = False) -> Batches:
        """Return the batches of the training split on the device, as :meth:`SiteImages.reported` describes them."""
        return placed(self.images.reported(shuffled=shuffled), self.policy, should_stop)

    def _report(
        self,
        before: list[Evaluation],
        after: list[Evaluation],
        training: LocalTraining,
        learning_rate: float,
        personal: Evaluation | None,
    ) -> TrainReport:
        return TrainReport(
            domain=self.images.domain,
            received=before[0],
            local=after[0],
            training_split=(before[1], after[1]) if len(before) > 1 else None,
            personal=personal,
            epoch_losses=training.epoch_losses,
            steps=training.steps,
            effective_steps=effective_steps(training.steps, self.protocol.momentum),
            learning_rate=learning_rate,
            seconds=training.seconds,
        )


def _named(parameters: Iterable[torch.nn.Parameter]) -> dict[str, torch.nn.Parameter]:
    """Return a method's own parameters by names that no parameter of a network has."""
    return {f"objective/{number}": parameter for number, parameter in enumerate(parameters)}


def _own(
    names: Iterable[str], shapes: Mapping[str, tuple[int, ...]], kept: Mapping[str, torch.Tensor]
) -> Mapping[str, torch.Tensor]:
    """Return the kept parameters and buffers; raise ``DataError`` if their names or shapes are not as expected."""
    expected = {name: shapes[name] for name in names}
    if kept and {name: tuple(value.shape) for name, value in kept.items()} != expected:
        raise DataError("the personal parameters that the site kept are not those of this network.", public=True)
    return kept

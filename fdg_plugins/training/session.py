# SPDX-License-Identifier: Apache-2.0
"""One site's work under one protocol: its data, and each task on the received model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from fdg_plugins.core.steps import effective_steps
from fdg_plugins.core.travel import Rule
from fdg_plugins.data import DomainData, SharedDomains
from fdg_plugins.errors import DataError, SettingsError, calling
from fdg_plugins.messages import MOST_NAMES, CensusReply, Evaluation, TrainReport
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.models.batch_norm import batch_norm_layers, norm_layers
from fdg_plugins.objectives import FeatureBatch, LocalObjective, SiteRound, Trained, image_shape, make_objective, see
from fdg_plugins.objectives.network import kept_names, reestimated_layers, travel_rules
from fdg_plugins.plugins.versions import OF_SITE, code_of, installed_versions
from fdg_plugins.randomness import seeded
from fdg_plugins.settings.protocol import EVERY, Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.state.site_memory import Kept
from fdg_plugins.tasks import Score
from fdg_plugins.tasks.counts import BY_CLASS
from fdg_plugins.training.loop import (
    BACKEND,
    Batches,
    DevicePolicy,
    LocalTraining,
    OnEpoch,
    ShouldStop,
    check_compiler,
    device_policy,
    evaluate,
    placed,
    train_locally,
    why_slow,
)
from fdg_plugins.training.networks import SharedNetworks
from fdg_plugins.training.optimizers import fine_tune, make_optimizer, momentum_of, restore_momentum
from fdg_plugins.training.results import TrainResult, evaluation_of, few_of, make_update, personal_part
from fdg_plugins.training.site_images import SiteImages
from fdg_plugins.training.statistics import measure_statistics, payload_of, reestimate

Tensors = Mapping[str, torch.Tensor]
Split = Literal["train", "validation", "test"]
Report = Callable[[ExtractorClassifier, Iterable[FeatureBatch], int], dict[str, torch.Tensor]]


class SiteSession:
    """A site's tasks under one protocol. Opens the data once; holds no state that must survive a round.

    ``cache``, ``left_out``, ``shared``: as in :class:`~fdg_plugins.training.site_images.SiteImages`. ``networks``: the
    network that has been built for other sites of this process. ``should_stop``: once it returns true, a task raises
    :class:`~fdg_plugins.errors.Stopped` within one batch, or one image of the census.
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
        self.should_stop: ShouldStop = lambda: False
        self.task = protocol.learned
        self.objective = make_objective(protocol.objective)
        self._networks = networks or SharedNetworks()
        self.policy: DevicePolicy = device_policy(protocol, config.torch_device())
        self.images = SiteImages(site, config, protocol, self.policy.device, cache, left_out, shared)

    @property
    def data(self) -> DomainData:
        """The site's images and classes; a census may replace them."""
        return self.images.data

    @property
    def versions(self) -> dict[str, str]:
        """With which packages, and plug-ins in use, this process computes."""
        return {**installed_versions(OF_SITE), **code_of(self.protocol.uses, self.protocol.plugins)}

    @cached_property
    def threads(self) -> int:
        """How many of the threads that the site may use its training and evaluation are worth."""
        most = self.config.threads or torch.get_num_threads()
        if most == 1 or self.policy.device.type != "cpu":
            return most
        return self._networks.threads(self.protocol, len(self.data.classes), most)

    # --- census ---

    def census(self) -> CensusReply:
        """Decode every image once and return the site's counts, without information on any single image.

        Damaged images raise ``DataError`` or are left out from now on, as the site's config says.
        """
        if self.config.compile:
            check_compiler(self.policy.device)
        self.images.look(self.should_stop)
        data = self.data
        # A list of the site's own, and the share of a domain, may leave a source others to be evaluated on.
        held_out = self.protocol.holds_out(self.images.domain)
        used = data.test if held_out else (*data.train, *data.validation)
        self._refuse_few(data.test if held_out else data.validation)
        return CensusReply(
            domain=self.images.domain,
            dataset=data.dataset,
            stand_in=self.images.stand_in,
            classes=data.classes,
            class_counts=self.task.class_counts(used, len(data.classes)),
            num_train=len(data.train),
            num_validation=len(data.validation),
            num_test=len(data.test),
            split=data.name,
            split_hash=data.digest,
            skipped=data.skipped[:MOST_NAMES] if self.config.report_names else (),
            num_skipped=len(data.skipped),
            num_damaged=len(data.left_out),
            role=self.config.role,
            allowed_reports=self.config.allowed_reports,
            device=str(self.policy.device),
            precision=self.policy.precision,
            compiled=self.config.compile,
            threads=self.threads,
            versions=self.versions,
        )

    def census_lines(self, reply: CensusReply) -> Iterator[str]:
        """Yield what the site's own log says of its answer to the census; these lines name files, and stay there."""
        counts = f"{reply.num_train} train, {reply.num_validation} validation, {reply.num_test} test"
        domain = f"domain {reply.domain}"
        yield f"{domain}: {counts}; split {reply.split}; device {reply.device}, {reply.precision}"
        if (reason := why_slow(self.policy)) is not None:
            yield reason
        absent = [name for name, count in zip(reply.classes, reply.class_counts, strict=True) if not count]
        if absent:
            yield f"{domain} has no image of {len(absent)} classes: {', '.join(absent)}"
        yield from (f"skipped {one}, which is mislabelled or excluded by the site" for one in self.data.skipped)
        yield from (f"{domain}, not used: {unused}" for unused in self.data.unused)
        yield from (f"left out {one}, which cannot be read, is too large or does not fit" for one in self.data.left_out)

    def _refuse_few(self, evaluated: Sequence[Any]) -> None:
        """Raise ``DataError`` if a run asks for histograms of fewer images than the site lets leave.

        Those of a finished model are withheld class by class instead.
        """
        reads, least, images = {*self.task.reads}, self.config.least_count, len(evaluated)
        if not reads or self.protocol.target == EVERY:
            return
        members = np.array(self.task.class_counts(evaluated, len(self.data.classes)))
        if images < least or (reads & BY_CLASS and few_of(members, images, least).size):
            text = f"the scores need a histogram of fewer images than its least_count, {least}."
            raise DataError(text, public=True)

    # --- tasks ---

    def load(self, state: Tensors, personal: Tensors | None = None) -> ExtractorClassifier:
        """Return the protocol's model with the received parameters, on the site's device; frozen parameters are fixed.

        ``personal``: the site's own parameters and buffers; without them, the received values are used. Raises
        ``SettingsError`` if a received shape differs from the model's.
        """
        built_for = (self.protocol, len(self.data.classes))
        expected, received = _shapes(self._networks.built(*built_for).state_dict()), _shapes(state)
        if expected != received:
            name = min(set(expected.items()) ^ set(received.items()))[0]
            came = f"parameter {name!r} of the model received has shape {received.get(name)}"
            text = f"{came}, but {self.protocol.model!r} here has {expected.get(name)}."
            raise SettingsError(text, public=True)
        model = self._networks.filled(*built_for, {**state, **(personal or {})})
        self._rules = travel_rules(model, self.protocol)
        model.hold(self._rules.names(Rule.FROZEN))
        return self.policy.place(model)

    def evaluate(self, model: torch.nn.Module, split: Split, *, counted: bool = True) -> Evaluation:
        """Return the score of ``model`` on one split of the site's domain.

        ``counted``: whether with the scores that the protocol asks for, which nobody needs of a model that is not kept.
        """
        batches = self.images.unchanged(getattr(self.data, split))
        size, task = self.protocol.image_size, self.task if counted else self.task.asked(())
        return evaluation_of(split, evaluate(model, batches, self.policy, self.should_stop, task, size))

    def score(self, model: torch.nn.Module) -> tuple[Score, torch.Tensor]:
        """Return the score of a finished ``model`` on the N images that evaluate the domain, and of each of them.

        The second is what :meth:`Task.each` returns, in the order of the images.
        """
        each = list[torch.Tensor]()

        def add(logits: torch.Tensor, targets: torch.Tensor) -> None:
            each.append(self.task.each(logits, targets).cpu())

        batches, size = self.images.unchanged(self.data.test), self.protocol.image_size
        found = evaluate(model, batches, self.policy, self.should_stop, self.task, size, add)
        return found, torch.cat(each)

    def evaluate_own(
        self, state: Tensors, round_number: int, received: Tensors | None = None, kept: Kept | None = None
    ) -> Evaluation:
        """Return the score of the site's own model on its validation split, as the method makes it from ``state``.

        The arguments are those of :meth:`train`. The method must have such models (``Objective.personalises``).
        """
        kept = kept or Kept()
        site_round = self._site_round(round_number, kept.memory)
        model = self.load(state, kept.personal)
        with calling("objective", self.objective):
            own = self.objective.personal(model, received or {}, site_round)
        if own.tuning is not None:
            self._check_batches(model)
            epochs = partial(self.images.epochs, purpose="personal", round_number=round_number)
            rate, num_train = site_round.learning_rate, len(self.data.train)
            how = (rate, self.protocol, self.policy, self.should_stop, num_train)
            with seeded(self.protocol.seed, self.site, round_number, "personal layers", device=self.policy.device):
                fine_tune(model, own.tuning, epochs, *how)
            self._reestimate(model)
        return self.evaluate(own.network, "validation")

    def statistics(self, state: Tensors, personal: Tensors | None = None) -> dict[str, torch.Tensor]:
        """Return the sums over the inputs of the received model's BatchNorm layers, as ``payload_of`` names them.

        Raises ``SettingsError`` if the site's domain is held out.
        """
        self._refuse_held_out()
        model = self.load(state, personal)
        layers, images = reestimated_layers(model, self.protocol), self._training_images(shuffled=True)
        return payload_of(measure_statistics(model, layers, images, self.policy))

    def probe(self, state: Tensors, personal: Tensors | None = None) -> dict[str, torch.Tensor]:
        """Return the method's report on the received model, before any training.

        Raises ``SettingsError`` if the site's domain is held out.
        """
        self._refuse_held_out()
        model = self.load(state, personal)
        with calling("objective", self.objective):
            return self.objective.report_received(model, *self._seen(model))

    def train(
        self,
        state: Tensors,
        round_number: int,
        on_epoch: OnEpoch = lambda epoch, loss: None,
        received: Tensors | None = None,
        kept: Kept | None = None,
    ) -> TrainResult:
        """Train for one round, counted from 0, and return the result.

        ``on_epoch``: receives number and mean loss of each epoch. ``received``: the method's tensors sent with the
        model. ``kept``: what the site kept when it last trained. Raises ``SettingsError`` if the site's domain is held
        out or BatchNorm cannot train on its batches.
        """
        self._refuse_held_out()
        protocol, kept = self.protocol, kept or Kept()
        model, objective, rules = self.load(state, kept.personal), self.objective, self._rules
        if self.config.compile:
            model.compile_for_training(BACKEND)
        site_round = self._site_round(round_number, kept.memory)
        own_score = self.evaluate_own(state, round_number, received, kept) if objective.personalises else None
        with calling("objective", objective):
            local = objective.local(received or {}, model, site_round)
        self._check_batches(model)
        report_received = None if objective.probes else objective.report_received
        before, tensors = self._judge(model, report_received, counted=True)
        with calling("objective", local):
            local.observe_received(model, *self._seen(model, shuffled=True))
        training, momentum = self._run_epochs(model, local, site_round, kept, on_epoch)
        self._reestimate(model)
        after, more = self._judge(model, objective.report_trained)
        report = TrainReport(
            domain=self.images.domain,
            received=before[0],
            local=after[0],
            training_split=(before[1], after[1]) if len(before) > 1 else None,
            personal=own_score,
            epoch_losses=training.epoch_losses,
            steps=training.steps,
            effective_steps=effective_steps(training.steps, protocol.momentum),
            learning_rate=site_round.learning_rate,
            seconds=training.seconds,
        )
        update = make_update(model.state_dict(), {name: state[name] for name in rules.names(Rule.SHARED)})
        done = Trained(update, report.steps, report.effective_steps)
        with calling("objective", local):
            local.observe_trained(model, *self._seen(model, shuffled=True))
            tensors |= more | local.report(done)
            memory = local.memory(done)
        personal = personal_part(model, kept_names(model, protocol))
        return TrainResult(update, report, tensors, Kept(memory, personal, momentum))

    def _run_epochs(
        self,
        model: ExtractorClassifier,
        local: LocalObjective,
        site_round: SiteRound,
        kept: Kept,
        on_epoch: OnEpoch,
    ) -> tuple[LocalTraining, dict[str, torch.Tensor]]:
        """Train ``model`` in place; return what came of it, and SGD's momentum if the protocol keeps it."""
        protocol, device = self.protocol, self.policy.device
        with calling("objective", local):
            # The method's own parameters have names that no parameter of a network has.
            own = {f"objective/{number}": parameter for number, parameter in enumerate(local.parameters())}
        trained = {**dict(model.named_parameters()), **own}
        optimizer = make_optimizer(trained.values(), protocol, site_round.learning_rate, device)
        restore_momentum(optimizer, trained, kept.momentum if protocol.keep_momentum else {})
        epochs = self.images.epochs(protocol.local_epochs + self.objective.more_epochs, site_round.number)
        with seeded(protocol.seed, self.site, site_round.number, "layers", device=device):  # dropout
            training = train_locally(model, local, epochs, optimizer, self.policy, self.should_stop, on_epoch)
        return training, momentum_of(optimizer, trained) if protocol.keep_momentum else {}

    def _refuse_held_out(self) -> None:
        if self.protocol.holds_out(domain := self.images.domain):
            raise SettingsError(f"domain {domain!r} is held out in this run and never trains.", public=True)

    def _reestimate(self, model: ExtractorClassifier) -> None:
        """Replace the statistics of a trained model before it is evaluated, if those of the model received are."""
        if layers := reestimated_layers(model, self.protocol):
            reestimate(model, layers, self._training_images(shuffled=True), self.policy)

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
                f"batches have one image (of {num_train} for training, with batch_size {batch_size}), on which "
                f"BatchNorm cannot train {small[0]!r}: expected batches of two, larger images, or another network.",
                public=True,
            )

    def _site_round(self, round_number: int, memory: Tensors) -> SiteRound:
        return SiteRound(
            self.site,
            round_number,
            self.protocol.seed,
            self.protocol.learning_rate_at(round_number),
            self.protocol.momentum,
            memory,
            self.task,
            self.protocol.local_epochs,
            self.task.class_counts(self.data.train, len(self.data.classes)),
        )

    def _judge(
        self, model: ExtractorClassifier, report: Report | None, *, counted: bool = False
    ) -> tuple[list[Evaluation], dict[str, torch.Tensor]]:
        """Return the scores and the tensors that ``report`` computes on the training split, if it is given.

        The scores are on the validation split and, if the gap is measured there, also on the training split.
        """
        scores = [self.evaluate(model, "validation", counted=counted)]
        if self.protocol.gap_split == "train":
            scores.append(self.evaluate(model, "train", counted=False))
        if report is None:
            return scores, {}
        with calling("objective", self.objective):
            return scores, report(model, *self._seen(model))

    def _seen(self, model: ExtractorClassifier, *, shuffled: bool = False) -> tuple[Iterator[FeatureBatch], int]:
        """Return the features of the training split, computed on reading, and the number of classes."""
        images = self._training_images(shuffled=shuffled)
        return see(model, images, self.task, self.protocol.image_size), len(self.data.classes)

    def _training_images(self, *, shuffled: bool) -> Batches:
        """Yield the batches of the training split on the device, as :meth:`SiteImages.reported` describes them."""
        # A generator, because most methods read none of them.
        yield from placed(self.images.reported(shuffled=shuffled), self.policy, self.should_stop)


def _shapes(tensors: Tensors) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in tensors.items()}

# SPDX-License-Identifier: Apache-2.0
"""The network of a run: the protocol's model, adapted by the method that trains it."""

from dataclasses import replace

from fdg_plugins.core.travel import ALL, Rule, Rules, rules_of, with_fixed
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.models import NETWORKS, ExtractorClassifier, build_model
from fdg_plugins.models.adapters import adapter_names, add_adapters
from fdg_plugins.models.batch_norm import MEAN, batch_norm_buffers, batch_norm_layers
from fdg_plugins.models.registry import check_features, is_constant
from fdg_plugins.objectives.erm import make_objective
from fdg_plugins.objectives.objective import Objective
from fdg_plugins.settings.protocol import ADAPTERS, Protocol
from fdg_plugins.tasks import TASKS


def build_network(protocol: Protocol, num_classes: int) -> ExtractorClassifier:
    """Return the network of a run on the CPU, randomly initialised from the protocol's seed."""
    return adapt_model(plain_network(protocol, num_classes), protocol)


def plain_network(protocol: Protocol, num_classes: int) -> ExtractorClassifier:
    """Return the protocol's model for the images of its data set, as :func:`build_network` does, but not adapted."""
    spec = dataset_spec(protocol.dataset)
    return build_model(
        protocol.model,
        num_classes,
        seed=protocol.seed,
        head=protocol.head,
        channels=spec.channels,
        dims=spec.dims,
        norm=protocol.normalization,
        image_size=protocol.image_size,
    )


def check_network(protocol: Protocol, model: ExtractorClassifier | None = None) -> None:
    """Raise ``SettingsError`` if the protocol's objective cannot train its network.

    ``model``: the network, not adapted yet; None builds it, for a method that not all suit.
    """
    objective = make_objective(protocol.objective)
    if type(objective).check_network is Objective.check_network:
        return
    model = plain_network(protocol, num_classes=2) if model is None else model
    try:
        objective.check_network(model, image_shape(protocol))
    except SettingsError as error:
        text = f"objective {objective.name!r} does not go with model {protocol.model!r}: {error}"
        raise SettingsError(text) from error


def check_brought_network(protocol: Protocol, model: ExtractorClassifier | None = None) -> None:
    """Raise ``SettingsError`` if a plug-in's network cannot take the protocol's images, or breaks its record.

    ``model``: the network, not adapted yet; None builds it. This package's own networks are covered by tests.
    """
    if NETWORKS.origin(protocol.model) is None:
        return
    model = plain_network(protocol, num_classes=2) if model is None else model
    dense = TASKS.get(protocol.task).by_pixel
    spec = dataset_spec(protocol.dataset)
    check_features(model, spec.channels, protocol.image_size, dims=spec.dims, dense=dense)


def adapt_model(model: ExtractorClassifier, protocol: Protocol) -> ExtractorClassifier:
    """Return the protocol's ``model``, adapted by the protocol's objective, and with the protocol's adapters."""
    shape = image_shape(protocol)
    adapted = make_objective(protocol.objective).adapt(model, shape, protocol.seed)
    if protocol.trainable == ADAPTERS:
        add_adapters(adapted, protocol.adapter_rank, shape, seed=protocol.seed)
    return adapted


def image_shape(protocol: Protocol) -> tuple[int, ...]:
    """Return the shape of an image on which the protocol trains: ``[C, H, W]``, or ``[C, H, W, Z]``."""
    spec = dataset_spec(protocol.dataset)
    return (spec.channels, *(protocol.image_size,) * spec.dims)


def travel_rules(model: ExtractorClassifier, protocol: Protocol) -> Rules:
    """Return the rule of every entry of the network; ``SettingsError`` if the protocol's rule does not fit it.

    Buffers of truth values or with infinities, such as masks, and of complex numbers are never shared: no update can
    hold their differences.
    """
    trainable = {name for name, _ in model.named_parameters()}
    rules = rules_of(protocol.travels, list(model.state_dict()), trainable, model.head_names)
    if fixed := fixed_names(model, protocol):
        rules = with_fixed(rules, fixed, trainable, f"trainable {protocol.trainable!r}")
    statistics = set(batch_norm_buffers(model))
    others = ((name, one) for name, one in model.named_buffers(remove_duplicate=False) if name not in statistics)
    frozen = {name for name, buffer in others if is_constant(buffer)}
    frozen |= statistics if protocol.batch_norm == "frozen" else set()
    return replace(
        rules,
        of={name: Rule.FROZEN if name in frozen and rule is Rule.SHARED else rule for name, rule in rules.of.items()},
    )


def fixed_names(model: ExtractorClassifier, protocol: Protocol) -> frozenset[str]:
    """Return the entries of the network that no site trains, as the protocol's ``trainable`` says; none for ``all``."""
    if protocol.trainable == ALL:
        return frozenset()
    trained = {*model.head_names, *(adapter_names(model) if protocol.trainable == ADAPTERS else ())}
    return frozenset(model.state_dict()) - trained


def kept_names(model: ExtractorClassifier, protocol: Protocol) -> tuple[str, ...]:
    """Return the entries of the state dict of which each site has its own: the personal ones, and under
    ``batch_norm`` ``local`` BatchNorm's buffers, which also travel."""
    rules = travel_rules(model, protocol)
    local = set(batch_norm_buffers(model)) if protocol.batch_norm == "local" else set()
    return tuple(
        name for name, rule in rules.of.items() if rule is Rule.PERSONAL or (name in local and rule is Rule.SHARED)
    )


def reestimated_layers(model: ExtractorClassifier, protocol: Protocol) -> tuple[str, ...]:
    """Return the names of the BatchNorm layers whose running statistics are measured anew: those that are shared.

    They are none unless ``batch_norm`` is ``reestimate``.
    """
    if protocol.batch_norm != "reestimate":
        return ()
    rules = travel_rules(model, protocol)
    return tuple(name for name in batch_norm_layers(model) if rules.of[f"{name}.{MEAN}"] is Rule.SHARED)

# SPDX-License-Identifier: Apache-2.0
"""The network of a run: the protocol's model, adapted by the method that trains it."""

from fdg_plugins.core.travel import Rules, rules_of
from fdg_plugins.data import dataset_spec
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.objectives.catalogue import make_objective
from fdg_plugins.settings.protocol import Protocol


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
    )


def adapt_model(model: ExtractorClassifier, protocol: Protocol) -> ExtractorClassifier:
    """Return the protocol's ``model``, adapted by the protocol's objective."""
    spec = dataset_spec(protocol.dataset)
    shape = (spec.channels, *(protocol.image_size,) * spec.dims)
    return make_objective(protocol.objective).adapt(model, shape, protocol.seed)


def travel_rules(model: ExtractorClassifier, protocol: Protocol) -> Rules:
    """Return the rule of every entry of the network; ``SettingsError`` if the protocol's rule does not fit it."""
    trainable = {name for name, _ in model.named_parameters()}
    return rules_of(protocol.travels, list(model.state_dict()), trainable, model.head_names)

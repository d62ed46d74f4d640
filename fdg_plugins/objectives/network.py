# SPDX-License-Identifier: Apache-2.0
"""The network of a run: the protocol's model, adapted by the method that trains it."""

from fdg_plugins.core.travel import Rules, rules_of
from fdg_plugins.data import dataset_spec
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.objectives.catalogue import make_objective
from fdg_plugins.settings.protocol import Protocol


def build_network(protocol: Protocol, num_classes: int) -> ExtractorClassifier:
    """Return the network of a run on the CPU, randomly initialised from the protocol's seed."""
    model = build_model(protocol.model, num_classes, seed=protocol.seed, head=protocol.head)
    return adapt_model(model, protocol)


def adapt_model(model: ExtractorClassifier, protocol: Protocol) -> ExtractorClassifier:
    """Return the protocol's ``model``, adapted by the protocol's objective."""
    shape = (dataset_spec(protocol.dataset).channels, protocol.image_size, protocol.image_size)
    return make_objective(protocol.objective).adapt(model, shape, protocol.seed)


def travel_rules(model: ExtractorClassifier, protocol: Protocol) -> Rules:
    """Return the rule of every entry of the network; ``SettingsError`` if the protocol's rule does not fit it."""
    trainable = {name for name, _ in model.named_parameters()}
    return rules_of(protocol.travels, list(model.state_dict()), trainable, model.head_names)

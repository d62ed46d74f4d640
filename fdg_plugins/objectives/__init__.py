# SPDX-License-Identifier: Apache-2.0
"""Local objectives by name: what sites minimise, and what sites and server exchange for it.

    >>> from fdg_plugins.objectives import make_objective
    >>> objective = make_objective({"name": "dim", "strength": 0.1})
    >>> objective
    FedDIMObjective(strength=0.1, insight_momentum=0.5, target='insight')

At the server, the objective's exchange provides the payload for every site and learns from the sites' reports:

    >>> from fdg_plugins.models import build_model
    >>> model = build_model("convnet", num_classes=7, seed=1)
    >>> exchange = objective.exchange(model, num_classes=7)
    >>> exchange.begin_round(model.state_dict())
    >>> exchange.broadcast()
    {}

At a site, it provides the loss of a batch. Before anything has been received, that is the task's, here cross entropy:

    >>> import torch
    >>> images, labels = torch.zeros(2, 3, 16, 16), torch.tensor([0, 1])
    >>> local = objective.local(exchange.broadcast(), model)
    >>> local.loss(model, images, labels).shape
    torch.Size([])

After training, the site reports statistics of its images, and the server has a payload for the next round:

    >>> from fdg_plugins.objectives import see
    >>> report = objective.report_trained(model, see(model, [(images, labels)]), num_classes=7)
    >>> {name: list(value.shape) for name, value in report.items()}
    {'class_means': [2, 128], 'class_counts': [7]}
    >>> read = exchange.read("photo", report, update={"classifier.weight": torch.zeros(7, 128)})
    >>> exchange.finish({"photo": read})
    >>> {name: list(value.shape) for name, value in exchange.broadcast().items()}
    {'insight': [7, 128, 7], 'present': [7]}

An objective can be combined with any weighting and any direction of ``fdg_plugins.aggregators``.
"""

from fdg_plugins.objectives.erm import OBJECTIVES, ERMObjective, make_objective, objective_settings, read_settings
from fdg_plugins.objectives.exchange import Exchange, SiteFacts, SiteReport
from fdg_plugins.objectives.network import build_network, image_shape
from fdg_plugins.objectives.objective import (
    FeatureBatch,
    FineTuning,
    LocalObjective,
    Objective,
    PersonalModel,
    SiteRound,
    Trained,
    see,
)

__all__ = [
    "OBJECTIVES",
    "ERMObjective",
    "Exchange",
    "FeatureBatch",
    "FineTuning",
    "LocalObjective",
    "Objective",
    "PersonalModel",
    "SiteFacts",
    "SiteReport",
    "SiteRound",
    "Trained",
    "build_network",
    "image_shape",
    "make_objective",
    "objective_settings",
    "read_settings",
    "see",
]

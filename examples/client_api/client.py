# SPDX-License-Identifier: Apache-2.0
"""A training script under FLARE's Client API that takes part in FedDG-GA and FedDIM; started by ``job.py``."""

import nvflare.client as flare
import torch
from small_domains import SAMPLES, Net, load
from torch.nn.functional import cross_entropy

from fdg_plugins.client import ClassInsight, LocalRound, evaluate

STRENGTH = 0.01  # FedDIM's lambda


def main() -> None:
    """Train on every model that the server sends."""
    flare.init()
    site = flare.get_site_name()
    training, training_in_order, validation = load(site)
    model = Net()
    insight = ClassInsight(model, head="fc")
    while flare.is_running():
        received = flare.receive()
        model.load_state_dict(received.params)
        local, before = LocalRound(received), evaluate(model, validation)
        insight.begin(received)

        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        model.train()
        for images, labels in training:
            loss = cross_entropy(model(images), labels) + STRENGTH * insight.penalty(labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        flare.send(
            local.answer(
                model,
                optimizer,
                steps=len(training),
                num_samples=SAMPLES[site],
                before=before,
                after=evaluate(model, validation),
                report=insight.report(training_in_order),
            )
        )


if __name__ == "__main__":
    main()

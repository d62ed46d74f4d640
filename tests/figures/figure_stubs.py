# SPDX-License-Identifier: Apache-2.0
"""What the tests of figures share: runs with rounds made in code, and a chart of a handful of numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fdg_plugins.lab.analysis import Run
from fdg_plugins.lab.analysis.estimates import estimate
from fdg_plugins.lab.analysis.figures.picture import COLUMNS, Chart, Panel, numbered_look
from fdg_plugins.messages import Evaluation
from fdg_plugins.record.round_record import AggregationRecord, LocalRecord, Method, RoundRecord
from tests.analysis.run_stubs import DOMAINS, FEDAVG, census_reply, finished
from tests.controllers.federation_stubs import evaluation, round_record


class Site(NamedTuple):
    """What one site did in a round; ``own_loss`` is None where it withholds it."""

    own_loss: float | None = 1.0
    weight: float = 0.5
    gamma: float | None = None
    with_direction: float = 0.9
    with_mean: float = 0.8


def judged(loss: float = 1.0, accuracy: float = 0.5) -> Evaluation:
    return evaluation(accuracy, loss=loss)


def one_round(number: int, sites: Mapping[str, Site], *, moved: bool = True) -> RoundRecord:
    """Return the record of a round in which ``sites`` trained; the model stayed as it was unless it ``moved``."""
    weights = {name: site.weight for name, site in sites.items()}
    gamma = {name: site.gamma for name, site in sites.items() if site.gamma is not None}
    aggregation = AggregationRecord(
        weights=weights,
        coefficients=weights,
        gamma=gamma or None,
        update_norms=dict.fromkeys(sites, 1.0),
        cosines_with_direction={name: site.with_direction for name, site in sites.items()},
        cosines_with_mean={name: site.with_mean for name, site in sites.items()},
        mean_norm=1.0,
        direction_norm=1.0,
    )
    alike = {"steps": 1, "learning_rate": 0.1, "num_samples": 10, "seconds": 1.0}
    losses = {name: None if site.own_loss is None else (site.own_loss,) for name, site in sites.items()}
    local = {name: LocalRecord(epoch_losses=own, local=own and judged(*own), **alike) for name, own in losses.items()}
    came = {"drawn": tuple(sorted(sites)), "sites": tuple(sorted(sites)), "failures": {}, "local": local}
    return round_record(number, aggregation=aggregation if moved else None, **came)


def figure_run(
    method: Method = FEDAVG,
    target: str = "photo",
    seed: int = 0,
    scores: Sequence[Mapping[str, Evaluation]] = (),
    rounds: Sequence[RoundRecord] = (),
    *,
    domains: Mapping[str, str] | None = None,
    protocol: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Run:
    """Return a finished run; ``scores`` are the evaluations after rounds 0, 1, ... by site, default: two alike.

    ``domains`` are those of the sites, default: one site per domain of PACS, with its name.
    """
    held = dict(domains or {domain: domain for domain in DOMAINS})
    fields: dict[str, Any] = {
        "held_out": tuple(site for site, domain in held.items() if domain == target),
        "census": {site: census_reply(domain, seed) for site, domain in held.items()},
        "rounds": list(rounds),
    }
    record = finished(method, target, seed, (), protocol={"rounds": 2, **(protocol or {})}, **{**fields, **changes})
    record.sources = tuple(site for site, domain in held.items() if domain != target)
    for after_round, found in enumerate(scores or [dict.fromkeys(held, judged())] * 2):
        record.add_evaluation(after_round, found)
    record.choices = record.choose({})
    settings = "-".join(f"{key}{value}" for key, value in method.settings.items())
    return Run(Path("runs") / f"{method.aggregator}-{settings}-{target}-{seed}-{protocol}", record)


def with_accuracy(method: Method, accuracy: float, target: str = "photo", seed: int = 0, **changes: Any) -> Run:
    """Return a run that ended with an accuracy on the held-out domain, which source validation chose too."""
    scores = {domain: judged(accuracy=accuracy if domain == target else 0.5) for domain in DOMAINS}
    return figure_run(method, target, seed, [scores], **changes)


def small_chart() -> Chart:
    """Return a chart of two methods in two panels over three rounds, two seeds each."""
    panels = tuple(Panel(f"held out: {target}", "accuracy") for target in ("photo", "sketch"))
    rows = [
        {
            **{"panel": panel.title, "y_label": panel.y_label, "label": label, "line": label, "quantity": quantity},
            **{"look": numbered_look(number), "level": False, "x": x},
            **estimate({0: 0.2 * x, 1: 0.2 * x + 0.05 + number / 10}),
        }
        for panel in panels
        for number, label in enumerate(("FedAvg", "FedOMG"))
        for quantity in ("target", "source")
        for x in range(3)
    ]
    return Chart(
        name="small",
        title="A small chart",
        caption="[STAND-IN, from scratch] STAND-IN for PACS",
        frame=pd.DataFrame(rows, columns=COLUMNS, dtype=object),
        x_label="round",
        panels=panels,
        quantities=("target", "source"),
        is_fraction=True,
    )

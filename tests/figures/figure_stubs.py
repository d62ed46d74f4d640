# SPDX-License-Identifier: Apache-2.0
"""What the tests of figures share: runs with rounds made in code, and pictures of a handful of numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fdg_plugins.lab.analysis import Run
from fdg_plugins.lab.analysis.estimates import estimate
from fdg_plugins.lab.analysis.figures.picture import Chart, Line, Origin, Panel
from fdg_plugins.lab.analysis.figures.style import numbered_look
from fdg_plugins.messages import Evaluation
from fdg_plugins.record.run_record import AggregationRecord, LocalRecord, Method, RoundRecord
from tests.analysis.run_stubs import DOMAINS, FEDAVG, FEDGA, census_reply, finished

__all__ = ["DOMAINS", "FEDAVG", "FEDGA"]

ORIGIN = Origin(data="STAND-IN for PACS", stand_in=True, initial_weights="from scratch")


def fedomg(kappa: float = 0.5, **settings: Any) -> Method:
    """Return FedOMG with some settings."""
    return Method(aggregator="FedOMGAggregator", settings={"kappa": kappa, "server_lr": 1.0, **settings})


class Site(NamedTuple):
    """What one site did in a round; ``own_loss`` is None where it withholds it."""

    own_loss: float | None = 1.0
    weight: float = 0.5
    gamma: float | None = None
    with_direction: float = 0.9
    with_mean: float = 0.8
    seconds: float = 1.0


def judged(loss: float = 1.0, accuracy: float = 0.5) -> Evaluation:
    """Return an evaluation on ten images."""
    return Evaluation.model_validate({"split": "validation", "loss": loss, "accuracy": accuracy, "count": 10})


def one_round(number: int, sites: Mapping[str, Site], seconds: float = 2.0, *, moved: bool = True) -> RoundRecord:
    """Return the record of a round in which ``sites`` trained; the model stayed as it was unless it ``moved``."""
    has_gamma = all(site.gamma is not None for site in sites.values())
    weights = {name: site.weight for name, site in sites.items()}
    aggregation = AggregationRecord(
        weights=weights,
        coefficients=weights,
        gamma={name: site.gamma or 0.0 for name, site in sites.items()} if has_gamma else None,
        update_norms=dict.fromkeys(sites, 1.0),
        cosines_with_direction={name: site.with_direction for name, site in sites.items()},
        cosines_with_mean={name: site.with_mean for name, site in sites.items()},
        mean_norm=1.0,
        direction_norm=1.0,
    )
    return RoundRecord(
        round=number,
        drawn=tuple(sorted(sites)),
        sites=tuple(sorted(sites)),
        failures={},
        local={
            name: LocalRecord(
                epoch_losses=None if site.own_loss is None else (site.own_loss,),
                local=None if site.own_loss is None else judged(site.own_loss),
                steps=1,
                learning_rate=0.1,
                num_samples=10,
                seconds=site.seconds,
            )
            for name, site in sites.items()
        },
        aggregation=aggregation if moved else None,
        reason=None if moved else "too few updates came.",
        seconds=seconds,
        aggregation_seconds=seconds / 100,
        bytes_down=1,
        bytes_up=1,
    )


def figure_run(
    method: Method = FEDAVG,
    target: str = "photo",
    seed: int = 0,
    scores: Sequence[Mapping[str, Evaluation]] = (),
    rounds: Sequence[RoundRecord] = (),
    *,
    name: str = "",
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
    own = {"rounds": 2, **(protocol or {})}
    record = finished(method, target, seed, (), protocol=own, **{**fields, **changes})
    record.sources = tuple(site for site, domain in held.items() if domain != target)
    for after_round, found in enumerate(scores or [dict.fromkeys(held, judged())] * 2):
        record.add_evaluation(after_round, found)
    record.choices = record.choose({})
    settings = "-".join(f"{key}{value}" for key, value in method.settings.items())
    return Run(Path("runs") / (name or f"{method.aggregator}-{settings}-{target}-{seed}-{protocol}"), record)


def with_accuracy(method: Method, target: str, seed: int, accuracy: float, **changes: Any) -> Run:
    """Return a run that ended with an accuracy on the held-out domain, which source validation chose too."""
    sources = [domain for domain in DOMAINS if domain != target]
    scores = {**{domain: judged(accuracy=0.5) for domain in sources}, target: judged(accuracy=accuracy)}
    return figure_run(method, target, seed, [scores], **changes)


def keep(run: Run, folder: Path) -> Run:
    """Write a run's record into ``folder``; return the run as it lies there."""
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(run.record.model_dump_json(), encoding="utf-8")
    return Run(folder, run.record)


def small_chart(**changes: Any) -> Chart:
    """Return a chart of two methods in two panels over three rounds, two seeds each."""
    panels = []
    for target, shift in (("photo", 0.0), ("sketch", 0.1)):
        lines = [
            Line(
                label,
                numbered_look(number),
                {
                    x: point
                    for x in range(3)
                    if (point := estimate({0: 0.2 * x + shift, 1: 0.2 * x + 0.05 + number / 10}))
                },
                quantity,
            )
            for number, label in enumerate(("FedAvg", "FedOMG"))
            for quantity in ("target", "source")
        ]
        panels.append(Panel(f"held out: {target}", "accuracy", tuple(lines), is_fraction=True))
    fields: dict[str, Any] = {
        "name": "small",
        "title": "A small chart",
        "caption": "[STAND-IN, from scratch] STAND-IN for PACS",
        "origin": ORIGIN,
        "x_label": "round",
        "panels": tuple(panels),
        "quantities": ("target", "source"),
    }
    return Chart(**{**fields, **changes})

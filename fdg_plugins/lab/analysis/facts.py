# SPDX-License-Identifier: Apache-2.0
"""What a reader must know of the runs behind a table or a figure: how they trained, on what, and what they lacked."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from fdg_plugins.data import dataset_spec
from fdg_plugins.data.catalogue import known_images
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.comparable import Group
from fdg_plugins.lab.analysis.estimates import span
from fdg_plugins.lab.analysis.runs import Run, grouped
from fdg_plugins.models.batch_norm import batch_norm_layers
from fdg_plugins.objectives.network import plain_network
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import unchanged
from fdg_plugins.tasks import DEFAULT_TASK
from fdg_plugins.tasks.counts import FEWEST

MOST_NAMED = 3


# --- in a caption, and in each line of numbers ---


def described(runs: Sequence[Run]) -> str:
    """Return the data and settings of ``runs`` in words; the name of the data contains STAND-IN if it applies."""
    found, federated = _distinct(runs), [run.record for run in runs if not run.is_pooled]
    protocols = [run.record.protocol for run in runs]
    trained, most = sorted({one.trained for one in protocols}), found["max_samples_per_domain"]
    in_some = " in some runs" * any(one.max_samples_per_domain is None for one in protocols)
    parts = [
        *found["data"],
        " or ".join("ImageNet weights" if label == "imagenet" else label for label in found["initial_weights"]),
        " or ".join(sorted(found["model"])),
        " or ".join(text or "whole network trained" for text in trained) if any(trained) else "",
        span(found["image_size"], "px", "px"),
        span(found["rounds"], "round") if federated else "",
        f"centralised references of {span(found['steps'], 'step')}" if found["steps"] else "",
        f"at most {span(most, 'image')} per domain{in_some}" if most else "",
        span((len(record.sources) for record in federated), "source site") if federated else "",
    ]
    return ", ".join(filter(None, parts))


def line_facts(runs: Sequence[Run]) -> dict[str, str]:
    """Return the facts of runs for a line of numbers, each with all its values, separated by semicolons."""
    texts = {name: map(str, values) for name, values in _distinct(runs).items()}
    return {name: ";".join(sorted(own, key=lambda text: (len(text), text))) for name, own in texts.items()}


def _distinct(runs: Iterable[Run]) -> dict[str, list[Any]]:
    """Return the facts of runs, each with all its values."""
    facts: dict[str, dict[Any, None]] = {}
    for run in runs:
        record, protocol = run.record, run.record.protocol
        for name, value in {
            "data": record.data,
            "stand_in": str(record.stand_in).lower(),
            "initial_weights": record.initial_weights.label,
            "model": protocol.model,
            "image_size": protocol.image_size,
            "rounds": None if run.is_pooled else protocol.rounds,
            "steps": record.method.settings.get("steps") if run.is_pooled else None,
            "sites": len(record.sources),
            "max_samples_per_domain": protocol.max_samples_per_domain,
            "version": record.versions.get("fdg-plugins", "unknown"),
        }.items():
            facts.setdefault(name, {}).update({} if value is None else {value: None})
    return {name: list(values) for name, values in facts.items()}


# --- what runs lacked ---


def absences(record: RunRecord) -> Counter[str]:
    """Return the number of rounds that went on without a source's update, by site.

    A site counts as absent in a round that drew it, and in every round in which it took no further part, if all sites
    train in each round. One that was not drawn is not absent.
    """
    everyone = record.protocol.sites_per_round is None
    counts = Counter(dict.fromkeys(record.left_out, 0))
    for one in record.rounds:
        counts.update(site for site in (record.sources if everyone else one.drawn) if site not in one.sites)
    return counts


def noised(record: RunRecord) -> Counter[str]:
    """Return the number of rounds in which a source's update had the noise of differential privacy, by site.

    Such a site withholds its losses, which all others report.
    """
    return Counter(site for one in record.rounds for site, own in one.local.items() if own.epoch_losses is None)


def notes_on_runs(runs: Sequence[Run]) -> list[str]:
    """Return a note for each thing that a federated run lacked or had beyond the others."""
    federated = [run for run in runs if not run.is_reference]
    notes: list[str] = []
    if any(run.planned is not None for run in federated):
        lengths = span((run.planned or run.record.protocol.rounds for run in federated), "round")
        notes.append(f"Later rounds are left out: the runs are of {lengths}.")
    for run in federated:
        record = run.record
        judged = Counter(site for one in record.evaluations for site in record.held_out if site not in one.sites)
        rounds, evaluations = f"{len(record.rounds)} rounds", f"{len(record.evaluations)} evaluations"
        found = {
            "went on without the updates of": _sites(record, absences(record), rounds),
            "has updates with the noise of differential privacy:": _sites(record, noised(record), rounds),
            "lacks scores of the held-out site": _sites(record, judged, evaluations),
        }
        notes += [f"{run.folder} {words} {sites}." for words, sites in found.items() if sites]
        if (idle := unchanged(record)) is not None:
            notes.append(f"{run.folder}: {idle}.")
    return notes


def _sites(record: RunRecord, counts: Counter[str], total: str) -> str:
    """Return the sites with the highest counts, each with its count."""
    most = sorted(counts, key=lambda site: (-counts[site], site))
    left = dict.fromkeys(record.left_out, " (it took no further part)")
    named = [f"{site} in {counts[site]} of {total}{left.get(site, '')}" for site in most[:MOST_NAMED]]
    return ", ".join([*named, *[f"{len(most) - MOST_NAMED} more"] * (len(most) > MOST_NAMED)])


# --- the images that they had ---


def known_domains(dataset: DatasetRef) -> tuple[str, ...]:
    """Return the domains of a data set; none if it is not at hand."""
    try:
        return dataset_spec(dataset).domains
    except SettingsError:
        return ()


def missing_images(runs: Iterable[Run], *, certain: bool = True) -> dict[str, str]:
    """Return in words the domains of which runs had other images than all, by domain: ``9 of 1,670 images of photo``.

    They are compared with :func:`known_images`; files known to be mislabelled count as present, damaged ones that a
    site left out as missing. Runs with thinned domains are not looked at.
    """
    found: dict[str, set[str]] = {}
    for run in (one for one in runs if not one.record.stand_in and one.record.protocol.max_samples_per_domain is None):
        for domain, replies in grouped(run.record.census.values(), lambda reply: reply.domain).items():
            trained = sum(reply.num_train + reply.num_validation for reply in replies)
            count = max(reply.num_test for reply in replies) if domain == run.target else trained
            count += max(reply.num_skipped for reply in replies)
            known = known_images(run.dataset, domain, certain=certain)
            if known and count not in known:
                found.setdefault(domain, set()).add(f"{count:,} of {known[0]:,} images of {domain}")
    return {domain: ", ".join(sorted(texts)) for domain, texts in sorted(found.items())}


# --- the accuracy of a constant answer: below it, a classifier has learned which class is the commonest, no more ---


def commonest_in_domains(runs: Iterable[Run]) -> dict[str, float]:
    """Return the share of the commonest class of each held-out domain, mean over the seeds.

    There is none for tasks whose score is not the share of images that are right.
    """
    shares: dict[str, dict[int, float]] = {}
    for run in filter(_is_by_image, runs):
        known = [run.record.census[site].class_counts for site in run.record.held_out if site in run.record.census]
        if any(counts := [sum(column) for column in zip(*known, strict=False)]):
            shares.setdefault(run.target, {})[run.seed] = max(counts) / sum(counts)
    return {name: statistics.fmean(own.values()) for name, own in shares.items()}


def commonest_at_sites(run: Run) -> float | None:
    """Return the accuracy on the sites' own test images if each site's answer is always its commonest class.

    Nearly so: a census counts the classes of the images that a site trains on and of those that it tests on together.
    None for a task whose score is not the share of images that are right, and without test images.
    """
    replies = [run.record.census[site] for site in run.record.sources if any(run.record.census[site].class_counts)]
    images = sum(reply.num_validation for reply in replies) if _is_by_image(run) else 0
    right = sum(reply.num_validation * max(reply.class_counts) / sum(reply.class_counts) for reply in replies)
    return right / images if images else None


def _is_by_image(run: Run) -> bool:
    """Return whether the score is the share of images that are right, as that of the default task."""
    return run.record.task.one_class_per_image and run.record.score == DEFAULT_TASK.score


# --- BatchNorm, for whose statistics methods such as FedDG-GA and FedIIR have rules of their own ---


def note_on_batch_norm(groups: Iterable[Group]) -> list[str]:
    """Return a note if the rules of the federated methods differ and the network has BatchNorm.

    The rule is a setting of these methods, so their runs stand in one table; what they differ in is not the method
    alone.
    """
    by_rule = grouped(
        (one for one in groups if not one.is_reference), lambda one: one.runs[0].record.protocol.batch_norm
    )
    if len(by_rule) < 2:
        return []
    protocol = next(iter(by_rule.values()))[0].runs[0].record.protocol
    with suppress(SettingsError):  # of a network or a data set that is not at hand
        if not batch_norm_layers(plain_network(protocol, 2)):
            return []
    rules = [f"{rule} for {', '.join(one.label for one in of)}" for rule, of in sorted(by_rule.items())]
    return [f"batch_norm is {'; '.join(rules)}: a difference between these is also one of BatchNorm's statistics."]


# --- all notes of a table by held-out domains ---


def notes_on_groups(groups: Sequence[Group], columns: Mapping[str, str]) -> Iterator[str]:
    """Yield what a reader must know of the runs in a table; ``columns``: the name of each held-out domain's column."""
    runs = [run for group in groups for run in group.runs]
    yield from _on_images(runs, columns)
    yield from notes_on_runs(runs)
    yield from note_on_batch_norm(groups)


def _on_images(runs: Sequence[Run], columns: Mapping[str, str]) -> Iterator[str]:
    shares = commonest_in_domains(runs)
    if found := {column: shares[domain] for domain, column in columns.items() if domain in shares}:
        parts = [f"{column} {100 * share:.1f}" for column, share in found.items()]
        parts += [f"on average {100 * statistics.fmean(found.values()):.1f}"] * (len(found) > 1)
        words = "Always naming the held-out domain's commonest class is right in this percentage of its images"
        yield f"{words}: {', '.join(parts)}."
    rare: dict[str, str] = {}
    for run in (run for run in runs if run.record.protocol.scores):
        counts = np.sum([run.record.census[site].class_counts for site in run.record.held_out], axis=0)
        few = [f"{name} ({n})" for name, n in zip(run.record.classes, counts.tolist(), strict=True) if n < FEWEST]
        rare |= {run.target: ", ".join(few)} if few else {}
    for domain, names in rare.items():
        yield f"{domain} has fewer than {FEWEST} images of {names}: scores by class, and their mean, are uncertain."
    missing = missing_images(runs)
    if judged := dict.fromkeys(missing[run.target] for run in runs if run.target in missing):
        yield f"Not evaluated on all images of the held-out domain: {', '.join(judged)}."

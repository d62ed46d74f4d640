# SPDX-License-Identifier: Apache-2.0
"""What a reader must know of the runs behind a table or a figure: how they trained, on what, and what they lacked."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fdg_plugins.data import RotatedSpec, dataset_spec
from fdg_plugins.data.catalogue import origin_of
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.comparable import Copies, Group, notes_on_plugins
from fdg_plugins.lab.analysis.estimates import span
from fdg_plugins.lab.analysis.runs import Run, grouped
from fdg_plugins.models.batch_norm import batch_norm_layers
from fdg_plugins.objectives.network import plain_network
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import unchanged
from fdg_plugins.tasks import DEFAULT_TASK

MOST_NAMED = 3


# --- in a caption, and in each line of numbers ---


def described(runs: Sequence[Run]) -> str:
    """Return the data and settings of ``runs`` in words; the name of the data contains STAND-IN if it applies."""
    records = [run.record for run in runs]
    federated = [run.record for run in runs if not run.is_reference]
    pooled = [run.record.method.settings["steps"] for run in runs if run.is_reference]
    weights = dict.fromkeys(record.initial_weights.label for record in records)
    trained = sorted({record.protocol.trained for record in records})
    most = [record.protocol.max_samples_per_domain for record in records]
    known = [value for value in most if value is not None]
    thinned = span(known) if known else ""
    parts = [
        *dict.fromkeys(record.data for record in records),
        " or ".join("ImageNet weights" if label == "imagenet" else label for label in weights),
        " or ".join(sorted({record.protocol.model for record in records})),
        " or ".join(text or "whole network trained" for text in trained) if any(trained) else "",
        f"{span(record.protocol.image_size for record in records)} px",
        span((record.protocol.rounds for record in federated), "round") if federated else "",
        f"centralised references of {span(pooled)} steps{_other_budget(runs)}" if pooled else "",
        f"at most {thinned} images per domain{' in some runs' if None in most else ''}" if thinned else "",
        span((len(record.sources) for record in federated), "source site") if federated else "",
    ]
    return ", ".join(filter(None, parts))


def _other_budget(runs: Sequence[Run]) -> str:
    """Return how often references and methods see the images, if that differs; steps are whole, hence a tolerance."""
    theirs, ours = ([_passes(run) for run in runs if run.is_reference is pooled] for pooled in (True, False))
    if not ours or (max(theirs) <= 1.25 * min(ours) + 1 and min(theirs) >= 0.8 * max(ours) - 1):
        return ""
    return f" ({max(theirs):.3g} passes over the images, the methods {max(ours):.3g})"


def _passes(run: Run) -> float:
    """Return the number of passes over the source images that a run makes, planned ones of a federated run."""
    record, protocol = run.record, run.record.protocol
    if not run.is_reference:
        return protocol.rounds * protocol.local_epochs
    images = sum(record.census[site].num_train for site in record.sources)
    return record.method.settings["steps"] * protocol.batch_size * len(record.sources) / max(images, 1)


def line_facts(runs: Sequence[Run]) -> dict[str, str]:
    """Return the facts of runs for a line of numbers, each with all its values, separated by semicolons."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        record, protocol = run.record, run.record.protocol
        facts = {
            "data": record.data,
            "stand_in": str(record.stand_in).lower(),
            "initial_weights": record.initial_weights.label,
            "model": protocol.model,
            "image_size": protocol.image_size,
            "rounds": None if run.is_reference else protocol.rounds,
            "steps": record.method.settings.get("steps") if run.is_reference else None,
            "sites": len(record.sources),
            "max_samples_per_domain": protocol.max_samples_per_domain,
            "version": record.versions.get("fdg-plugins", "unknown"),
        }
        for name, value in facts.items():
            found.setdefault(name, {}).update({} if value is None else {str(value): None})
    return {name: ";".join(sorted(values, key=lambda text: (len(text), text))) for name, values in found.items()}


def versions_in_words(runs: Iterable[Run]) -> str:
    """Return by which versions of this package runs were made."""
    return f"fdg-plugins {', '.join(sorted({run.record.versions.get('fdg-plugins', 'unknown') for run in runs}))}"


def seeds_in_words(seeds: Iterable[int], *, counted: bool) -> str:
    """Return what the numbers of a table are over; ``counted``: whether cells state their number of seeds."""
    listed = [str(seed) for seed in sorted(set(seeds))]
    if len(listed) == 1 and not counted:
        return f"one seed ({listed[0]})"
    number = " (their number in brackets)" if counted else ""
    return f"mean ± standard deviation over seeds {', '.join(listed)}{number}"


# --- what runs lacked ---


def absences(record: RunRecord) -> dict[str, int]:
    """Return the number of rounds that went on without a source's update, by site; those without any are left out.

    A site counts as absent in a round that drew it, and in every round in which it took no further part, if all sites
    train in each round. One that was not drawn is not absent.
    """
    everyone = record.protocol.sites_per_round is None
    missing = {
        site: sum(site not in one.sites for one in record.rounds if everyone or site in one.drawn)
        for site in record.sources
    }
    return {site: count for site, count in missing.items() if count or site in record.left_out}


def noised(record: RunRecord) -> dict[str, int]:
    """Return the number of rounds in which a source's update had the noise of differential privacy, by site.

    Such a site withholds its losses, which all others report.
    """
    counts = {
        site: sum(site in one.local and one.local[site].epoch_losses is None for one in record.rounds)
        for site in record.sources
    }
    return {site: count for site, count in counts.items() if count}


def notes_on_runs(runs: Sequence[Run], copies: Copies = ()) -> list[str]:
    """Return a note for each thing that a federated run lacked or had beyond the others, and for each copy."""
    federated = [run for run in runs if not run.is_reference]
    notes = [f"{copy.folder} repeats {first.folder} and is counted once." for copy, first in copies]
    if any(run.planned is not None for run in federated):
        lengths = span((run.planned or run.record.protocol.rounds for run in federated), "round")
        notes.append(f"Later rounds are left out: the runs are of {lengths}.")
    for run in federated:
        record = run.record
        judged = {site: sum(site not in one.sites for one in record.evaluations) for site in record.held_out}
        for words, counts, total in (
            ("went on without the updates of", absences(record), "rounds"),
            ("has updates with the noise of differential privacy:", noised(record), "rounds"),
            ("lacks scores of the held-out site", {site: n for site, n in judged.items() if n}, "evaluations"),
        ):
            if counts:
                number = len(record.rounds if total == "rounds" else record.evaluations)
                notes.append(f"{run.folder} {words} {_sites(record, counts, f'{number} {total}')}.")
        if (idle := unchanged(record)) is not None:
            notes.append(f"{run.folder}: {idle}.")
    return notes + notes_on_plugins(runs)


def _sites(record: RunRecord, counts: Mapping[str, int], total: str) -> str:
    """Return the sites with the highest counts, each with its count."""
    most = sorted(counts, key=lambda site: (-counts[site], site))
    left = dict.fromkeys(record.left_out, " (it took no further part)")
    named = [f"{site} in {counts[site]} of {total}{left.get(site, '')}" for site in most[:MOST_NAMED]]
    return ", ".join([*named, *([f"{len(most) - MOST_NAMED} more"] if len(most) > MOST_NAMED else [])])


# --- the images that they had ---


def known_images(dataset: Any, domain: str, *, certain: bool = True) -> list[int]:
    """Return the numbers of images that a domain has, one for each release.

    There are none for a user's own data and for drawings. ``certain``: only of releases whose images were counted.
    """
    if not isinstance(dataset, str):
        return []
    try:
        spec = dataset_spec(dataset)
    except SettingsError:  # of a plug-in that is not at hand
        return []
    releases = [one.images for one in origin_of(dataset).releases if one.certain or not certain]
    if domain not in spec.domains:  # of a record of another version of the data set
        return []
    if isinstance(spec, RotatedSpec):  # all images of a release are dealt to the domains in turn
        totals = [min(total, spec.limit or total) for total in (sum(images.values()) for images in releases)]
        return [len(range(spec.domains.index(domain), total, len(spec.domains))) for total in totals]
    return [images[domain] for images in releases if domain in images]


def missing_images(runs: Iterable[Run], *, certain: bool = True) -> dict[str, str]:
    """Return in words the domains of which runs had other images than all, by domain: ``9 of 1,670 images of photo``.

    They are compared with :func:`known_images`; files known to be mislabelled count as present, damaged ones that a
    site left out as missing. Runs with thinned domains are not looked at.
    """
    found: dict[str, set[str]] = {}
    for run in runs:
        record = run.record
        if record.stand_in or record.protocol.max_samples_per_domain is not None:
            continue
        for domain, sites in grouped_census(record).items():
            replies = [record.census[site] for site in sites]
            skipped = max(reply.num_skipped for reply in replies)
            if domain == run.target:
                count = max(reply.num_test for reply in replies) + skipped
            else:
                count = sum(reply.num_train + reply.num_validation for reply in replies) + skipped
            known = known_images(run.dataset, domain, certain=certain)
            if known and count not in known:
                found.setdefault(domain, set()).add(f"{count:,} of {known[0]:,} images of {domain}")
    return {domain: ", ".join(sorted(texts)) for domain, texts in sorted(found.items())}


def grouped_census(record: RunRecord) -> dict[str, list[str]]:
    """Return the sites of each domain."""
    found: dict[str, list[str]] = {}
    for site, reply in record.census.items():
        found.setdefault(reply.domain, []).append(site)
    return found


# --- the accuracy of a constant answer: below it, a classifier has learned which class is the commonest, no more ---


def commonest_in_domains(runs: Iterable[Run]) -> dict[str, float]:
    """Return the share of the commonest class of each held-out domain, mean over the seeds.

    There is none for tasks whose score is not the share of images that are right.
    """
    shares: dict[str, dict[int, float]] = {}
    for run in filter(_is_by_image, runs):
        replies = [run.record.census[site] for site in run.record.held_out if site in run.record.census]
        counts = [sum(column) for column in zip(*(reply.class_counts for reply in replies), strict=False)]
        if any(counts):
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
        (one.runs[0] for one in groups if not one.is_reference), lambda run: run.record.protocol.batch_norm
    )
    labels = {id(one.runs[0]): one.label for one in groups}
    if len(by_rule) < 2:
        return []
    protocol = next(iter(by_rule.values()))[0].record.protocol
    try:
        if not batch_norm_layers(plain_network(protocol, 2)):
            return []
    except SettingsError:  # a network or a data set that is not at hand
        pass
    rules = [f"{rule} for {', '.join(labels[id(run)] for run in of)}" for rule, of in sorted(by_rule.items())]
    return [f"batch_norm is {'; '.join(rules)}: a difference between these is also one of BatchNorm's statistics."]

# SPDX-License-Identifier: Apache-2.0
"""The census: checks that the sites of a run are compatible, and begins the run's record."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import CensusError
from fdg_plugins.messages import CensusReply
from fdg_plugins.plugins.versions import OF_SERVER, installed_versions, is_plugin, must_be_equal
from fdg_plugins.record.run_record import InitialWeights, Method, RunRecord
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import DEFAULT_TASK, Task

_PURPOSES = {"num_train": "training", "num_validation": "validation", "num_test": "test"}
NEEDED_IMAGES = {"held_out": ("num_test",), "source": ("num_train", "num_validation")}  # by role; none may be zero


@dataclass(frozen=True)
class Federation:
    """The sites of a run by role, in sorted order, and the classes and data that they agree on."""

    sources: tuple[str, ...]
    held_out: tuple[str, ...]
    classes: tuple[str, ...]
    stand_in: bool
    replies: dict[str, CensusReply]


def take_census(
    replies: Mapping[str, CensusReply], failures: Mapping[str, str], target: str, task: Task = DEFAULT_TASK
) -> Federation:
    """Return the federation given by the replies; raise ``CensusError`` naming the first site that does not fit.

    Every site must answer: a federation without one of its sites is not the one that the user requested.
    """
    for site in sorted(failures):
        raise CensusError(f"site {site} cannot take part: {failures[site]}")
    if not replies:
        raise CensusError("no site answered the census, expected at least one source and one held-out site.")
    first, *others = sites = sorted(replies)
    for site in others:
        _check_pair(first, replies[first], site, replies[site])
    _check_parts(replies)
    held_out = tuple(site for site in sites if replies[site].domain == target)
    held = ", ".join(f"{site} ({replies[site].domain})" for site in sites)
    if not held_out:
        raise CensusError(f"no site holds the held-out domain {target!r}; the sites are {held}.")
    if len(held_out) == len(sites):
        raise CensusError(f"every site holds the held-out domain {target!r}, so none can train; the sites are {held}.")
    for site in sites:
        _check_own(site, replies[site], "held_out" if site in held_out else "source", task)
        if task.report is not None:  # every site evaluates, the held-out ones too
            _check_allowed(site, replies[site].allowed_reports, {task.report: f"task {task.name!r}"})
    sources = tuple(site for site in sites if site not in held_out)
    own = replies[first]
    return Federation(sources, held_out, own.classes, own.stand_in, {site: replies[site] for site in sites})


def check_connected(named: Collection[str], connected: Collection[str]) -> None:
    """Raise ``CensusError`` if a site that the job names was not there when FLARE started the job."""
    missing = sorted({*named} - {*connected})
    if missing:
        raise CensusError(
            f"site {missing[0]} of the job's deploy_map does not take part ({len(missing)} in all): it was not "
            "connected when the job started, or FLARE could not start it there, expected every site of the job."
        )


def check_versions(federation: Federation, own: Mapping[str, str]) -> None:
    """Raise ``CensusError`` if a site runs another version than the server, which has ``own``; sites agree already.

    What the server computes itself may come from a plug-in that sites do not need.
    """
    for site, reply in federation.replies.items():
        _check_same_versions("the server", own, site, reply)


def check_min_sites(protocol: Protocol, federation: Federation) -> None:
    """Raise ``CensusError`` if no round could ever have enough updates."""
    drawn, sources = protocol.sites_per_round, federation.sources
    if drawn is not None and drawn > len(sources):
        raise CensusError(f"sites_per_round is {drawn}, but only {len(sources)} sites hold a source domain.")
    if len(sources) < protocol.min_sites:
        raise CensusError(
            f"min_sites is {protocol.min_sites}, but only {len(sources)} sites hold a source domain: "
            f"{', '.join(sources)}."
        )


def check_reports(federation: Federation, needed: Mapping[str, str]) -> None:
    """Raise ``CensusError`` if a source forbids a report that the method needs.

    ``needed`` maps each report to the part of the method that needs it.
    """
    for site in federation.sources:
        _check_allowed(site, federation.replies[site].allowed_reports, needed)


def _check_allowed(site: str, allowed: Collection[str] | None, needed: Mapping[str, str]) -> None:
    for report, whose in needed.items():
        if allowed is not None and report not in allowed:
            raise CensusError(f"site {site} forbids the report {report!r} (allowed_reports), which {whose} needs.")


def _check_pair(first: str, reference: CensusReply, site: str, reply: CensusReply) -> None:
    if reply.stand_in != reference.stand_in:
        real, drawn = (first, site) if reply.stand_in else (site, first)
        raise CensusError(
            f"site {drawn} would use the STAND-IN while site {real} holds real data: "
            f"set the data root of site {drawn} (FDG_DATA_ROOT or fdg_site.json)."
        )
    if reply.dataset != reference.dataset:
        raise CensusError(f"site {site} holds {reply.dataset!r}, but site {first} holds {reference.dataset!r}.")
    if reply.classes != reference.classes:
        odd = sorted(set(reply.classes) ^ set(reference.classes))
        what = f"{odd[0]!r} is known to only one of them" if odd else "the order differs"
        raise CensusError(f"site {site} has other classes than site {first}: {what}.")
    _check_same_versions(f"site {first}", reference.versions, site, reply)


def _check_same_versions(whose: str, versions: Mapping[str, str], site: str, reply: CensusReply) -> None:
    for package, version in versions.items():
        told = reply.versions.get(package)
        if told != version and must_be_equal(package) and not (is_plugin(package) and told is None):
            raise CensusError(
                f"site {site} runs {package} {told}, but {whose} runs {version}: one job needs one version everywhere."
            )


def _check_parts(replies: Mapping[str, CensusReply]) -> None:
    """Raise ``CensusError`` if sites that divide a domain among them divide it differently, or have the same part.

    Each site computes the whole partition, whose name has a hash of the images of all sites.
    """
    known: dict[str, tuple[str, str]] = {}
    holders: dict[tuple[str, str], str] = {}
    for site, reply in sorted(replies.items()):
        division = reply.division
        if division is None:
            continue
        first, known_division = known.setdefault(reply.domain, (site, division))
        if division != known_division:
            raise CensusError(
                f"site {site} divides domain {reply.domain!r} as {division}, but site {first} as {known_division}: "
                "expected the same images at all sites that share a domain."
            )
        holder = holders.setdefault((reply.domain, reply.split_hash), site)
        if holder != site:
            raise CensusError(
                f"site {site} holds the same part of domain {reply.domain!r} as site {holder}, expected another."
            )


def _check_own(site: str, reply: CensusReply, role: str, task: Task) -> None:
    """Raise ``CensusError`` for a reply that contradicts itself, or the site's role in this run."""
    if reply.role not in (None, role):
        raise CensusError(
            f"site {site} accepts only the role {reply.role!r}, but holding domain {reply.domain!r} "
            f"its role in this run is {role!r}."
        )
    for name in NEEDED_IMAGES[role]:
        if getattr(reply, name) == 0:
            raise CensusError(
                f"site {site} has no {_PURPOSES[name]} image of domain {reply.domain!r}, expected at least one in the "
                f"role {role!r}."
            )
    if len(reply.class_counts) != len(reply.classes):
        raise CensusError(f"site {site} counts {len(reply.class_counts)} classes but names {len(reply.classes)}.")
    used = reply.num_test if role == "held_out" else reply.num_train + reply.num_validation
    if task.one_class_per_image and sum(reply.class_counts) != used:
        raise CensusError(f"site {site} counts {sum(reply.class_counts)} images by class, but {used} in all.")
    if max(reply.class_counts, default=0) > used:
        raise CensusError(f"site {site} counts {max(reply.class_counts)} images of one class, but {used} in all.")


def new_record(
    federation: Federation, protocol: Protocol, method: Method, weights: InitialWeights, code: Mapping[str, str]
) -> RunRecord:
    """Return the record of a run that is about to start; ``code`` is that of the plug-ins that it uses."""
    title = dataset_spec(protocol.dataset).title
    return RunRecord(
        stand_in=federation.stand_in,
        data=f"STAND-IN for {title}" if federation.stand_in else title,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        protocol=protocol,
        method=method,
        initial_weights=weights,
        versions={**installed_versions(OF_SERVER), **code},
        classes=federation.classes,
        sources=federation.sources,
        held_out=federation.held_out,
        census=federation.replies,
    )

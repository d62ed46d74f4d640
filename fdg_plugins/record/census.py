# SPDX-License-Identifier: Apache-2.0
"""The census: checks that the sites of a run are compatible, and begins the run's record."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import CensusError
from fdg_plugins.messages import CensusReply
from fdg_plugins.models import InitialWeights
from fdg_plugins.plugins.versions import OF_SERVER, installed_versions, is_plugin, must_be_equal
from fdg_plugins.record.round_record import Method
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.settings.protocol import EVERY, Protocol
from fdg_plugins.tasks import DEFAULT_TASK, Task

NEEDED_IMAGES = {"held_out": ("num_test",), "source": ("num_train", "num_validation")}  # by role; none may be zero
Replies = Mapping[str, CensusReply]


@dataclass(frozen=True)
class Federation:
    """The sites of a run by role, in sorted order, and the classes and data that they agree on."""

    sources: tuple[str, ...]
    held_out: tuple[str, ...]
    classes: tuple[str, ...]
    stand_in: bool
    replies: dict[str, CensusReply]


def take_census(replies: Replies, failures: Mapping[str, str], target: str, task: Task = DEFAULT_TASK) -> Federation:
    """Return the federation given by the replies; raise ``CensusError`` naming the first site that does not fit.

    Every site must answer: a federation without one of its sites is not the one that the user requested. With the
    ``target`` :data:`~fdg_plugins.settings.protocol.EVERY`, all sites are held out.
    """
    for site in sorted(failures):
        raise CensusError(f"site {site} cannot take part: {failures[site]}")
    if not replies:
        raise CensusError("no site answered the census, expected at least one source and one held-out site.")
    sites = {site: replies[site] for site in sorted(replies)}
    first, own = next(iter(sites.items()))
    for site, reply in sites.items():
        _check_alike(first, own, site, reply)
    _check_division(sites)
    held_out = tuple(site for site, reply in sites.items() if target in (reply.domain, EVERY))
    if target != EVERY and len(held_out) in (0, len(sites)):
        held = ", ".join(f"{site} ({reply.domain})" for site, reply in sites.items())
        expected = "one site that evaluates it and another that trains"
        raise CensusError(f"the held-out domain of the sites {held} is {target!r}, expected {expected}.")
    for site, reply in sites.items():
        _check_role(site, reply, "held_out" if site in held_out else "source", task)
        # Every site evaluates, the held-out ones too.
        _check_allowed(site, reply, dict.fromkeys(task.reports, f"task {task.name!r}"))
    sources = tuple(site for site in sites if site not in held_out)
    return Federation(sources, held_out, own.classes, own.stand_in, sites)


def check_connected(named: Collection[str], connected: Collection[str]) -> None:
    """Raise ``CensusError`` if a site that the job names was not there when FLARE started the job."""
    if missing := sorted({*named} - {*connected}):
        raise CensusError(
            f"site {missing[0]} of the job's deploy_map does not take part ({len(missing)} in all): it was not "
            "connected, or FLARE could not start the job there."
        )


def check_versions(federation: Federation, own: Mapping[str, str]) -> None:
    """Raise ``CensusError`` if a site runs another version than the server, which has ``own``; sites agree already.

    What the server computes itself may come from a plug-in that sites do not need.
    """
    for site, reply in federation.replies.items():
        _check_versions("the server", own, site, reply)


def check_min_sites(protocol: Protocol, federation: Federation) -> None:
    """Raise ``CensusError`` if no round could ever have enough updates."""
    count, names = len(federation.sources), ", ".join(federation.sources)
    for name, number in {"sites_per_round": protocol.sites_per_round or 0, "min_sites": protocol.min_sites}.items():
        if number > count:
            raise CensusError(f"{name} is {number}, but only {count} sites hold a source domain: {names}.")


def check_reports(federation: Federation, needed: Mapping[str, str]) -> None:
    """Raise ``CensusError`` if a source forbids a report that the method needs.

    ``needed`` maps each report to the part of the method that needs it.
    """
    for site in federation.sources:
        _check_allowed(site, federation.replies[site], needed)


def _check_allowed(site: str, reply: CensusReply, needed: Mapping[str, str]) -> None:
    for report, whose in needed.items():
        if reply.allowed_reports is not None and report not in reply.allowed_reports:
            raise CensusError(f"site {site} forbids the report {report!r} (allowed_reports), which {whose} needs.")


def _check_alike(first: str, reference: CensusReply, site: str, reply: CensusReply) -> None:
    if reply.stand_in != reference.stand_in:
        real, drawn = (first, site) if reply.stand_in else (site, first)
        folder = f"a folder, as at site {real} (FDG_DATA_ROOT or fdg_site.json)"
        raise CensusError(f"site {drawn}: data root is 'STAND-IN', expected {folder}.")
    if reply.dataset != reference.dataset:
        raise CensusError(f"site {site} holds {reply.dataset!r}, but site {first} holds {reference.dataset!r}.")
    if reply.classes != reference.classes:
        odd = sorted(set(reply.classes) ^ set(reference.classes)) or ["the order"]
        raise CensusError(f"site {site} has other classes than site {first}: {odd[0]!r} differs.")
    _check_versions(f"site {first}", reference.versions, site, reply)


def _check_versions(whose: str, versions: Mapping[str, str], site: str, reply: CensusReply) -> None:
    for package, version in versions.items():
        told = reply.versions.get(package)
        if told != version and must_be_equal(package) and not (is_plugin(package) and told is None):
            expected = f"but {whose} runs {version}: one job needs one version everywhere"
            raise CensusError(f"site {site} runs {package} {told}, {expected}.")


def _check_division(sites: Replies) -> None:
    """Raise ``CensusError`` if sites that divide a domain among them divide it differently, or have the same part.

    Each site computes the whole partition, whose name has a hash of the images of all sites.
    """
    known: dict[str, tuple[str, str]] = {}
    holders: dict[tuple[str, str], str] = {}
    for site, reply in sites.items():
        if (division := reply.division) is None:
            continue
        first, expected = known.setdefault(reply.domain, (site, division))
        if division != expected:
            same = f"expected {expected}, as at site {first}: the same images at both"
            raise CensusError(f"site {site}: division of domain {reply.domain!r} is {division}, {same}.")
        if (holder := holders.setdefault((reply.domain, reply.split_hash), site)) != site:
            other = f"site {holder}, expected another"
            raise CensusError(f"site {site} holds the same part of domain {reply.domain!r} as {other}.")


def _check_role(site: str, reply: CensusReply, role: str, task: Task) -> None:
    names, counts = NEEDED_IMAGES[role], reply.class_counts
    used = sum(getattr(reply, name) for name in names)
    wrong = {
        f"accepts only the role {reply.role!r}, but holds domain {reply.domain!r}": reply.role not in (None, role),
        **{f"has {name} 0, expected at least 1": getattr(reply, name) == 0 for name in names},
        f"counts {len(counts)} classes but names {len(reply.classes)}": len(counts) != len(reply.classes),
        f"counts {sum(counts)} images by class, but {used} in all": task.one_class_per_image and sum(counts) != used,
        f"counts {max(counts, default=0)} images of one class, but {used} in all": max(counts, default=0) > used,
    }
    for what in (what for what, is_wrong in wrong.items() if is_wrong):
        raise CensusError(f"site {site} {what}; its role in this run is {role!r}.")


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

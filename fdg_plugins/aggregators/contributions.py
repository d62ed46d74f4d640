# SPDX-License-Identifier: Apache-2.0
"""One site's contribution to a round, and the checks that this untrusted input must pass.

Shapes: an update has the names, shapes and kinds of dtypes of the global model (:mod:`fdg_plugins.core.layout`). Every
value is finite and at most ``LARGEST_VALUE`` in magnitude. Whatever does not fit is refused with a
``ContributionError`` that names the site and the parameter; the round continues with the other sites.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fdg_plugins.core.layout import Entry, ModelLayout, ParameterKind
from fdg_plugins.core.linear import LARGEST_SQUARABLE
from fdg_plugins.core.stored import Values, dense_tensor
from fdg_plugins.errors import LONGEST_QUOTE, ContributionError, DataError, is_number, one_line, shorten
from fdg_plugins.flare.broken_uploads import are_lost
from fdg_plugins.flare.peers import authenticated_site
from fdg_plugins.flare.stored_tensor import UNREADABLE, StoredTensor, is_reference, open_reference
from fdg_plugins.messages import (
    LONGEST_NAME,
    META_CHECKED_REPORTS,
    META_REPORT,
    META_SAMPLES,
    META_SITE,
    MOST_NAMES,
    MOST_SAMPLES,
    TrainReport,
)

CHECKED_AT_A_TIME = 1 << 20  # elements of a stored tensor loaded at a time


class NotFiniteError(ContributionError):
    """An update has NaN or infinite values: the site's training diverged, or the site is dishonest."""


class RunFacts(NamedTuple):
    """What the workflow tells an aggregator about the run; a workflow of FLARE's own tells nothing.

    ``class_counts``: for each source, its number of images of each class ``[Y]``, as counted in the census.
    ``last_layer``: the names of the last layer's weight and bias, whose rows are the classes. ``clip_to_median``:
    updates longer than this many medians of the round are shortened (None: never). ``domains``: the domain that each
    source holds.
    """

    class_counts: Mapping[str, Sequence[int]] = {}
    last_layer: tuple[str, ...] = ()
    clip_to_median: float | None = None
    domains: Mapping[str, str] = {}


class Direction(NamedTuple):
    """A direction as coefficients ``[U]`` of the updates, float64, and the values that the method reports about it."""

    coefficients: torch.Tensor
    report: dict[str, Any]


@dataclass(frozen=True)
class Contribution:
    """One site's checked update, local minus global.

    Args:
        site: the authenticated name.
        update: parameters by name, as in the model's state dict. Those that FLARE wrote to files may stay there.
        num_samples: number of training samples; None if the site did not report it.
        arrays: whether the update came as arrays only, without tensors.
        reports: what the server's filters have checked of the site's further reports.
        training: the site's account of its local training; None if its executor sends none.
        length: L2 length of the trainable parameters, accurate to about 1 %, for the detection of outliers.
        metrics: finite numbers that the site sent as ``FLModel.metrics``; None if it sent none.
    """

    site: str
    update: dict[str, Values]
    num_samples: int | None
    arrays: bool = False
    reports: Mapping[str, Any] = field(default_factory=dict)
    training: TrainReport | None = None
    length: float = 0.0
    metrics: Mapping[str, float] | None = None

    def refuse(self, reason: str) -> NoReturn:
        """Raise ``ContributionError``, which names the site, with ``reason``."""
        refuse(self.site, reason)


def refuse(site: str, reason: str, error: type[ContributionError] = ContributionError) -> NoReturn:
    """Raise the error with ``reason``."""
    raise error(f"site {site}: {reason}.")


def read_contribution(model: FLModel, layout: ModelLayout | None, in_files: bool = False) -> Contribution:
    """Return the contribution in ``model``, checked.

    Args:
        model: as received from a site.
        layout: of the global model. Without it (a stock workflow that does not show its model), the update is checked
            only against itself.
        in_files: whether parameters in files may stay there; they are then checked part by part.

    Raises ``ContributionError`` with one sentence naming the site and the parameter.
    """
    meta = model.meta if isinstance(model.meta, Mapping) else {}
    site = meta.get(META_SITE)
    if not isinstance(site, str) or not site:
        refuse("without an authenticated name", "sent a contribution")
    if model.params_type != ParamsType.DIFF or not isinstance(model.params, Mapping) or not model.params:
        refuse(site, f"sent no parameters, or {model.params_type}, expected a WEIGHT_DIFF")
    if are_lost(model.params):
        refuse(site, "the upload of its update broke off or cannot be decoded")
    update = {str(name): _read_value(site, name, value, in_files) for name, value in model.params.items()}
    layout = ModelLayout.of(update) if layout is None else layout
    if differing := sorted(layout.keys() ^ update.keys()):
        problem = "missing" if differing[0] in layout else "not in the global model"
        refuse(site, f"parameter {shorten(differing[0])} is {problem} ({len(differing)} so)")
    checked = {name: _checked(site, name, update[name], entry) for name, entry in layout.items()}
    reports, training = meta.get(META_CHECKED_REPORTS), meta.get(META_REPORT)
    return Contribution(
        site=site,
        update={name: value for name, (value, _) in checked.items()},
        num_samples=_read_samples(site, meta.get(META_SAMPLES)),
        arrays=not any(isinstance(value, torch.Tensor) or is_reference(value) for value in model.params.values()),
        reports=reports if isinstance(reports, Mapping) else {},
        training=None if training is None else TrainReport.read(training, f"site {site}: report", ContributionError),
        length=math.sqrt(math.fsum(checked[name][1] for name in layout.names(ParameterKind.TRAINABLE))),
        metrics=_read_metrics(model.metrics),
    )


def read_model(shareable: Shareable, fl_ctx: FLContext) -> FLModel:
    """Return a site's message as a model with the site's name in its meta data.

    Raises ``ContributionError`` for anything but an update of the current round.
    """
    site = "without a name"
    try:
        site = authenticated_site(shareable, fl_ctx)
        sent_for = shareable.get_cookie(AppConstants.CONTRIBUTION_ROUND, None)
        current = fl_ctx.get_prop(AppConstants.CURRENT_ROUND) if fl_ctx else None
        if sent_for is not None and current is not None and sent_for != current:
            refuse(site, f"sent an update for round {sent_for} in round {current}")
        model = FLModelUtils.from_shareable(shareable)
    except ContributionError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        reason = one_line(str(error).rstrip("."), LONGEST_QUOTE)
        refuse(site, f"sent something that is not an update: {reason}")
    model.meta[META_SITE] = site
    return model


def _read_value(site: str, name: object, value: Any, in_files: bool) -> Values:
    if is_reference(value):  # with disk offload FLARE hands over references that load on demand
        try:
            value = open_reference(value) if in_files else value.materialize()
        except UNREADABLE as error:
            refuse(site, f"parameter {shorten(name)} cannot be loaded: {error}")
    tensor = value if isinstance(value, StoredTensor) else dense_tensor(value)
    if tensor is None:
        kind = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        refuse(site, f"parameter {shorten(name)} is a {kind}, expected a dense array of numbers")
    return tensor


def _checked(site: str, name: str, value: Any, entry: Entry) -> tuple[Values, float]:
    """Return a parameter as the model has it, and its squared length; 0 for a counter."""
    is_counter = entry.kind is ParameterKind.INTEGER_BUFFER
    real, dtype = value.dtype.is_floating_point, value.dtype
    if tuple(value.shape) != entry.shape or (real or dtype.is_complex if is_counter else not real):
        came, expected = f"shape {list(value.shape)} and dtype {dtype}", f"{list(entry.shape)} and {entry.dtype}"
        refuse(site, f"parameter {name!r} has {came}, expected {expected}")
    value = value.to(entry.dtype)  # before the check: a large float64 becomes infinite here
    if is_counter:
        return value, 0.0
    try:
        squared_length = math.fsum(_length(site, name, part) ** 2 for part in _parts(value))
    except DataError as error:
        refuse(site, f"parameter {name!r} cannot be loaded: {error}".rstrip("."))
    return value.contiguous() if isinstance(value, torch.Tensor) else value, squared_length


def _length(site: str, name: str, part: torch.Tensor) -> float:
    """Return the length of a part; refuse values that are not finite, or too large to be squared.

    Finite values need one pass: their length, in at least float32, is finite. Otherwise a second pass finds the reason.
    """
    narrow = part.dtype in (torch.float16, torch.bfloat16)
    length = float(torch.linalg.vector_norm(part, dtype=torch.float32 if narrow else None))
    if length <= LARGEST_SQUARABLE:  # false for NaN and infinity
        return length
    if count := int((~torch.isfinite(part)).sum()):
        refuse(site, f"parameter {name!r} has {count} values that are NaN or infinite", NotFiniteError)
    if bool((part.double().abs() > LARGEST_SQUARABLE).any()):
        refuse(site, f"parameter {name!r} has values beyond {LARGEST_SQUARABLE:g}")
    return float(torch.linalg.vector_norm(part, dtype=torch.float64))


def _parts(value: Values) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
        return
    length = value.shape.numel()
    for start in range(0, length, CHECKED_AT_A_TIME):
        yield value.read(start, min(start + CHECKED_AT_A_TIME, length))


def _read_samples(site: str, value: Any) -> int | None:
    number = value.item() if isinstance(value, np.generic) else value
    if number is not None and not (is_number(number) and 0 < number <= MOST_SAMPLES and number == int(number)):
        refuse(site, f"number of samples is {shorten(value)}, expected a whole number above zero")
    return None if number is None else int(number)


def _read_metrics(value: Any) -> dict[str, float] | None:
    """Return the finite numbers among a site's metrics, by name, truth values as 0 and 1; None if it sent none.

    Anything else is left out, because a metric must not cost a site its update.
    """
    if not isinstance(value, Mapping):
        return None
    named = {name: _number(one) for name, one in value.items() if isinstance(name, str) and len(name) <= LONGEST_NAME}
    return dict(islice(((name, number) for name, number in named.items() if math.isfinite(number)), MOST_NAMES))


def _number(value: Any) -> float:
    try:
        return math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return math.nan


def mean_metrics(contributions: Sequence[Contribution]) -> dict[str, float] | None:
    """Return ``sum_u n_u m_u / sum_u n_u`` of each metric m over the sites that sent it, as FLARE's own FedAvg does.

    n is the number of samples, one if a site did not say it. As in FLARE, a round has no metrics at all, None, if one
    of its sites sent none. FLARE's model selection, early stopping and metric files read them.
    """
    helper = WeightedAggregationHelper()
    for contribution in contributions:
        if contribution.metrics is None:
            return None
        helper.add(contribution.metrics, contribution.num_samples or 1, contribution.site, None)
    return helper.get_result() or None

# SPDX-License-Identifier: Apache-2.0
"""Re-estimated normalization statistics at the server: one answer per site, pooled exactly, put into the model."""

import math
from collections.abc import Mapping

import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.core.batch_statistics import ChannelSums, pooled
from fdg_plugins.core.outliers import far_above_median
from fdg_plugins.errors import ContributionError
from fdg_plugins.models.batch_norm import NormLayer
from fdg_plugins.objectives.exchange import PayloadValidator
from fdg_plugins.training.global_model import count_bytes
from fdg_plugins.training.statistics import read_payload, running_statistics


class SiteStatistics:
    """The answers of one round's sites to the task ``statistics``.

    ``layers``: the layers to measure. ``num_train``: each site's training images, from the census. ``outlier_ratio``:
    that of the protocol; 0 disables the comparison of sites.
    """

    def __init__(
        self, layers: Mapping[str, NormLayer], num_train: Mapping[str, int], outlier_ratio: float = 0.0
    ) -> None:
        self.layers = layers
        self.num_train = num_train
        self.outlier_ratio = outlier_ratio
        self.num_bytes = 0
        self._by_site: dict[str, dict[str, ChannelSums]] = {}

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites whose statistics count, sorted."""
        return tuple(sorted(self._by_site))

    def take(self, site: str, answer: FLModel) -> None:
        """Keep a site's statistics; raise ``ContributionError`` if they are malformed or not of its images."""
        self.num_bytes += count_bytes(answer.metrics)
        validator = PayloadValidator(f"site {site}: normalization statistics", ContributionError)
        self._by_site[site] = read_payload(validator, answer.metrics, self.layers, self.num_train[site])

    def refuse_outliers(self) -> dict[str, str]:
        """Exclude the sites whose inputs of a layer are far larger than is usual; return the reason for each.

        The size of a layer's inputs is the root of their mean square.
        """
        sizes = {
            site: {
                f"inputs of layer {layer}": math.sqrt(float(sums.squares.sum()) / (sums.count * len(sums.squares)))
                for layer, sums in found.items()
            }
            for site, found in self._by_site.items()
        }
        refused = far_above_median(sizes, self.outlier_ratio)
        for site in refused:
            del self._by_site[site]
        return refused

    def pooled(self) -> dict[str, torch.Tensor]:
        """Return the running statistics over the images of all these sites, by their names in the state dict."""
        return running_statistics(
            {layer: pooled({site: found[layer] for site, found in self._by_site.items()}) for layer in self.layers}
        )

# SPDX-License-Identifier: Apache-2.0
"""A recipe for each published method. Each names the settings of its own; everything else is as in ``FDGRecipe``."""

from typing import Any

from fdg_plugins.recipes.recipe import FDGRecipe


class FedAvgRecipe(FDGRecipe):
    """FedAvg (McMahan et al., AISTATS 2017): the mean of the sites' updates.

    Args:
        dataset: the data set, by name.
        weighting: weights of the sites: ``"samples"`` (the paper; default for PACS), ``"uniform"``, or ``"ga"``.
        server_lr: factor of the mean update, above 0; one is FedAvg.
        settings: as in :class:`~fdg_plugins.recipes.FDGRecipe`.
    """

    def __init__(
        self,
        dataset: str = "pacs",
        *,
        weighting: str | dict[str, Any] | None = None,
        server_lr: float | None = None,
        **settings: Any,
    ) -> None:
        super().__init__("fedavg", dataset, weighting=weighting, server_lr=server_lr, **settings)


class FedOMGRecipe(FDGRecipe):
    """FedOMG (Nguyen et al., ICLR 2025): the step that fits all sites' updates, found at the server.

    Args:
        dataset: the data set, by name.
        kappa: radius of the search relative to the mean update's length, at least 0, which is FedAvg; 0.5 in Table 4.
        server_lr: factor of the step, above 0; 0.05 in Table 4, for PACS from ImageNet weights; from scratch, take 1.
        rescale: divide the step by ``1 + kappa**2`` as the authors' code does.
        weighting: reference weights: ``"uniform"`` (Algorithm 1), ``"samples"``, or ``"ga"``.
        settings: as in :class:`~fdg_plugins.recipes.FDGRecipe`.
    """

    def __init__(
        self,
        dataset: str = "pacs",
        *,
        kappa: float | None = None,
        server_lr: float | None = None,
        rescale: bool | None = None,
        weighting: str | dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        own: dict[str, Any] = {"kappa": kappa, "server_lr": server_lr, "rescale": rescale, "weighting": weighting}
        super().__init__("fedomg", dataset, **own, **settings)


class FedGARecipe(FDGRecipe):
    """FedDG-GA (Zhang et al., CVPR 2023): FedAvg whose weights follow the sites' generalization gaps.

    Args:
        dataset: the data set, by name.
        step_size: most that a weight gains in the first round, at least 0, which is uniform weights; 0.05 in the paper.
        normalizer: ``"max"`` (paper) or ``"max_abs"`` (released code).
        metric: what a gap is a difference of: ``"loss"`` (paper) or ``"accuracy"`` (released code).
        server_lr: factor of the mean update, above 0.
        settings: as in :class:`~fdg_plugins.recipes.FDGRecipe`.
    """

    def __init__(
        self,
        dataset: str = "pacs",
        *,
        step_size: float | None = None,
        normalizer: str | None = None,
        metric: str | None = None,
        server_lr: float | None = None,
        **settings: Any,
    ) -> None:
        own: dict[str, Any] = {
            "step_size": step_size,
            "normalizer": normalizer,
            "metric": metric,
            "server_lr": server_lr,
        }
        super().__init__("fedga", dataset, **own, **settings)


class FedDIMRecipe(FDGRecipe):
    """FedDIM (Liao et al., IJCAI 2025): sites learn to decide for the reasons that all of them share.

    The third setting of the objective shares its name with the held-out domain: ``objective={"name": "dim",
    "target": "feature"}`` sets it.

    Args:
        dataset: the data set, by name.
        strength: factor of the penalty beside the mean cross entropy, at least 0, which is FedAvg; 0.01, our choice.
        insight_momentum: share of the newest round in the global insight, from 0 to 1; 0.5, our choice.
        settings: as in :class:`~fdg_plugins.recipes.FDGRecipe`.
    """

    def __init__(
        self,
        dataset: str = "pacs",
        *,
        strength: float | None = None,
        insight_momentum: float | None = None,
        **settings: Any,
    ) -> None:
        super().__init__("feddim", dataset, strength=strength, insight_momentum=insight_momentum, **settings)


class FedIIRRecipe(FDGRecipe):
    """FedIIR (Guo et al., ICML 2023): sites align the classifier's gradient with the mean over all sites.

    Args:
        dataset: the data set, by name.
        strength: factor of the penalty, at least 0, which is FedAvg; 0.001 PACS, 0.01 RotatedMNIST (Table 3).
        ema: share of the past in the mean gradient, from 0 to 1; 0.95 in Table 3.
        probe: ``"extra_task"`` (Algorithm 1), or ``"previous_round"``, which saves a trip and is one round late.
        settings: as in :class:`~fdg_plugins.recipes.FDGRecipe`.
    """

    def __init__(
        self,
        dataset: str = "pacs",
        *,
        strength: float | None = None,
        ema: float | None = None,
        probe: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__("fediir", dataset, strength=strength, ema=ema, probe=probe, **settings)

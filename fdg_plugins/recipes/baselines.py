# SPDX-License-Identifier: Apache-2.0
"""A recipe for each method that the papers compare with. Settings of FLARE and the protocol are as in ``FDGRecipe``."""

from typing import Any

from fdg_plugins.recipes.recipe import FDGRecipe


class FedProxRecipe(FDGRecipe):
    """FedProx (Li et al., MLSys 2020): sites pay for their distance from the model they received.

    Args:
        dataset: the data set, by name.
        strength: mu, factor of half the squared distance, at least 0, which is FedAvg; 0.1 in FedDG-GA's code.
        settings: as in :class:`~fdg_plugins.recipes.FDGRecipe`.
    """

    def __init__(self, dataset: str = "pacs", *, strength: float | None = None, **settings: Any) -> None:
        super().__init__("fedprox", dataset, strength=strength, **settings)


class FedSAMRecipe(FDGRecipe):
    """FedSAM (Qu et al., ICML 2022): sites step by the gradient at the sharpest point nearby.

    Args:
        dataset: the data set, by name.
        radius: rho, distance of that point over all parameters, at least 0, which is FedAvg.
        settings: as in :class:`~fdg_plugins.recipes.FDGRecipe`.
    """

    def __init__(self, dataset: str = "pacs", *, radius: float | None = None, **settings: Any) -> None:
        super().__init__("fedsam", dataset, radius=radius, **settings)


class MoFedSAMRecipe(FDGRecipe):
    """MoFedSAM (Qu et al., ICML 2022): FedSAM whose steps carry on the last global one. It needs ``momentum`` 0.

    Args:
        dataset: the data set, by name.
        radius: rho, as in FedSAM.
        beta: share of the site's own gradient in a step, above 0 and at most 1, which is FedSAM.
        settings: as in :class:`~fdg_plugins.recipes.FDGRecipe`.
    """

    def __init__(
        self, dataset: str = "pacs", *, radius: float | None = None, beta: float | None = None, **settings: Any
    ) -> None:
        super().__init__("mofedsam", dataset, radius=radius, beta=beta, **settings)


class SCAFFOLDRecipe(FDGRecipe):
    """SCAFFOLD (Karimireddy et al., ICML 2020): control variates take the sites' drift out of every step.

    Args:
        dataset: the data set, by name.
        settings: as in :class:`~fdg_plugins.recipes.FDGRecipe`; ``momentum`` is 0 unless it is given, as in the paper.
    """

    def __init__(self, dataset: str = "pacs", **settings: Any) -> None:
        super().__init__("scaffold", dataset, **settings)


class FedNovaRecipe(FDGRecipe):
    """FedNova (Wang et al., NeurIPS 2020): updates are divided by how far each site's steps went.

    Args:
        dataset: the data set, by name.
        weighting: weights of the sites: ``"samples"`` (the paper), ``"uniform"``, or ``"ga"``.
        settings: as in :class:`~fdg_plugins.recipes.FDGRecipe`.
    """

    def __init__(
        self, dataset: str = "pacs", *, weighting: str | dict[str, Any] | None = None, **settings: Any
    ) -> None:
        super().__init__("fednova", dataset, weighting=weighting, **settings)


class HarmoFLRecipe(FDGRecipe):
    """HarmoFL (Jiang et al., AAAI 2022): one amplitude spectrum for all sites' images, and FedSAM's step.

    Args:
        dataset: the data set, by name.
        radius: alpha, radius of the step's perturbation, at least 0.
        settings: those of the objective ``harmo``, and as in :class:`~fdg_plugins.recipes.FDGRecipe`.
    """

    def __init__(self, dataset: str = "pacs", *, radius: float | None = None, **settings: Any) -> None:
        super().__init__("harmofl", dataset, radius=radius, **settings)


class AMRecipe(FDGRecipe):
    """Amplitude mix, as FedDG-GA's authors use it: images of a batch mix their amplitude spectra.

    Args:
        dataset: the data set, by name.
        probability: that a batch is mixed, from 0, which is FedAvg, to 1.
        settings: as in :class:`~fdg_plugins.recipes.FDGRecipe`.
    """

    def __init__(self, dataset: str = "pacs", *, probability: float | None = None, **settings: Any) -> None:
        super().__init__("am", dataset, probability=probability, **settings)


class RSCRecipe(FDGRecipe):
    """RSC (Huang et al., ECCV 2020) at each site: the features that decide most are muted.

    Args:
        dataset: the data set, by name.
        variant: ``"spatial_channel"`` (authors' code) or ``"feature"`` (DomainBed).
        settings: those of the objective ``rsc``, and as in :class:`~fdg_plugins.recipes.FDGRecipe`.
    """

    def __init__(self, dataset: str = "pacs", *, variant: str | None = None, **settings: Any) -> None:
        super().__init__("rsc", dataset, variant=variant, **settings)


class FedSRRecipe(FDGRecipe):
    """FedSR (Nguyen et al., NeurIPS 2022): a probabilistic representation that says little but the class.

    Args:
        dataset: the data set, by name.
        l2_strength: factor of the representation's length, at least 0.
        cmi_strength: factor of its divergence from the class's reference, at least 0.
        settings: those of the objective ``sr``, and as in :class:`~fdg_plugins.recipes.FDGRecipe`.
    """

    def __init__(
        self,
        dataset: str = "pacs",
        *,
        l2_strength: float | None = None,
        cmi_strength: float | None = None,
        **settings: Any,
    ) -> None:
        super().__init__("fedsr", dataset, l2_strength=l2_strength, cmi_strength=cmi_strength, **settings)


class FedCSARecipe(FDGRecipe):
    """FedCSA (Ma et al., 2021, as FedDG-GA describes it): a class's row of the last layer follows who has that class.

    Args:
        dataset: the data set, by name.
        weighting: weights of the sites: ``"samples"``, ``"uniform"``, or ``"ga"``.
        settings: as in :class:`~fdg_plugins.recipes.FDGRecipe`.
    """

    def __init__(
        self, dataset: str = "pacs", *, weighting: str | dict[str, Any] | None = None, **settings: Any
    ) -> None:
        super().__init__("fedcsa", dataset, weighting=weighting, **settings)


class ARFLRecipe(FDGRecipe):
    """ARFL (Li et al., 2022): weights that turn from sites with a high training loss.

    Args:
        dataset: the data set, by name.
        settings: those of the weighting ``arfl``, and as in :class:`~fdg_plugins.recipes.FDGRecipe`. The loss is
            measured on the training split, so ``gap_split`` must stay ``"train"``.
    """

    def __init__(self, dataset: str = "pacs", **settings: Any) -> None:
        super().__init__("arfl", dataset, **settings)

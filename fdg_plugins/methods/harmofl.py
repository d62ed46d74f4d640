# SPDX-License-Identifier: Apache-2.0
"""HarmoFL: every image gets the amplitude spectrum of all sites together, and local steps are sharpness-aware.

Choose it if the sites' images differ in brightness, contrast or imaging device and should look alike to the network.

Participation: the sites of the first round collect the spectrum; from then on it is frozen. A site that joins later,
and the held-out site, use the spectrum of the others. If no update of the first round was usable, the next round
collects again.

Buffers: averaged with the reference weights. The spectrum is one of them and travels with the network.

Cost: two passes per step for a radius above zero, and a Fourier transform of each image.

Equation: ``A' = Abar`` within the band, ``x' = Re F^-1(A' exp(i angle F(x)))``; then a step with the gradient at
``w + radius g / |g|``. Abar is a buffer ``[C, H, W // 2 + 1]`` per channel and frequency, zero outside the band.

Settings: ``band`` 0 equalises only the brightness of each channel; from there to 0.5 more and more of contrast and
texture becomes the same for all images, until only phases tell them apart. The choice binds the whole run. With
``sites_per_round``, an untypical first draw fixes Abar for good. ``radius`` behaves as FedSAM's.

What to watch: Abar is tied to one ``image_size``. With ``amplitude_momentum`` 0.1 it reflects the last few dozen
batches of the first round. Under differential privacy this buffer is noised in every round, frozen or not.

Paper or code: the paper's band is not established; the code's, 0, is the default, and the whole spectrum an option. The
code's momentum of 0, a slip of its integer type, is not followed.

Together: any weighting, of which the first round's decides over Abar, and any direction, which does not see it. All
parameters must travel. FedDG-GA's gap is measured on normalised images.
"""

from fdg_plugins.plugins.method import (
    Default,
    Difference,
    Differences,
    Equation,
    Leaving,
    Method,
    Reference,
    SettingSource,
    Together,
)

METHOD = Method(
    key="harmofl",
    title="HarmoFL",
    part="harmo",
    part_title="Harmo",
    rank=11,
    line="every image gets the amplitude spectrum of all sites together, and steps are sharpness-aware",
    reference=Reference(
        authors="Jiang, Wang, Dou",
        title="HarmoFL: Harmonizing Local and Global Drifts in Federated Learning on Heterogeneous Medical Images",
        venue="AAAI",
        year=2022,
    ),
    acts=("network", "step"),
    objective="fdg_plugins.objectives.harmofl:HarmoFLObjective",
    defaults=(Default(server={"server_lr": 1.0, "weighting": "uniform"}, source="HarmoFL's code"),),
    in_composition="Weights average the spectrum too, as they do other buffers; the direction does not see it.",
    letters=(
        "x image [C, H, W]; F its discrete Fourier transform; A amplitude; Ā running amplitude; p "
        "weights of the sites; w parameters; η learning rate; v amplitude_momentum; L band; α radius"
    ),
    equations=(
        Equation(formula="A = |F(x)| / (H W)", meaning="of each channel; at frequency zero the absolute mean"),
        Equation(
            formula="Āᵤ ← (1 − v) Āᵤ + v mean A",
            meaning=(
                "over a site's batches of the first round, from the first batch's mean; each is normalised with it"
            ),
        ),
        Equation(formula="Ā = Σᵤ pᵤ Āᵤ", meaning="by the server, as for every float buffer; frozen from then on"),
        Equation(
            formula="A' = Ā in the band,   x' = Re F⁻¹(A' exp(i angle F(x)))",
            meaning="band: frequencies up to floor(L min(H, W)) along both sides",
        ),
        Equation(
            formula="w ← w − η ∇L(w + e),   e = α ∇L(w) / |∇L(w)|",
            meaning="one step, over all parameters together; the gradient goes through the site's SGD",
        ),
    ),
    settings=(
        SettingSource(
            name="radius",
            symbol="α",
            paper="not established",
            code="0.05",
            remark="distance of the perturbed weights; 0 takes plain steps",
        ),
        SettingSource(
            name="amplitude_momentum",
            symbol="v",
            paper="not established",
            code="0.1, cut to 0 by its type",
            remark="a batch's share; 0 keeps the first batch's mean",
        ),
        SettingSource(
            name="band",
            symbol="L",
            paper="not established",
            code="0",
            remark=(
                "half-width as a fraction of the shorter side: 0 is the mean of each channel, 0.5 the whole "
                "spectrum of a square image"
            ),
        ),
        SettingSource(
            name="normalize",
            paper="true",
            code="true",
            remark="false leaves the network as it is: FedSAM, and with radius 0 FedAvg, bit for bit",
        ),
    ),
    exact=(
        "radius 0 with normalize false is FedAvg, bit for bit; normalize false alone is FedSAM.",
        "Before the first round images pass as they are; from the second on Ā is frozen, its update exactly zero.",
        "band 0: the centred image stays; the mean of each channel keeps its sign and gets the size of Ā.",
        "An image whose amplitudes agree with Ā in the band stays, up to rounding.",
        "A site that comes later, and the held-out one, use what the first round's sites made.",
    ),
    differences=Differences(
        rows=(
            Difference(
                point="what is replaced",
                paper="amplitudes; that it is the whole spectrum is not established",
                code="the mean of each channel",
                ours="band, 0 by default",
            ),
            Difference(
                point="images",
                paper="not established",
                code="in [0, 1]",
                ours="normalised tensors; the phase at frequency zero, 0 or π, is kept",
            ),
            Difference(
                point="first round",
                paper="not established",
                code="every pass collects, the perturbed one too",
                ours="each batch once",
            ),
            Difference(
                point="BatchNorm",
                paper="not established",
                code="no running statistics, also in evaluation",
                ours="the network's; running statistics are those of the unperturbed pass",
            ),
            Difference(
                point="weights", paper="not established", code="uniform", ours="the job's; uniform in its recipe"
            ),
            Difference(
                point="optimiser's momentum",
                paper="not established",
                code="kept from round to round",
                ours="starts anew each round, unless keep_momentum",
            ),
            Difference(
                point="v",
                paper="not established",
                code="0.1, cut to 0 by its type",
                ours="0.1",
            ),
            Difference(
                point="evaluation before Ā is frozen",
                paper="not established",
                code="collects too",
                ours="never collects",
            ),
            Difference(
                point="smallest norm in e",
                paper="–",
                code="1e-12 added",
                ours="1e-7 added",
            ),
        ),
    ),
    leaves=(
        Leaving(
            what="running mean of the training images' amplitudes, within the update",
            shape="channels × frequencies in the band",
            when="in the first round",
            reveals="average brightness, contrast and texture of the site's images; of a single image its amplitudes",
        ),
    ),
    together=(Together(method="fedga", source="reported in FedDG-GA's paper (Tables 1 and 2)"),),
)

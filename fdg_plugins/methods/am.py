# SPDX-License-Identifier: Apache-2.0
"""AM (amplitude mix): images of a batch mix their amplitude spectra and keep phase and label.

Choose it if the domains differ in style (brightness, contrast, texture) more than in shape. A site mixes only its own
images, so a site with a single domain gains variety within that domain and never sees the style of another.

Participation: as under FedAvg. Nothing is exchanged and nothing is kept, so absent and new sites need no rule.

Buffers: averaged as under FedAvg; BatchNorm's statistics are those of the mixed images. Evaluation never mixes.

Cost: one Fourier transform and its inverse per mixed image.

Equation, for each channel and a permutation of the batch ``[B, C, H, W]``, with ``s ~ U(0, 1)`` drawn for each image:
``x' = Re F^-1((s |F(x)| + (1 - s) |F(partner)|) exp(i angle F(x)))``, trained on with the label of x.

Settings: a mixed batch takes the place of the original. With ``probability`` 1 the network never trains on an unmixed
image, and evaluation sees nothing else. An image is its own partner with a chance of one in B and then stays as it is,
so a batch of very few images is hardly mixed.

Paper or code: the paper pools the sources, trains on the originals beside the mixed images, and has a teacher for
consistency. FedDG-GA's script is followed, which has the site's own batch, no originals and no teacher; its global
generators and its missing helper are replaced by seeded draws.

Together: any weighting and direction. Phases stay in place, so targets for single pixels remain valid. The losses
behind FedDG-GA's gap and ARFL's weights are measured on unmixed images.
"""

from fdg_plugins.plugins.method import Difference, Differences, Equation, Method, Reference, SettingSource, Together

METHOD = Method(
    key="am",
    title="AM",
    rank=14,
    line="images of a batch mix their amplitude spectra, and keep phase and label",
    reference=Reference(
        authors="Xu, Zhang, Zhang, Wang, Tian",
        title="A Fourier-based Framework for Domain Generalization",
        venue="CVPR",
        year=2021,
    ),
    acts=("objective",),
    objective="fdg_plugins.objectives.am:AMObjective",
    in_composition="The sites train on mixed images; weights and direction see no more than the updates that follow.",
    letters=(
        "x image, each channel on its own; F its discrete Fourier transform; A amplitude, ph phase; s "
        "share of an image's own amplitude; P probability"
    ),
    equations=(
        Equation(
            formula="A(x) = |F(x)|,   ph(x) = angle F(x)",
            meaning="over height and width, the whole spectrum of the normalised image",
        ),
        Equation(
            formula="A' = s A(x) + (1 − s) A(partner),   s ~ U(0, 1)",
            meaning="s for each image; partners are a random permutation of the site's batch",
        ),
        Equation(
            formula="x' = Re F⁻¹(A' exp(i ph(x)))",
            meaning="what is trained on, with the label of x; nothing is clipped",
        ),
    ),
    settings=(
        SettingSource(
            name="probability",
            symbol="P",
            paper="1: every batch, beside the original",
            code="0.5",
            remark="that a batch is mixed; 0 is FedAvg, bit for bit",
        ),
    ),
    exact=(
        "probability 0 is FedAvg, bit for bit; a batch that is not mixed stays as it came, bit for bit.",
        "s = 1, or an image that is its own partner: x' = x up to rounding.",
        "A constant partner: the centred image is s times itself.",
        "Draws follow from seed, site and round; nothing is exchanged and nothing kept.",
    ),
    differences=Differences(
        compared="FedDG-GA's code",
        remark="Not implemented: the variant in which sites exchange amplitudes once and mix with those of others "
        "(Liu, Chen, Qin, Dou, Heng, FedDG, CVPR 2021), because it sends spectra of single images.",
        rows=(
            Difference(
                point="s", paper="what the partner gives is U(0, η), η a setting", code="U(0, 1)", ours="U(0, 1)"
            ),
            Difference(point="consistency between teacher and student", paper="yes", code="–", ours="–"),
            Difference(
                point="partner",
                paper="another image of the pooled sources",
                code="a permutation of the site's batch, by a helper that its module lacks",
                ours="a permutation of the site's batch",
            ),
            Difference(
                point="input",
                paper="pixels, clipped to their range",
                code="normalised tensor, not clipped",
                ours="normalised tensor, not clipped",
            ),
            Difference(
                point="random draws", paper="not said", code="global generators", ours="seeded by seed, site and round"
            ),
            Difference(
                point="which batches",
                paper="all, beside the originals",
                code="with probability 0.5, in their place",
                ours="with probability, in their place",
            ),
        ),
    ),
    together=(Together(method="fedga", source="reported in FedDG-GA's paper (Tables 1 and 2)"),),
)

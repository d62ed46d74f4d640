# SPDX-License-Identifier: Apache-2.0
"""RSC: the features that contribute most to a sample's label are muted, and the site trains on the rest.

Choose it if each site sees one domain, where a classifier tends to rely on what is specific to that domain. Nothing
leaves a site beyond its update. It requires one class per image.

Participation: as under FedAvg. Nothing is exchanged and nothing is kept, so absent and new sites need no rule.

Buffers: averaged as under FedAvg; BatchNorm's statistics see each batch once, unmuted. Evaluation mutes nothing.

Cost: one pass of the extractor per step, and four of the head.

Equation: ``g = d o[y] / dz`` ranks channels, ``sum_c F_c g_c`` ranks positions; the largest share is set to zero in the
samples whose label loses most probability, and ``CE(head(pool(F mask)), y)`` is minimised. Maps are ``[B, D, H, W]``, g
is ``[B, D]``; nothing but the update is exchanged.

Settings: all shares are rounded down. A batch of two has no sample to mute at a third, and maps of one or two positions
have none either: prefer ``variant`` feature for networks that end in tiny maps.

What to watch: in the first round the ranking is that of an untrained head, also on a pretrained extractor. With
``spatial_channel``, fewer samples than the fraction are muted where no label loses more than 1e-4.

Paper or code: the authors' score of positions is followed. FedDG-GA's own takes the mean gradient alone, which a pooled
linear head makes the same everywhere, and its scripts never switch muting on: they train plain FedAvg.

Together: any weighting and direction. Gap and loss of FedDG-GA and ARFL are measured without muting.
"""

from fdg_plugins.plugins.method import Difference, Differences, Equation, Method, Reference, SettingSource, Together

METHOD = Method(
    key="rsc",
    title="RSC",
    rank=15,
    line="the features that speak most for a sample's label are muted, and the site trains on the rest",
    reference=Reference(
        authors="Huang, Wang, Xing, Huang",
        title="Self-Challenging Improves Cross-Domain Generalization",
        venue="ECCV",
        year=2020,
    ),
    acts=("objective",),
    objective="fdg_plugins.objectives.rsc:RSCObjective",
    in_composition="The sites mute and minimise; weights and direction see no more than the updates that follow.",
    letters=(
        "F feature maps [B, D, H, W] before global average pooling; z their mean over positions; o "
        "logits; y labels; g gradient [B, D]; f feature_fraction; q batch_fraction"
    ),
    equations=(
        Equation(
            formula="g = d Σ_b o[b, y_b] / dz",
            meaning="what each feature adds to the label's logit, with the head in evaluation mode",
        ),
        Equation(
            formula="positions: Σ_c F_c g_c, the top ⌊f H W⌋\nchannels: g, the top ⌊f D⌋",
            meaning="what is muted in each sample, either with equal chance for each batch",
        ),
        Equation(
            formula="p_before(y) − p_after(y), the top ⌊q B⌋ above 1e-4",
            meaning="the samples that stay muted: those whose label loses most probability",
        ),
        Equation(formula="CE(head(pool(F · mask)), y)", meaning="what a site minimises"),
    ),
    settings=(
        SettingSource(
            name="variant",
            code="spatial_channel; feature in DomainBed",
            remark="feature mutes channels alone, and has no bound of 1e-4",
        ),
        SettingSource(
            name="feature_fraction",
            symbol="f",
            code="1/3 of the positions, 1/3.2 of the channels; DomainBed: 1/3",
            remark="0 is FedAvg, bit for bit",
        ),
        SettingSource(
            name="batch_fraction",
            symbol="q",
            code="0.3, plus 0.2 every 10 epochs; FedDG-GA's code and DomainBed: 1/3",
            remark="0 is FedAvg, bit for bit",
        ),
    ),
    exact=(
        "With feature_fraction 0 or batch_fraction 0, training is FedAvg's, bit for bit.",
        "A linear head's gradient is W[y], exactly.",
        "A sample is left whole, or loses exactly ⌊f K⌋ of its K positions or channels; of equal scores the first.",
        "There is no state: an absent site leaves no trace, a new one needs nothing.",
    ),
    differences=Differences(
        remark="RSC is a method for pooled data; FedDG-GA's paper compares with it as local training.",
        rows=(
            Difference(
                point="FedDG-GA's scripts for RSC",
                paper="RSC",
                code="call the network without labels and flag: nothing is muted, plain FedAvg",
                ours="RSC",
            ),
            Difference(
                point="score of a position",
                paper="not established",
                code=(
                    "Σ_c F_c times the gradient's mean; FedDG-GA's: the gradient alone, which is the same everywhere"
                ),
                ours="Σ_c F_c g_c, as the authors' code",
            ),
            Difference(
                point="number of features",
                paper="not established",
                code="rounded up, fewer if scores are equal; DomainBed: at or above the percentile",
                ours="rounded down, exactly",
            ),
            Difference(
                point="channels",
                paper="not established",
                code="1/3.2 of them",
                ours="feature_fraction, as for positions",
            ),
            Difference(
                point="share of the batch",
                paper="not established",
                code="grows with the epochs",
                ours="batch_fraction, constant",
            ),
            Difference(
                point="flips", paper="not established", code="double the batch", ours="augmentation of the protocol"
            ),
        ),
    ),
    together=(
        Together(
            method="fedga", source="reported in FedDG-GA's paper (Tables 1 and 2); its released scripts mute nothing"
        ),
    ),
)

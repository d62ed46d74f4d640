# SPDX-License-Identifier: Apache-2.0
"""StableFDG: sites train on styles of other sites and on styles beyond their own, with attention over positions.

Choose it if each site holds one domain, the domains differ in style, and sites may share statistics of styles. It
requires one class per image, and a network whose features are pooled feature maps.

Participation: a site receives the styles of one other site, of the last round that had reports. An absent site's styles
are not passed on; a new site receives some at once. With one site nothing is shared, and the rest remains.

Buffers: averaged as under FedAvg; BatchNorm sees changed and appended maps.

Cost: the later stages see up to twice as many samples, and each site reports on its images in two more passes. Per
round and site ``4 C`` numbers each way, C channels of the first stage.

Equation: a style s is mean and deviation of each channel over the positions of a map. Batches get styles
``s ~ N(m, d^2)`` of another site, styles ``s + l (s - mean s)`` of appended samples, and mixtures of their own; then
``CE`` of features ``[mean x; sum a x]`` is minimised, a the attention ``[B, 1, H, W]``.

Settings: with both probabilities 0 and no attention it is FedAvg, bit for bit; each part can be had alone. The share
of the batch follows its size: the authors' code has 16 and 32 for batches of 32.

What to watch: maps of a single position have no deviation, so images must not be tiny for the network. The head has
twice as many inputs. Networks with layers between pooling and head are refused.

Paper or code: the authors' code is followed but for its second, class-balanced batch, and where it would divide by a
fixed size or draw negative deviations.

Together: any weighting and direction, which see the attention as part of the model. All parameters must travel.
Differential privacy refuses the styles.
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
)

METHOD = Method(
    key="stablefdg",
    title="StableFDG",
    part="stable",
    part_title="Stable",
    rank=18,
    line="sites train on styles of other sites and on styles beyond their own, with attention over positions",
    reference=Reference(
        authors="Park, Han, Kim, Wang, Brinton, Moon",
        title="StableFDG: Style and Attention Based Learning for Federated Domain Generalization",
        venue="NeurIPS",
        year=2023,
    ),
    acts=("objective", "network"),
    objective="fdg_plugins.objectives.stablefdg:StableFDGObjective",
    defaults=(
        Default(server={"server_lr": 1.0, "weighting": "uniform"}, source="StableFDG's code"),
        Default(
            objective={
                "sharing_probability": 0.5,
                "shared_fraction": 0.5,
                "exploration_probability": 0.5,
                "exploration_level": 3.0,
                "oversampling": 1.0,
                "mixing": 0.1,
                "attention": True,
            },
            source="StableFDG's code",
        ),
    ),
    in_composition=(
        "The sites train on changed styles; weights and direction see the updates of the network with its attention."
    ),
    letters=(
        "x feature map [C, H, W] of an image; s its style (μ; σ) [2C]; m, d mean and deviation of another site's "
        "styles; b size of the batch; f shared_fraction; l exploration_level; o oversampling; β mixing; q, k queries "
        "and keys [30, H, W], of length 1 at each position; a attention [1, H, W]"
    ),
    equations=(
        Equation(formula="μ = mean x,   σ = √(var x + 1e-6)", meaning="style of an image, over the positions"),
        Equation(formula="x' = σ' (x − μ)/σ + μ'", meaning="the image with another style s' = (μ'; σ')"),
        Equation(
            formula="s' = centres of the batch's styles,   s' ~ N(m, d²)",
            meaning=(
                "sharing, after the first stage: b − ⌊f b⌋ samples by k-means++ and one step of Lloyd's, and ⌊f b⌋"
            ),
        ),
        Equation(
            formula="s' = s + l (s − mean s)",
            meaning="exploration: the style of ⌊o b⌋ appended samples, rarest classes first",
        ),
        Equation(
            formula="s' = λ s + (1 − λ) s_partner,   λ ~ Beta(β, β)",
            meaning="mixture at every active stage, with a random permutation of the batch",
        ),
        Equation(
            formula="a = softmax( k · mean (q + q_pair)/2 )",
            meaning="over the positions of the last map; the pair is the next image of the class, in evaluation itself",
        ),
        Equation(formula="CE(head([mean x; Σ a x]), y)", meaning="what a site minimises, over the extended batch"),
    ),
    settings=(
        SettingSource(
            name="sharing_probability", paper="not established", code="0.5", remark="of each batch; 0 shares nothing"
        ),
        SettingSource(
            name="shared_fraction",
            symbol="f",
            paper="not established",
            code="16 of 32",
            remark="share of the batch, rounded down",
        ),
        SettingSource(
            name="exploration_probability",
            paper="not established",
            code="0.5",
            remark="of each stage and batch; 0 explores nothing",
        ),
        SettingSource(
            name="exploration_level",
            symbol="l",
            paper="not established",
            code="3",
            remark="0 keeps the styles of appended samples",
        ),
        SettingSource(
            name="oversampling",
            symbol="o",
            paper="not established",
            code="32 of 32",
            remark="share of the batch, rounded down; 0 appends nothing",
        ),
        SettingSource(name="mixing", symbol="β", paper="not established", code="0.1"),
        SettingSource(
            name="attention",
            paper="true",
            code="true",
            remark="false leaves the network as it is: with both probabilities 0 FedAvg, bit for bit",
        ),
    ),
    exact=(
        "With both probabilities 0 and no attention, training is FedAvg's, bit for bit.",
        "Re-styling a map with its own style returns it up to rounding; so does exploration_level 0.",
        "A constant map has the attention 1/(H W) everywhere, and both halves of its features are the same.",
        "Among sites that have all reported, each gives its styles to exactly one other, and in turn to all.",
        "The same site, seed and round draw the same changes.",
    ),
    differences=Differences(
        rows=(
            Difference(
                point="styles received",
                paper="not established",
                code="of a random other site, a derangement of the round's",
                ours="of another site in each round, in turn; from the last round's reports",
            ),
            Difference(
                point="class with one sample in the batch",
                paper="not established",
                code="a second, class-balanced batch supplies another, at the cost of one more pass",
                ours="the sample itself, with its explored style",
            ),
            Difference(
                point="number of styles",
                paper="not established",
                code="16 and 32, which need batches of more than 16",
                ours="shares of the batch, of any size",
            ),
            Difference(
                point="stages",
                paper="not established",
                code="the first three layers of a ResNet",
                ours="the last three sizes of map before the smallest: the same in a ResNet",
            ),
            Difference(
                point="negative deviations",
                paper="not established",
                code="drawn ones become 0, explored ones stay",
                ours="both become 0",
            ),
            Difference(
                point="deviation over positions",
                paper="not established",
                code="not compared: divided by the positions, or by one fewer",
                ours="divided by the positions, so that one position is enough",
            ),
            Difference(
                point="mean over positions",
                paper="not established",
                code="a sum over 49",
                ours="the network's pooling",
            ),
            Difference(
                point="learning rate",
                paper="not established",
                code="cosine schedule that is made anew in each round",
                ours="schedule of the protocol",
            ),
        ),
    ),
    leaves=(
        Leaving(
            what="mean and deviation, over the training images, of the styles after the first stage",
            shape="2 × 2 × channels",
            reveals=(
                "average brightness, contrast and texture of the images as the first layers see them, and how much "
                "they vary; of a single image its style. The server passes it on to one other site, or to several "
                "if more sites train than reported in the round before"
            ),
            report="style_statistics",
        ),
    ),
)

# SPDX-License-Identifier: Apache-2.0
"""FedDG-GA: the sites' weights follow their generalization gaps, so a site that averaging serves badly gains weight.

Choose it if averaging serves some domains worse than others. It is a weighting and works with any direction of the
server's step. If a site's data may be corrupted, consider ARFL, which does the opposite.

Participation: every known site has a weight, and a round uses its sites' weights rescaled to one. An absent site keeps
its weight, and a new one starts at the mean. Round 0 has no gaps and uniform weights.

Buffers: averaged with the adjusted weights, but for BatchNorm's statistics, which are measured anew by default
(``batch_norm`` reestimate). A gap compares two models by their losses. Statistics that have not kept pace with the
parameters, after few steps from scratch above all, change a loss by far more than the models differ.

Cost: one number per site and round, and an evaluation that sites do anyway. With BatchNorm, two more passes over the
training images, without gradients: one for the global model, in a task of its own, one for the site's own model.

Equation: ``a'_u = max(0, a_u + (1 - r/R) d (gap_u - mean) / max_v (gap_v - mean))``, then ``a = a' / sum a'``. A site
sends its gap, one number; the server keeps a ``[N]``. The site keeps the loss of its own last model for the next gap.

Settings: only the proportions of the gaps count. The site with the largest gap gains the full step even where all gaps
are tiny, so the noise of a small validation split moves weights as much as a real difference. All steps together add up
to at most ``d (R + 1) / 2``, with 0.05 and 40 rounds about one, which can take a site's whole weight: adapt
``step_size`` to the number of rounds. Under ``max``, a site far below the others may lose up to U - 1 steps in one
round.

Degenerate cases: with one site there is nothing to adjust; with two, one gains what the other loses. A site that joins
late, or lost its folder, has no gap in its first round and keeps its weight.

Paper or code: the paper's formula is followed, on the code's validation split; ``normalizer`` max_abs, ``metric``
accuracy and a ``step_size`` that includes the code's factor of 1/3 give its variant.

Together: any direction and any objective. ARFL also sets weights and is refused. Differential privacy refuses the gap.
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
    key="fedga",
    title="FedDG-GA",
    part="ga",
    part_title="GA",
    recipe="FedGARecipe",
    rank=2,
    line="weights that follow the sites' generalization gaps: sites that the global model serves poorly gain weight",
    reference=Reference(
        authors="Zhang, Xu, Yao, Zhang, Tian, Wang",
        title="Federated Domain Generalization with Generalization Adjustment",
        venue="CVPR",
        year=2023,
    ),
    acts=("weighting",),
    aggregator="fdg_plugins.aggregators.fedga:FedGAAggregator",
    weighting="fdg_plugins.aggregators.weightings:FedDGGAWeighting",
    protocol=("gap_split", "batch_norm"),
    defaults=(
        Default(weighting={"step_size": 0.05}, source="FedDG-GA, the paper's step"),
        Default(protocol={"batch_norm": "reestimate"}, source="ours: the gap compares models, not statistics"),
    ),
    in_composition="Its weights a are the p of the direction: of FedAvg's mean, of FedOMG's Eq. 15 and 16.",
    letters=(
        "a weights of all known sites, from 1/N each; θ global model of round r; θᵤ site u's own "
        "model after its training; R rounds; d step_size"
    ),
    equations=(
        Equation(
            formula="gapᵤ = lossᵤ(θ of round r) − lossᵤ(θᵤ of round r − 1)",
            meaning="both on the same data of the site; positive: the global model is worse there",
        ),
        Equation(
            number="Eq. 3",
            formula="a'ᵤ = max(0, aᵤ + dᵣ (gapᵤ − mean) / maxᵥ (gapᵥ − mean))\naᵤ ← a'ᵤ / Σᵥ a'ᵥ",
            meaning="weights of round r, from those of the round before",
        ),
        Equation(formula="dᵣ = (1 − r/R) d", meaning="step, which falls linearly to nothing; r counts from 0"),
    ),
    settings=(
        SettingSource(
            name="step_size",
            symbol="d",
            paper="0.05",
            code="0.2",
            remark="the most that a weight can gain in a round; 0 is uniform FedAvg",
        ),
        SettingSource(
            name="normalizer",
            paper="max: the largest deviation from the mean gap",
            code="max_abs: the largest absolute gap, without a mean",
        ),
        SettingSource(
            name="server_lr",
            paper="1",
            remark="factor of the weighted mean update; of the direction, where there is another",
        ),
        SettingSource(
            name="gap_split",
            paper="train: the text says training data",
            code="validation",
            remark="split on which the losses of the gap are measured",
        ),
        SettingSource(
            name="batch_norm",
            paper="not said",
            code="average",
            remark="statistics with which both models of the gap are judged",
        ),
        SettingSource(
            name="metric",
            paper="loss",
            code="accuracy, with the sign turned",
            remark="of GapReportFilter, in the sites' part of the job",
        ),
    ),
    exact=(
        "Round 0 has no earlier local model: no gaps, uniform weights.",
        "Equal gaps, one gap, or none leave the weights as they are.",
        "A missing gap, or one that is not finite, leaves that site's weight, and is named in the log.",
        (
            "An absent site keeps its weight, a new one starts at the mean; a round takes its sites' "
            "share, rescaled to one."
        ),
        "step_size 0 is FedAvg with uniform weights under the same batch_norm, bit for bit.",
    ),
    differences=Differences(
        rows=(
            Difference(
                point="data of the gap",
                paper="training data",
                code="validation split",
                ours="validation split, or gap_split train",
            ),
            Difference(point="metric of the gap", paper="loss", code="accuracy", ours="loss, or metric accuracy"),
            Difference(
                point="normaliser",
                paper="largest deviation from the mean",
                code="largest absolute gap, no mean",
                ours="max, or max_abs",
            ),
            Difference(
                point="BatchNorm's statistics in the gap",
                paper="not said",
                code="averaged; each site's own as training left them",
                ours="measured anew for both models, or batch_norm average",
            ),
            Difference(point="extra factor", paper="–", code="1/3", ours="– (a third of step_size gives it)"),
            Difference(
                point="equal gaps", paper="not said", code="division by zero if all are zero", ours="weights stay"
            ),
        ),
    ),
    leaves=(
        Leaving(
            what="generalization gap",
            shape="1 number",
            reveals="the difference of two losses on the site's data",
            report="gap",
        ),
        Leaving(
            what="loss, accuracy, count on the training split, of both models",
            shape="6 numbers",
            when="only with gap_split train",
            reveals="how well either model does on the site's data",
            report="gap",
        ),
        Leaving(
            what="sums, sums of squares and counts of the inputs of each BatchNorm layer over the training images",
            shape="2 numbers per channel, 1 per layer",
            when="only with batch_norm reestimate and a network with BatchNorm: every round, once after the last",
            reveals="means and variances of features over all training images",
            report="normalization_statistics",
        ),
    ),
)

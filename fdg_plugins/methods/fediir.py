# SPDX-License-Identifier: Apache-2.0
"""FedIIR: the classifier's gradient of each batch is pulled towards the mean gradient over sites.

Choose it if the sites hold different domains and one classifier should suit all of them. By default it needs an
additional, short trip per round, in which sites report the classifier's gradient; ``probe="previous_round"`` saves the
trip and uses gradients one round late.

Participation: the mean is over the sites that reported, each with the same weight. An absent site counts only through
the moving average; a new one needs no history. Without usable gradients, a round keeps the previous mean.

Buffers: on photographs, BatchNorm's statistics stay those of the initial model, in training too (``batch_norm``
frozen, as in the released code), so probe and penalty are both in evaluation mode and see the same network. Elsewhere
they are measured anew before each round (``batch_norm`` reestimate), and the two see nearly the same.

Cost: second derivatives of the classifier only, none of the extractor. With BatchNorm and reestimate, two more passes
over the training images, without gradients: one in a task of its own before the probe, one after training.

Equation: a site minimises ``R_u(batch) + gamma/2 |grad_omega R_u(batch) - g|^2``, and the server learns
``g <- v g + (1 - v) mean_u grad_omega R_u``. Gradients have the classifier's shapes, of a linear one ``[Y, D]`` and
``[Y]``; each site sends one such set per round and receives g.

Settings: g starts at zero and reaches the share ``1 - v^r`` of a constant mean. At 0.95 that is half after 14 rounds,
so in a short run the penalty mainly shortens the gradients; a smaller ``ema`` avoids that. The length of a gradient
grows with that of the features: ``strength`` belongs to a network, and the paper has one for each data set.

What to watch: frozen statistics are meant for pretrained networks. From scratch they are mean zero and variance one,
so BatchNorm does not normalise; short trainings were stable but can be slower, and reestimate is the alternative.
Holding statistics that were measured anew (reestimate with ``frozen_batchnorm``) diverged from scratch. The page has
figures. A batch's gradient is noisy: small batches are penalised for their sampling as well.

Paper or code: the paper's factor and its mean over sites are the defaults; ``variant`` and ``batch_norm`` frozen give
the code's penalty, though not its mean over batches.

Together: any weighting and direction; g counts sites equally. The whole head must travel. Differential privacy refuses
the gradients.
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
    key="fediir",
    title="FedIIR",
    part="iir",
    part_title="IIR",
    rank=4,
    line="the classifier's gradient of each batch is drawn to the mean gradient over sites",
    reference=Reference(
        authors="Guo, Guo, Cao, Wu, Chang",
        title="Out-of-Distribution Generalization of Federated Learning via Implicit Invariant Relationships",
        venue="ICML",
        year=2023,
    ),
    acts=("objective",),
    objective="fdg_plugins.objectives.fediir:FedIIRObjective",
    protocol=("batch_norm",),
    defaults=(
        Default(server={"server_lr": 1.0, "weighting": "uniform"}, source="FedIIR, Algorithm 1: every site the same"),
        Default(
            objective={"strength": 0.01, "ema": 0.95, "probe": "extra_task"}, source="FedIIR, Table 3, RotatedMNIST"
        ),
        Default(protocol={"batch_norm": "reestimate"}, source="ours: the probe sees the network that is trained"),
        Default(on="photographs", protocol={"batch_norm": "frozen"}, source="FedIIR's code"),
        Default(on="segmentation", protocol={"batch_norm": "reestimate"}, source="ours: from scratch"),
        Default(on="photographs", objective={"strength": 0.001}, source="FedIIR, Table 3, PACS"),
        Default(on="vlcs", objective={"strength": 0.005}, source="FedIIR, Table 3"),
        Default(on="officehome", objective={"strength": 0.0005}, source="FedIIR, Table 3"),
        Default(on="photographs", beside="fedomg", objective={"strength": 0.0001}, source="FedOMG, Table 4"),
    ),
    in_composition=(
        "The sites minimise Algorithm 1's loss; weights and direction see no more than the updates that follow."
    ),
    letters="θ all parameters; ω those of the classifier; Rᵤ mean loss of site u; g mean gradient; v ema; γ strength",
    equations=(
        Equation(
            number="3.3",
            formula="∇_ω Rᵤ(θ)",
            meaning="gradient over the whole training split, at the model received, in a task of its own (probe)",
        ),
        Equation(
            number="App. C",
            formula="g ← v g + (1 − v) meanᵤ ∇_ω Rᵤ(θ)",
            meaning="mean gradient at the server, from zero",
        ),
        Equation(
            number="Algorithm 1",
            formula="Rᵤ(θ; batch) + γ/2 ‖∇_ω Rᵤ(θ; batch) − g‖²",
            meaning="what a site minimises, g being fixed for the round",
        ),
    ),
    settings=(
        SettingSource(
            name="strength",
            symbol="γ",
            paper="Table 3: 1e-2 RotatedMNIST, 5e-3 VLCS, 1e-3 PACS, 5e-4 OfficeHome; FedOMG's Table 4: 1e-4",
            remark="0 is FedAvg under the same batch_norm, bit for bit",
        ),
        SettingSource(
            name="ema", symbol="v", paper="0.95 (Table 3)", remark="share of the earlier mean gradient; 0 has no memory"
        ),
        SettingSource(
            name="frozen_batchnorm",
            paper="not said",
            code="true: BatchNorm trains in evaluation mode for ever",
            remark="BatchNorm keeps the statistics received and normalises by them in training",
        ),
        SettingSource(
            name="batch_norm",
            paper="not said",
            code="frozen: statistics never change",
            remark="whose statistics probe and penalty see",
        ),
        SettingSource(
            name="probe",
            paper="extra_task: before each round's training (Algorithm 1)",
            code="extra_task",
            remark="previous_round sends gradients with the updates: saves the trip, one round late",
        ),
        SettingSource(
            name="variant",
            paper="paper: factor γ/2",
            code="released: factor γ",
            remark="Table 3's strengths are those of the code, which applies them with the factor γ",
        ),
    ),
    exact=(
        (
            "With strength 0, or before the first gradient, training is FedAvg's, bit for bit (under the "
            "same batch_norm, with frozen_batchnorm false)."
        ),
        "One site with ema 0 has no penalty at its first full-batch step in evaluation mode.",
        "Starting from zero, g is short of a constant mean by the factor 1 − vʳ after r rounds.",
        "A round without usable gradients leaves g; a new site needs no history.",
    ),
    differences=Differences(
        rows=(
            Difference(point="factor of the penalty", paper="γ/2", code="γ", ours="γ/2, or variant released"),
            Difference(
                point="mean gradient",
                paper="mean over sites of full-batch gradients",
                code="mean over the batches of all sites",
                ours="as the paper; a batch weighs by its samples, every site the same",
            ),
            Difference(point="mode in which it is taken", paper="not said", code="evaluation", ours="evaluation"),
            Difference(
                point="BatchNorm in training",
                paper="not said",
                code="evaluation mode for ever",
                ours="as the code on photographs (batch_norm frozen); elsewhere training mode",
            ),
            Difference(
                point="initial weights of the head",
                paper="not said",
                code="Kaiming normal, standard deviation √(2/D) for D inputs",
                ours="torch's, uniform, standard deviation √(1/3D), as for every method",
            ),
            Difference(
                point="optimiser",
                paper="SGD",
                code="SGD, momentum 0.9, fresh every round",
                ours="as the protocol says, fresh every round unless keep_momentum",
            ),
            Difference(
                point="when",
                paper="before training, in the same round",
                code="the same",
                ours="the same, or probe previous_round",
            ),
            Difference(
                point="precision",
                paper="–",
                code="–",
                ours="classifier and penalty in float32, also where the extractor runs in bfloat16",
            ),
        ),
    ),
    leaves=(
        Leaving(
            what="gradient of the mean loss over the training split, by the classifier",
            shape="the classifier",
            reveals="mixed features of the samples, shares of the classes",
            report="classifier_gradient",
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

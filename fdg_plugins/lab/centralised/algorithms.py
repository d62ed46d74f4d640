# SPDX-License-Identifier: Apache-2.0
"""IRM, V-REx, GroupDRO, IGA and Fish, which compare the risks of the domains, or their gradients.

Shapes: logits ``[B, Y]`` and labels ``[B]`` of each of m source domains; risks L ``[m]``; a penalty is a scalar.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import log_softmax, one_hot, softmax

from fdg_plugins.lab.centralised.algorithm import (
    Algorithm,
    AnnealedPenalty,
    Batch,
    ComputeGradients,
    Loss,
    State,
    WarmUp,
    all_images,
    by_domain,
    domain_risks,
)
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.plugins.fields import NotNegative, Share
from fdg_plugins.tasks import DEFAULT_TASK, Task

LOG_WEIGHTS = "log_weights"


def scale_derivative(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the derivative of the mean cross entropy of ``s * logits`` with respect to s at s = 1, a scalar.

    For ``logits [B, Y]`` and ``labels [B]`` it is the mean over images of ``<softmax(o_i) - onehot_i, o_i>``.

    >>> round(scale_derivative(torch.tensor([[0.0, 2.0]]), torch.tensor([1])).item(), 3)
    -0.238
    """
    errors = softmax(logits, dim=1) - one_hot(labels, logits.shape[1])
    return (errors * logits).sum(dim=1).mean()


def invariance_penalty(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return ``g1 g2``, a scalar that may be negative, from one domain's ``logits [B, Y]`` and ``labels [B]``.

    B is at least 2. The images must be in random order, because those at even and at odd positions give g1 and g2.
    """
    return scale_derivative(logits[0::2], labels[0::2]) * scale_derivative(logits[1::2], labels[1::2])


@dataclass(frozen=True)
class CentralisedIRM(AnnealedPenalty):
    """IRM (version 1): a classifier that is optimal in every domain at once, measured by the scale of its logits.

    Reference: Arjovsky, Bottou, Gulrajani, Lopez-Paz, "Invariant Risk Minimization", arXiv:1907.02893, 2019; as
    DomainBed has it, no differences known.

    Equations: minimise ``mean_e L_e + w mean_e pen_e`` with ``pen_e = g1 g2`` -> :func:`invariance_penalty`. g1 and g2
    are the derivatives, with respect to a scalar s = 1 that multiplies the logits, of the cross entropy of the images
    at even and at odd positions -> :func:`scale_derivative`. The product of two independent estimates is an unbiased
    estimate of the squared derivative. Degenerate case: logits of zero give no penalty.

    Args:
        strength: w after the warm-up, at least 0; zero is ERM, bit for bit. DomainBed: 100.
        warm_up: steps with w = 1, after which the optimizer restarts. DomainBed: 500 of 5001.
    """

    name: ClassVar[str] = "irm"
    title: ClassVar[str] = "IRM"
    needs_labelled_images: ClassVar[bool] = True

    strength: NotNegative = 100.0
    warm_up: WarmUp = 500

    def penalty(self, logits: Sequence[torch.Tensor], risks: torch.Tensor, batches: Sequence[Batch]) -> torch.Tensor:
        """Return the mean of the domains' invariance penalties, a scalar."""
        pairs = zip(logits, batches, strict=True)
        return torch.stack([invariance_penalty(own, labels) for own, (_, labels) in pairs]).mean()


def risk_variance(risks: torch.Tensor) -> torch.Tensor:
    """Return the variance of the ``risks [m]`` with divisor m, a scalar; zero for one domain.

    >>> risk_variance(torch.tensor([0.0, 2.0])).item()
    1.0
    """
    return ((risks - risks.mean()) ** 2).mean()


@dataclass(frozen=True)
class CentralisedVREx(AnnealedPenalty):
    """V-REx: the risks of the domains are made equal, by a penalty on their variance.

    Reference: Krueger, Caballero, Jacobsen, Zhang, Binas, Zhang, Le Priol, Courville, "Out-of-Distribution
    Generalization via Risk Extrapolation (REx)", ICML 2021; as DomainBed has it, no differences known.

    Equation: minimise ``mean_e L_e + w mean_e (L_e - mean L)^2`` -> :func:`risk_variance`.

    Args:
        strength: w after the warm-up, at least 0; zero is ERM, bit for bit. DomainBed: 10.
        warm_up: steps with w = 1, after which the optimizer restarts. DomainBed: 500 of 5001.
    """

    name: ClassVar[str] = "vrex"
    title: ClassVar[str] = "V-REx"

    strength: NotNegative = 10.0
    warm_up: WarmUp = 500

    def penalty(self, logits: Sequence[torch.Tensor], risks: torch.Tensor, batches: Sequence[Batch]) -> torch.Tensor:
        """Return the variance of the ``risks [m]``, a scalar; logits and batches are not used."""
        return risk_variance(risks)


def reweigh(log_weights: torch.Tensor, risks: torch.Tensor, step_size: float) -> torch.Tensor:
    """Return ``log q [m]`` after one update of ``log_weights [m]`` with the ``risks [m]`` and eta = ``step_size``.

    The result is normalised: its exponentials sum to one. Its dtype is that of ``log_weights``.

    >>> reweigh(torch.zeros(2).log_softmax(0), torch.tensor([0.0, 1.0]), step_size=1.0).exp()
    tensor([0.2689, 0.7311])
    """
    return log_softmax(log_weights + step_size * risks.to(log_weights.dtype), dim=0)


@dataclass(frozen=True)
class CentralisedGroupDRO(Algorithm):
    """GroupDRO: domains whose loss stays high gain weight, which optimises the worst domain.

    Reference: Sagawa, Koh, Hashimoto, Liang, "Distributionally Robust Neural Networks for Group Shifts: On the
    Importance of Regularization for Worst-Case Generalization", ICLR 2020, Algorithm 1; as DomainBed has it.

    Equations: ``q_e <- q_e exp(eta L_e)``, rescaled to sum one -> :func:`reweigh`; then minimise ``sum_e q_e L_e``. q
    is uniform before the first step and persists for the run. In each step q is updated first, with the losses of that
    step. State: ``log q [m]``, because a weight that was rounded to zero could never grow again. Equal losses do not
    change q. Difference: the paper's strong weight decay is not a default, neither in DomainBed nor here.

    Args:
        step_size: eta >= 0, how fast the weights follow the risks; zero is ERM, bit for bit. DomainBed: 0.01.
    """

    name: ClassVar[str] = "groupdro"
    title: ClassVar[str] = "GroupDRO"

    step_size: NotNegative = 0.01

    def begin(self, model: ExtractorClassifier, num_domains: int) -> State:
        """Return uniform weights as ``log q [m]``, float64, on the model's device."""
        zeros = torch.zeros(num_domains, dtype=torch.float64, device=model.last_layer.weight.device)
        return {LOG_WEIGHTS: log_softmax(zeros, dim=0)}

    def objective(
        self, risks: torch.Tensor, logits: Sequence[torch.Tensor], batches: Sequence[Batch], step: int, state: State
    ) -> tuple[torch.Tensor, State]:
        """Return ``sum_e q_e L_e`` with the weights q ``[m]`` after this step's update, and ``log q`` as the new state.

        No gradient flows through q. With a step size of zero, the loss is the mean risk and the state does not change.
        """
        if not self.step_size:
            return risks.mean(), state
        log_weights = reweigh(state[LOG_WEIGHTS], risks.detach(), self.step_size)
        weights = log_weights.exp().to(risks.dtype)
        return (weights * risks).sum(), {LOG_WEIGHTS: log_weights}


def gradient_spread(risks: torch.Tensor, parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return ``sum_e |grad L_e - gbar|^2``, a differentiable scalar.

    gbar is treated as a constant. This is exact, because the terms through gbar sum to zero.

    Args:
        risks: L ``[m]``, with their graph, which is kept. One domain gives zero.
        parameters: the tensors to differentiate with respect to; every risk must depend on each of them.
    """
    by_risk = [torch.autograd.grad(risk, parameters, create_graph=True) for risk in risks]
    spread = risks.new_zeros(())
    for gradients in zip(*by_risk, strict=True):
        stacked = torch.stack(gradients)
        spread = spread + (stacked - stacked.mean(dim=0).detach()).square().sum()
    return spread


@dataclass(frozen=True)
class CentralisedIGA(Algorithm):
    """IGA: the gradients of all domains are pulled towards their mean, so the domains agree on a direction.

    Reference: Koyama, Yamaguchi, "When is invariance useful in an Out-of-Distribution Generalization problem ?",
    arXiv:2008.01883, 2020; as DomainBed has it. FedIIR is its federated counterpart, on the classifier's gradients.

    Equation: minimise ``mean_e L_e + w sum_e |grad L_e - gbar|^2``, over all parameters, gbar the mean gradient
    -> :func:`gradient_spread`. Degenerate cases: one domain, or the same batch in every domain, give no penalty.

    Cost: second-order gradients through the whole network: one backward pass per domain whose graph is kept, and one
    through all of these graphs. Attention is computed by its formula, because torch has no second derivatives of its
    faster kernels. A network with an operation without second derivatives, such as MobileNetV3's, ends the run with
    torch's error.

    Args:
        strength: w, at least 0; zero is ERM, bit for bit. DomainBed: 1000.
    """

    name: ClassVar[str] = "iga"
    title: ClassVar[str] = "IGA"

    strength: NotNegative = 1000.0

    def loss(
        self, model: ExtractorClassifier, batches: Sequence[Batch], step: int, state: State, task: Task = DEFAULT_TASK
    ) -> Loss:
        """Return ``mean_e L_e`` plus w times the spread of the gradients over all parameters."""
        if not self.strength:
            return super().loss(model, batches, step, state, task)
        with sdpa_kernel(SDPBackend.MATH):
            risks = domain_risks(by_domain(model(all_images(batches)).float(), batches), batches, task)
        trained = tuple(parameter for parameter in model.parameters() if parameter.requires_grad)
        return Loss(risks.mean() + self.strength * gradient_spread(risks, trained), risks.detach(), state)


@dataclass(frozen=True)
class CentralisedFish(Algorithm):
    r"""Fish: one inner step per domain in turn, then a step part of the way, which favours gradients that agree.

    Reference: Shi, Seely, Torr, Siddharth, Hannun, Usunier, Synnaeve, "Gradient Matching for Domain Generalization",
    ICLR 2022, Algorithm 1: a first-order surrogate of
    ``mean_e L_e - gamma 2/(m(m-1)) sum_{i<j} <grad L_i, grad L_j>``.

    Equations, per step: from theta, one optimizer step on each domain's ``L_e`` in turn gives theta'; then
    ``theta <- theta + eps (theta' - theta)``.

    Degenerate cases: ``eps = 1`` ends at theta', ``eps = 0`` leaves the parameters unchanged. With plain SGD and
    constant gradients g_e, theta moves by ``-eps eta sum_e g_e``, which is as far as ``m eps`` steps of ERM.

    Buffers: only parameters are interpolated; BatchNorm's statistics are those after the inner steps.

    Differences: the paper draws the order of the domains in every step; DomainBed and this file keep it fixed. The
    authors' code and DomainBed interpolate the whole state dict, statistics included. The optimizer's moments persist
    from step to step, as in both. The authors' warm-up with ERM is left out, as in DomainBed. The authors' eps is
    0.01/m to 0.15/15, DomainBed's 0.5.

    Args:
        meta_step: eps, in [0, 1], the fraction of the way; zero never moves the parameters. DomainBed: 0.5.
    """

    name: ClassVar[str] = "fish"
    title: ClassVar[str] = "Fish"

    meta_step: Share = 0.5

    def update(
        self,
        model: ExtractorClassifier,
        batches: Sequence[Batch],
        compute_gradients: ComputeGradients,
        optimizer: torch.optim.Optimizer,
    ) -> torch.Tensor:
        """Take one step with ``model``; return each domain's risk before its own inner step, ``[m]``, detached.

        ``compute_gradients`` and the optimizer are called once per domain, in the order of ``batches``. The step needs
        a copy of all parameters.
        """
        before = [parameter.detach().clone() for parameter in model.parameters()]
        risks = []
        for batch in batches:
            risks.append(compute_gradients([batch]))
            optimizer.step()
        with torch.no_grad():
            for parameter, start in zip(model.parameters(), before, strict=True):
                parameter.copy_(torch.lerp(start, parameter, self.meta_step))
        return torch.cat(risks)

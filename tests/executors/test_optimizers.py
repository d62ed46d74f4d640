# SPDX-License-Identifier: Apache-2.0
"""The protocol's optimizers: each one's steps are torch's own."""

from typing import Any

import pytest
import torch

from fdg_plugins.models import build_model
from fdg_plugins.objectives import make_objective
from fdg_plugins.settings.protocol import make_protocol
from fdg_plugins.training.loop import DevicePolicy, train_locally
from fdg_plugins.training.optimizers import make_optimizer

CPU = torch.device("cpu")
PLAIN: dict[str, Any] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.02, momentum=0.9, weight_decay=0.01),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.02, weight_decay=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.01),
}


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    return [(torch.rand(6, 1, 16, 16, generator=generator), torch.arange(6) % 3) for _ in range(3)]


def trained(optimizer: Any, objective: str = "erm") -> dict[str, torch.Tensor]:
    """Return the parameters after one pass over the batches with the optimizer that ``optimizer`` makes of them."""
    model = build_model("groupnorm_convnet", 3, seed=1)
    local = make_objective(objective).local({}, model)
    policy = DevicePolicy(CPU)
    train_locally(
        model, local, [batches()], optimizer(model.parameters()), policy, lambda: False, lambda epoch, loss: None
    )
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def ours(name: str, device: torch.device | None = CPU) -> Any:
    protocol = make_protocol([{"optimizer": name, "weight_decay": 0.01}])
    return lambda parameters: make_optimizer(parameters, protocol, 0.02, device)


@pytest.mark.parametrize("name", PLAIN)
def test_steps_are_those_of_torchs_own_optimizer(name: str) -> None:
    expected = trained(PLAIN[name])
    for device, tolerance in ((None, 0.0), (CPU, 1e-5)):  # fused kernels round in another order
        found = trained(ours(name, device))
        assert all(torch.allclose(found[key], expected[key], atol=tolerance, rtol=tolerance) for key in expected)


@pytest.mark.parametrize("name", PLAIN)
def test_parameters_may_get_their_first_gradient_after_others_have_stepped(name: str) -> None:
    """As under an objective with phases, or a network that leaves out layers at random."""

    def steps(make: Any) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(3)
        parameters = [torch.nn.Parameter(torch.randn(4, generator=generator)) for _ in range(3)]
        made: list[torch.Tensor] = [*parameters]
        optimizer = make(parameters)
        for having in ((), (1,), (1, 2), (0,), (0, 1, 2), (2,)):
            optimizer.zero_grad(set_to_none=True)
            for index in having:
                parameters[index].grad = torch.randn(4, generator=generator)
            optimizer.step()
        return made

    for one, other in zip(steps(ours(name)), steps(PLAIN[name]), strict=True):
        assert torch.allclose(one, other, atol=1e-6)

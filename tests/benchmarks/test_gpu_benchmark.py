# SPDX-License-Identifier: Apache-2.0
"""The GPU's script computes its rounds on a CPU as well; without a GPU it measures nothing and says so."""

import gpu
import pytest
import torch
from cases.plain_loop import evaluate_plainly, train_plainly
from cases.training import random_batch

import fdg_plugins.training.precision
from fdg_plugins.messages import Precision
from fdg_plugins.models import build_model
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.training.loop import DevicePolicy, evaluate, train_locally
from fdg_plugins.training.precision import Suited

TINY = gpu.Size("resnet18", pixels=32, batch_size=4, batches=2, rounds=1)
CPU = torch.device("cpu")


@pytest.mark.nightly
def test_every_way_of_a_round_runs_and_is_a_line_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "BACKEND", "eager")  # which needs no compiler
    ways = (*gpu.WAYS, *gpu.COMPILED_WAYS)
    lines = gpu.table(TINY, CPU, ways)
    assert len(lines) == 2 + 1 + len(ways)
    assert len({line.split("|")[1] for line in lines}) == len(lines)
    assert lines[2].split("|")[4].strip() == "1.00"


def test_a_site_and_the_plain_loop_train_and_judge_alike() -> None:
    batches = [random_batch(4, 32, 7), random_batch(4, 32, 7)]
    ours, plain = (build_model("resnet18", 7, seed=0) for _ in range(2))
    ours_sgd, plain_sgd = (torch.optim.SGD(model.parameters(), lr=0.1) for model in (ours, plain))
    training = train_locally(ours, LocalRisk(), [batches], ours_sgd, DevicePolicy(CPU), lambda: False, lambda *_: None)
    assert train_plainly(plain, batches, plain_sgd) == pytest.approx(training.epoch_losses[0], rel=1e-6)
    for name, value in plain.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value)
    assert evaluate_plainly(plain, batches) == evaluate(ours, batches, DevicePolicy(CPU), lambda: False).value(
        "accuracy"
    )


@pytest.mark.slow
def test_what_is_compiled_is_compiled_before_the_rounds_that_count(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    monkeypatch.setattr(gpu, "BACKEND", backend)
    torch.compiler.reset()
    compute = gpu.our_round(TINY, gpu.Way(compiled=True), CPU)
    compute()
    after_one = len(graphs)
    gpu.measure(compute, TINY, CPU)
    assert 0 < after_one == len(graphs)


@pytest.mark.parametrize(("precision", "way"), [("float32", gpu.Way()), ("bfloat16", gpu.Way(True, True))])
def test_it_says_which_of_the_measured_ways_auto_is(
    monkeypatch: pytest.MonkeyPatch, precision: Precision, way: gpu.Way
) -> None:
    for module in (gpu, fdg_plugins.training.precision):
        monkeypatch.setattr(module, "suited_precision", lambda device: Suited(precision, "so said"))
    assert way in gpu.WAYS
    assert gpu.about(TINY, CPU)[-1] == f"- precision auto is: {way}; so said"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to measure")
def test_without_a_gpu_it_measures_nothing_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        gpu.main([])
    assert ended.value.code == 2
    assert capsys.readouterr().out == "not measured: torch finds no CUDA device on this machine.\n"

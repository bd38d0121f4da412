"""Graphs of imported models after the graph passes of the default level: what is left of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.driver import build_pipeline
from mlcc.frontend import from_exported_program
from mlcc.ir.module import IRModule
from mlcc.machine.target import Target
from mlcc.relax.queries import all_bindings


def counted(module: IRModule) -> Counter[str]:
    """How often each operator stands in `main` before operators become loops."""
    passes = str(build_pipeline(module, Target.parse("llvm"), 2, None)).partition(",lower-to-tir")[0]
    made = mlcc.run_passes(module, passes)
    values = [binding.value for binding, _ in all_bindings(made["main"].body)]  # type: ignore[attr-defined]
    return Counter(value.op.name.removeprefix("relax.") for value in values if hasattr(value, "op"))


def imported(torch: Any, network: Any, *inputs: Any, dynamic: Any = None) -> IRModule:
    program = torch.export.export(network.eval(), inputs, dynamic_shapes=dynamic)
    return from_exported_program(program, unwrap_unit_return_tuple=True)


@pytest.mark.parametrize("bias", [False, True])
def test_batch_norms_go_into_convolutions(torch: Any, bias: bool) -> None:
    nn = torch.nn
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 16, 3, padding=1, bias=bias), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Conv2d(16, 8, 3, groups=2, bias=bias), nn.BatchNorm2d(8), nn.Identity(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 5),
    ]  # fmt: skip
    network, x = nn.Sequential(*layers), torch.randn(2, 3, 12, 12)
    for norm in (layers[1], layers[5]):
        for value in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            value.data.uniform_(0.5, 1.5)
    module = imported(torch, network, x)
    found = counted(module)
    assert found["nn.conv2d"] == 2 and found["add"] == 3 and found["matmul"] == 1
    assert not found.keys() & {"nn.batch_norm", "nn.dropout", "astype", "multiply"}
    run = mlcc.load(mlcc.build(module, target="llvm{cpu=native}"))["main"]
    np.testing.assert_allclose(np.asarray(run(x)), network(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_an_encoder_is_its_products(torch: Any) -> None:
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    found = counted(imported(torch, nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 7, 32)))
    assert found["nn.attention"] + found["nn.attention_bias"] == 2 and found["matmul"] == 8
    assert found["nn.layer_norm"] == 4 and found["nn.gelu"] == 2
    assert not found.keys() & {"astype", "nn.dropout", "softmax", "broadcast_to", "where"}


def test_sizes_stay_symbolic_without_more_operators(torch: Any) -> None:
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(), torch.nn.SiLU(), torch.nn.Linear(16, 4))
    dynamic = ({0: torch.export.Dim("batch", max=64)},)
    found = counted(imported(torch, network, torch.randn(3, 8), dynamic=dynamic))
    assert found == {"matmul": 2, "add": 2, "nn.silu": 1}

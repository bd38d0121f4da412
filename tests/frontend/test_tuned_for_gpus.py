"""LeNet from PyTorch, its kernels tuned for a GPU one by one as the course does it, and run by emulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import mlcc
from mlcc import tune as ms
from mlcc.frontend import from_fx
from mlcc.ir import tir
from mlcc.ir.module import IRModule

TARGET = "nvidia/tesla-p100"
TRIALS = 2


def lenet(torch: Any) -> Any:
    """The network for pictures of 28 x 28, with random weights."""
    nn = torch.nn
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    ).eval()  # fmt: skip


def tuned(kernel: tir.PrimFunc, folder: Path) -> tir.PrimFunc:
    """The best schedule that a search finds for a kernel; no GPU runs a candidate, and the records say so."""
    alone = IRModule.from_expr(kernel.with_attr("global_symbol", "main"))
    database = ms.tune_tir(
        mod=alone, target=TARGET, max_trials_global=TRIALS, num_trials_per_iter=TRIALS, work_dir=str(folder)
    )
    assert {r.by_analysis for r in database.get_all_tuning_records()} == {True}
    sch = ms.tir_integration.compile_tir(database, alone, TARGET)
    assert sch is not None and "blockIdx.x" in sch.mod.script()
    func: tir.PrimFunc = sch.mod["main"]
    return func


def test_lenet_agrees_kernel_by_kernel(torch: Any, tmp_path: Path) -> None:
    model = lenet(torch)
    module = from_fx(torch.fx.symbolic_trace(model), [((1, 1, 28, 28), "float32")])
    module = mlcc.run_passes(module, "fuse,lower-to-tir,fuse-tir,dead-code")
    fused = [name for name in module.functions if name.startswith("fused_")]
    assert len(fused) == 5
    for name in fused[:3]:  # two convolutions and a layer; the rules schedule the others
        func = tuned(module[name], tmp_path / name).with_attr("global_symbol", name)
        module.update_func(module.get_global_var(name), func)
    artifact = mlcc.build(module, target=TARGET)
    assert artifact.emit("ptx").count(b".entry") >= len(fused)
    x = torch.rand(1, 1, 28, 28)
    with torch.no_grad():
        want = model(x).numpy()
    got = mlcc.load(artifact, emulate=True)["main"](x.numpy())
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)

"""On an NVIDIA GPU: `make gpu-check`. Elsewhere all of this is skipped, with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from bench.gpu.workloads import Workload, workloads
from mlcc.errors import CallError
from mlcc.runtime.cuda.device import CudaDevice
from tests.hardware.cases import CASES, ROOT, Case
from tests.launch.texts import MLP

pytestmark = pytest.mark.gpu


def agree(case: Case, exe: Any) -> None:
    for seed in range(2):
        args = case.arrays(seed)
        want = mlcc.load(mlcc.build(case.module()))["main"](*args)
        np.testing.assert_allclose(exe["main"](*args), want, rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("name", CASES)
def test_graphs_agree_on_the_device(name: str, level: int, target: str) -> None:
    case = CASES[name]
    agree(case, mlcc.load(mlcc.build(case.module(), target=target, opt_level=level)))


@pytest.mark.parametrize("package", ["bindings", "pycuda"])
def test_each_driver_package_runs_kernels(package: str, target: str, tmp_path: Path) -> None:
    """In a process each, as a driver is opened once."""
    pytest.importorskip("pycuda.driver" if package == "pycuda" else "cuda.bindings.driver")
    mlcc.build(CASES["products"].module(), target=target).save(tmp_path / "k.mlca")
    args = CASES["products"].arrays()
    np.savez(tmp_path / "in.npz", **dict(zip("xwb", args, strict=True)))
    np.savez(tmp_path / "out.npz", out=mlcc.load(mlcc.build(CASES["products"].module()))["main"](*args))
    command = [sys.executable, "-m", "mlcc", "run", "k.mlca", "--in", "in.npz", "--expect", "out.npz", "--rtol", "1e-4"]
    environment = {**os.environ, "MLCC_CUDA_DRIVER": package, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_digits_and_lenet_samples(target: str) -> None:
    for folder, name in (("lenet", "lenet"), ("digits", "mlp")):
        path = ROOT / "samples" / folder / f"{name}.mlc"
        module = mlcc.parse(path.read_text(), name=str(path), folder=str(path.parent))
        if any(p.name != "x" for p in module["main"].params):
            continue  # weights are parameters of this one
        rng = np.random.default_rng(0)
        x = rng.random((7, 64), dtype=np.float32)
        want = mlcc.load(mlcc.build(module))["main"](x)
        np.testing.assert_allclose(mlcc.load(mlcc.build(module, target=target))["main"](x), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("work", [w for w in workloads(quick=True) if w.script], ids=lambda w: str(w.script))
def test_schedules_for_tensor_cores_match_numpy(work: Workload, gpu: CudaDevice, target: str) -> None:
    if not work.runs_on(gpu.capability):
        pytest.skip(f"{work.script} is for compute capability {work.least}")
    n = 512
    small = replace(work, shapes=((n, n), (n, n)))
    values = np.random.default_rng(0).integers(-3, 4, (2, n, n)).astype(np.float32)
    exe = mlcc.load(mlcc.build(small.module(), target=target))
    got = exe["main"](*((values.view(np.uint32) >> 16).astype(np.uint16)))
    np.testing.assert_array_equal(got, values[0] @ values[1])


def test_arrays_stay_on_the_device(gpu: CudaDevice, target: str) -> None:
    exe: Any = mlcc.load(mlcc.build(mlcc.parse(MLP), target=target, pipeline=""))
    x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    want = (x + y + x) + (x + y)
    a, b = exe.to_device(x), exe.to_device(y)
    np.testing.assert_array_equal(exe["main"](a, b).numpy(), want)
    call = exe["main"].bind(a, b, out=exe.to_device(x))
    for _ in range(5):  # the later ones as a graph, where the package has them
        np.testing.assert_array_equal(call().numpy(), want)
    assert 0 < exe.time_evaluator("main", number=20, repeat=3)(a, b).median < 1
    assert exe.host_copies == 0


@pytest.mark.filterwarnings("ignore")  # torch's own, of drivers that it finds too old
def test_torch_shares_memory(gpu: CudaDevice, target: str) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    exe: Any = mlcc.load(mlcc.build(mlcc.parse(MLP), target=target, pipeline=""))
    x = torch.arange(100, dtype=torch.float32, device="cuda")
    y = torch.ones(100, device="cuda")
    made = torch.from_dlpack(exe["main"](x, y))
    torch.testing.assert_close(made, (x + y + x) + (x + y))
    made = torch.from_dlpack(exe["main"](x[1:51], y[::2]))  # neither aligned nor compact
    torch.testing.assert_close(made, (x[1:51] + 1 + x[1:51]) + (x[1:51] + 1))
    out = torch.empty(100, device="cuda")
    assert exe["main"](x, y, out=out) is out
    torch.testing.assert_close(out, (x + y + x) + (x + y))


def test_out_of_memory_and_later_calls(gpu: CudaDevice, target: str) -> None:
    exe: Any = mlcc.load(mlcc.build(mlcc.parse(MLP), target=target, pipeline=""))
    with pytest.raises(CallError, match="E0865"):
        gpu.alloc(1 << 50)
    x = np.ones(10, np.float32)
    np.testing.assert_array_equal(exe["main"](x, x), np.full(10, 5, np.float32))


FAILING = '''
import numpy as np, mlcc
from mlcc.errors import CallError
exe = mlcc.load(mlcc.build(mlcc.parse("""
@T.prim_func
def main(x: T.handle, k: T.int64):
    n = T.int64()
    X = T.match_buffer(x, (n,), "float32")
    for t in T.thread_binding(1, thread="threadIdx.x"):
        with T.block("X"):
            v = T.axis.spatial(1, t)
            w = T.axis.spatial(k + T.int64(1), k)
            X[w] = T.float32(1)
"""), target="TARGET", pipeline=""))
x = np.zeros(4, np.float32)
exe["main"](x, 1)
assert x[1] == 1
try:
    exe["main"](x, 1 << 40)
except CallError as exc:
    assert exc.diagnostics[0].code == "E0866", exc
else:
    raise SystemExit("the access was not noticed")
try:
    exe["main"](x, 2)
    assert x[2] == 1
    print("works again")
except CallError as exc:
    assert "restart the process" in str(exc), exc
    print("says what to do")
'''


def test_an_illegal_address_is_an_error_and_not_the_end(target: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILING.replace("TARGET", target)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)


def test_indices_outside_are_reported(target: str) -> None:
    """The kernel's error record says which index; the next call is as if nothing had been."""
    text = """
@R.function
def main(x: R.Tensor((1000, 64), "float32"), i: R.Tensor((5000,), "int32")):
    with R.dataflow():
        a = R.add(x, x)
        b = R.take(a, i, axis=0)
        c = R.nn.softmax(b, axis=-1)
        R.output(c)
    return c
"""
    rng = np.random.default_rng(0)
    x, i = rng.normal(size=(1000, 64)).astype(np.float32), rng.integers(-1000, 1000, 5000).astype(np.int32)
    for level in range(4):
        exe = mlcc.load(mlcc.build(mlcc.parse(text), target=target, opt_level=level))
        want = mlcc.load(mlcc.build(mlcc.parse(text)))["main"](x, i)
        for bad in (1000, -1001, 2**31 - 1, -(2**31)):
            wrong = i.copy()
            wrong[4321] = bad
            with pytest.raises(
                CallError, match=f"`R.take` in line 6: index {bad} is outside dimension 0, which has 1000"
            ):
                exe["main"](x, wrong)
            np.testing.assert_allclose(exe["main"](x, i), want, rtol=1e-4, atol=1e-5)

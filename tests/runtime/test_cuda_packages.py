"""The runtime over the real packages, each in a process of its own whose driver is `stub_driver`'s library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import MlccError

SCALARS = """
@T.prim_func
def main(y: T.handle, a: T.int64, b: T.float32, c: T.float16, d: T.bool, e: T.int8):
    T.func_attr({"tir.noalias": True})
    Y = T.match_buffer(y, (40,), "float32")
    for t in T.thread_binding(40, thread="threadIdx.x"):
        with T.block("Y"):
            v = T.axis.spatial(40, t)
            Y[v] = T.if_then_else(d, T.Cast("float32", a * v) + b, T.Cast("float32", c) * T.Cast("float32", e))
"""


def plan_and_graph(driver: Any, exe: Any) -> None:
    """Host arrays, device arrays, and calls that replay."""
    x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    want = (x + y + x) + (x + y)
    np.testing.assert_array_equal(exe["main"](x, y), want)
    call = exe["main"].bind(exe.to_device(x), exe.to_device(y))
    for _ in range(4):
        np.testing.assert_array_equal(call().numpy(), want)
    assert exe.device.driver.package == "pycuda" or driver.calls["cuGraphLaunch"] >= 2
    assert exe.time_evaluator("main", number=2, repeat=2)(x, y).median > 0


def scalars(exe: Any) -> None:
    """Every width of scalar arguments arrives."""
    y = np.zeros(40, np.float32)
    exe["main"](y, 3, 0.5, 2.0, True, -5)
    np.testing.assert_array_equal(y, 3 * np.arange(40) + 0.5)
    exe["main"](y, 3, 0.5, 2.5, False, -5)
    np.testing.assert_array_equal(y, np.full(40, -12.5))


def faults(driver: Any, exe: Any) -> None:
    """Codes of the driver become diagnostics, and later calls work."""
    x = np.ones(100, np.float32)
    for function, code, wanted in [
        ("cuMemAlloc", 2, "E0865"), ("cuLaunchKernel", 1, "E0864"), ("cuLaunchKernel", 700, "E0866"),
        ("cuStreamSynchronize", 719, "E0866"),
    ]:  # fmt: skip
        driver.faults[function] = [code, code] if function == "cuMemAlloc" else [code]
        if function == "cuMemAlloc":
            exe.device.generation += 1  # what is kept is gone
        with pytest.raises(MlccError) as caught:
            exe["main"](x, x)
        driver.faults.clear()
        assert caught.value.diagnostics[0].code == wanted, str(caught.value)
        np.testing.assert_array_equal(exe["main"](x, x), np.full(100, 5, np.float32))


def threads(exe: Any) -> None:
    """Threads that used the device come and go."""
    x, made = np.ones(100, np.float32), []
    for _ in range(2):
        thread = threading.Thread(target=lambda: made.append(exe["main"](x, x)))
        thread.start()
        thread.join()
    np.testing.assert_array_equal(made, np.full((2, 100), 5, np.float32))


def refused(driver: Any, artifact: Any) -> None:
    driver._expected, driver.log = None, b"ptxas: line 7: no such instruction"
    with pytest.raises(MlccError, match="line 7: no such instruction"):
        mlcc.load(artifact)


def main() -> None:
    sys.setdlopenflags(os.RTLD_LAZY)  # pycuda names functions that it calls for nothing of ours
    from tests.launch.texts import MLP, built
    from tests.runtime.stub_driver import StubDriver

    driver = StubDriver()

    def load(artifact: Any) -> Any:
        driver.expect(artifact)
        made = mlcc.load(artifact)
        driver.check()
        return made

    mlp = load(built(MLP))
    assert mlp.device.driver.package == sys.argv[1] and mlp.device.name == "an emulated GPU"
    plan_and_graph(driver, mlp)
    scalars(load(built(SCALARS)))
    threads(mlp)
    driver.expect(built(MLP))
    faults(driver, mlp)
    refused(driver, built(MLP))
    driver.check()
    print("done")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize(("package", "layer"), [("cuda-bindings", "bindings"), ("pycuda", "pycuda")])
def test_over_the_real_package(tmp_path: Path, package: str, layer: str) -> None:
    pytest.importorskip("cuda.bindings" if layer == "bindings" else "pycuda")
    from tests.runtime import stub_driver

    stub_driver.build(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.test_cuda_packages", package],
        cwd=stub_driver.ROOT, env=stub_driver.environment(tmp_path, layer), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stderr[-3000:]


if __name__ == "__main__":
    main()

"""Assertions of kernels: what they leave in their error words becomes the CPU's error, and in time."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError
from mlcc.runtime import manifest
from mlcc.runtime.abi import KIND_BY_NAME
from mlcc.runtime.launch.executable import LaunchExecutable
from tests.launch.texts import MLP, built
from tests.runtime.devices import PythonDevice, array

ASSERT = KIND_BY_NAME["ASSERT"].code
CODES = (ASSERT | 1 << 8, ASSERT | 2 << 8)
BAD = [0]  # the number that the next kernel writes to its error word


def add(grid: Any, block: Any, shared: int, x: int, y: int, z: int, n: int, word: int) -> None:
    array(z, (n,))[:] = array(x, (n,)) + array(y, (n,))
    if BAD[0]:
        array(word, (1,), "int32")[0] = BAD[0]


def executable(can_capture: bool = False) -> tuple[LaunchExecutable, PythonDevice]:
    """The module of `texts` whose kernel `add` has two assertions."""
    artifact = built(MLP)
    plan = json.loads(json.dumps(artifact.plan))
    plan["kernels"]["add_kernel"]["params"].append("ptr")
    plan["kernels"]["add_kernel"]["asserts"] = list(CODES)
    plan["errors"] = [[CODES[0], "the first"], [CODES[1], "the second"]]
    device = PythonDevice({"add_kernel": add, "scale_kernel": lambda *args: None}, can_capture)
    return LaunchExecutable(manifest.read(artifact.manifest), plan, [], b"", device), device


@pytest.mark.parametrize("can_capture", [False, True])
def test_the_number_in_the_word_is_the_assertion(can_capture: bool) -> None:
    exe, device = executable(can_capture)
    x = np.ones(4, np.float32)
    call = exe["main"].bind(x, x)
    for _ in range(3):
        np.testing.assert_array_equal(call(), np.full(4, 5, np.float32))
    for number, words in ((1, "the first"), (2, "the second")):
        BAD[0] = number
        for again in (call, lambda: exe["main"](x, x)):
            with pytest.raises(CallError, match=f"E0813.*`main`: {words}"):
                again()
        BAD[0] = 0
        np.testing.assert_array_equal(call(), np.full(4, 5, np.float32))  # the word was cleared
    assert (("replay",) in device.log) == can_capture


def test_results_that_stay_on_the_device_wait_for_assertions() -> None:
    exe, _ = executable()
    x = exe.to_device(np.ones(4, np.float32))
    BAD[0] = 2
    with pytest.raises(CallError, match="the second"):
        exe["main"](x, x)
    BAD[0] = 0
    np.testing.assert_array_equal(exe["main"](x, x).numpy(), np.full(4, 5, np.float32))


def test_packed_functions_are_not_called_after_a_failure() -> None:
    exe, device = executable()
    steps = exe.plan.functions["main"].steps
    called: list[int] = []

    def packed(run: Any, values: Any) -> None:
        run.check()
        called.append(1)

    from dataclasses import replace

    executor: Any = exe["main"].executor
    executor.launcher.plan = replace(executor.launcher.plan, steps=(*steps, packed), is_static=False)
    x = np.ones(4, np.float32)
    BAD[0] = 1
    with pytest.raises(CallError, match="the first"):
        exe["main"](x, x)
    assert not called
    BAD[0] = 0
    exe["main"](x, x)
    assert called == [1]


def test_the_assertion_of_a_program_on_the_host() -> None:
    text = """
@T.prim_func
def main(x: T.handle, k: T.int32):
    n = T.int64()
    X = T.match_buffer(x, (n,), "float32")
    assert k < 5, "k is below five"
    for b in T.thread_binding(n, thread="blockIdx.x"):
        with T.block("X"):
            v = T.axis.spatial(n, b)
            X[v] = T.float32(1)
"""
    said = []
    artifact = mlcc.build(mlcc.parse(text), target="cuda{arch=sm_80}", pipeline="")
    for exe in (mlcc.load(artifact, emulate=True), mlcc.load(mlcc.build(mlcc.parse(text), pipeline=""))):
        x = np.zeros(3, np.float32)
        exe["main"](x, 4)
        assert x.all()
        with pytest.raises(CallError) as caught:
            exe["main"](x, 5)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_the_assertion_of_a_thread() -> None:
    text = """
@T.prim_func
def main(X: T.Buffer((64,), "int32"), Y: T.Buffer((64,), "int32")):
    for b in T.thread_binding(2, thread="blockIdx.x"):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            assert X[b * 32 + t] >= 0, "no number is negative"
            Y[b * 32 + t] = X[b * 32 + t]
"""
    artifact = mlcc.build(mlcc.parse(text), target="cuda{arch=sm_80}", pipeline="")
    for exe in (mlcc.load(artifact, emulate=True), mlcc.load(mlcc.build(mlcc.parse(text), pipeline=""))):
        x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
        exe["main"](x, y)
        np.testing.assert_array_equal(x, y)
        x[40] = -1
        with pytest.raises(CallError, match="no number is negative"):
            exe["main"](x, y)

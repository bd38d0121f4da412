"""Modules whose kernels are bound to threads, for tests of launch plans."""

from __future__ import annotations

from typing import Any

import mlcc
from mlcc.runtime.launch.device import Device
from mlcc.targets.cuda.artifact import CudaArtifact
from mlcc.targets.emulate.device import EmulatedDevice

TARGET = "cuda{arch=sm_80}"

MLP = """
@I.ir_module
class Module:
    @T.prim_func
    def scale(x: T.handle, y: T.handle, f: T.float32):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        X = T.match_buffer(x, (n,), "float32")
        Y = T.match_buffer(y, (n,), "float32")
        for i_0 in T.thread_binding((n + T.int64(63)) // T.int64(64), thread="blockIdx.x"):
            for i_1 in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("Y"):
                    v = T.axis.spatial(n, i_0 * T.int64(64) + T.Cast("int64", i_1))
                    T.where(i_0 * T.int64(64) + T.Cast("int64", i_1) < n)
                    Y[v] = X[v] * f

    @T.prim_func
    def add(x: T.handle, y: T.handle, z: T.handle):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        X = T.match_buffer(x, (n,), "float32")
        Y = T.match_buffer(y, (n,), "float32")
        Z = T.match_buffer(z, (n,), "float32")
        for i_0 in T.thread_binding((n + T.int64(63)) // T.int64(64), thread="blockIdx.x"):
            for i_1 in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("Z"):
                    v = T.axis.spatial(n, i_0 * T.int64(64) + T.Cast("int64", i_1))
                    T.where(i_0 * T.int64(64) + T.Cast("int64", i_1) < n)
                    Z[v] = X[v] + Y[v]

    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        cls = Module
        a = R.call_tir(cls.add, (x, y), out_sinfo=R.Tensor((n,), "float32"))
        b = R.call_tir(cls.add, (a, x), out_sinfo=R.Tensor((n,), "float32"))
        c = R.call_tir(cls.add, (b, a), out_sinfo=R.Tensor((n,), "float32"))
        return c
"""


def built(text: str, **options: Any) -> CudaArtifact:
    """A module as it is, for CUDA."""
    made = mlcc.build(mlcc.parse(text), target=TARGET, pipeline="", **options)
    assert isinstance(made, CudaArtifact)
    return made


def emulated(text: str) -> Any:
    """A module as it is, loaded on an emulated device that checks what kernels do."""
    artifact = built(text)
    return mlcc.load(artifact, device=EmulatedDevice(artifact.launch.kernels))


def native(text: str) -> Any:
    """The same on the CPU."""
    return mlcc.load(mlcc.build(mlcc.parse(text), pipeline=""))


def on(device: Device, text: str) -> Any:
    return mlcc.load(built(text), device=device)

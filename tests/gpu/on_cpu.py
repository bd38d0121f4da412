"""Runs the LLVM IR of kernels on this CPU, thread after thread: what is emitted for GPUs, judged without one.

Address spaces and the calling convention go, registers of threads become variables, and what only GPUs have is modelled
by what its documentation says. There are no barriers and no other threads: kernels of threads that share nothing.
The architecture is one whose conversions to bfloat16 are code: x86's instruction for them flushes small numbers to 0.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from itertools import product
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from mlcc.passes.gpu.device import DeviceKernel
from mlcc.targets.cuda.ptx import emit_ptx

_REGISTERS = [f"{kind}.{axis}" for kind in ("ctaid", "tid") for axis in "xyz"]
_keep: list[Any] = []

_MODELS = """
declare i32 @llvm.fptosi.sat.i32.f32(float)
declare i32 @llvm.fptoui.sat.i32.f32(float)
declare float @llvm.sqrt.f32(float)
define internal i32 @model.f2i.rz(float %x) alwaysinline {
  %r = call i32 @llvm.fptosi.sat.i32.f32(float %x)
  ret i32 %r
}
define internal i32 @model.f2ui.rz(float %x) alwaysinline {
  %r = call i32 @llvm.fptoui.sat.i32.f32(float %x)
  ret i32 %r
}
define internal float @model.rsqrt.approx.f(float %x) alwaysinline {
  %s = call float @llvm.sqrt.f32(float %x)
  %r = fdiv float 1.0, %s
  ret float %r
}
"""

_DOT = """
define internal i32 @model.idp4a.{a}.{b}(i32 %a, i32 %b, i32 %c) alwaysinline {{
  %u = bitcast i32 %a to <4 x i8>
  %v = bitcast i32 %b to <4 x i8>
  %x = {left} <4 x i8> %u to <4 x i32>
  %y = {right} <4 x i8> %v to <4 x i32>
  %p = mul <4 x i32> %x, %y
  %d = call i32 @llvm.vector.reduce.add.v4i32(<4 x i32> %p)
  %r = add i32 %d, %c
  ret i32 %r
}}
"""
_EXTENSIONS = {"s": "sext", "u": "zext"}
_MODELS += "declare i32 @llvm.vector.reduce.add.v4i32(<4 x i32>)\n" + "".join(
    _DOT.format(a=a, b=b, left=_EXTENSIONS[a], right=_EXTENSIONS[b]) for a in "su" for b in "su"
)


def as_cpu_text(text: str) -> str:
    """The IR of kernels for one thread of this CPU at a time."""
    text = re.sub(r"^target .*$", "", text, flags=re.M)
    text = re.sub(r" addrspace\(\d\)", "", text).replace("define ptx_kernel void", "define void")
    text = re.sub(r"\.p[134]\b", ".p0", text)
    text = re.sub(r"^declare .*@llvm\.nvvm\..*$", "", text, flags=re.M)
    text = re.sub(r"@llvm\.nvvm\.read\.ptx\.sreg\.([a-z.]+)\(", r"@model.\1(", text)
    text = text.replace("@llvm.nvvm.", "@model.")
    lines = [text]
    for name in _REGISTERS:
        lines += [
            f"@value.{name} = global i32 0",
            f"define internal i32 @model.{name}() alwaysinline {{",
            f"  %r = load i32, ptr @value.{name}",
            "  ret i32 %r",
            "}",
        ]
    models = "\n".join(line for line in _MODELS.splitlines() if not (line.startswith("declare") and line in text))
    return "\n".join([*lines, models])


class Kernels:
    """Kernels compiled for this CPU from the IR that they have for `target`."""

    def __init__(self, kernels: Sequence[DeviceKernel], target: str = "cuda{arch=sm_75}") -> None:
        made = emit_ptx(kernels, target, opt_level=0)
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        host = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1
        )
        module = llvm.parse_assembly(as_cpu_text(made.llvm_ir))
        module.verify()
        self._engine = llvm.create_mcjit_compiler(module, host)
        self._engine.finalize_object()
        _keep.append(self._engine)
        self._facts = made.kernels

    def run(self, name: str, grid: Sequence[int], block: Sequence[int], *args: np.ndarray) -> None:
        """All threads of a launch, one after the other, over arrays."""
        address = self._engine.get_function_address(self._facts[name].symbol)
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(args))(address)
        places = [ctypes.c_int32.from_address(self._engine.get_global_value_address(f"value.{r}")) for r in _REGISTERS]
        pointers = [a.ctypes.data for a in args]
        sizes = [*grid, *[1] * (3 - len(grid)), *block, *[1] * (3 - len(block))]
        for at in product(*map(range, sizes)):
            for place, value in zip(places, at, strict=True):
                place.value = value
            call(*pointers)

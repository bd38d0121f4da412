"""Kernels printed as source, compiled by the C++ compiler of this machine, and run on its CPU."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.passes.gpu import BLOCK, GRID, DeviceKernel, DeviceProgram
from mlcc.targets.source import emit_source
from tests.lower import lower_gpu

HERE = Path(__file__).parent
_TYPES = {
    "int8": ctypes.c_int8, "int16": ctypes.c_int16, "int32": ctypes.c_int32, "int64": ctypes.c_int64,
    "uint8": ctypes.c_uint8, "uint32": ctypes.c_uint32, "float32": ctypes.c_float, "float64": ctypes.c_double,
}  # fmt: skip


def programs_of(module: mlcc.IRModule) -> list[DeviceProgram]:
    return [lower_gpu(name, f) for name, f in module.functions.items() if isinstance(f, tir.PrimFunc)]


def kernels_of(module: mlcc.IRModule) -> list[DeviceKernel]:
    return [k for p in programs_of(module) for k in p.kernels]


class Compiled:
    """Functions with constant launches, by one compilation."""

    def __init__(self, module: mlcc.IRModule, language: str, folder: Path) -> None:
        compiler = shutil.which("g++")
        if compiler is None:
            pytest.skip("no g++")
        self._programs = {p.kernels[0].name.removesuffix("_kernel"): p for p in programs_of(module)}
        self.text = emit_source(kernels_of(module), language)
        source, library = folder / f"{language}.cpp", folder / f"{language}.so"
        source.write_text(
            _runnable(self.text, language) + "".join(_entries(p, language) for p in self._programs.values())
        )
        command = [compiler, "-std=c++20", "-O1", "-w", "-ffp-contract=fast", "-march=native", "-shared", "-fPIC"]
        made = subprocess.run(
            [*command, "-pthread", "-o", library, source], capture_output=True, text=True, timeout=300
        )
        assert made.returncode == 0, made.stderr[:4000]
        self._library = ctypes.CDLL(str(library))

    def __call__(self, name: str, *args: Any) -> None:
        """Run a function on arrays (in place) and scalars."""
        program = self._programs[name]
        values = dict(zip(program.func.params, args, strict=True))
        by_data = {b.data: values[p] for p, b in zip(program.func.params, program.func.buffers, strict=True) if b}
        held, pointers = [], (ctypes.c_void_p * 32)()
        (kernel,) = program.kernels
        for at, param in enumerate(kernel.params):
            array = by_data.get(param)
            if array is not None:
                pointers[at] = array.ctypes.data
            else:
                held.append(_TYPES[str(param.dtype)](values[param]))
                pointers[at] = ctypes.addressof(held[-1])
        sizes = [_extent(kernel, axis) for axis in (*GRID, *BLOCK)]
        getattr(self._library, f"run_{kernel.name}")((ctypes.c_uint * 6)(*sizes), pointers)


def _extent(kernel: Any, axis: str) -> int:
    found = kernel.extents.get(axis)
    known = 1 if found is None else tir.const_int(found)
    assert known is not None
    return known


def _runnable(text: str, language: str) -> str:
    """The printed text as C++ for the shim."""
    head = '#include "{0}/shim.h"\n#include "{0}/shim_{1}.h"\n'.format(HERE, language.removesuffix("-c"))
    made = []
    for line in text.splitlines():
        if line.startswith(("#include <", "using namespace")) or "extern __shared__" in line:
            continue
        if line.startswith("  threadgroup ") and line.endswith("];"):
            line = "  static " + line.strip().removeprefix("threadgroup ")
        made.append(re.sub(r"\[\[[^]]*\]\]", "", line))  # attributes
    return head + "\n".join(made) + "\n"


def _entries(program: DeviceProgram, language: str) -> str:
    """A C function that runs the kernel of a program over a grid."""
    (kernel,) = program.kernels
    arguments = [f"Arg{{a[{at}]}}" for at in range(len(kernel.params))]
    if language == "metal":
        arguments += ["dynamic_shared"] * (tir.const_int(kernel.dynamic_shared) != 0)
        arguments += [part for part in ("blockIdx", "threadIdx") if any(axis.startswith(part) for axis in kernel.axes)]
    call = f"{kernel.name}({', '.join(arguments)})"
    return (
        f'extern "C" void run_{kernel.name}(unsigned* n, void** a) {{\n'
        f"  run_grid({{n[0], n[1], n[2]}}, {{n[3], n[4], n[5]}}, [&] {{ {call}; }});\n}}\n"
    )


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Values of both signs; small ones of integers among large ones."""
    if dtype.startswith(("int", "uint")):
        info = np.iinfo(dtype)
        wide = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        near = rng.integers(max(info.min, -9), 9, shape, endpoint=True).astype(dtype)
        return np.where(rng.random(shape) < 0.5, wide, near)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    return (rng.standard_normal(shape) * 3).astype(dtype)

"""TensorIR for GPUs: kernels as the code of one thread, and host code that launches them (see `device`).

The steps are passes (`mlcc.passes.manage.levels.LOWERING`), one module each; `device_program` then takes kernels and
host code apart.
"""

from __future__ import annotations

from dataclasses import replace

from mlcc.ir import tir
from mlcc.ir.deep import deep_recursion
from mlcc.passes.gpu.device import BLOCK, GRID, DeviceKernel, DeviceProgram
from mlcc.passes.gpu.dynamic_shared import dynamic_shared
from mlcc.passes.gpu.narrow_indices import narrow_kernel
from mlcc.passes.gpu.split_host_device import split_host_device
from mlcc.passes.lowering.options import GPU_UNROLL_LIMIT
from mlcc.passes.lowering.unroll import unroll_loops

__all__ = ["BLOCK", "GRID", "DeviceKernel", "DeviceProgram", "device_program"]


def device_program(name: str, func: tir.PrimFunc, unroll: bool = True) -> DeviceProgram:
    """The program of a lowered PrimFunc; kernels are called `{name}_kernel` and on.

    With `unroll`, the loops that are marked for it are written out, as PTX wants them. Raises CompileError.
    """
    with deep_recursion():
        made = split_host_device(name, unroll_loops(func, GPU_UNROLL_LIMIT) if unroll else func)
        return replace(made, kernels=tuple(dynamic_shared(narrow_kernel(kernel)) for kernel in made.kernels))

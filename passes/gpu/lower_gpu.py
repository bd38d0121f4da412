"""TensorIR functions become kernels of a GPU, and host code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs
from mlcc.ir.tir import IterKind, Stmt
from mlcc.machine.target import Target
from mlcc.passes.gpu import DeviceKernel, device_program
from mlcc.passes.lowering.stage import reached
from mlcc.passes.manage.manager import Pass, PassContext, Pipeline, run_pipeline
from mlcc.passes.manage.stages import KERNELS, STEP


@dataclass(frozen=True)
class LowerGpu(Pass):
    """Show the kernels of every PrimFunc as the code of one thread, and what the host does in place of the function.

    All steps of lowering run before; the result is for reading, not for further passes.

    Before:  for i in T.thread_binding(8, thread="blockIdx.x"): with T.block("C"): ...
    After:   def f_kernel(...): blockIdx_x = T.launch_thread("blockIdx.x", 8); ...
    """

    name: ClassVar[str] = "lower-gpu"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        target = ctx.target if ctx.target.kind == "cuda" else Target.parse("cuda")
        ctx = replace(ctx, target=target)
        module = run_pipeline(Pipeline.parse("lower", target="cuda"), module, ctx)
        functions = {name: f for name, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
        made = reached(module, KERNELS, str(module.attrs.get(STEP)))
        for name, func in functions.items():
            program = device_program(name, func)
            made.functions[name] = tir.PrimFunc(func.params, func.buffers, func.attrs, program.host, func.ret_dtype)
            for kernel in program.kernels:
                made.functions[kernel.name] = as_function(kernel)
        return made


def as_function(kernel: DeviceKernel) -> tir.PrimFunc:
    """A kernel as a PrimFunc with launch scopes around its body."""
    body: tuple[Stmt, ...] = kernel.body
    for tag, axis in reversed(list(kernel.axes.items())):
        extent = c.cast(INT32, kernel.extents[tag])
        where = tir.IterVar(axis, tir.Range(c.const(0), extent), IterKind.THREAD, tag)
        body = (tir.AttrStmt(where, "thread_extent", extent, body),)
    params = tuple(
        p if b is None else tir.Var(p.name, p.dtype, span=p.span)  # whose pointer is the buffer's own
        for p, b in zip(kernel.params, kernel.buffers, strict=True)
    )
    return tir.PrimFunc(params, kernel.buffers, Attrs({"tir.is_global_func": True}), body)

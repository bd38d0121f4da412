"""Running a DeviceProgram on the CPU without a launch plan: the interpreter runs the host's code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlcc.interp.expressions import ExprCompiler
from mlcc.interp.prim_func import Program, as_argument, running
from mlcc.interp.state import State
from mlcc.ir import relax, tir
from mlcc.ir.node import replace
from mlcc.ir.visit import rewrite_bottom_up
from mlcc.passes.gpu.device import BLOCK, GRID, DeviceKernel, DeviceProgram
from mlcc.targets.emulate.compiled import load_kernels


def run_program(program: DeviceProgram, *args: Any) -> None:
    """Run a program on NumPy arrays and scalars, in place, outputs included. Raises CallError, CompileError."""
    functions = load_kernels(program.kernels)
    env = {k.name: _launcher(k, functions[k.name]) for k in program.kernels}

    def as_packed(node: Any) -> Any:
        if isinstance(node, tir.Call) and isinstance(node.op, relax.GlobalVar):
            packed = tir.Op("tir.call_packed")
            return tir.Call(node.dtype, packed, (tir.StringImm(node.op.name), *node.args), span=node.span)
        return node

    host = replace(program.func, body=tuple(rewrite_bottom_up(s, as_packed) for s in program.host))
    with running():
        Program(host).run([as_argument(a) for a in args], State(env, {}))


def launch_extents(kernel: DeviceKernel, args: Sequence[Any]) -> tuple[list[int], list[int], int]:
    """The grid, the blocks and the bytes of dynamic shared memory for a value of each parameter."""
    compiler, state = ExprCompiler(), State({}, {})
    state.values.update(zip(kernel.params, args, strict=True))

    def value(of: tir.Expr | None) -> int:
        return 1 if of is None else int(compiler.expr(of)(state))

    grid, block = ([value(kernel.extents.get(tag)) for tag in tags] for tags in (GRID, BLOCK))
    return grid, block, value(kernel.dynamic_shared)


def _launcher(kernel: DeviceKernel, function: Callable[..., int]) -> Callable[..., None]:
    def launch(*args: Any) -> None:
        grid, block, dynamic = launch_extents(kernel, args)
        if 0 in grid or 0 in block:
            return
        given = [a.__array_interface__["data"][0] if isinstance(a, np.ndarray) else a for a in args]
        assert function(None, *grid, *block, dynamic, *given) == 0

    return launch

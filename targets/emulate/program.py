"""Running a DeviceProgram on the CPU without a launch plan: the interpreter runs the host's code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mlcc.errors import CallError, error
from mlcc.interp.prim_func import Program, as_argument, running
from mlcc.interp.state import State
from mlcc.ir import relax, tir
from mlcc.ir.node import replace
from mlcc.ir.visit import rewrite_bottom_up
from mlcc.passes.gpu.device import BLOCK, GRID, DeviceKernel, DeviceProgram
from mlcc.targets.emulate.compiled import Emulated, Launched, Mode, evaluate, load_kernels


def run_program(program: DeviceProgram, *args: Any, check: bool = True) -> None:
    """Run a program on NumPy arrays and scalars, in place, outputs included.

    Raises CompileError, and CallError for arguments that do not fit and, with `check`, for what threads do wrong.
    """

    def launched(kernel: Emulated, made: Launched, grid: Sequence[int], block: Sequence[int]) -> None:
        if made.findings:
            raise CallError(made.findings)

    run_host(program, load_kernels(program.kernels, Mode(check)), args, launched)


def run_host(
    program: DeviceProgram, kernels: Mapping[str, Emulated], args: Sequence[Any],
    launched: Callable[[Emulated, Launched, Sequence[int], Sequence[int]], None],
) -> None:  # fmt: skip
    """Run the host's code; `launched` is told of every launch, with its grid and block."""

    def as_packed(node: Any) -> Any:
        if isinstance(node, tir.Call) and isinstance(node.op, relax.GlobalVar):
            packed = tir.Op("tir.call_packed")
            return tir.Call(node.dtype, packed, (tir.StringImm(node.op.name), *node.args), span=node.span)
        return node

    def launcher(kernel: Emulated) -> Callable[..., None]:
        asserts = kernel.kernel.asserts

        def launch(*values: Any) -> None:
            failed = np.zeros(1, np.int32)
            if asserts:
                values = (*values, failed)
            addresses = [v.__array_interface__["data"][0] if isinstance(v, np.ndarray) else v for v in values]
            rooms = {a: v.nbytes for a, v in zip(addresses, values, strict=True) if isinstance(v, np.ndarray)}
            grid, block, dynamic = launch_extents(kernel.kernel, addresses)
            made = kernel.launch(grid, block, dynamic, addresses, lambda address: rooms.get(address, 0))
            launched(kernel, made, grid, block)
            if failed[0]:
                raise CallError(error("E0813", asserts[failed[0] - 1][1] or "an assertion failed"))

        return launch

    host = replace(program.func, body=tuple(rewrite_bottom_up(s, as_packed) for s in program.host))
    with running():
        env = {name: launcher(kernel) for name, kernel in kernels.items()}
        Program(host).run([as_argument(a) for a in args], State(env, {}))


def launch_extents(kernel: DeviceKernel, args: Sequence[Any]) -> tuple[list[int], list[int], int]:
    """The grid, the blocks and the bytes of dynamic shared memory for a value of each parameter."""
    values = dict(zip(kernel.params, args, strict=True))

    def value(of: tir.Expr | None) -> int:
        return 1 if of is None else evaluate(of, values)

    grid, block = ([value(kernel.extents.get(tag)) for tag in tags] for tags in (GRID, BLOCK))
    return grid, block, value(kernel.dynamic_shared)

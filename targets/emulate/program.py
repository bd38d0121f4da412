"""Run a DeviceProgram on the CPU without a launch plan: the interpreter runs the host code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mlcc.errors import CallError, error
from mlcc.interp.prim_func import CompiledPrimFunc, as_argument, interpreter_context
from mlcc.interp.state import State
from mlcc.ir import relax, tir
from mlcc.ir.checked_index import INDEX_ERROR
from mlcc.ir.node import replace
from mlcc.ir.visit import rewrite_bottom_up
from mlcc.passes.gpu.device import BLOCK, GRID, DeviceKernel, DeviceProgram
from mlcc.passes.gpu.tensor_map import TensorMap, is_tensor_map
from mlcc.runtime.abi import ERROR_RECORD_BYTES, fill_numbers
from mlcc.runtime.launch.tensor_map import encode_as_numbers, tensor_map
from mlcc.targets.emulate.compiled import Emulated, LaunchOutcome, Mode, evaluate, load_kernels


def run_program(program: DeviceProgram, *args: Any, check: bool = True) -> None:
    """Run a program on NumPy arrays and scalars, in place, outputs included.

    Raises CompileError, and CallError for arguments that do not fit and, with `check`, for findings.
    """

    def launched(kernel: Emulated, outcome: LaunchOutcome, grid: Sequence[int], block: Sequence[int]) -> None:
        if outcome.findings:
            raise CallError(outcome.findings)

    run_host(program, load_kernels(program.kernels, Mode(check)), args, launched)


def run_host(
    program: DeviceProgram, kernels: Mapping[str, Emulated], args: Sequence[Any],
    launched: Callable[[Emulated, LaunchOutcome, Sequence[int], Sequence[int]], None],
) -> None:  # fmt: skip
    """Run the host code; `launched` is called after every launch, with its grid and block."""

    maps: dict[str, list[TensorMap]] = {}  # by kernel

    def as_packed(node: Any) -> Any:
        if isinstance(node, tir.Call) and isinstance(node.op, relax.GlobalVar):
            maps[node.op.name] = [TensorMap.of(a) for a in node.args if isinstance(a, tir.Call) and is_tensor_map(a)]
            packed = tir.Op("tir.call_packed")
            args = (part for arg in node.args for part in _map_operands(arg))
            return tir.Call(node.dtype, packed, (tir.StringImm(node.op.name), *args), span=node.span)
        return node

    def launcher(kernel: Emulated) -> Callable[..., None]:
        asserts = kernel.kernel.asserts

        def launch(*values: Any) -> None:
            record = np.zeros(ERROR_RECORD_BYTES // 8, np.int64)
            values = pack_tensor_maps(kernel.kernel, values, maps[kernel.kernel.name])
            if asserts:
                values = (*values, record)
            addresses = [v.__array_interface__["data"][0] if isinstance(v, np.ndarray) else v for v in values]
            sizes = {a: v.nbytes for a, v in zip(addresses, values, strict=True) if isinstance(v, np.ndarray)}
            grid, block, dynamic = launch_extents(kernel.kernel, addresses)
            outcome = kernel.launch(grid, block, dynamic, addresses, lambda address: sizes.get(address, 0))
            launched(kernel, outcome, grid, block)
            number = int(record.view(np.int32)[0])
            if number:
                kind, message = asserts[number - 1]
                if kind == INDEX_ERROR:
                    raise CallError(error("E0818", fill_numbers(message, int(record[1]), int(record[2]))))
                raise CallError(error("E0813", message or "an assertion failed"))

        return launch

    host = replace(program.func, body=tuple(rewrite_bottom_up(s, as_packed) for s in program.func.body))
    with interpreter_context():
        env = {name: launcher(kernel) for name, kernel in kernels.items()}
        CompiledPrimFunc(host).run([as_argument(a) for a in args], State(env, {}))


def _map_operands(arg: tir.Expr) -> tuple[tir.Expr, ...]:
    """Return the host expressions of a launch argument: of a tensor map, its pointer, extents and strides."""
    if not is_tensor_map(arg) or not isinstance(arg, tir.Call):
        return (arg,)
    tensor_map_value = TensorMap.of(arg)
    return (tensor_map_value.data, *tensor_map_value.dims, *tensor_map_value.strides)


def pack_tensor_maps(kernel: DeviceKernel, values: Sequence[Any], maps: Sequence[TensorMap]) -> tuple[Any, ...]:
    """Replace the pointer, extents and strides of tensor maps by packed maps. Raises CallError E0879."""
    arguments: list[Any] = []
    remaining, declared = iter(values), iter(maps)
    for param in kernel.params[: len(kernel.params) - bool(kernel.asserts)]:
        if param not in kernel.maps:
            arguments.append(next(remaining))
            continue
        tensor_map_value = next(declared)
        base, rank = next(remaining), len(tensor_map_value.dims)
        dims, strides = ([int(next(remaining)) for _ in range(n)] for n in (rank, rank - 1))
        address = base.__array_interface__["data"][0]
        arguments.append(
            np.frombuffer(encode_as_numbers(tensor_map(tensor_map_value.spec, address, dims, strides)), np.uint8)
        )
    return tuple(arguments)


def launch_extents(kernel: DeviceKernel, args: Sequence[Any]) -> tuple[list[int], list[int], int]:
    """Return the grid, the block and the bytes of dynamic shared memory for these arguments."""
    values = dict(zip(kernel.params, args, strict=True))

    def value(of: tir.Expr | None) -> int:
        return 1 if of is None else evaluate(of, values)

    grid, block = ([value(kernel.extents.get(tag)) for tag in tags] for tags in (GRID, BLOCK))
    return grid, block, value(kernel.dynamic_shared)

"""Compile emulated kernels with LLVM, link them into this process, and call them through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from mlcc.errors import CallError, CompileError, Diagnostic, error
from mlcc.interp.expressions import ExprCompiler
from mlcc.interp.state import State
from mlcc.ir import tir
from mlcc.ir.narrow_floats import encode
from mlcc.machine.target import LlvmTarget
from mlcc.passes.gpu.device import DeviceKernel
from mlcc.runtime import elf, externs
from mlcc.runtime.image import link_image
from mlcc.targets.emulate import checks
from mlcc.targets.emulate.checks import Checks
from mlcc.targets.emulate.findings import Findings
from mlcc.targets.emulate.kernel import emit_kernel
from mlcc.targets.emulate.trace import BlockSample, Trace, TraceBuffer
from mlcc.targets.llvm.codegen.context import ModuleContext
from mlcc.targets.llvm.codegen.ir_text import ModuleText
from mlcc.targets.llvm.codegen.types import memory_type
from mlcc.targets.llvm.object.compile import Machine, compile_text

_TYPES: dict[str, Any] = {
    "ptr": ctypes.c_void_p, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "float": ctypes.c_float, "double": ctypes.c_double,
}  # fmt: skip
_NOTIFY = ctypes.CFUNCTYPE(
    None, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_int64, ctypes.c_int32, ctypes.c_int32
)

_LARGE_MODULE = 20_000  # lines of LLVM IR; optimising four times as many takes minutes

MemorySize = Callable[[int], int]  # bytes of memory available at an address


@dataclass(frozen=True, slots=True)
class Mode:
    """`check`: report races and other faults of threads. `trace`: the number of accesses to record, at most."""

    check: bool = True
    trace: int = 0


class LaunchOutcome(NamedTuple):
    """The findings of a checked launch, and its trace. There are no findings if an assertion failed, since they may all
    follow from that."""

    findings: list[Diagnostic]
    trace: Trace | None


@dataclass(frozen=True, slots=True, eq=False)
class Emulated:
    """A compiled kernel that can be launched."""

    kernel: DeviceKernel
    function: Callable[..., int]
    checks: Checks
    mode: Mode

    def launch(
        self, grid: Sequence[int], block: Sequence[int], shared_bytes: int, args: Sequence[Any],
        memory_size: MemorySize, sample: BlockSample | None = None,
    ) -> LaunchOutcome:  # fmt: skip
        """Run a grid, or with `sample` only some blocks of a checked one; `args` are addresses and numbers.

        Raises CallError if memory runs out.
        """
        if 0 in (*grid, *block):
            return LaunchOutcome([], None)
        passed = [_as_bits(a, p) for a, p in zip(args, self.kernel.params, strict=True)]
        report, findings, trace, keep_alive = self._report(grid, block, args, memory_size, sample)
        blocks = prod(grid) if sample is None or report is None else len(sample.numbers)
        address = None if report is None else report.ctypes.data
        if self.function(address, *grid, blocks, *block, shared_bytes, *passed):
            raise CallError(error("E0865", f"out of memory while emulating `{self.kernel.name}`"))
        del keep_alive
        if findings is None:
            return LaunchOutcome([], None)
        failed = bool(self.kernel.asserts) and ctypes.c_int32.from_address(args[-1]).value != 0
        return LaunchOutcome([] if failed else findings.diagnostics(), None if trace is None else trace.trace())

    def _report(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], memory_size: MemorySize,
        sample: BlockSample | None,
    ) -> tuple[np.ndarray | None, Findings | None, TraceBuffer | None, list[Any]]:  # fmt: skip
        """Return the report words of a checked kernel, its findings, its trace, and objects to keep alive."""
        if not self.mode.check and not self.mode.trace:
            return None, None, None, []
        values = dict(zip(self.kernel.params, args, strict=True))
        values.update(zip(self.checks.threads.block, block, strict=True))
        words = np.zeros(checks.ROOTS + 2 * len(self.checks.roots), np.int64)
        sizes, marks = [], []
        shared = sum(_cells(r, r.size, values) for r in self.checks.roots if r.scope.startswith("shared"))
        cells = np.zeros(max(shared, 1) * checks.MARKS, np.int32)
        words[checks.SHARED_CELLS], words[checks.SHARED_BYTES] = cells.ctypes.data, cells.nbytes
        order = self._happens_before_table(block)
        if order is not None:
            words[checks.ORDER], words[checks.ORDER_BYTES] = order.ctypes.data, order.nbytes
            words[checks.BARRIERS] = count = self.checks.barrier_count
            words[checks.WIDTH] = block[0] * block[1] * block[2] + count
        next_cell = 0
        for root in self.checks.roots:
            at = checks.ROOTS + 2 * root.number
            if root.size is None:
                size = memory_size(int(values[root.data] or 0))
                if root.is_marked:
                    cells_of_root = np.zeros(max(size // root.granule, 1) * checks.MARKS, np.int32)
                    marks.append(cells_of_root)
                    words[at + 1] = cells_of_root.ctypes.data
            else:
                size = evaluate(root.size, values)
                words[at + 1] = cells.ctypes.data + next_cell * checks.MARKS * 4
                next_cell += _cells(root, root.size, values) if root.scope.startswith("shared") else 0
            words[at] = size
            sizes.append(size)
        findings = Findings(self.checks, grid, block, sizes)
        notify = _NOTIFY(findings.record)
        words[checks.NOTIFY] = ctypes.cast(notify, ctypes.c_void_p).value or 0
        seen = np.zeros(checks.KINDS * max(len(self.checks.sites), 1) ** 2, np.int8)
        words[checks.SEEN], words[checks.SITES] = seen.ctypes.data, len(self.checks.sites)
        trace = None
        if sample is not None:
            words[checks.BLOCKS] = sample.numbers.ctypes.data
        if self.mode.trace:
            trace = TraceBuffer(self.mode.trace, len(self.checks.sites), sample or BlockSample.all(prod(grid)))
            trace.attach(words)
        return words, findings, trace, [*marks, cells, seen, order, notify]

    def _happens_before_table(self, block: Sequence[int]) -> np.ndarray | None:
        """Return the happens-before table of barriers in memory (`order.ll`); None if the kernel has none."""
        count, threads = self.checks.barrier_count, block[0] * block[1] * block[2]
        return np.zeros((threads + 2 * count) * (threads + count) + count, np.int32) if count else None


def load_kernels(kernels: Sequence[DeviceKernel], mode: Mode) -> Mapping[str, Emulated]:
    """Compile and link kernels. Raises CompileError."""
    machine = Machine.of(LlvmTarget.parse("llvm{cpu=native}"))
    ctx = ModuleContext(ModuleText(machine.triple), {}, machine.enabled, function_attrs=machine.function_attrs)
    emitted = {}
    for kernel in kernels:
        emitted[kernel.name] = emit_kernel(kernel, ctx, mode.check or mode.trace > 0, mode.trace > 0)
        if ctx.problems:
            raise CompileError(ctx.problems)
    text = ctx.module.text()
    # optimising the code of checks costs LLVM more time than it saves, and takes minutes for large kernels
    level = 2 if not (mode.check or mode.trace) else 1 if text.count("\n") < _LARGE_MODULE else 0
    obj = compile_text(text, machine, level).obj
    image = link_image(elf.read_object(obj), lambda name: externs.address_of(name, externs.ALLOWED | externs.POOL))
    return {
        k.name: Emulated(
            k, ctypes.CFUNCTYPE(ctypes.c_int32, *_signature(k))(image.functions[k.name]), emitted[k.name], mode
        )
        for k in kernels
    }


def evaluate(expr: tir.Expr, values: Mapping[tir.Var, Any]) -> int:
    """Evaluate an integer expression over the parameters of a kernel."""
    state = State({}, {})
    state.values.update(values)
    return int(ExprCompiler().expr(expr)(state))


def _cells(root: checks.Root, size: tir.Expr | None, values: Mapping[tir.Var, Any]) -> int:
    assert size is not None
    return max(evaluate(size, values) // root.granule, 1)


def _signature(kernel: DeviceKernel) -> list[Any]:
    head = [ctypes.c_void_p, *[ctypes.c_int64] * 4, *[ctypes.c_int32] * 3, ctypes.c_int64]
    return head + [_TYPES["ptr" if p.dtype.is_handle else memory_type(p.dtype)] for p in kernel.params]


def _as_bits(value: Any, param: tir.Var) -> Any:
    """Convert a value to the parameter's ctypes value; floats of 16 and 8 bits are passed as their bits."""
    dtype = param.dtype
    if dtype.is_float and dtype.bits < 32:
        return int(encode(value, dtype).view(f"int{dtype.bits}")[()])
    return float(value) if dtype.is_float else None if value is None else int(value)

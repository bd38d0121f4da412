"""Count the arithmetic of a kernel launch from its code, for the thread in the middle of the grid.

Loops count by their extents, conditions by their value for that thread. What depends on data counts as if it were the
larger branch. Thus a guard at the edge of a tensor is true, a loop up to the diagonal has half of its iterations, and
the work of a single thread of a block does not count. Bulk copies are issued by one thread of a block, so they are
counted for the first thread of the block in the middle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from mlcc.errors import MlccError
from mlcc.interp.expressions import ExprCompiler
from mlcc.interp.state import State
from mlcc.ir import tir
from mlcc.ir.intrinsics import Cost, Effect, called, effect_of
from mlcc.ir.node import Node, children, walk
from mlcc.passes.gpu.device import BLOCK, GRID, DeviceKernel
from mlcc.passes.gpu.mma_layout import Mma
from mlcc.passes.gpu.wgmma_layout import THREADS as WGMMA_THREADS
from mlcc.passes.gpu.wgmma_layout import M as WGMMA_ROWS
from mlcc.passes.gpu.wgmma_layout import Wgmma, dtype_of
from mlcc.targets.emulate.threads import WARP

_GUESS = 16  # iterations of a loop of unknown extent
# instructions for one float32 result; others of `Cost.FUNCTION` count _FUNCTION
_INSTRUCTIONS = {"tir.exp": 4, "tir.exp2": 3, "tir.exp10": 4, "tir.sqrt": 8, "tir.rsqrt": 8, "tir.sigmoid": 12}
_FUNCTION, _DIVISION = 20, 8
_FLOAT_OPERATIONS = (tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Min, tir.Max)


@dataclass(slots=True)
class Operations:
    """The operations of a thread, and those that threads share, as averages per thread.

    `flops` are operations on floating-point numbers (a multiply-add is two, any function is one), without those of
    tensor cores; `results` the results that the units of each kind compute (`float32`, `float64`, `int32`); `tensor`
    tensor core operations by (operand type in PTX, whether by warpgroups). `operand_bytes` are read from shared
    memory by products of warpgroups. `accesses` are loads and stores of any memory. `bulk` are the bytes that the copy
    engine moves for the whole block, by tensor map (None: without one).
    """

    flops: float = 0.0
    results: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    tensor: dict[tuple[str, bool], float] = field(default_factory=lambda: defaultdict(float))
    operand_bytes: float = 0.0
    accesses: float = 0.0
    bulk: dict[tir.Var | None, float] = field(default_factory=lambda: defaultdict(float))


def count_operations(
    kernel: DeviceKernel, args: Mapping[tir.Var, Any], grid: Sequence[int], block: Sequence[int]
) -> Operations:
    """Count the operations of a launch; `args` are its arguments by parameter."""
    middle = _places(kernel, grid, block, [(n - 1) // 2 for n in block])
    first = _places(kernel, grid, block, [0] * len(block))
    counted = _Counter(kernel, {**args, **middle}).count()
    counted.bulk = _Counter(kernel, {**args, **first}).count().bulk
    return counted


def _places(
    kernel: DeviceKernel, grid: Sequence[int], block: Sequence[int], thread: Sequence[int]
) -> dict[tir.Var, int]:
    tags = dict(zip((*GRID, *BLOCK), (*((n - 1) // 2 for n in grid), *thread), strict=True))
    return {var: tags[tag] for tag, var in kernel.axes.items()}


class _Counter:
    """Counts the operations of one thread."""

    def __init__(self, kernel: DeviceKernel, values: Mapping[tir.Var, Any]) -> None:
        self._kernel = kernel
        self._compiler = ExprCompiler()
        self._state = State({}, {})
        self._state.values.update(values)
        self._total = Operations()

    def count(self) -> Operations:
        self._body(self._kernel.body, 1.0)
        return self._total

    def _body(self, body: Sequence[tir.Stmt], times: float) -> None:
        for stmt in body:
            self._stmt(stmt, times)

    def _stmt(self, stmt: tir.Stmt, times: float) -> None:
        match stmt:
            case tir.For(var=var, min=start, extent=extent, step=step, body=body):
                self._loop(var, start, extent, step, body, times)
            case tir.While(condition=condition, body=body):
                self._expr(condition, times * _GUESS)
                self._body(body, times * _GUESS)
            case tir.AttrStmt(body=body):
                self._body(body, times)
            case tir.IfThenElse(condition=condition, then_body=then, else_body=other):
                self._expr(condition, times)
                known = self._value(condition)
                if known is None:
                    self._larger(then, other or (), times)
                else:
                    self._body(then if known else other or (), times)
            case tir.Bind(var=var, value=value):
                known = self._value(value)
                if known is not None:
                    self._state.values[var] = known
                if not value.dtype.is_int:
                    self._expr(value, times)
            case tir.BufferStore(value=value):
                self._total.accesses += times
                self._expr(value, times)
            case tir.Evaluate(value=value):
                self._expr(value, times)

    def _loop(
        self, var: tir.Var, start: tir.Expr, extent: tir.Expr, step: tir.Expr | None, body: Sequence[tir.Stmt],
        times: float,
    ) -> None:  # fmt: skip
        first, length, stride = self._value(start), self._value(extent), 1 if step is None else self._value(step)
        if length is None or stride is None:
            self._body(body, times * _GUESS)
            return
        count = -(-max(length, 0) // stride)
        if count and first is not None:
            self._state.values[var] = type(first)(first + (count - 1) // 2 * stride)
        if count:
            self._body(body, times * count)

    def _larger(self, then: Sequence[tir.Stmt], other: Sequence[tir.Stmt], times: float) -> None:
        before, totals = self._total, []
        for branch in (then, other):
            self._total = Operations()
            self._body(branch, times)
            totals.append(self._total)
        self._total = before
        add_to(before, max(totals, key=lambda t: (sum(t.tensor.values()), sum(t.results.values()))))

    def _value(self, expr: tir.Expr) -> Any:
        """Return the value of an expression for this thread; None if it depends on data."""
        values = self._state.values
        for node in walk(expr):
            if isinstance(node, tir.BufferLoad) or (isinstance(node, tir.Var) and node not in values):
                return None
            if isinstance(node, tir.Call) and effect_of(node) > Effect.PURE:
                return None
        try:
            return self._compiler.expr(expr)(self._state)
        except MlccError:
            return None

    # ------------------------------------------------------------ expressions

    def _expr(self, value: tir.Expr, times: float) -> None:
        """Count an expression; indices and addresses are free."""
        stack: list[Node] = [value]
        while stack:
            node = stack.pop()
            if isinstance(node, tir.BufferLoad):
                self._total.accesses += times
                continue
            if isinstance(node, tir.Call) and (self._shared_work(node, times) or effect_of(node) > Effect.READ):
                continue  # the arguments of such calls are addresses
            self._one(node, times)
            stack += children(node)

    def _one(self, node: Node, times: float) -> None:
        if not isinstance(node, (tir.BinaryOp, tir.Call)) or node.dtype.is_handle:
            return
        lanes = times * max(node.dtype.lanes, 1)
        is_float = node.dtype.is_float
        kind = "float64" if is_float and node.dtype.bits == 64 else "float32" if is_float else "int32"
        if isinstance(node, tir.Call):
            intrinsic = called(node)
            if not is_float or intrinsic.effect is not Effect.PURE or not intrinsic.lanewise:
                return
            default = _FUNCTION if intrinsic.cost is Cost.FUNCTION else 1
            self._total.results[kind] += lanes * _INSTRUCTIONS.get(node.op.name, default)
            self._total.flops += lanes
            return
        if isinstance(node, _FLOAT_OPERATIONS) and (is_float or node.dtype.kind in ("int", "uint")):
            fused = is_float and isinstance(node, (tir.Add, tir.Sub)) and _is_product(node.lhs, node.rhs)
            each = 0 if fused else _DIVISION if isinstance(node, tir.Div) else 1
            self._total.results[kind] += lanes * each
            self._total.flops += lanes * is_float

    def _shared_work(self, node: tir.Call, times: float) -> bool:
        """Count a matrix product or bulk copy that several threads make together; return True if `node` is one."""
        name = node.op.name if isinstance(node.op, tir.Op) else ""
        texts = [a.value if isinstance(a, tir.StringImm) else "" for a in node.args[:6]]
        if name == "tir.ptx_mma":
            mma = Mma.of(texts[0], *texts[3:6])
            if mma is not None:
                self._total.tensor[mma.a, False] += times * 2 * mma.m * mma.n * mma.k / WARP
            return True
        if name in ("tir.ptx_wgmma_ss", "tir.ptx_wgmma_rs"):
            product = Wgmma.of(*texts[:4])
            if product is not None:
                rows = product.n + (WGMMA_ROWS if name.endswith("ss") else 0)
                self._total.tensor[product.a, True] += times * 2 * WGMMA_ROWS * product.n * product.k / WGMMA_THREADS
                operand_bytes = rows * product.k * dtype_of(product.a).bytes
                self._total.operand_bytes += times * operand_bytes / WGMMA_THREADS
            return True
        if name in ("tir.ptx_cp_async_bulk_tensor", "tir.ptx_cp_async_bulk_tensor_store"):
            if isinstance(node.args[2], tir.Var) and node.args[2] in self._kernel.maps:
                self._total.bulk[node.args[2]] += times * self._kernel.maps[node.args[2]].box_bytes
            return True
        if name == "tir.ptx_cp_async_bulk":
            self._total.bulk[None] += times * (self._value(node.args[4]) or 0)
            return True
        return False


def add_to(total: Operations, more: Operations) -> None:
    """Add operations to others."""
    total.flops += more.flops
    for kind, count in more.results.items():
        total.results[kind] += count
    for product, count in more.tensor.items():
        total.tensor[product] += count
    for tensor_map, size in more.bulk.items():
        total.bulk[tensor_map] += size
    total.operand_bytes += more.operand_bytes
    total.accesses += more.accesses


def _is_product(*operands: tir.Expr) -> bool:
    return any(isinstance(o, tir.Mul) for o in operands)


def parameter_bytes(kernel: DeviceKernel, args: Mapping[tir.Var, Any]) -> dict[tir.Var, int]:
    """Return the bytes of the buffers and the mapped tensors that are parameters, where their sizes are known."""
    compiler, state = ExprCompiler(), State({}, {})
    state.values.update(args)
    sizes = {}
    for param, buffer in zip(kernel.params, kernel.buffers, strict=True):
        if buffer is not None:
            shape = [int(compiler.expr(dim)(state)) for dim in buffer.shape]
            sizes[param] = prod(shape) * buffer.dtype.bytes * max(buffer.dtype.lanes, 1)
        elif param in kernel.maps:
            form = kernel.maps[param]
            extents = np.frombuffer(args[param], np.int64)[1 : 1 + len(form.box)]
            sizes[param] = prod(map(int, extents)) * form.dtype.bytes
    return sizes

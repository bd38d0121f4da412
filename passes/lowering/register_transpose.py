"""Register transposes: strided (column) loads become contiguous loads of rows and shuffles.

    for u in range(4):                                        r0 = A[T.Ramp(k, 1, 4)]     # four rows
        B[T.Ramp(u * n, 1, 4)] = A[T.Ramp(k + u, m, 4)]  ->   ...
                                                              B[T.Ramp(0, 1, 4)] = (r0[0], r1[0], r2[0], r3[0])
                                                              ...

A vector with a row stride between its lanes that moves by one element with the surrounding loop is a column of a block.
The columns of a block of n rows take n loads and n * log2(n) shuffles of two vectors, instead of n * n loads of one
element each. The loaded elements are the same, and no store comes before the loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import Node, children, map_children, replace
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.lowering.accesses import is_pure
from mlcc.passes.lowering.aliases import AliasMutator
from mlcc.passes.lowering.folding import copy_body
from mlcc.passes.lowering.mutator import Body
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.lowering.vector_legality import linear_form
from mlcc.passes.manage.stages import FLAT

_MIN_STRIDE = 5  # elements between those of a vector; nearer ones are loaded in runs
_MAX_ROWS = 16  # of a block in registers
_DEFAULT_BYTES = 16  # of a vector, where that is not known


def transpose_registers(func: tir.PrimFunc, options: LowerOptions) -> tir.PrimFunc:
    """Return `func` (after vectorization) with column loads replaced by register transposes."""
    return replace(func, body=_RegisterTransposer(options.vector_bytes or _DEFAULT_BYTES).body(func.body))


class _RegisterTransposer(AliasMutator):
    def __init__(self, vector_bytes: int) -> None:
        super().__init__()
        self._vector_bytes = vector_bytes

    def stmt_if(self, node: tir.IfThenElse) -> Stmt | list[Stmt]:
        """Keep code under a vector condition: rows of masked-off lanes may be out of bounds."""
        return node if node.condition.dtype.lanes > 1 else super().stmt_if(node)

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        loop = super().stmt_for(node)
        if not isinstance(loop, tir.For) or loop.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
            return loop
        count = tir.const_int(loop.extent)
        if count is None or count < 2 or loop.step is not None or not all(map(_is_store, loop.body)):
            return loop
        columns = self._columns(loop)
        if not columns:
            return loop
        width = min(self._width(load.dtype, count) for load in columns)
        return self._transpose_columns(loop, columns, width, count) if width > 1 else loop

    def _width(self, dtype: DType, count: int) -> int:
        """Return the number of columns of one transpose: a power of two that divides the lanes."""
        width = min(self._vector_bytes // dtype.element.bytes, _MAX_ROWS, count)
        while width > 1 and (dtype.lanes % width or width & (width - 1)):
            width -= 1
        return width

    def _columns(self, loop: tir.For) -> list[tir.BufferLoad]:
        """Return the strided (column) loads of a body that stores elsewhere: candidates for a register transpose."""
        stored = {self._aliases.of(s.buffer.data).root for s in loop.body}  # type: ignore[attr-defined]
        columns = [n for n in _unconditional_loads(loop.body) if _is_column(n, loop.var)]
        safe = None not in stored and stored.isdisjoint(self._aliases.of(load.buffer.data).root for load in columns)
        return columns if safe else []

    def _transpose_columns(
        self, loop: tir.For, columns: Sequence[tir.BufferLoad], width: int, count: int
    ) -> list[Stmt]:
        chunk = tir.Var(f"{loop.var.name}_at", loop.var.dtype)
        chunks, rest = divmod(count, width)
        first = loop.min if chunks == 1 else c.add(loop.min, c.mul(chunk, width))
        body = self._block(loop, columns, width, first)
        statements: list[Stmt] = list(body)
        if chunks > 1:
            statements = [tir.For(chunk, c.const(0, chunk.dtype), c.const(chunks, chunk.dtype), ForKind.SERIAL, body)]
        for n in range(count - rest, count):
            statements += copy_body(loop.body, {loop.var: c.add(loop.min, n)})
        return statements

    def _block(self, loop: tir.For, columns: Sequence[tir.BufferLoad], width: int, first: Expr) -> Body:
        """Return the code of `width` iterations from `first` on."""
        statements: list[Stmt] = []
        values: list[dict[tir.BufferLoad, Expr]] = [{} for _ in range(width)]
        for load in columns:
            for at, value in enumerate(_columns_of(load, loop.var, width, first, statements)):
                values[at][load] = value
        for at, value_of in enumerate(values):
            body = tuple(_replaced(stmt, value_of) for stmt in loop.body)
            statements += copy_body(body, {loop.var: c.add(first, at)})
        return tuple(statements)


def _unconditional_loads(body: Body) -> Iterator[tir.BufferLoad]:
    """Yield the unconditional loads of a body. A conditional load may be out of bounds where its condition fails."""
    stack: list[Node] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, tir.BufferLoad):
            yield node
        if isinstance(node, tir.Call) and node.op == tir.Op("tir.if_then_else"):
            stack.append(node.args[0])
        elif isinstance(node, (tir.And, tir.Or)):
            stack.append(node.lhs)
        elif not isinstance(node, (tir.Select, tir.Buffer)):
            stack.extend(children(node))


def _is_store(stmt: Stmt) -> bool:
    return isinstance(stmt, tir.BufferStore) and all(map(is_pure, stmt.indices))


def _is_column(load: tir.BufferLoad, var: tir.Var) -> bool:
    """Return True if the lanes of a load are strided and the load moves by one element with the variable."""
    index = load.indices[0]
    if not isinstance(index, tir.Ramp) or not is_pure(index) or var in used_vars(index.stride):
        return False
    stride = tir.const_int(index.stride)
    whole = load.buffer.dtype.lanes == 1 and load.dtype.element.bits in (8, 16, 32, 64) and not load.dtype.is_bool
    form = linear_form(index.base, {var}, {})
    near = stride is not None and abs(stride) < _MIN_STRIDE
    return whole and not near and form is not None and form.terms == {var: 1}


def _columns_of(load: tir.BufferLoad, var: tir.Var, width: int, first: Expr, stmts: list[Stmt]) -> list[Expr]:
    """Return the column vectors of a load in `width` iterations; append the loads of rows and shuffles to `stmts`."""
    index = load.indices[0]
    assert isinstance(index, tir.Ramp)
    base = substitute(index.base, {var: first})
    dtype = load.dtype.element.with_lanes(width)
    one = c.const(1, index.base.dtype)
    parts = []
    for group in range(0, index.lanes, width):
        rows: list[Expr] = []
        for row in range(group, group + width):
            start = c.add(base, c.mul(index.stride, row))
            ramp = tir.Ramp(index.base.dtype.with_lanes(width), start, one, width)
            rows.append(_bind_value("row", tir.BufferLoad(dtype, load.buffer, (ramp,)), stmts))
        parts.append(_transpose_square(rows, dtype, stmts))
    return [_concatenate([part[n] for part in parts], stmts) for n in range(width)]


def _transpose_square(rows: list[Expr], dtype: DType, stmts: list[Stmt]) -> list[Expr]:
    """Transpose a square of vectors in log2(n) steps of shuffles, each between blocks twice as large as before."""
    width = len(rows)
    step = 1
    while step < width:
        transposed = list(rows)
        for low in (n for n in range(width) if not n & step):
            pair = (rows[low], rows[low + step])
            near = [j if not j & step else width + j - step for j in range(width)]
            far = [j + step if not j & step else width + j for j in range(width)]
            transposed[low] = _bind_value("turned", _shuffle(dtype, pair, near), stmts)
            transposed[low + step] = _bind_value("turned", _shuffle(dtype, pair, far), stmts)
        rows, step = transposed, step * 2
    return rows


def _concatenate(parts: list[Expr], stmts: list[Stmt]) -> Expr:
    """Return the concatenation of vectors."""
    while len(parts) > 1:
        pairs = []
        for one, other in zip(parts[::2], parts[1::2], strict=False):
            lanes = one.dtype.lanes + other.dtype.lanes
            value = _shuffle(one.dtype.with_lanes(lanes), (one, other), range(lanes))
            pairs.append(_bind_value("column", value, stmts))
        parts = pairs + ([parts[-1]] if len(parts) % 2 else [])
    return parts[0]


def _shuffle(dtype: DType, vectors: tuple[Expr, ...], lanes: Sequence[int]) -> tir.Shuffle:
    return tir.Shuffle(dtype, vectors, tuple(c.const(n) for n in lanes))


def _bind_value(name: str, value: Expr, stmts: list[Stmt]) -> tir.Var:
    var = tir.Var(name, value.dtype)
    stmts.append(tir.Bind(var, value))
    return var


def _replaced(stmt: Stmt, values: dict[tir.BufferLoad, Expr]) -> Stmt:
    """Return a statement with loads replaced by values."""
    return map_children(stmt, partial(_value_of, values=values))


def _value_of(node: Any, values: dict[tir.BufferLoad, Expr]) -> Any:
    if isinstance(node, tir.BufferLoad) and node in values:
        return values[node]
    return node if isinstance(node, (tir.Var, tir.Buffer)) else map_children(node, partial(_value_of, values=values))


@dataclass(frozen=True)
class TransposeRegisters(LoweringStep):
    """Load blocks that are stored along one axis and read along another row by row, and transpose them in registers.

    Before:  for j in range(8): C[j * 64 : j * 64 + 8] = A[T.Ramp(j, 64, 8)]
    After:   eight rows of A as vectors, shuffled into eight columns that are stored
    """

    name: ClassVar[str] = "transpose-registers"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return transpose_registers(func, options)

"""Tensors computed by statements, for operations without an expression per element, such as a sort or a scan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mlcc.ir import construct, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.te.scalar import Operand, Scalar, to_expr
from mlcc.te.tensor import Extern, Operation, Tensor, dimensions

Statements = tir.Stmt | Iterable[Any]


def extern(
    shape: Any, inputs: Sequence[Tensor], fcompute: Callable[..., Any], name: str = "extern", dtype: Any = None,
    tag: str = "", scratch: Sequence[tir.Buffer] = (),
) -> Any:  # fmt: skip
    """The tensor of `shape` that the statements `fcompute(input buffers, output buffers)` write; several tensors if
    `shape` is a list of shapes.

    `dtype` is one for all, a list, or by default the first input's. `scratch` are buffers of the statements' own.
    """
    several = bool(shape) and all(isinstance(s, (tuple, list)) for s in shape)
    shapes = [dimensions(s) for s in shape] if several else [dimensions(shape)]
    dtypes = list(dtype) if isinstance(dtype, (tuple, list)) else [dtype or inputs[0].dtype] * len(shapes)
    labels = [name] if len(shapes) == 1 else [f"{name}_v{i}" for i in range(len(shapes))]
    outs = [construct.make_buffer(n, s, DType.of(d)) for n, s, d in zip(labels, shapes, dtypes, strict=True)]
    statements = fcompute([t.buffer for t in inputs], outs)
    body = (tir.Evaluate(statements),) if isinstance(statements, tir.Expr) else flatten_statements(statements)
    op = Operation(name, tag=tag, extern=Extern(tuple(inputs), body, tuple(scratch)))
    op.outputs.extend(Tensor(op, buffer, i) for i, buffer in enumerate(outs))
    return tuple(op.outputs) if several else op.outputs[0]


# ---------------------------------------------------------------- statements


def flatten_statements(statements: Statements) -> tuple[tir.Stmt, ...]:
    """Statements from nested lists of them."""
    if isinstance(statements, tir.Stmt):
        return (statements,)
    return tuple(s for part in statements for s in flatten_statements(part))


def loop(
    extent: Operand, body: Callable[[Scalar], Statements], name: str = "i", begin: Operand = 0,
    kind: tir.ForKind = tir.ForKind.SERIAL,
) -> tir.For:  # fmt: skip
    """`for name in range(begin, begin + extent)` in int64."""
    var = tir.Var(name, INT64)
    low, count = (construct.cast(INT64, to_expr(v)) for v in (begin, extent))
    return tir.For(var, low, count, kind, flatten_statements(body(Scalar(var))))


def grid(extents: Sequence[Operand], body: Callable[..., Statements], prefix: str = "ax") -> tuple[tir.Stmt, ...]:
    """Nested loops, with `body` called with all of their variables."""

    def nest(at: int, variables: tuple[Scalar, ...]) -> Statements:
        if at == len(extents):
            return body(*variables)
        return loop(extents[at], lambda i: nest(at + 1, (*variables, i)), f"{prefix}{at}")

    return flatten_statements(nest(0, ()))


THREADS = 256  # of a block, in loops over threads


def thread_loop(count: Operand, body: Callable[[Scalar], Statements]) -> tir.For:
    """`body(i)` for every i below `count` (int64) by a thread of its own, in blocks of THREADS."""
    total = Scalar(construct.cast(INT64, to_expr(count)))

    def body_of_thread(block: Scalar, thread: Scalar) -> Statements:
        at = block * THREADS + thread
        return if_then(at < total, body(at))

    blocks = (total + (THREADS - 1)) // THREADS
    return thread_bound_loop(
        blocks, "blockIdx.x", lambda b: thread_bound_loop(THREADS, "threadIdx.x", lambda t: body_of_thread(b, t))
    )


def thread_bound_loop(extent: Operand, axis: str, body: Callable[[Scalar], Statements]) -> tir.For:
    """A loop in int64 whose iterations are threads, or blocks of them, along an axis."""
    var = tir.Var(axis.replace(".", "_"), INT64)
    count = construct.cast(INT64, to_expr(extent))
    return tir.For(
        var, construct.const(0, INT64), count, tir.ForKind.THREAD_BINDING, flatten_statements(body(Scalar(var))), axis
    )


def row_major_offset(at: Sequence[Operand], shape: Sequence[Operand]) -> Scalar:
    """The number of an element among all, row by row."""
    place = construct.const(0, INT64)
    for index, extent in zip(at, shape, strict=True):
        place = construct.add(construct.mul(place, to_expr(extent)), to_expr(index))
    return Scalar(place)


def if_then(condition: Operand, then: Statements, otherwise: Statements | None = None) -> tir.IfThenElse:
    other = None if otherwise is None else flatten_statements(otherwise)
    return tir.IfThenElse(to_expr(condition), flatten_statements(then), other)


def while_loop(condition: Operand, body: Statements) -> tir.While:
    """`body` as long as the condition holds."""
    return tir.While(to_expr(condition), flatten_statements(body))


class BufferElements:
    """A buffer's elements: `cells[i, j]` is a value, `cells.set(value, i, j)` a statement."""

    def __init__(self, buffer: tir.Buffer) -> None:
        self.buffer = buffer

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def shape(self) -> tuple[Scalar, ...]:
        return tuple(Scalar(d) for d in self.buffer.shape)

    def __getitem__(self, at: Any) -> Scalar:
        indices = at if isinstance(at, tuple) else (at,)
        return Scalar(construct.load(self.buffer, *map(to_expr, indices)))

    def set(self, value: Operand, *at: Operand) -> tir.BufferStore:
        expr = to_expr(value, self.dtype)
        if expr.dtype is not self.dtype:
            expr = construct.cast(self.dtype, expr)
        return construct.store(self.buffer, expr, *map(to_expr, at))


def scratch(name: str, shape: Sequence[Operand], dtype: DType | str = INT64, scope: str = "global") -> BufferElements:
    """A buffer for `extern(scratch=...)`."""
    dims = tuple(construct.cast(INT64, to_expr(d)) for d in shape)
    return BufferElements(construct.make_buffer(name, dims, DType.of(dtype), scope=scope))

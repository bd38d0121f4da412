"""Short ways to write PrimFuncs for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, DType
from mlcc.ir.node import Attrs
from mlcc.ir.tir import Expr, ForKind, Stmt


def var(name: str, dtype: str = "int32") -> tir.Var:
    return tir.Var(name, DType.of(dtype))


def loop(
    v: tir.Var, extent: Expr | int, body: Stmt | Sequence[Stmt], kind: ForKind = ForKind.SERIAL, start: Expr | int = 0,
    step: Expr | int | None = None, thread: str | None = None,
) -> tir.For:  # fmt: skip
    stmts = (body,) if isinstance(body, Stmt) else tuple(body)
    low, count = c.as_expr(start, v.dtype), c.as_expr(extent, v.dtype)
    return tir.For(v, low, count, kind, stmts, thread, step=None if step is None else c.as_expr(step, v.dtype))


def block(
    name: str, axes: Sequence[tuple[tir.Var, Expr | int, str, Expr]], body: Stmt | Sequence[Stmt],
    init: Stmt | None = None, where: Expr = tir.TRUE, allocs: Sequence[tir.Buffer] = (),
    matches: Sequence[tir.MatchBufferRegion] = (),
) -> tir.BlockRealize:  # fmt: skip
    """A block; axes are (variable, extent, kind letter, value)."""
    kinds = {"S": tir.IterKind.SPATIAL, "R": tir.IterKind.REDUCE}
    iters = tuple(
        tir.IterVar(v, tir.Range(c.const(0, v.dtype), c.as_expr(n, v.dtype)), kinds[k]) for v, n, k, _ in axes
    )
    stmts = (body,) if isinstance(body, Stmt) else tuple(body)
    made = tir.Block(name, iters, (), (), stmts, None if init is None else (init,), tuple(allocs), tuple(matches))
    return tir.BlockRealize(tuple(value for *_, value in axes), where, made)


def func(params: Sequence[tir.Buffer | tir.Var], body: Stmt | Sequence[Stmt], **attrs: object) -> tir.PrimFunc:
    """A function of buffers and scalars; with `tir.noalias`, as most are."""
    made = tuple(p if isinstance(p, tir.Var) else tir.Var(p.name.lower(), DType.of("handle")) for p in params)
    buffers = tuple(None if isinstance(p, tir.Var) else p for p in params)
    stmts = (body,) if isinstance(body, Stmt) else tuple(body)
    return tir.PrimFunc(made, buffers, Attrs({"tir.noalias": True, **attrs}), stmts)


def elementwise(
    count: int,
    inputs: Sequence[str],
    results: Sequence[tuple[str, Callable[..., Expr]]],
    kind: ForKind = ForKind.SERIAL,
) -> tir.PrimFunc:
    """`out[i] = fn(in0[i], in1[i], ...)` for each (dtype, fn) of `results`."""
    i = tir.Var("i", INT32)
    given = [c.make_buffer(f"A{n}", (count,), t) for n, t in enumerate(inputs)]
    made = [c.make_buffer(f"B{n}", (count,), t) for n, (t, _) in enumerate(results)]
    loads = [c.load(b, i) for b in given]
    stores = [tir.BufferStore(b, fn(*loads), (i,)) for b, (_, fn) in zip(made, results, strict=True)]
    return func([*given, *made], loop(i, count, stores, kind))


def call(name: str, dtype: str | None = None) -> Callable[..., Expr]:
    """An intrinsic as a function of expressions; its dtype is that of the first argument unless given."""
    return lambda *args: c.call(dtype or args[0].dtype, name, *args)


def node(kind: type[tir.BinaryOp]) -> Callable[[Expr, Expr], Expr]:
    """A binary operator, unfolded."""
    if issubclass(kind, (tir.CompareOp, tir.And, tir.Or)):
        return lambda a, b: kind(DType.of("bool").with_lanes(a.dtype.lanes), a, b)
    return lambda a, b: kind(a.dtype, a, b)


# ---------------------------------------------------------------- arrays of every dtype


def storage(dtype: str) -> np.dtype:
    """How NumPy holds a dtype; bfloat16 as its bits."""
    return np.dtype({"bfloat16": "uint16"}.get(dtype, dtype))


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """float32 values rounded to bfloat16, as bits; any NaN as one."""
    bits = values.astype("float32").view("uint32").astype("uint64")
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("uint16")
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype("uint32") << 16).view("float32")

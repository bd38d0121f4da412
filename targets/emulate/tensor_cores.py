"""Warp-level matrix instructions as loop code over the lanes; fragments have PTX's layout (`mma_layout`).

Products are accumulated in float32 (int32 for 8-bit integers, float64 for doubles), in the order of k, and rounded once
to the accumulator's type. `tf32` keeps the sign, the exponent and the first 10 bits of a float32's fraction.
"""

from __future__ import annotations

from collections.abc import Callable

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, DType
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.gpu.mma_layout import DTYPES, Mma
from mlcc.targets.emulate.collectives import GROUPS, Gathered
from mlcc.targets.emulate.threads import WARP


def _loop(name: str, extent: int) -> tuple[tir.Var, Callable[..., Stmt]]:
    var = tir.Var(name, INT32)

    def build(*body: Stmt) -> Stmt:
        return tir.For(var, c.const(0), c.const(extent), ForKind.SERIAL, body)

    return var, build


def fragment(g: Gathered, at: int, thread: Expr, dtype: DType, size: int) -> tuple[Stmt, tir.Buffer]:
    """Declare a thread's elements of a fragment, at the pointer argument `at` and the offset after it."""
    kind = tir.Call(dtype, tir.Op("tir.type_annotation"), ())
    pointer = c.call("handle", "tvm_access_ptr", kind, g.arg(at, thread), g.arg(at + 1, thread), 0, 3)
    buffer = c.make_buffer(f"part{at}", (size,), dtype, "local")
    return tir.DeclBuffer(buffer, pointer), buffer


def _mma(g: Gathered, first: Expr) -> list[Stmt]:
    texts = [a.value if isinstance(a, tir.StringImm) else "" for a in g.call.args[:6]]
    product = Mma.of(texts[0], *texts[3:6])
    if product is None or texts[1:3] != ["row", "col"]:
        raise CompileError(error("E0749", f"`T.ptx_mma` of {' '.join(texts)} is not supported", g.call.span))
    row, rows = _loop("row", product.m)
    column, columns = _loop("column", product.n)
    k, steps = _loop("k", product.k)
    a_count, b_count, c_count = product.counts
    lane_a, at_a = product.place_a(row, k)
    lane_b, at_b = product.place_b(k, column)
    lane_c, at_c = product.place_c(row, column)
    a_dtype, b_dtype, dtype = (DType.of(DTYPES[t]) for t in (product.a, product.b, product.accumulator))
    decl_a, a = fragment(g, 6, c.add(first, lane_a), a_dtype, a_count)
    decl_b, b = fragment(g, 8, c.add(first, lane_b), b_dtype, b_count)
    decl_c, acc = fragment(g, 10, c.add(first, lane_c), dtype, c_count)
    wide = DType.of("int32" if dtype.is_int else "float64" if dtype.bits == 64 else "float32")
    total = c.make_buffer("total", (1,), wide, "local")
    factors = [
        _rounded_operand(c.load(x, i), wide, kind) for x, i, kind in ((a, at_a, product.a), (b, at_b, product.b))
    ]
    add = c.store(total, c.add(c.load(total, 0), c.mul(*factors)), 0)
    inner = (
        decl_c, tir.AllocBuffer(total), c.store(total, c.cast(wide, c.load(acc, at_c)), 0), steps(decl_a, decl_b, add),
        c.store(acc, c.cast(dtype, c.load(total, 0)), at_c),
    )  # fmt: skip
    all_active = g.is_active(c.add(first, WARP - 1))
    return [tir.IfThenElse(all_active, (rows(columns(*inner)),))]


def _rounded_operand(value: Expr, wide: DType, kind: str) -> Expr:
    """Convert an element as `ptx_mma` does, which rounds to tf32 to nearest, halfway cases away from zero."""
    if kind != "tf32":
        return operand(value, wide, kind)
    bits = tir.Call(DType.of("uint32"), tir.Op("tir.reinterpret"), (value,))
    nearest = tir.Call(value.dtype, tir.Op("tir.reinterpret"), (c.add(bits, c.const(1 << 12, bits.dtype)),))
    is_nan = tir.Call(DType.of("bool"), tir.Op("tir.isnan"), (value,))
    return c.call(wide, "if_then_else", is_nan, value, operand(nearest, wide, kind))


def operand(value: Expr, wide: DType, kind: str) -> Expr:
    """Convert an element as tensor cores do for PTX's type `kind`."""
    if kind != "tf32":
        return c.cast(wide, value)
    bits = tir.Call(DType.of("uint32"), tir.Op("tir.reinterpret"), (value,))
    tf32 = tir.Call(bits.dtype, tir.Op("tir.bitwise_and"), (bits, c.const(0xFFFFE000, bits.dtype)))
    return tir.Call(wide, tir.Op("tir.reinterpret"), (tf32,))


def _ldmatrix(g: Gathered, first: Expr) -> list[Stmt]:
    """Lane 8 * i + r provides row r of matrix i (`copies.load_matrix_row`); lane l gets pair l of rows or columns."""
    trans, count = (tir.const_int(a) or 0 for a in g.call.args[:2])
    dtype = DType.of("uint16")
    lane, lanes = _loop("lane", WARP)
    matrix, matrices = _loop("matrix", count)
    pair, pairs = _loop("pair", 2)
    thread = c.add(first, lane)
    outer, inner = c.floordiv(lane, 4), c.add(c.mul(c.floormod(lane, 4), 2), pair)
    row, column = (inner, outer) if trans else (outer, inner)
    decl_target, _ = fragment(g, 3, thread, g.call.dtype.element, 2 * count)
    assert isinstance(decl_target, tir.DeclBuffer)
    target = c.make_buffer("words", (2 * count,), dtype, "local")
    decl_source, source = fragment(g, 5, c.add(first, c.add(c.mul(matrix, 8), row)), dtype, 8)
    move = c.store(target, c.load(source, column), c.add(c.mul(matrix, 2), pair))
    body = lanes(tir.DeclBuffer(target, decl_target.data), matrices(pairs(decl_source, move)))
    return [tir.IfThenElse(g.is_active(c.add(first, WARP - 1)), (body,))]


GROUPS.update({"tir.ptx_mma": (WARP, _mma), "tir.ptx_ldmatrix": (WARP, _ldmatrix)})

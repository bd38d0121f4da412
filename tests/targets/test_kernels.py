"""Whole functions: blocks, loops, branches, shapes, strides."""

from __future__ import annotations

import numpy as np
import pytest

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import ForKind
from tests.targets.build import block, call, func, loop, var
from tests.targets.harness import Native


def matmul(n: int, m: int, k: int, j_kind: ForKind = ForKind.SERIAL, order: str = "ijk") -> tir.PrimFunc:
    a, b, o = c.make_buffer("A", (n, k)), c.make_buffer("B", (k, m)), c.make_buffer("C", (n, m))
    loops = {x: var(x) for x in "ijk"}
    vi, vj, vk = var("vi"), var("vj"), var("vk")
    update = c.store(o, c.add(c.load(o, vi, vj), c.mul(c.load(a, vi, vk), c.load(b, vk, vj))), vi, vj)
    body: tir.Stmt = block(
        "C",
        [(vi, n, "S", loops["i"]), (vj, m, "S", loops["j"]), (vk, k, "R", loops["k"])],
        update,
        c.store(o, 0.0, vi, vj),
    )
    sizes = {"i": n, "j": m, "k": k}
    for x in reversed(order):
        body = loop(loops[x], sizes[x], body, j_kind if x == "j" else ForKind.SERIAL)
    return func([a, b, o], body)


@pytest.mark.parametrize("kind", [ForKind.SERIAL, ForKind.VECTORIZED, ForKind.UNROLLED, ForKind.PARALLEL])
@pytest.mark.parametrize("order", ["ijk", "ikj", "kij"])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 5, 7), (16, 64, 8), (2, 130, 3)])
def test_matmul_matches_numpy(sizes: tuple[int, int, int], order: str, kind: ForKind) -> None:
    n, m, k = sizes
    rng = np.random.default_rng(0)
    a, b = rng.random((n, k), "float32"), rng.random((k, m), "float32")
    out = np.full((n, m), np.nan, "float32")
    assert Native(matmul(n, m, k, kind, order))(a, b, out) == 0
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)


def test_empty_reduction_runs_its_init() -> None:
    out = np.full((2, 3), 7, "float32")
    assert Native(matmul(2, 3, 0))(np.zeros((2, 0), "float32"), np.zeros((0, 3), "float32"), out) == 0
    assert not out.any()


def test_predicates_and_split_axes_match_numpy() -> None:
    """10 elements by 3 x 4, guarded; the reduction is split as well and starts anew for each element."""
    a, b = c.make_buffer("A", (10, 6)), c.make_buffer("B", (10,))
    io, ii, ko, ki = (var(x) for x in ("io", "ii", "ko", "ki"))
    vi, vk = var("vi"), var("vk")
    i, k = c.add(c.mul(io, 4), ii), c.add(c.mul(ko, 4), ki)
    body = block(
        "sum", [(vi, 10, "S", i), (vk, 6, "R", k)], c.store(b, c.add(c.load(b, vi), c.load(a, vi, vk)), vi),
        c.store(b, 100.0, vi), where=c.logical_and(c.less(i, 10), c.less(k, 6)),
    )  # fmt: skip
    f = func([a, b], loop(io, 3, loop(ii, 4, loop(ko, 2, loop(ki, 4, body)))))
    data, out = np.arange(60, dtype="float32").reshape(10, 6), np.zeros(10, "float32")
    assert Native(f)(data, out) == 0
    np.testing.assert_array_equal(out, data.sum(1) + 100)


def test_nested_blocks_with_init_match_numpy() -> None:
    """The outer block's reduce axis starts the inner accumulation; the inner block has an axis of its own."""
    a, b = c.make_buffer("A", (4, 3, 5)), c.make_buffer("B", (4,))
    i, k, q, vi, vk, vq, vx = (var(x) for x in ("i", "k", "q", "vi", "vk", "vq", "vx"))
    inner = block(
        "inner", [(vx, 4, "S", vi), (vq, 5, "R", q)], c.store(b, c.add(c.load(b, vx), c.load(a, vx, vk, vq)), vx)
    )
    outer = block("outer", [(vi, 4, "S", i), (vk, 3, "R", k)], loop(q, 5, inner), c.store(b, 0.0, vi))
    data, out = np.random.default_rng(1).random((4, 3, 5), "float32"), np.zeros(4, "float32")
    assert Native(func([a, b], loop(i, 4, loop(k, 3, outer))))(data, out) == 0
    np.testing.assert_allclose(out, data.sum((1, 2)), rtol=1e-5)


def transpose(dtype: str) -> tir.PrimFunc:
    n, m = var("n", dtype), var("m", dtype)
    a, b = c.make_buffer("A", (n, m)), c.make_buffer("B", (m, n))
    i, j = var("i", dtype), var("j", dtype)
    return func([a, b], loop(i, n, loop(j, m, c.store(b, c.mul(c.load(a, i, j), 2.0), j, i))))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (5, 7), (64, 33)])
def test_symbolic_shapes_match_numpy(dtype: str, shape: tuple[int, int]) -> None:
    native = Native(transpose(dtype))
    assert [s.name for s in native.kernel.signature.symbols] == ["n", "m"]
    data = np.arange(shape[0] * shape[1], dtype="float32").reshape(shape)
    out = np.zeros(shape[::-1], "float32")
    assert native(data, out, symbols=shape) == 0
    np.testing.assert_array_equal(out, data.T * 2)


def test_scalar_parameters_and_their_symbols() -> None:
    """A scalar that is a parameter is no symbol, and a dimension may be an expression of it."""
    n, scale, flag = var("n", "int64"), var("scale", "float16"), var("flag", "bool")
    a, b = c.make_buffer("A", (c.mul(n, 2),), "float16"), c.make_buffer("B", (c.mul(n, 2),), "float16")
    i = var("i", "int64")
    value = call("if_then_else")(flag, c.mul(c.load(a, i), scale), c.load(a, i))
    value = tir.Call(DType.of("float16"), value.op, value.args)  # type: ignore[attr-defined]
    native = Native(func([n, scale, a, flag, b], loop(i, c.mul(n, 2), c.store(b, value, i))))
    assert native.kernel.signature.symbols == ()
    data = np.arange(6, dtype="float16")
    for on in (True, False):
        out = np.zeros(6, "float16")
        assert native(3, np.float16(1.5), data, np.bool_(on), out) == 0
        np.testing.assert_array_equal(out, data * np.float16(1.5) if on else data)


def test_strides_and_offset_of_parameters() -> None:
    s0, s1, off = var("s0", "int64"), var("s1", "int64"), var("off", "int64")
    a = c.make_buffer("A", (3, 4), "int32", strides=(s0, s1), elem_offset=off, offset_factor=1)
    b = c.make_buffer("B", (3, 4), "int32")
    i, j = var("i"), var("j")
    native = Native(func([a, b], loop(i, 3, loop(j, 4, c.store(b, c.load(a, i, j), i, j)))))
    assert [s.name for s in native.kernel.signature.symbols] == ["s0", "s1", "off"]
    data = np.arange(200, dtype="int32").reshape(10, 20)
    out = np.zeros((3, 4), "int32")
    assert native(data, out, symbols=(40, -3, 65)) == 0
    np.testing.assert_array_equal(out, data.reshape(-1)[65 + 40 * np.arange(3)[:, None] - 3 * np.arange(4)])


def test_match_buffer_of_a_tile() -> None:
    """Tiles of a transposed view, with strides and offset taken from the source, and a view of a view."""
    a, b = c.make_buffer("A", (8, 12), "int32"), c.make_buffer("B", (8, 12), "int32")
    io, jo, i, j, vi, vj = (var(x) for x in ("io", "jo", "i", "j", "vi", "vj"))
    zero = c.const(0)

    def view(
        name: str, source: tir.Buffer, rows: tir.Expr, cols: tir.Expr, shape: tuple[int, int]
    ) -> tir.MatchBufferRegion:
        strides = (var(f"{name}_s0"), c.const(1))
        made = c.make_buffer(name, shape, "int32", strides=strides, elem_offset=var(f"{name}_off"), offset_factor=4)
        region = (tir.Range(rows, c.const(shape[0])), tir.Range(cols, c.const(shape[1])))
        return tir.MatchBufferRegion(made, tir.BufferRegion(source, region))

    top = view("T", a, c.mul(vi, 4), c.mul(vj, 4), (4, 4))
    result = view("R", b, c.mul(vi, 4), c.mul(vj, 4), (4, 4))
    row = view("W", top.buffer, i, zero, (1, 4))
    copy = block(
        "copy", [], loop(j, 4, c.store(result.buffer, c.add(c.load(row.buffer, 0, j), 1), i, j)), matches=[row]
    )
    tile = block("tile", [(vi, 2, "S", io), (vj, 3, "S", jo)], loop(i, 4, copy), matches=[top, result])
    data, out = np.arange(96, dtype="int32").reshape(8, 12), np.zeros((8, 12), "int32")
    assert Native(func([a, b], loop(io, 2, loop(jo, 3, tile))))(data, out) == 0
    np.testing.assert_array_equal(out, data + 1)


def test_match_buffer_without_strides_has_those_of_its_source() -> None:
    """Of a matrix, of a view of it, and of a region whose rows lie apart in one dimension only."""
    a, b = c.make_buffer("A", (6, 8), "int32"), c.make_buffer("B", (6, 8), "int32")
    i, j, vi = var("i"), var("j"), var("vi")
    tile, inner = c.make_buffer("T", (3, 4), "int32"), c.make_buffer("I", (2, 2), "int32")
    region = (tir.Range(c.mul(vi, 3), c.const(3)), tir.Range(c.const(4), c.const(4)))
    part = (tir.Range(c.const(1), c.const(2)), tir.Range(c.const(2), c.const(2)))
    from_tile = tir.MatchBufferRegion(inner, tir.BufferRegion(tile, part))
    one_row = (tir.Range(vi, c.const(1)), tir.Range(c.const(0), c.const(8)))
    row = tir.MatchBufferRegion(c.make_buffer("R", (8,), "int32"), tir.BufferRegion(b, one_row))
    copy = block(
        "copy", [], loop(i, 2, loop(j, 2, c.store(row.buffer, c.load(inner, i, j), c.add(c.mul(i, 2), j)))),
        matches=[from_tile, row],
    )  # fmt: skip
    body = block(
        "b", [(vi, 2, "S", var("io"))], copy, matches=[tir.MatchBufferRegion(tile, tir.BufferRegion(a, region))]
    )
    f = func([a, b], loop(body.values[0], 2, body))  # type: ignore[arg-type]
    data, out = np.arange(48, dtype="int32").reshape(6, 8), np.zeros((6, 8), "int32")
    assert Native(f)(data, out) == 0
    expected = np.zeros((6, 8), "int32")
    expected[0, :4], expected[1, :4] = data[1:3, 6:].ravel(), data[4:6, 6:].ravel()
    np.testing.assert_array_equal(out, expected)


def test_match_buffer_that_does_not_fit_is_an_error() -> None:
    a = c.make_buffer("A", (8, 12), "int32")
    wrong = c.make_buffer("T", (2, 4), "int32", strides=(c.const(4), c.const(1)), elem_offset=var("o"), offset_factor=1)
    region = (tir.Range(c.const(0), c.const(2)), tir.Range(c.const(0), c.const(4)))
    body = block("b", [], c.store(wrong, 1, 0, 0), matches=[tir.MatchBufferRegion(wrong, tir.BufferRegion(a, region))])
    native = Native(func([a], body))
    kind, message = native.error(native(np.zeros((8, 12), "int32")))
    assert kind == "RuntimeError"
    assert "T" in message and "stride 0" in message


def test_zero_dimensional_buffers_match_numpy() -> None:
    a, b = c.make_buffer("A", (), "float64"), c.make_buffer("B", (), "float64")
    out = np.zeros((), "float64")
    assert Native(func([a, b], c.store(b, c.add(c.load(a), 1.0))))(np.array(2.5), out) == 0
    assert out == 3.5


@pytest.mark.parametrize(
    "dtype, low, extent, step, expected",
    [
        ("int32", 2, 5, None, [2, 3, 4, 5, 6]),
        ("int32", -3, 4, None, [-3, -2, -1, 0]),
        ("int32", 0, -4, None, []),
        ("int32", 1, 10, 3, [1, 4, 7, 10]),
        ("int64", 1, 9, 3, [1, 4, 7]),
        ("int32", 10, -9, -4, [10, 6, 2]),
        ("int32", 0, 5, 0, []),
        ("int32", 0, 3, -1, []),
        ("int8", 120, 8, None, list(range(120, 128))),
        ("uint8", 250, 5, None, list(range(250, 255))),
        ("int32", 2**31 - 3, 3, None, [2**31 - 3, 2**31 - 2, 2**31 - 1]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("known", [True, False], ids=["constant", "given"])
def test_loops_over_any_range_run(
    dtype: str, low: int, extent: int, step: int | None, expected: list[int], known: bool
) -> None:
    log, count = c.make_buffer("log", (16,), "int64"), c.make_buffer("count", (1,), "int32")
    v, given = var("v", dtype), [var("low", dtype), var("extent", dtype), var("step", dtype)]
    at = c.load(count, 0)
    body = [c.store(log, c.cast("int64", v), at), c.store(count, c.add(at, 1), 0)]
    if known:
        f = func([*given, log, count], loop(v, extent, body, start=low, step=step))
    else:
        f = func([*given, log, count], loop(v, given[1], body, start=given[0], step=None if step is None else given[2]))
    out, seen = np.zeros(16, "int64"), np.zeros(1, "int32")
    arguments = [np.array(x, dtype)[()] for x in (low, extent, step or 0)]
    assert Native(f)(*arguments, out, seen) == 0
    assert out[: seen[0]].tolist() == expected


def test_unsigned_loops_pass_the_sign_bit() -> None:
    a, v = c.make_buffer("A", (250,), "int32"), var("v", "uint8")
    out = np.zeros(250, "int32")
    assert Native(func([a], loop(v, 250, c.store(a, c.cast("int32", v), v))))(out) == 0
    np.testing.assert_array_equal(out, np.arange(250))


def test_while_break_and_continue_match_python() -> None:
    """Sum the odd numbers below a limit, by a `while` around a `for`, leaving both early."""
    n, out = var("n"), c.make_buffer("out", (2,), "int32")
    i = var("i")
    total, turns = c.load(out, 0), c.load(out, 1)
    is_even = c.equal(c.floormod(i, 2), 0)
    inner = loop(i, 1000, [
        tir.IfThenElse(c.greater_equal(i, n), (tir.Break(),)),
        tir.IfThenElse(is_even, (tir.Continue(),), (c.store(out, c.add(total, i), 0),)),
    ])  # fmt: skip
    outer = tir.While(
        c.less(turns, 10),
        (c.store(out, c.add(turns, 1), 1), inner, tir.IfThenElse(c.equal(turns, 3), (tir.Break(),))),
    )
    result = np.zeros(2, "int32")
    assert Native(func([n, out], outer))(11, result) == 0
    assert result.tolist() == [3 * 25, 3]


def faulting_load(buffer: tir.Buffer) -> tir.Expr:
    """A load that faults if it is ever executed."""
    return c.load(buffer, c.const(1 << 44, "int64"))


def test_nothing_is_loaded_that_is_not_chosen() -> None:
    a, flags = c.make_buffer("A", (4,), "int32"), c.make_buffer("F", (4,), "bool")
    outs = [c.make_buffer(f"B{k}", (4,), "int32") for k in range(4)]
    i = var("i")
    never, always = c.less(c.load(a, i), 0), c.greater_equal(c.load(a, i), 0)
    lazy = call("if_then_else", "int32")(never, faulting_load(a), c.load(a, i))
    select = tir.Select(DType.of("int32"), never, faulting_load(a), c.load(a, i))
    both = c.logical_and(never, c.greater(faulting_load(a), 0))
    either = c.logical_or(always, c.greater(faulting_load(a), 0))
    nested = tir.Select(DType.of("int32"), c.logical_and(never, both), faulting_load(a), c.add(c.load(a, i), 5))
    stores = [
        c.store(outs[0], lazy, i), c.store(outs[1], select, i), c.store(outs[2], c.cast("int32", both), i),
        c.store(outs[3], nested, i), tir.BufferStore(flags, either, (i,)),
    ]  # fmt: skip
    for kind in (ForKind.SERIAL, ForKind.VECTORIZED):
        data, results = np.arange(4, dtype="int32"), [np.zeros(4, "int32") for _ in outs]
        on = np.zeros(4, "bool")
        assert Native(func([a, *outs, flags], loop(i, 4, stores, kind)))(data, *results, on) == 0
        assert [r.tolist() for r in results] == [[0, 1, 2, 3], [0, 1, 2, 3], [0] * 4, [5, 6, 7, 8]]
        assert on.all()


def test_bindings_and_lets_are_evaluated() -> None:
    a, b = c.make_buffer("A", (8,), "int32"), c.make_buffer("B", (8,), "int32")
    i, x, y = var("i"), var("x"), var("y")
    body = [
        tir.Bind(x, c.add(c.load(a, i), 1)),
        c.store(b, tir.Let(DType.of("int32"), y, c.mul(x, x), c.add(y, x)), i),
    ]
    data = np.arange(8, dtype="int32")
    for kind in (ForKind.SERIAL, ForKind.VECTORIZED, ForKind.UNROLLED):
        out = np.zeros(8, "int32")
        assert Native(func([a, b], loop(i, 8, body, kind)))(data, out) == 0
        np.testing.assert_array_equal(out, (data + 1) ** 2 + data + 1)


def test_asserts_carry_their_message() -> None:
    n, a = var("n"), c.make_buffer("A", (4,), "int32")
    body = [
        tir.AssertStmt(c.greater(n, 0), "ValueError", ("n must be ", "positive")),
        tir.AssertStmt(c.less(n, 5), "RuntimeError", ("too many",)),
        c.store(a, n, 0),
    ]
    native = Native(func([n, a], body))
    out = np.zeros(4, "int32")
    assert native(3, out) == 0 and out[0] == 3
    assert native.error(native(0, out)) == ("ValueError", "n must be positive")
    assert native.error(native(9, out)) == ("RuntimeError", "too many")
    assert out[0] == 3


def test_return_ends_the_function() -> None:
    n, a = var("n"), c.make_buffer("A", (2,), "int32")
    ret = tir.Evaluate(tir.Call(DType.of("int32"), tir.Op("tir.ret"), (c.const(0),)))
    body = [c.store(a, 1, 0), tir.IfThenElse(c.equal(n, 0), (ret, c.store(a, 9, 1))), c.store(a, 2, 1)]
    native = Native(func([n, a], body))
    for given, expected in ((0, [1, 0]), (1, [1, 2])):
        out = np.zeros(2, "int32")
        assert native(given, out) == 0
        assert out.tolist() == expected


def test_indices_beyond_32_bits_do_not_wrap() -> None:
    """i * 2**20 passes int32 only as an address: the product is not computed in 32 bits."""
    n = var("n", "int64")
    a = c.make_buffer("A", (c.const(4097), c.const(1 << 20)), "int8")
    b = c.make_buffer("B", (n,), "int8")
    i = var("i")
    f = func([a, b], loop(i, 1, c.store(b, c.load(a, c.add(i, 4096), 3), i)))
    data = np.memmap("/dev/zero", "int8", "c", shape=(4097, 1 << 20))
    data[4096, 3] = 42
    out = np.zeros(1, "int8")
    assert Native(f)(np.asarray(data), out, symbols=(1,)) == 0
    assert out[0] == 42


def test_vector_typed_buffers_match_numpy() -> None:
    a, b = c.make_buffer("A", (3,), "float32x3"), c.make_buffer("B", (3,), "float32x3")
    i = var("i")
    f = func([a, b], loop(i, 3, c.store(b, c.add(c.load(a, i), c.load(a, 0)), i)))
    data, out = np.arange(9, dtype="float32").reshape(3, 3), np.zeros((3, 3), "float32")
    assert Native(f)(data, out) == 0
    np.testing.assert_array_equal(out, data + data[0])


def test_vector_expressions_match_numpy() -> None:
    """Ramps of any stride, broadcasts, shuffles and casts, written out."""
    a, b = c.make_buffer("A", (16,), "float32"), c.make_buffer("B", (6, 4), "float32")
    ramp = lambda base, stride: tir.Ramp(DType.of("int32x4"), c.const(base), c.const(stride), 4)  # noqa: E731
    x, y = c.load(a, ramp(0, 1)), c.load(a, ramp(15, -1))
    picked = tuple(c.const(n) for n in (0, 4, 3, 7))
    values = [
        c.add(x, y), c.load(a, ramp(1, 4)), tir.Broadcast(x.dtype, c.load(a, 5), 4),
        tir.Shuffle(x.dtype, (x, y), picked),
        c.cast("float32x4", c.cast("int32x4", c.mul(x, 1.5))), tir.Select(x.dtype, c.less(x, y), x, y),
    ]  # fmt: skip
    stores = [tir.BufferStore(b, v, (c.const(k), ramp(0, 1))) for k, v in enumerate(values)]
    data, out = np.arange(16, dtype="float32"), np.zeros((6, 4), "float32")
    assert Native(func([a, b], stores))(data, out) == 0
    expected = [[15, 15, 15, 15], [1, 5, 9, 13], [5] * 4, [0, 15, 3, 12], [0, 1, 3, 4], [0, 1, 2, 3]]
    np.testing.assert_array_equal(out, np.array(expected, "float32"))


def test_long_bodies_are_split() -> None:
    """200 loops under a binding and a loop, failures and breaks among them: values and codes cross the parts."""
    n, a, t, r = var("n"), c.make_buffer("A", (4, 2), "int64"), var("t"), var("r")
    body: list[tir.Stmt] = [tir.Bind(t, c.add(n, 1))]
    for k in range(200):
        i, at = var("i"), c.const(1, "int32")
        add = c.store(a, c.add(c.load(a, i, r), c.cast("int64", c.add(t, k))), i, r)
        body.append(loop(i, 4, [tir.IfThenElse(c.equal(i, 3), (tir.Break(),)), add]))
        if k % 50 == 0:
            body.append(tir.AssertStmt(c.less(n, 1000 * (5 - k // 50)), "ValueError", (f"at {k}",)))
        if k == 120:
            body.append(tir.IfThenElse(c.less(n, at), (tir.Break(),)))
    native = Native(func([n, a], loop(r, 2, body)), level=1)
    assert len([f for f in native.ctx.module.functions if f.symbol.startswith("kernel.f.")]) > 5
    out = np.zeros((4, 2), "int64")
    assert native(7, out) == 0
    total = sum(8 + k for k in range(200))
    np.testing.assert_array_equal(out, [[total, total]] * 3 + [[0, 0]])
    assert native.error(native(2500, out)) == ("ValueError", "at 150")
    out[:] = 0
    assert native(0, out) == 0
    np.testing.assert_array_equal(out[0], [sum(1 + k for k in range(121)), 0])


def test_deep_expressions_and_nests_match_numpy() -> None:
    """A chain of 3000 additions and 60 nested loops: depth is no limit that a program meets."""
    a, b = c.make_buffer("A", (4,), "int32"), c.make_buffer("B", (4,), "int32")
    i = var("i")
    value: tir.Expr = c.load(a, i)
    for _ in range(3000):
        value = tir.Add(value.dtype, value, c.load(a, i))
    body: tir.Stmt = loop(i, 4, c.store(b, value, i))
    for k in range(60):
        body = loop(var(f"k{k}"), 1, body)
    data, out = np.arange(4, dtype="int32"), np.zeros(4, "int32")
    assert Native(func([a, b], body), level=1)(data, out) == 0
    np.testing.assert_array_equal(out, data * 3001)

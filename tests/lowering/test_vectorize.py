"""Vectorized loops: which become vectors, and that they compute what the serial loop computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlcc.interp import run_prim_func
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import walk
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.lowering.options import LowerOptions
from tests.lower import lower_func
from tests.targets.build import call, func, loop, var
from tests.targets.harness import Native

VECTOR = ForKind.VECTORIZED


def lanes_of(f: tir.PrimFunc, most: int = 64, **options: Any) -> list[int]:
    """The lanes of each store, in order."""
    lowered = lower_func(f, {}, LowerOptions(vector_lanes=most, **options))
    return [n.value.dtype.lanes for n in walk(lowered) if isinstance(n, tir.BufferStore)]


def one_loop(
    extent: int, body: Callable[[tir.Var, tir.Buffer, tir.Buffer], Stmt | list[Stmt]], size: int = 64
) -> tir.PrimFunc:
    a, b, i = c.make_buffer("A", (size,), "int32"), c.make_buffer("B", (size,), "int32"), var("i")
    return func([a, b], loop(i, extent, body(i, a, b), VECTOR))


def test_long_loops_become_a_loop_of_vectors_and_a_rest() -> None:
    copy = lambda i, a, b: c.store(b, c.load(a, i), i)  # noqa: E731
    assert lanes_of(one_loop(8, copy)) == [8]
    assert lanes_of(one_loop(130, copy, 130)) == [64, 64, 2]
    assert lanes_of(one_loop(330, copy, 330)) == [64, 10]
    assert lanes_of(one_loop(65, copy, 65)) == [64, 1]
    assert lanes_of(one_loop(64, copy), most=8) == [8]
    assert lanes_of(one_loop(64, copy), most=16) == [16] * 4  # a tile of a few vectors
    assert lanes_of(one_loop(64, copy), vector_bytes=16) == [16] * 4
    assert lanes_of(one_loop(1, copy)) == [1]
    assert lanes_of(one_loop(0, copy)) == [1]


@pytest.mark.parametrize(
    "body",
    [
        lambda i, a, b: c.store(b, c.add(c.load(b, 0), c.load(a, i)), 0),  # a reduction
        lambda i, a, b: c.store(a, c.load(a, c.add(i, 1)), i),
        lambda i, a, b: c.store(a, c.load(a, 3), i),
        lambda i, a, b: c.store(a, c.load(a, i), c.mul(i, 2)),
        lambda i, a, b: c.store(b, i, c.load(a, i)),  # a scatter
        lambda i, a, b: c.store(b, i, c.floordiv(i, 2)),
        lambda i, a, b: [c.store(b, 1, i), c.store(b, 2, c.sub(7, i))],
        lambda i, a, b: [c.store(b, 1, i), c.store(b, c.load(b, c.add(i, 7)), c.add(i, 8))],
        lambda i, a, b: [c.store(b, i, c.mul(i, 2)), c.store(b, 7, c.add(c.mul(i, 2), 6))],
        lambda i, a, b: loop(var("k"), 3, c.store(b, 1, i)) and loop(k := var("k"), 3, c.store(b, k, c.add(i, k))),
    ],
)  # fmt: skip
def test_dependent_iterations_stay_serial(body: Callable[..., Stmt | list[Stmt]]) -> None:
    assert set(lanes_of(one_loop(8, body))) == {1}


@pytest.mark.parametrize(
    "body",
    [
        lambda i, a, b: c.store(b, c.add(c.load(b, i), c.load(a, 3)), i),
        lambda i, a, b: c.store(b, c.load(a, c.floormod(c.mul(i, i), 8)), i),  # a gather
        lambda i, a, b: c.store(b, 1, c.sub(7, i)),
        lambda i, a, b: c.store(b, c.load(b, c.mul(i, 2)), c.mul(i, 2)),
        lambda i, a, b: [c.store(b, 1, i), c.store(b, c.add(c.load(b, i), 2), i)],
        lambda i, a, b: loop(k := var("k"), 8, c.store(b, c.load(b, c.add(i, c.mul(k, 8))), c.add(i, c.mul(k, 8)))),
        lambda i, a, b: loop(k := var("k"), 4, c.store(b, c.load(b, c.add(c.mul(i, 4), k)), c.add(c.mul(i, 4), k))),
        lambda i, a, b: c.store(b, call("if_then_else", "int32")(c.less(c.load(a, 0), 3), c.load(a, i), 7), i),
        lambda i, a, b: c.store(b, tir.Select(DType.of("int32"), c.less(i, 3), i, c.mul(i, 2)), i),
        lambda i, a, b: tir.IfThenElse(c.less(c.load(a, 0), 3), (c.store(b, c.load(a, i), i),)),
        lambda i, a, b: [c.store(b, c.load(a, i), i), c.store(b, c.load(b, c.add(i, 8)), c.add(i, 16))],  # far apart
        lambda i, a, b: [c.store(b, i, c.mul(i, 2)), c.store(b, 7, c.add(c.mul(i, 2), 3))],  # in between
    ],
)  # fmt: skip
def test_independent_iterations_become_vectors(body: Callable[..., Stmt | list[Stmt]]) -> None:
    assert set(lanes_of(one_loop(8, body))) == {8}


def test_a_guard_on_lanes_keeps_vectors_where_it_holds_for_all() -> None:
    """The loop over 10 elements by 4: two vectors and, in the last turn, a mask, or lane by lane."""
    a, b, o, i = c.make_buffer("A", (10,), "int32"), c.make_buffer("B", (10,), "int32"), var("o"), var("i")
    at = c.add(c.mul(o, 4), i)
    f = func([a, b], loop(o, 3, loop(i, 4, tir.IfThenElse(c.less(at, 10), (c.store(b, c.load(a, at), at),)), VECTOR)))
    assert lanes_of(f) == [4, 4]
    assert lanes_of(f, edge_limit=0, mask_bits=frozenset()) == [4, 1]
    assert lanes_of(f, edge_limit=0, cheap_masks=False) == [4, 4]
    data, out = np.arange(10, dtype="int32"), np.full(12, -1, "int32")
    assert Native(f)(data, out) == 0
    assert out.tolist() == [*range(10), -1, -1]


@pytest.mark.parametrize(("bound", "lanes"), [(8, 1), (10, 4)])
def test_conditions_that_all_lanes_answer_alike(bound: int, lanes: int) -> None:
    """Lanes from a multiple of 4 on lie all below 8 or none does, and all below 10 or some do."""
    a, b, o, i = c.make_buffer("A", (16,), "int32"), c.make_buffer("B", (16,), "int32"), var("o"), var("i")
    at = c.add(c.mul(o, 4), i)
    rows = c.call("int32", "if_then_else", c.less(c.floormod(at, 16), bound), c.load(a, at), 0)
    f = func([a, b], loop(o, 4, loop(i, 4, c.store(b, rows, at), VECTOR)))
    (choice,) = [n for n in walk(lower_func(f)) if isinstance(n, tir.Call) and n.op == tir.Op("tir.if_then_else")]
    assert choice.args[0].dtype.lanes == lanes
    data, out = np.arange(16, dtype="int32"), np.zeros(16, "int32")
    assert Native(f)(data, out) == 0
    assert out.tolist() == [n if n < bound else 0 for n in range(16)]


def test_statements_without_vector_form_go_lane_by_lane() -> None:
    """Only the call is taken apart, not its neighbours."""
    a, b, i = c.make_buffer("A", (8,), "float32"), c.make_buffer("B", (8,), "float32"), var("i")
    odd = c.call("float32", "call_pure_extern", "tgammaf", c.load(a, i))
    f = func([a, b], loop(i, 8, [c.store(a, c.add(c.load(a, i), 1.0), i), c.store(b, odd, i)], VECTOR))
    assert lanes_of(f) == [8, 1]


def test_ramps_of_scaled_and_shifted_indices() -> None:
    """Rows of a matrix by lane: a ramp with the row's stride, also when indices are widened."""
    n = var("n", "int64")
    a, b, i, j = c.make_buffer("A", (8, n), "int32"), c.make_buffer("B", (n, 8), "int32"), var("i"), var("j", "int64")
    f = func([a, b], loop(j, n, loop(i, 8, c.store(b, c.load(a, i, j), j, i), VECTOR)))
    lowered = lower_func(f)
    (store,) = [x for x in walk(lowered) if isinstance(x, tir.BufferStore)]
    assert isinstance(store.indices[0], tir.Ramp) and tir.const_int(store.indices[0].stride) == 1
    assert isinstance(store.value, tir.BufferLoad) and isinstance(store.value.indices[0], tir.Ramp)
    data, out = np.arange(40, dtype="int32").reshape(8, 5), np.zeros((5, 8), "int32")
    assert Native(f)(data, out, symbols=(5,)) == 0
    np.testing.assert_array_equal(out, data.T)


def indices_of(f: tir.PrimFunc) -> list[str]:
    """The kinds of the indices of loads."""
    indices = [n.indices[0] for n in walk(lower_func(f)) if isinstance(n, tir.BufferLoad)]
    return [type(i).__name__ if i.dtype.lanes > 1 else "scalar" for i in indices]


@pytest.mark.parametrize(
    "make, kind",
    [
        (lambda at, i: c.floordiv(at, 4), "scalar"),  # four lanes of one quotient
        (lambda at, i: c.floormod(at, 8), "Ramp"),
        (lambda at, i: c.floordiv(at, 6), "FloorDiv"),  # lanes on both sides of a multiple
        (lambda at, i: c.floordiv(c.mul(at, 8), 4), "Ramp"),
        (lambda at, i: c.floormod(c.add(c.mul(at, 8), 3), 4), "scalar"),
        (lambda at, i: c.add(c.mul(c.floordiv(at, 8), 8), c.floormod(at, 8)), "Ramp"),
    ],
)
def test_quotients_of_ramps_stay_contiguous(make: Callable[..., Expr], kind: str) -> None:
    """Indices of reshaped tensors stay contiguous where lanes do not cross a row."""
    a, b, o, i = c.make_buffer("A", (64,), "int32"), c.make_buffer("B", (16,), "int32"), var("o"), var("i")
    at = c.add(c.mul(o, 4), i)
    f = func([a, b], loop(o, 4, loop(i, 4, c.store(b, c.load(a, make(at, i)), at), VECTOR)))
    assert indices_of(f) == [kind]
    data, out = np.arange(64, dtype="int32") * 3, np.zeros(16, "int32")
    assert Native(f)(data, out) == 0
    expected = np.zeros(16, "int32")
    run_prim_func(f, [data, expected])
    np.testing.assert_array_equal(out, expected)


def aliased(view_type: str, pointer: Callable[[tir.Buffer], Expr], store_first: bool) -> tir.PrimFunc:
    """A loop that writes through one name of a memory and reads through another."""
    a, b, i = c.make_buffer("A", (16,), "int32"), c.make_buffer("B", (16,), "int32"), var("i")
    view = c.make_buffer("V", (64 if view_type == "int8" else 12,), view_type)
    read, write = (view, a) if store_first else (a, view)
    body = [
        tir.BufferStore(write, c.cast(write.dtype, c.add(c.load(b, i), 1)), (i,)),
        c.store(b, c.cast("int32", c.load(read, i)), i),
    ]
    return func([a, b], [tir.DeclBuffer(view, pointer(a)), loop(i, 8, body, VECTOR)])


def pointer_at(by: int) -> Callable[[tir.Buffer], Expr]:
    kind = tir.Call(DType.of("int32"), tir.Op("tir.type_annotation"), ())
    return lambda a: c.call("handle", "tvm_access_ptr", kind, a.data, by, 0, 3)


@pytest.mark.parametrize("store_first", [False, True])
@pytest.mark.parametrize(
    "view_type, pointer, lanes",
    [
        ("int32", lambda a: a.data, 8),
        ("int8", lambda a: a.data, 1),
        ("int32", pointer_at(1), 1),
        ("int32", pointer_at(0), 1),
    ],
)
def test_views_of_one_memory_are_not_reordered(
    view_type: str, pointer: Callable[[tir.Buffer], Expr], lanes: int, store_first: bool
) -> None:
    """Only views that count alike are known to be apart."""
    f = aliased(view_type, pointer, store_first)
    assert set(lanes_of(f)) == {lanes}
    data, expected = ([np.arange(16, dtype="int32"), np.arange(16, dtype="int32")[::-1] * 3] for _ in range(2))
    data = [np.ascontiguousarray(x) for x in data]
    expected = [np.ascontiguousarray(x) for x in expected]
    assert Native(f)(*data) == 0
    run_prim_func(f, expected)
    for got, want in zip(data, expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_calls_with_effects_keep_their_order() -> None:
    a, i = c.make_buffer("A", (8,), "float32"), var("i")
    effects = [tir.Evaluate(c.call("int32", "call_packed", n, c.load(a, i))) for n in ("first", "second")]
    assert set(lanes_of(func([a], loop(i, 8, [*effects, c.store(a, 0.0, i)], VECTOR)))) == {1}
    seen: list[str] = []
    native = Native(func([a], loop(i, 3, effects, VECTOR)), packed=lambda name, args: seen.append(name) or 0)
    assert native(np.zeros(8, "float32")) == 0
    assert seen == ["first", "second"] * 3


# ---------------------------------------------------------------- any loop computes what the serial one does

SIZE, ORIGIN = 900, 400
coefficients = st.sampled_from([-2, -1, 0, 1, 1, 1, 2, 3, 8])


class Programs:
    """Draws loop bodies over arrays X and Y and an input Z, with affine and computed indices, some of them repeated."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.x, self.y = c.make_buffer("X", (SIZE,), "int32"), c.make_buffer("Y", (SIZE,), "int32")
        self.z = c.make_buffer("Z", (SIZE,), "int32")
        self.seen: list[tuple[Expr, int]] = []
        self.lane = var("i")
        self.others: list[tir.Var] = []

    def index(self) -> Expr:
        """An index, more often than not one that occurred where as many loops were around."""
        known = [e for e, depth in self.seen if depth == len(self.others)]
        if known and self.draw(st.integers(0, 3)):
            return self.draw(st.sampled_from(known))
        made = self.new_index()
        self.seen.append((made, len(self.others)))
        return made

    def new_index(self) -> Expr:
        made: Expr = c.const(ORIGIN + self.draw(st.integers(-3, 3)))
        made = c.add(made, c.mul(self.lane, self.draw(coefficients)))
        for v in self.others:
            made = c.add(made, c.mul(v, self.draw(st.sampled_from([0, 1, 1, 8, 64]))))
        kind = self.draw(st.integers(0, 9))
        if kind == 0:
            made = c.floormod(made, 64)
        elif kind == 1:
            made = c.floordiv(made, 3)
        return made

    def buffer(self) -> tir.Buffer:
        return self.draw(st.sampled_from([self.x, self.y]))

    def source(self) -> tir.Buffer:
        return self.draw(st.sampled_from([self.x, self.y, self.z, self.z, self.z]))

    def value(self, depth: int = 2) -> Expr:
        kind = self.draw(st.integers(0, 8)) if depth else 0
        if kind <= 2:
            return c.load(self.source(), self.index())
        if kind == 3:
            return c.const(self.draw(st.integers(-5, 5)))
        if kind == 4:
            return self.lane
        left, right = self.value(depth - 1), self.value(depth - 1)
        if kind == 5:
            return tir.Select(left.dtype, self.condition(), left, right)
        if kind == 6:
            return call("if_then_else", "int32")(self.condition(), left, right)
        return c.add(left, right) if kind == 7 else c.mul(left, c.add(right, 3))

    def condition(self) -> Expr:
        compare = self.draw(st.sampled_from([c.less, c.greater_equal, c.equal]))
        limit = c.const(self.draw(st.integers(-2, 12)))
        left = self.draw(st.sampled_from([self.lane, *self.others, c.load(self.source(), self.index())]))
        made = compare(left, limit)
        return c.logical_and(made, c.less(self.lane, 5)) if self.draw(st.booleans()) else made

    def statement(self, depth: int) -> list[Stmt]:
        kind = self.draw(st.integers(0, 7)) if depth else 0
        if kind == 5:
            other = self.body(depth - 1) if self.draw(st.booleans()) else None
            return [tir.IfThenElse(self.condition(), self.body(depth - 1), other)]
        if kind == 6:
            v = var("k")
            self.others.append(v)
            body = self.body(depth - 1)
            self.others.pop()
            self.seen = [(e, depth) for e, depth in self.seen if depth <= len(self.others)]
            return [loop(v, self.draw(st.integers(0, 4)), body, start=self.draw(st.integers(0, 1)))]
        if kind == 7:
            v = var("t")
            bound = [tir.Bind(v, self.value())]
            at = self.index()
            return [*bound, c.store(self.buffer(), c.add(v, self.value(1)), at)]
        return [c.store(self.buffer(), self.value(), self.index())]

    def body(self, depth: int) -> tuple[Stmt, ...]:
        return tuple(s for _ in range(self.draw(st.integers(1, 2))) for s in self.statement(depth))


@st.composite
def programs(draw: st.DrawFn) -> tuple[Programs, tuple[Stmt, ...], int, int]:
    made = Programs(draw)
    body = made.body(2)
    return made, body, draw(st.sampled_from([1, 2, 3, 8, 13, 20])), draw(st.integers(0, 2))


@given(programs())
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_any_loop_computes_what_the_serial_one_does(program: tuple[Programs, tuple[Stmt, ...], int, int]) -> None:
    made, body, extent, start = program
    results = []
    for kind in (ForKind.SERIAL, ForKind.VECTORIZED, ForKind.UNROLLED):
        f = func([made.x, made.y, made.z], loop(made.lane, extent, body, kind, start=start))
        x, y = np.arange(SIZE, dtype="int32"), np.arange(SIZE, dtype="int32")[::-1].copy() % 17
        assert Native(f, level=1)(x, y, x * 7 % 31 - 9) == 0
        results.append((x, y))
    for other in results[1:]:
        np.testing.assert_array_equal(other[0], results[0][0])
        np.testing.assert_array_equal(other[1], results[0][1])

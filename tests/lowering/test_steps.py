"""The other steps of lowering, each by its effect."""

from __future__ import annotations

import numpy as np
import pytest

from mlcc.errors import CompileError
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import Attrs, replace, walk
from mlcc.ir.tir import ForKind
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.unroll import LLVM_UNROLL
from mlcc.targets.llvm.object.compile import Machine, assembly
from mlcc.targets.llvm.object.passes import Code
from tests.lower import lower_func
from tests.targets.build import block, func, loop, var
from tests.targets.harness import Native, kernel_module


def stores(f: tir.PrimFunc) -> list[tir.BufferStore]:
    return [n for n in walk(f) if isinstance(n, tir.BufferStore)]


def loops(f: tir.PrimFunc) -> list[tir.For]:
    return [n for n in walk(f) if isinstance(n, tir.For)]


def bound_vars(f: tir.PrimFunc) -> list[tir.Var]:
    """Every variable at the place that binds it."""
    return [n.var for n in walk(f) if isinstance(n, (tir.For, tir.Bind))]


# ---------------------------------------------------------------- divisions


def test_indices_lose_divisions_that_loops_decide() -> None:
    a, i, j, k = c.make_buffer("A", (4, 5, 48), "int32"), var("i"), var("j"), var("k")
    at = c.add(c.add(c.mul(i, 48), c.mul(j, 16)), k)
    store = c.store(a, 1, c.floordiv(at, 48), 2, c.floormod(at, 48))
    (made,) = stores(lower_func(func([a], loop(i, 4, loop(j, 3, loop(k, 16, store))))))
    assert not [n for n in walk(made) if isinstance(n, (tir.FloorDiv, tir.FloorMod))]
    (kept,) = stores(lower_func(func([a], loop(i, 4, loop(j, 3, loop(k, 17, store))))))
    assert [n for n in walk(kept) if isinstance(n, (tir.FloorDiv, tir.FloorMod))]


def test_indices_lose_divisions_by_sizes_that_are_not_known() -> None:
    m, i, j = var("m", "int64"), var("i", "int64"), var("j", "int64")
    a = c.make_buffer("A", (c.as_expr(4, m.dtype), m), "int32")
    at = c.add(c.mul(i, m), j)
    store = c.store(a, 1, c.floordiv(at, m), c.floormod(at, m))
    (made,) = stores(lower_func(func([a], loop(i, c.const(4, "int64"), loop(j, m, store)))))
    assert not [n for n in walk(made) if isinstance(n, (tir.FloorDiv, tir.FloorMod))]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_loops_that_were_fused_run_through_memory_in_vectors(dtype: str) -> None:
    """Rows of 1000 are no multiple of the vectors, and the divisions of the indices still cancel."""
    a, b = (c.make_buffer(name, (512, 1000), "float32") for name in "AB")
    i, j = var("i", dtype), var("j", dtype)
    at = c.add(c.mul(i, 16), j)
    here = (c.floordiv(at, 1000), c.floormod(at, 1000))
    body = c.store(b, c.add(c.load(a, *here), 1), *here)
    inner = loop(j, c.const(16, dtype), body, ForKind.VECTORIZED)
    (made,) = stores(lower_func(func([a, b], loop(i, c.const(32000, dtype), inner))))
    assert isinstance(made.indices[0], tir.Ramp)
    assert tir.const_int(made.indices[0].stride) == 1


def test_three_loops_that_were_fused_and_cut_otherwise() -> None:
    """What is divided is `i * 64 + j`; 784 = 16 * 49 takes it apart, and then nothing cancels any more."""
    a, b = (c.make_buffer(name, (4, 28, 28), "float32") for name in "AB")
    i, j = var("i", "int64"), var("j", "int64")
    at = c.add(c.mul(i, 64), j)
    here = (c.floordiv(at, 784), c.floordiv(c.floormod(at, 784), 28), c.floormod(at, 28))
    inner = loop(j, c.const(64, "int64"), c.store(b, c.add(c.load(a, *here), 1), *here), ForKind.VECTORIZED)
    (made,) = stores(lower_func(func([a, b], loop(i, c.const(49, "int64"), inner))))
    assert isinstance(made.indices[0], tir.Ramp)
    assert not [n for n in walk(made) if isinstance(n, (tir.FloorDiv, tir.FloorMod))]


# ---------------------------------------------------------------- unrolling


def test_unrolled_loops_fold() -> None:
    a, i, j = c.make_buffer("A", (3, 4), "int32"), var("i"), var("j")
    lowered = lower_func(func([a], loop(i, 3, loop(j, 4, c.store(a, i, i, j), ForKind.UNROLLED), ForKind.UNROLLED)))
    assert loops(lowered) == []
    assert [tir.const_int(s.indices[0]) for s in stores(lowered)] == list(range(12))


def test_unrolling_is_bounded() -> None:
    a, i, j = c.make_buffer("A", (100, 8), "int32"), var("i"), var("j")
    f = func([a], loop(i, 100, loop(j, 8, c.store(a, i, i, j), ForKind.UNROLLED), ForKind.UNROLLED))
    lowered = lower_func(f, {}, LowerOptions(unroll_limit=100))
    assert [(x.var.name, x.kind) for x in loops(lowered)] == [("i", ForKind.UNROLLED)]
    assert len(stores(lowered)) == 8
    out = np.zeros((100, 8), "int32")
    assert Native(f)(out) == 0
    np.testing.assert_array_equal(out, np.arange(100)[:, None] + np.zeros(8, int))


@pytest.mark.parametrize("kept", [False, True])
def test_loops_that_llvm_leaves_as_they_are(kept: bool) -> None:
    """A short loop that stays a loop, and one that LLVM writes out: the second has no jump back."""
    i, a = var("i", "int64"), c.make_buffer("A", (4,), "float32")
    short = loop(i, 4, c.store(a, c.add(c.load(a, i), 1.0), i))
    if kept:
        short = replace(short, annotations=Attrs({LLVM_UNROLL: 0}))
    machine = Machine(cpu="x86-64-v3")
    text = kernel_module(func([a], short), machine).text()
    assert ("llvm.loop.unroll.disable" in text) is kept
    code = assembly([(text, Code.VECTORS)], machine, 2)
    assert ("\tjne" in code) is kept


def test_copies_bind_their_own() -> None:
    """Loops, bindings and buffers inside an unrolled body are new in each copy."""
    b, i, k, t = c.make_buffer("B", (4, 3), "int32"), var("i"), var("k"), var("t")
    temp = c.make_buffer("T", (3,), "int32")
    body = [
        tir.AllocBuffer(temp), tir.Bind(t, c.mul(i, 10)),
        loop(k, 3, [c.store(temp, c.add(t, k), k), c.store(b, c.load(temp, k), i, k)]),
    ]  # fmt: skip
    f = func([b], loop(i, 4, body, ForKind.UNROLLED))
    lowered = lower_func(f)
    names = bound_vars(lowered)
    assert len(names) == 8 and len(set(names)) == 8
    datas = [n.buffer.data for n in walk(lowered) if isinstance(n, tir.AllocBuffer)]
    assert len(datas) == 4 and len(set(datas)) == 4
    out = np.zeros((4, 3), "int32")
    assert Native(f)(out) == 0
    np.testing.assert_array_equal(out, np.arange(4)[:, None] * 10 + np.arange(3))


def test_loops_left_by_a_jump_are_not_unrolled() -> None:
    a, i = c.make_buffer("A", (8,), "int32"), var("i")
    body = [tir.IfThenElse(c.equal(i, 3), (tir.Break(),)), c.store(a, 1, i)]
    f = func([a], loop(i, 8, body, ForKind.UNROLLED))
    assert len(loops(lower_func(f))) == 1
    out = np.zeros(8, "int32")
    assert Native(f)(out) == 0
    assert out.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]


# ---------------------------------------------------------------- flattening


def test_flat_views_keep_the_interface() -> None:
    a, b = c.make_buffer("A", (3, 4), "int32"), c.make_buffer("B", (5,), "int32")
    i = var("i")
    f = func([a, b], loop(i, 3, c.store(b, c.load(a, i, 2), i)))
    lowered = lower_func(f)
    assert lowered.buffers == f.buffers and lowered.params == f.params
    declared = lowered.body[0]
    assert isinstance(declared, tir.DeclBuffer) and declared.data is a.data
    assert tir.const_int(declared.buffer.shape[0]) == 12
    (store,) = stores(lowered)
    assert store.buffer is b


@pytest.mark.parametrize("shape, dtype", [((1 << 10, 1 << 20), "int32"), ((1 << 11, 1 << 20), "int64")])
def test_index_arithmetic_is_as_wide_as_it_must_be(shape: tuple[int, int], dtype: str) -> None:
    a = c.make_buffer("A", (c.const(shape[0]), c.const(shape[1])), "int8")
    i = var("i")
    (store,) = stores(lower_func(func([a], loop(i, 8, c.store(a, 0, i, i)))))
    assert str(store.indices[0].dtype) == dtype


@pytest.mark.parametrize(("narrow", "dtype"), [(True, "int32"), (False, "int64")])
def test_wide_indices_stay_wide_where_the_target_wants_them(narrow: bool, dtype: str) -> None:
    """On CPUs, whose addresses have 64 bits; loops over int32 stay as they are on both."""
    buf, i, j = c.make_buffer("A", (4, 5), "float32"), var("i", "int64"), var("j", "int64")
    short = var("s")
    body = (loop(i, 4, loop(j, 5, c.store(buf, 1.0, i, j))), loop(short, 4, c.store(buf, 1.0, short, 0)))
    wide, small = stores(lower_func(func([buf], body), {}, LowerOptions(narrow_indices=narrow)))
    assert (str(wide.indices[0].dtype), str(small.indices[0].dtype)) == (dtype, "int32")
    assert any(isinstance(n, tir.Cast) for n in walk(wide)) is narrow


def test_accesses_of_the_wrong_rank_are_refused() -> None:
    a = c.make_buffer("A", (3, 4), "int32")
    store = tir.BufferStore(a, c.const(0), (c.const(0),))
    with pytest.raises(CompileError, match="2 dimensions and is accessed with 1"):
        lower_func(func([a], store))


# ---------------------------------------------------------------- allocation


def test_allocations_stand_before_their_first_use() -> None:
    a, u, unused = (c.make_buffer(n, (4,), "int32") for n in ("A", "U", "unused"))
    t = c.make_buffer("T", (8,), "int32")  # larger than `A`, whose memory it would share otherwise
    i, j, k = var("i"), var("j"), var("k")
    body = [
        loop(i, 8, c.store(t, i, i)),
        loop(j, 4, c.store(u, c.load(t, j), j)),
        loop(k, 4, c.store(a, c.load(u, c.sub(3, k)), k)),
    ]
    lowered = lower_func(func([a], block("root", [], body, allocs=[u, t, unused])))
    kinds = [(type(s).__name__, s.buffer.name if isinstance(s, tir.AllocBuffer) else "") for s in lowered.body]
    assert kinds == [("AllocBuffer", "T"), ("For", ""), ("AllocBuffer", "U"), ("For", ""), ("For", "")]


# ---------------------------------------------------------------- threads


def thread_loop(v: tir.Var, extent: int, tag: str, body: tir.Stmt) -> tir.For:
    return loop(v, extent, body, ForKind.THREAD_BINDING, thread=tag)


def test_bound_loops_run_one_after_the_other() -> None:
    """Cooperative fetching through a shared buffer, in block form."""
    a, b = c.make_buffer("A", (8, 16), "float32"), c.make_buffer("B", (8, 16), "float32")
    shared = c.make_buffer("S", (8, 16), "float32", scope="shared")
    bx, tx, ty, k = var("bx"), var("tx"), var("ty"), var("k")
    fetch = thread_loop(tx, 16, "threadIdx.x", c.store(shared, c.load(a, bx, tx), bx, tx))
    use = thread_loop(ty, 16, "threadIdx.x", c.store(b, c.load(shared, bx, c.sub(15, ty)), bx, ty))
    body = block(
        "root", [], thread_loop(bx, 8, "blockIdx.x", block("b", [], [fetch, loop(k, 1, use)])), allocs=[shared]
    )
    data, out = np.random.default_rng(0).random((8, 16), "float32"), np.zeros((8, 16), "float32")
    assert Native(func([a, b], body))(data, out) == 0
    np.testing.assert_array_equal(out, data[:, ::-1])


def launch(tag: str, v: tir.Var, extent: int, body: tir.Stmt | tuple[tir.Stmt, ...]) -> tir.AttrStmt:
    axis = tir.IterVar(v, tir.Range(c.const(0), c.const(extent)), tir.IterKind.THREAD, tag)
    return tir.AttrStmt(axis, "thread_extent", c.const(extent), body if isinstance(body, tuple) else (body,))


def test_launch_scopes_are_loops_and_one_axis_is_one_thread() -> None:
    a = c.make_buffer("A", (4, 8), "int32")
    bx, tx, again = var("bx"), var("tx"), var("again")
    inner = launch("threadIdx.x", again, 8, c.store(a, c.add(c.mul(bx, 100), c.add(tx, again)), bx, again))
    out = np.zeros((4, 8), "int32")
    assert Native(func([a], launch("blockIdx.x", bx, 4, launch("threadIdx.x", tx, 8, inner))))(out) == 0
    np.testing.assert_array_equal(out, np.arange(4)[:, None] * 100 + 2 * np.arange(8))


def test_threads_that_meet_are_refused() -> None:
    a, s = c.make_buffer("A", (8,), "int32"), c.make_buffer("S", (8,), "int32", scope="shared")
    tx = var("tx")
    sync = tir.Evaluate(c.call("int32", "tvm_storage_sync", "shared"))
    with pytest.raises(CompileError, match=r"`T.tvm_storage_sync` needs threads that run concurrently") as caught:
        lower_func(func([a], thread_loop(tx, 8, "threadIdx.x", tir.AttrStmt("", "x", 0, (sync, c.store(a, 1, tx))))))
    assert caught.value.diagnostics[0].code == "E0707"
    shared = launch("blockIdx.x", var("bx"), 1, (tir.AllocBuffer(s), launch("threadIdx.x", tx, 8, c.store(s, 1, tx))))
    with pytest.raises(CompileError, match="shared between threads"):
        lower_func(func([a], shared))
    assert lower_func(func([a], sync)).body  # without threads a barrier orders nothing


# ---------------------------------------------------------------- annotations


def test_pragmas_of_blocks_stay_visible() -> None:
    from mlcc.ir.node import Attrs, replace

    a = c.make_buffer("A", (1,), "int32")
    realize = block("b", [], c.store(a, 1, 0))
    marked = replace(realize, block=replace(realize.block, annotations=Attrs({"pragma_x": "y", "other": 1})))
    (stmt,) = lower_func(func([a], marked)).body
    assert isinstance(stmt, tir.AttrStmt) and (stmt.key, stmt.value) == ("pragma_x", "y")


def test_the_result_prints() -> None:
    """Loop code is TensorIR: its text is complete."""
    a, i, k = c.make_buffer("A", (8, 8), "float32"), var("i"), var("k")
    vi, vk = var("vi"), var("vk")
    total = c.make_buffer("S", (8,), "float32")
    update = c.store(total, c.add(c.load(total, vi), c.load(a, vi, vk)), vi)
    body = block("s", [(vi, 8, "S", i), (vk, 8, "R", k)], update, c.store(total, 0.0, vi))
    text = str(lower_func(func([a, total], loop(k, 8, loop(i, 8, body, ForKind.VECTORIZED)))))
    assert "T.block" not in text and "T.Ramp" in text

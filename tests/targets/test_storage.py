"""Temporary buffers: on the stack, sharing the workspace, from the heap."""

from __future__ import annotations

import numpy as np
import pytest

from mlcc.errors import CompileError
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.targets.llvm.codegen.context import EmitOptions
from tests.targets.build import block, func, loop, var
from tests.targets.harness import Native


def chain(steps: int, size: int) -> tir.PrimFunc:
    """B = A + steps, by way of a temporary for each step, all allocated in the root block."""
    a, b = c.make_buffer("A", (size,), "int32"), c.make_buffer("B", (size,), "int32")
    temps = [c.make_buffer(f"T{k}", (size,), "int32") for k in range(steps - 1)]
    places = [a, *temps, b]
    body: list[tir.Stmt] = []
    for k in range(steps):
        i, vi = var("i"), var("vi")
        body.append(loop(i, size, block(f"s{k}", [(vi, size, "S", i)],
                                        c.store(places[k + 1], c.add(c.load(places[k], vi), 1), vi))))  # fmt: skip
    return func([a, b], block("root", [], body, allocs=temps))


def run_chain(steps: int, size: int, options: EmitOptions | None = None) -> Native:
    native = Native(chain(steps, size), options=options)
    data, out = np.arange(size, dtype="int32"), np.zeros(size, "int32")
    assert native(data, out) == 0
    np.testing.assert_array_equal(out, data + steps)
    return native


def workspace(native: Native) -> int | None:
    return tir.const_int(native.kernel.workspace)


def test_small_buffers_are_on_the_stack() -> None:
    assert workspace(run_chain(4, 16)) == 0


def test_temporaries_with_apart_lifetimes_share_the_workspace() -> None:
    """However long the chain, two temporaries are alive at once."""
    assert workspace(run_chain(9, 5000)) == 2 * 20032  # rounded up to 64 bytes


def test_long_chains_are_split_and_share_all_the_same() -> None:
    native = run_chain(150, 5000)
    assert workspace(native) == 2 * 20032
    assert len(native.ctx.module.functions) > 5


def test_the_stack_is_bounded_in_sum() -> None:
    native = run_chain(9, 100, EmitOptions(stack_bytes=900))
    assert workspace(native) == 2 * 448  # two of eight on the stack


def test_tiles_that_fit_into_registers_have_the_stack_before_larger_buffers() -> None:
    """Only what is on the stack is promoted to registers, however much an earlier buffer takes."""
    size, b = 3800, c.make_buffer("B", (3800,), "int32")
    large, tile = c.make_buffer("L", (size,), "int32"), c.make_buffer("T", (448,), "int32")
    i, j, k = var("i"), var("j"), var("k")
    body = [
        tir.AllocBuffer(large), loop(i, size, c.store(large, i, i)),
        tir.AllocBuffer(tile), loop(j, 448, c.store(tile, c.mul(j, 5), j)),
        loop(k, size, c.store(b, c.add(c.load(large, c.sub(size - 1, k)), c.load(tile, c.floormod(k, 448))), k)),
    ]  # fmt: skip
    native, out = Native(func([b], body)), np.zeros(size, "int32")
    assert native(out) == 0
    np.testing.assert_array_equal(out, np.arange(size)[::-1] + np.arange(size) % 448 * 5)
    assert workspace(native) == size * 4 // 64 * 64 + 64  # 15200 bytes alone would fit on the stack, both do not


@pytest.mark.parametrize("constant", [True, False])
def test_tiles_at_constant_indices_do_not_count_as_on_the_stack(constant: bool) -> None:
    """They live in registers, one after another, as the tiles of branches do; those indexed by a loop do not."""
    b = c.make_buffer("B", (40,), "int32")
    body: list[tir.Stmt] = []
    for at in range(40):
        tile, i = c.make_buffer(f"T{at}", (100,), "int32"), var("i")
        place = 7 if constant else i
        body += [tir.AllocBuffer(tile), loop(i, 100, c.store(tile, c.add(i, at), place)),
                 c.store(b, c.load(tile, 7), at)]  # fmt: skip
    native, out = Native(func([b], body), options=EmitOptions(stack_bytes=900)), np.zeros(40, "int32")
    assert native(out) == 0
    np.testing.assert_array_equal(out, np.arange(40) + (99 if constant else 7))
    assert workspace(native) == (0 if constant else 448)  # two on the stack, the others share


def test_values_live_across_a_loop_that_uses_them_late() -> None:
    """T is written before the loop and read at its end; U is written and read inside, and must not take its place."""
    size = 3000
    a, b = c.make_buffer("A", (size,), "int64"), c.make_buffer("B", (size,), "int64")
    t, u = c.make_buffer("T", (size,), "int64"), c.make_buffer("U", (size,), "int64")
    i, j, k, r = var("i"), var("j"), var("k"), var("r")
    fill = loop(i, size, c.store(t, c.load(a, i), i))
    turn = loop(r, 3, [
        loop(j, size, c.store(u, c.mul(c.load(t, j), 2), j)),
        loop(k, size, c.store(b, c.add(c.load(b, k), c.add(c.load(u, k), c.load(t, k))), k)),
    ])  # fmt: skip
    native = Native(func([a, b], block("root", [], [fill, turn], allocs=[t, u])))
    data, out = np.arange(size), np.zeros(size, "int64")
    assert native(data, out) == 0
    np.testing.assert_array_equal(out, data * 9)
    assert workspace(native) == 2 * size * 8


def test_buffers_in_exclusive_branches_share() -> None:
    size = 4000
    n, a = var("n"), c.make_buffer("A", (size,), "int32")
    arms = []
    for k in range(2):
        t, i, j = c.make_buffer(f"T{k}", (size,), "int32"), var("i"), var("j")
        arms.append((tir.AllocBuffer(t), loop(i, size, c.store(t, c.add(i, k), i)),
                     loop(j, size, c.store(a, c.mul(c.load(t, j), 3), j))))  # fmt: skip
    native = Native(func([n, a], tir.IfThenElse(c.greater(n, 0), arms[0], arms[1])))
    for given in (0, 1):
        out = np.zeros(size, "int32")
        assert native(given, out) == 0
        np.testing.assert_array_equal(out, (np.arange(size) + (given == 0)) * 3)
    assert workspace(native) == size * 4


def test_views_keep_memory_alive() -> None:
    """The last use of T is by way of a view; U may come after, not before."""
    size = 4000
    b = c.make_buffer("B", (size,), "int32")
    t, u = c.make_buffer("T", (size,), "int32"), c.make_buffer("U", (size,), "int32")
    view = c.make_buffer("V", (size,), "int32")
    i, j, k, m = var("i"), var("j"), var("k"), var("m")
    body = [
        tir.AllocBuffer(t), loop(i, size, c.store(t, i, i)), tir.DeclBuffer(view, t.data),
        tir.AllocBuffer(u), loop(j, size, c.store(u, -1, j)), loop(m, size, c.store(b, c.load(u, m), m)),
        loop(k, size, c.store(b, c.add(c.load(b, k), c.load(view, k)), k)),
    ]  # fmt: skip
    out = np.zeros(size, "int32")
    assert Native(func([b], body))(out) == 0
    np.testing.assert_array_equal(out, np.arange(size) - 1)


def symbolic(steps: int) -> tir.PrimFunc:
    n = var("n", "int64")
    a, b = c.make_buffer("A", (n, 3), "float64"), c.make_buffer("B", (n, 3), "float64")
    temps = [c.make_buffer(f"T{k}", (n, 3), "float64") for k in range(steps - 1)]
    places, body = [a, *temps, b], []
    for k in range(steps):
        i, j = var("i", "int64"), var("j", "int64")
        body.append(loop(i, n, loop(j, 3, c.store(places[k + 1], c.add(c.load(places[k], i, j), 1.0), i, j))))
    return func([a, b], block("root", [], body, allocs=temps))


@pytest.mark.parametrize("rows", [0, 1, 700])
def test_symbolic_temporaries_are_in_the_workspace(rows: int) -> None:
    """Their sizes are for the caller to compute from the kernel's symbols; the last one shares the output's memory."""
    native = Native(symbolic(4))
    data = np.random.default_rng(0).random((rows, 3))
    out = np.zeros_like(data)
    assert native.workspace_bytes((data, out), (rows,)) == 2 * (-(-rows * 24 // 64) * 64)
    assert native(data, out, symbols=(rows,)) == 0
    np.testing.assert_allclose(out, data + 4)


def heap_function(fails_at: int) -> tir.PrimFunc:
    """A triangle: row r needs a temporary of r + 1 elements, which only the loop knows."""
    b = c.make_buffer("B", (2000,), "int32")
    r, i, j = var("r"), var("i"), var("j")
    t = c.make_buffer("T", (c.add(r, 1),), "int32")
    body = loop(r, 2000, [
        tir.AllocBuffer(t), loop(i, c.add(r, 1), c.store(t, c.add(i, r), i)),
        tir.AssertStmt(c.not_equal(r, fails_at), "ValueError", ("stop",)),
        loop(j, c.add(r, 1), c.store(b, c.add(c.load(b, r), c.load(t, j)), r)),
    ])  # fmt: skip
    return func([b], body)


def test_sizes_that_only_the_kernel_knows_come_from_the_heap() -> None:
    native = Native(heap_function(-1))
    assert workspace(native) == 0
    out = np.zeros(2000, "int32")
    assert native(out) == 0
    r = np.arange(2000)
    np.testing.assert_array_equal(out, r * (r + 1) // 2 + r * (r + 1))


def test_the_heap_is_given_back_on_failure() -> None:
    """A thousand failing calls, each of which would leak 4 MB, stay within bounds."""
    import resource

    n_buffer, b = c.make_buffer("N", (1,), "int64"), c.make_buffer("B", (1,), "int8")
    size = c.load(n_buffer, 0)
    v = var("size", "int64")
    t, i = c.make_buffer("T", (v,), "int8"), var("i", "int64")
    body = [
        tir.Bind(v, size), tir.AllocBuffer(t), loop(i, v, c.store(t, 1, i)), c.store(b, c.load(t, c.sub(v, 1)), 0),
        tir.AssertStmt(c.less(v, 0), "ValueError", ("always",)),
    ]  # fmt: skip
    native = Native(func([n_buffer, b], body))
    out = np.zeros(1, "int8")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100):
        assert native.error(native(np.array([4 << 20]), out)) == ("ValueError", "always")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB
    assert out[0] == 1


def test_no_memory_is_an_error() -> None:
    n, b = c.make_buffer("N", (3,), "int64"), c.make_buffer("B", (1,), "int8")
    v = var("size", "int64")
    t = c.make_buffer("T", (v,), "int8")
    fill = c.store(t, 1, c.load(n, 1))
    body = [tir.Bind(v, c.load(n, 0)), tir.AllocBuffer(t), fill, c.store(b, c.load(t, c.load(n, 2)), 0)]
    native = Native(func([n, b], body))
    out = np.zeros(1, "int8")
    kind, message = native.error(native(np.array([1 << 60, 5, 5]), out))
    assert kind == "MemoryError" and "T" in message
    assert native(np.array([10, 5, 5]), out) == 0 and out[0] == 1


def test_an_absurd_size_is_refused() -> None:
    t = c.make_buffer("T", (c.const(1 << 40), c.const(1 << 40)), "float32")
    with pytest.raises(CompileError, match="E0704"):
        Native(func([], [tir.AllocBuffer(t), c.store(t, 0.0, 0, 0), c.store(t, 0.0, (1 << 40) - 1, (1 << 40) - 1)]))

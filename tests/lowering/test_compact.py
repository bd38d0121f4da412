"""Allocations move into loops and shrink to what is used there, and every number stays what it was."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.lowering.compact import compact_buffers
from mlcc.passes.lowering.realize import realize_blocks
from tests.lower import lower_func, lower_gpu
from tests.targets.harness import Native


def parse(body: str, params: str = 'A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")') -> tir.PrimFunc:
    text = f"@T.prim_func(s_tir=False)\ndef main({params}):\n    T.func_attr({{'tir.noalias': True}})\n"
    made = mlcc.parse(text + "\n".join("    " + line for line in body.strip("\n").splitlines()))["main"]
    assert isinstance(made, tir.PrimFunc)
    return made


def compacted(func: tir.PrimFunc) -> tir.PrimFunc:
    return compact_buffers(realize_blocks(func))


def sizes(func: tir.PrimFunc) -> dict[str, tuple[str, ...]]:
    """The shape of each allocation, with strides where it has some, after the variables of the loops that it is in."""
    made: dict[str, tuple[str, ...]] = {}

    def visit(body: tuple[tir.Stmt, ...], loops: tuple[str, ...]) -> None:
        for stmt in body:
            if isinstance(stmt, tir.AllocBuffer):
                b = stmt.buffer
                assert b.name not in made
                made[b.name] = (*loops, *(str(tir.const_int(d) or d) for d in b.shape), *(f"/{s}" for s in b.strides))
            elif isinstance(stmt, tir.For):
                visit(stmt.body, (*loops, stmt.var.name))
            elif isinstance(stmt, tir.IfThenElse):
                visit(stmt.then_body, (*loops, "if"))
                visit(stmt.else_body or (), (*loops, "else"))

    visit(compacted(func).body, ())
    return made


def check(func: tir.PrimFunc, *shapes: tuple[int, ...], symbols: tuple[int, ...] = ()) -> None:
    """The function, its loop code and its native code compute the same."""
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-9, 9, s).astype("int32") for s in shapes]
    expected, lowered, native = ([a.copy() for a in arrays] for _ in range(3))
    run_prim_func(func, expected)
    run_prim_func(lower_func(func), lowered)
    assert Native(func)(*native, symbols=symbols) == 0
    for one, two, three in zip(expected, lowered, native, strict=True):
        np.testing.assert_array_equal(two, one)
        np.testing.assert_array_equal(three, one)


def case(body: str, wanted: dict[str, tuple[str, ...]]) -> None:
    func = parse(body)
    assert sizes(func) == wanted
    check(func, (64,), (64,))


def test_a_temporary_of_each_iteration() -> None:
    case("""
X = T.alloc_buffer((64,), "int32")
for i in range(8):
    for j in range(8):
        X[i * 8 + j] = A[i * 8 + j] + 1
    for k in range(8):
        B[i * 8 + k] = X[i * 8 + 7 - k]
""", {"X": ("i", "8")})  # fmt: skip


def test_tiles_that_are_read_in_another_order_of_loops() -> None:
    case("""
X = T.alloc_buffer((64,), "int32")
for i in range(3):
    for j in range(5):
        for k in range(4):
            if i * 4 + k < 11:
                X[(i * 4 + k) * 5 + j] = A[(i * 4 + k) * 5 + j] + 1
    for k in range(4):
        for j in range(5):
            if i * 4 + k < 11:
                B[(i * 4 + k) * 5 + j] = X[(i * 4 + k) * 5 + j]
""", {"X": ("i", "20")})  # fmt: skip


def test_windows_whose_last_strip_has_fewer_rows() -> None:
    """The copy ends with the data, and the reads end where the condition on rows says."""
    case("""
X = T.alloc_buffer((25,), "int32")
for i in range(4):
    for k in range(9):
        if i * 6 + k < 25:
            X[i * 6 + k] = A[i * 6 + k] + 1
    for k in range(3):
        for r in range(5):
            if i * 3 + k < 11:
                B[(i * 3 + k) * 5 + r] = X[(i * 3 + k) * 2 + r]
""", {"X": ("i", "9")})  # fmt: skip


def test_windows_past_the_copied_rows_keep_a_buffer_outside() -> None:
    case("""
X = T.alloc_buffer((32,), "int32")
for k in range(32):
    X[k] = 0
for i in range(4):
    for k in range(9):
        if i * 6 + k < 24:
            X[i * 6 + k] = A[i * 6 + k] + 1
    for k in range(3):
        for r in range(5):
            if i * 3 + k < 11:
                B[(i * 3 + k) * 5 + r] = X[(i * 3 + k) * 2 + r]
""", {"X": ("32",)})  # fmt: skip


def test_values_of_earlier_iterations_keep_a_buffer_outside() -> None:
    case("""
X = T.alloc_buffer((64,), "int32")
for i in range(64):
    X[i] = A[i]
    B[i] = X[T.max(i - 1, 0)]
""", {"X": ("64",)})  # fmt: skip


def test_a_sum_carried_along_stays_outside() -> None:
    case("""
X = T.alloc_buffer((4, 4), "int32")
X[2, 1] = 0
for i in range(64):
    X[2, 1] = X[2, 1] + A[i]
    B[i] = X[2, 1]
""", {"X": ("1", "1")})  # fmt: skip


def test_a_store_under_a_narrower_condition_is_no_cover() -> None:
    case("""
X = T.alloc_buffer((64,), "int32")
X[0] = 5
for i in range(64):
    if i % 2 == 0:
        X[0] = A[i]
    B[i] = X[0]
""", {"X": ("1",)})  # fmt: skip


def test_a_store_under_the_same_condition_covers() -> None:
    case("""
X = T.alloc_buffer((64,), "int32")
for i in range(9):
    for j in range(8):
        if i * 8 + j < 61:
            X[i * 8 + j] = A[i * 8 + j] * 3
    for j in range(8):
        if i * 8 + j < 61:
            B[i * 8 + j] = X[i * 8 + j]
""", {"X": ("i", "8")})  # fmt: skip


def test_the_first_iteration_of_a_reduction_covers_the_others() -> None:
    case("""
X = T.alloc_buffer((8,), "int32")
for i in range(8):
    for k0, k1 in T.grid(2, 4):
        if k0 * 4 + k1 == 0:
            X[i] = 0
        X[i] = X[i] + A[i * 8 + k0 * 4 + k1]
    B[i] = X[i]
""", {"X": ("i", "1")})  # fmt: skip


def test_a_later_iteration_covers_nothing_before_it() -> None:
    """The store happens under `k == 1`: what the first iteration reads is from before the loop."""
    case("""
X = T.alloc_buffer((8,), "int32")
for s in range(8):
    X[s] = s
for i in range(8):
    for k in range(8):
        if k == 1:
            X[i] = 0
        X[i] = X[i] + A[i * 8 + k]
    B[i] = X[i]
""", {"X": ("8",)})  # fmt: skip


def test_the_first_iteration_must_come_to_the_store() -> None:
    """At `k == 0` the inner loop is empty, so that nothing is set to zero."""
    case("""
X = T.alloc_buffer((8,), "int32")
for s in range(8):
    X[s] = s
for i in range(8):
    for k in range(4):
        for j in range(k):
            if k == 0:
                X[i] = 0
            X[i] = X[i] + A[i * 8 + k]
    B[i] = X[i]
""", {"X": ("8",)})  # fmt: skip


def test_a_loop_that_may_be_empty_covers_nothing() -> None:
    case("""
X = T.alloc_buffer((1,), "int32")
X[0] = 1
for i in range(8):
    for j in range(T.min(A[0] * 0 + i, 1)):
        X[0] = A[i]
    B[i] = X[0]
""", {"X": ("1",)})  # fmt: skip


def test_boxes_and_shifted_windows_shrink() -> None:
    """Three rows are made for each one that is used; the window moves with the loop."""
    case("""
X = T.alloc_buffer((66,), "int32")
for i in range(16):
    for j in range(6):
        if i * 4 + j < 64:
            X[i * 4 + j] = A[i * 4 + j] * 2
        else:
            X[i * 4 + j] = 7
    for j in range(4):
        B[i * 4 + j] = X[i * 4 + j] + X[i * 4 + j + 2]
""", {"X": ("66",)})  # fmt: skip
    case("""
X = T.alloc_buffer((66,), "int32")
for i in range(16):
    for j in range(6):
        X[i * 4 + j] = A[T.min(i * 4 + j, 63)]
    for j in range(4):
        B[i * 4 + j] = X[i * 4 + j] + X[i * 4 + j + 2]
""", {"X": ("i", "6")})  # fmt: skip


def test_branches_take_what_only_they_use() -> None:
    case("""
X = T.alloc_buffer((64,), "int32")
for i in range(64):
    if i % 3 == 0:
        X[i] = A[i]
        B[i] = X[i]
""", {"X": ("i", "if", "1")})  # fmt: skip


def test_vectorized_loops_take_no_allocation() -> None:
    case("""
X = T.alloc_buffer((64,), "int32")
for i in range(4):
    for j in T.vectorized(16):
        X[i * 16 + j] = A[i * 16 + j] + 1
        B[i * 16 + j] = X[i * 16 + j]
""", {"X": ("i", "16")})  # fmt: skip


def test_indirect_indices_keep_a_dimension() -> None:
    case("""
X = T.alloc_buffer((4, 64), "int32")
for i in range(4):
    for j in range(16):
        X[i, T.abs(A[i * 16 + j])] = 1
        B[i * 16 + j] = X[i, T.abs(A[i * 16 + j])]
""", {"X": ("4", "64")})  # fmt: skip


def test_indices_that_change_in_between() -> None:
    """What is read there is not what was written, though both are at `A[0] % 2`."""
    case("""
X = T.alloc_buffer((2,), "int32")
X[0] = 5
X[1] = 6
for i in range(16):
    A[0] = i
    X[A[0] % 2] = i
    A[0] = i + 1
    B[i] = X[A[0] % 2]
""", {"X": ("2",)})  # fmt: skip


def test_digits_and_bound_names() -> None:
    case("""
X = T.alloc_buffer((4, 64, 4), "int32")
for o in range(16):
    for j in range(4):
        t: T.int32 = o * 4 + j
        X[t // 16, t, t % 16 // 4] = A[t]
    for j in range(4):
        B[o * 4 + j] = X[(o * 4 + j) // 16, o * 4 + j, (o * 4 + j) % 16 // 4]
""", {"X": ("o", "1", "4", "1")})  # fmt: skip


def test_a_jump_keeps_buffers_outside() -> None:
    case("""
X = T.alloc_buffer((64,), "int32")
for s in range(64):
    X[s] = s
for i in range(8):
    for j in range(8):
        if j == 3:
            break
        X[i * 8 + j] = A[i]
    for j in range(8):
        B[i * 8 + j] = X[i * 8 + j]
""", {"X": ("64",)})  # fmt: skip


def test_buffers_used_by_pointer_stay_as_they_are() -> None:
    case("""
X = T.alloc_buffer((64,), "int32")
Y = T.decl_buffer((32, 2), "int32", data=X.data)
for i in range(64):
    X[i] = A[i]
    B[i] = Y[i // 2, i % 2]
""", {"X": ("64",)})  # fmt: skip


SYMBOLIC = """n = T.int64()
A = T.match_buffer(a, (n,), "int32")
B = T.match_buffer(b, (n,), "int32")
"""


@pytest.mark.parametrize("n", [0, 1, 7, 8, 61])
def test_tiles_of_symbolic_buffers_are_constant(n: int) -> None:
    """A small tile has a constant size whatever the symbol is."""
    func = parse(SYMBOLIC + """
X = T.alloc_buffer((n,), "int32")
for i in range((n + 7) // 8):
    for j in range(8):
        if i * 8 + j < n:
            X[i * 8 + j] = A[i * 8 + j] * 3
    for j in range(8):
        if i * 8 + j < n:
            B[i * 8 + j] = X[i * 8 + j]
""", "a: T.handle, b: T.handle")  # fmt: skip
    assert sizes(func) == {"X": ("i", "8")}
    check(func, (n,), (n,), symbols=(n,))


def test_bounds_that_say_nothing() -> None:
    """Indices of a fused loop over int32 sizes: the product of two sizes is bounded by no more than the dtype."""
    text = """
n, m = T.int32(), T.int32()
A = T.match_buffer(a, (n, m), "int32")
B = T.match_buffer(b, (n, m), "int32")
D = T.alloc_buffer((n, m), "int32")
for i, j in T.grid(n, m):
    D[i, j] = A[i, j] + 1
for ij in range(n * m):
    B[ij // m, ij % m] = D[ij // m, ij % m] * 2
"""
    func = parse(text, "a: T.handle, b: T.handle")
    assert sizes(func) == {"D": ("n", "m")}
    check(func, (3, 5), (3, 5), symbols=(3, 5))


def test_large_tiles_are_no_larger_than_what_was_declared() -> None:
    func = parse(SYMBOLIC + """
X = T.alloc_buffer((n,), "int32")
for i in range((n + 65535) // 65536):
    for j in range(T.min(65536, n - i * 65536)):
        X[i * 65536 + j] = A[i * 65536 + j] * 3
    for j in range(T.min(65536, n - i * 65536)):
        B[i * 65536 + j] = X[i * 65536 + j]
""", "a: T.handle, b: T.handle")  # fmt: skip
    assert sizes(func) == {"X": ("i", "T.min(T.int64(65536), n)")}
    native = Native(func)
    assert native.workspace_bytes((np.zeros(5), np.zeros(5)), (5,)) <= 64
    check(func, (5,), (5,), symbols=(5,))


def test_rows_of_symbolic_length_shrink() -> None:
    func = parse(SYMBOLIC + """
X = T.alloc_buffer((8, n), "int32")
for i in range(8):
    for j in range(n):
        X[i, j] = A[j] * i
    for j in range(n):
        B[j] = X[i, n - 1 - j]
""", "a: T.handle, b: T.handle")  # fmt: skip
    assert sizes(func) == {"X": ("i", "1", "n")}
    check(func, (13,), (13,), symbols=(13,))


@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_rows_of_fused_loops_over_an_unknown_size_shrink(size: int) -> None:
    """One row at a time, whichever it is."""
    func = parse(
        """
n = T.int64()
A = T.match_buffer(a, (4, n, 9), "int32")
B = T.match_buffer(b, (4, n, 9), "int32")
E = T.alloc_buffer_stmt((4, n, 9), "int32")
for f in range(n * T.int64(4)):
    for j in range(9):
        E[f // n, f % n, j] = A[f // n, f % n, j] + 1
    for j in range(9):
        B[f // n, f % n, j] = E[f // n, f % n, 8 - j] * 2
""",
        "a: T.handle, b: T.handle",
    )
    assert sizes(func) == {"E": ("f", "1", "1", "9")}
    check(func, (4, size, 9), (4, size, 9), symbols=(size,))


def test_strides_are_aligned() -> None:
    module = mlcc.parse("""
@T.prim_func
def main(A: T.Buffer((32, 32), "int32"), B: T.Buffer((32, 32), "int32")):
    for i, j in T.grid(32, 32):
        with T.block("X"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2
""")
    sch = mlcc.Schedule(module)
    block = sch.get_block("X")
    copy = sch.cache_read(block, 0, "local")
    i, j = sch.get_loops(block)
    outer, _ = sch.split(i, [None, 4])
    sch.compute_at(copy, outer)
    sch.storage_align(copy, 0, axis=-2, factor=16, offset=3)
    func = sch.mod["main"]
    assert isinstance(func, tir.PrimFunc)
    assert sizes(func) == {"A_local": ("i_0", "4", "32", "/35", "/1")}
    check(func, (32, 32), (32, 32))


def test_every_buffer_object_of_a_program_is_one() -> None:
    """After moving, no statement mentions a buffer that is not allocated or a parameter's."""
    func = parse("""
X = T.alloc_buffer((64,), "int32")
for i in range(8):
    for j in range(8):
        X[i * 8 + j] = A[i * 8 + j] + 1
    for k in range(8):
        B[i * 8 + k] = X[i * 8 + 7 - k]
""")
    made = compacted(func)
    known = {b for b in made.buffers if b} | {n.buffer for n in walk(made) if isinstance(n, tir.AllocBuffer)}
    assert {n.buffer for n in walk(made) if isinstance(n, (tir.BufferLoad, tir.BufferStore))} <= known


def test_rows_of_shared_memory_keep_their_padding() -> None:
    """33 floats for rows of 32 spread columns over banks; rows that are far longer than what is used shrink."""
    for row, kept in ((33, 33), (40, 40), (41, 32), (1024, 32)):
        func = mlcc.parse(
            f"""
@T.prim_func
def f(A: T.Buffer((32, 32), "float32"), B: T.Buffer((32, 32), "float32")):
    S = T.alloc_buffer((32, {row}), "float32", scope="shared")
    for tx in T.thread_binding(32, thread="threadIdx.x"):
        for k in range(32):
            S[k, tx] = A[k, tx]
        T.tvm_storage_sync("shared")
        for k in range(32):
            B[k, tx] = S[tx, k]
"""
        )["f"]
        assert isinstance(func, tir.PrimFunc)
        (kernel,) = lower_gpu("f", func).kernels
        (buffer,) = (n.buffer for s in kernel.body for n in walk(s) if isinstance(n, tir.AllocBuffer))
        assert tir.const_int(buffer.shape[0]) == 32 * kept

"""Blocks turned in registers: the same elements in other places, and no more loads than rows."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.lowering.options import LowerOptions
from mlcc.targets.llvm.object.compile import Machine
from tests.fuzz.test_lanes import fenced
from tests.lower import lower_func
from tests.lowering.test_loop_partition import llvm_of
from tests.targets.harness import Native

V3, V4 = Machine(cpu="x86-64-v3"), Machine(cpu="x86-64-v4")


def block(rows: int, columns: int, wide: int, dtype: str = "float32", value: str = "A[v, u + 3]") -> tir.PrimFunc:
    """`columns` columns of a tensor of `rows` rows as rows of another."""
    made = mlcc.parse(f"""
@T.prim_func
def main(A: T.Buffer(({rows}, {wide}), "{dtype}"), B: T.Buffer(({columns}, {rows}), "{dtype}")):
    T.func_attr({{"tir.noalias": True}})
    for u in range({columns}):
        for v in T.vectorized({rows}):
            B[u, v] = {value}
""")["main"]
    assert isinstance(made, tir.PrimFunc)
    return made


def loads(func: tir.PrimFunc) -> list[tir.BufferLoad]:
    return [n for n in walk(func.body) if isinstance(n, tir.BufferLoad)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "bool"])
@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (8, 8), (16, 8), (8, 19), (6, 4), (16, 3), (4, 37)])
def test_every_element_goes_where_it_did(dtype: str, rows: int, columns: int) -> None:
    func = block(rows, columns, columns + 3, dtype)
    data = fenced(np.random.default_rng(0).integers(0, 100, (rows, columns + 3)).astype(dtype), before=False)
    expected = np.ascontiguousarray(data[:, 3:].T)
    out = np.zeros((columns, rows), dtype)
    run_prim_func(lower_func(func, {}, LowerOptions(vector_bytes=32)), [data, out])
    np.testing.assert_array_equal(out, expected)
    out[:] = 0
    assert Native(func, machine=V3)(data, out) == 0
    np.testing.assert_array_equal(out, expected)


def test_rows_are_loaded_whole() -> None:
    lowered = lower_func(block(16, 16, 100), {}, LowerOptions(vector_bytes=64))
    assert [n.dtype.lanes for n in loads(lowered)] == [16] * 16
    assert all(tir.const_int(n.indices[0].stride) == 1 for n in loads(lowered))  # type: ignore[attr-defined]
    assert sum(isinstance(n, tir.Shuffle) for n in walk(lowered.body)) == 16 * 4


@pytest.mark.parametrize("machine", [V3, V4], ids=["avx2", "avx512"])
def test_no_element_goes_by_itself(machine: Machine) -> None:
    _, asm = llvm_of(block(16, 16, 100), machine)
    words = [line.split()[0] for line in asm.splitlines() if line.startswith("\t") and line.split()]
    assert not {"vmovss", "vinsertps", "vextractps", "vgatherdps"} & set(words)
    assert sum(word.startswith(("vshuf", "vunpck", "vperm", "vinsertf", "vblend")) for word in words) >= 32


def test_with_what_is_computed_on_the_way() -> None:
    func = block(8, 8, 11, value="A[v, u + 3] * A[v, u] + T.Cast('float32', u)")
    data = np.random.default_rng(0).random((8, 11), np.float32)
    out = np.zeros((8, 8), np.float32)
    assert len(loads(lower_func(func, {}, LowerOptions(vector_bytes=32)))) == 16
    assert Native(func, machine=V3)(data, out) == 0
    np.testing.assert_allclose(out, (data[:, 3:] * data[:, :8]).T + np.arange(8, dtype="float32")[:, None], rtol=1e-6)


def test_what_is_stored_may_be_read_in_later_turns() -> None:
    """In place, and through pointers that may be the same: column by column, as it is written."""
    text = """
@T.prim_func
def main(A: T.Buffer((64,), "float32")):
    for u in range(8):
        for v in T.vectorized(8):
            A[u * 8 + v] = A[v * 8 + u] + T.float32(1)
"""
    func = mlcc.parse(text)["main"]
    assert isinstance(func, tir.PrimFunc)
    data = np.arange(64, dtype=np.float32)
    expected = data.copy()
    run_prim_func(func, [expected])
    assert not any(isinstance(n, tir.Shuffle) for n in walk(lower_func(func).body))
    assert Native(func, machine=V3)(data) == 0
    np.testing.assert_array_equal(data, expected)


def test_neighbours_are_no_columns() -> None:
    func = block(8, 8, 11, value="A[v, 3] + A[0, v]")
    assert not any(isinstance(n, tir.Shuffle) for n in walk(lower_func(func).body))


@pytest.mark.parametrize(
    "body",
    [
        "B[u, v] = T.if_then_else(v < {n}, A[v, u], T.float32(0))",
        "B[u, v] = T.if_then_else(v < {n} and A[v, u] < T.float32(50), T.float32(1), T.float32(0))",
        "if v < {n}:\n                B[u, v] = A[v, u]",
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_rows_that_no_lane_reads_are_not_loaded(body: str, inside: bool) -> None:
    """The data end where the condition does: 6 rows, of 8."""
    loops = (
        ("for v in T.vectorized(8):", "for u in range(8):")
        if inside
        else ("for u in range(8):", "for v in T.vectorized(8):")
    )
    text = f"""
@T.prim_func
def main(A: T.Buffer((6, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    T.func_attr({{"tir.noalias": True}})
    {loops[0]}
        {loops[1]}
            {body.format(n=6)}
"""
    func = mlcc.parse(text)["main"]
    results = []
    for made in (func, lower_func(func, {}, LowerOptions(vector_bytes=32))):
        data = fenced(np.random.default_rng(0).integers(0, 100, (6, 8)).astype("float32"), before=False)
        out = np.full((8, 8), -1, "float32")
        run_prim_func(made, [data, out])
        results.append(out)
    np.testing.assert_array_equal(*results)
    out = np.full((8, 8), -1, "float32")
    assert Native(func, machine=V3)(data, out) == 0
    np.testing.assert_array_equal(out, results[0])

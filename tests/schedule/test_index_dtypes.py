"""Loops and axes of 32 and 64 bits together: no primitive binds an axis to a wider value, and the verifier sees one."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.verify import verify


def program(bits: tuple[int, int, int, int]) -> str:
    """Two stages; widths of the loops of the first, of its axes, of the buffer between, of the second stage."""

    def size(width: int, n: int = 16) -> str:
        return f"T.int64({n})" if width == 64 else str(n)

    loops, axes, between, second = bits
    return f"""
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), D: T.Buffer((16, 16), "float32")):
    B = T.alloc_buffer(({size(between)}, {size(between)}))
    for i, j in T.grid({size(loops)}, {size(loops)}):
        with T.block("B"):
            vi = T.axis.spatial({size(axes)}, {"i" if loops <= axes else 'T.Cast("int32", i)'})
            vj = T.axis.spatial({size(axes)}, {"j" if loops <= axes else 'T.Cast("int32", j)'})
            B[vi, vj] = A[vi, vj] + T.if_then_else(vi < vj, T.float32(1), T.float32(2))
    for i, j in T.grid({size(second)}, {size(second)}):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = B[vi // 2, vj] * T.float32(3)
"""


STEPS: dict[str, Callable[[mlcc.Schedule], object]] = {
    "compute_at": lambda s: s.compute_at(s.get_block("B"), s.get_loops(s.get_block("D"))[0]),
    "compute_at inner": lambda s: s.compute_at(s.get_block("B"), s.get_loops(s.get_block("D"))[1]),
    "reverse_compute_at": lambda s: s.reverse_compute_at(s.get_block("D"), s.get_loops(s.get_block("B"))[0]),
    "compute_inline": lambda s: s.compute_inline(s.get_block("B")),
    "fuse": lambda s: s.fuse(*s.get_loops(s.get_block("B"))),
    "split": lambda s: s.split(s.get_loops(s.get_block("D"))[0], [None, 3]),
    "blockize": lambda s: s.blockize(s.get_loops(s.get_block("D"))[1]),
    "cache_read": lambda s: s.cache_read(s.get_block("D"), 0, "global"),
    "cache_index": lambda s: s.cache_index(s.get_block("D"), "global"),
    "reindex": lambda s: s.reindex(s.get_block("D"), ("read", 0)),
    "transform_layout": lambda s: s.transform_layout(s.get_block("B"), ("write", 0), lambda i, j: (i // 4, j, i % 4)),
    "transform_block_layout": lambda s: s.transform_block_layout(s.get_block("D"), lambda i, j: (i * 16 + j,)),
    "loop_partition": lambda s: s.loop_partition(s.get_loops(s.get_block("D"))[0], [None, 5]),
    "read_at": lambda s: s.read_at(s.get_loops(s.get_block("D"))[0], s.get_block("D"), 0, "global"),
}


def narrowed(module: mlcc.IRModule) -> list[str]:
    """The blocks with an axis that is bound to a wider value."""
    blocks = [n for s in module["main"].body for n in walk(s) if isinstance(n, tir.BlockRealize)]
    return [
        r.block.name
        for r in blocks
        for axis, value in zip(r.block.iter_vars, r.values, strict=True)
        if value.dtype.bits > axis.var.dtype.bits
    ]


@pytest.mark.parametrize("bits", list(itertools.product((32, 64), repeat=4)), ids=str)
def test_no_axis_is_narrower_than_its_value(bits: tuple[int, int, int, int]) -> None:
    module = mlcc.parse(program(bits))
    a = np.random.default_rng(1).random((16, 16), np.float32)
    want = None
    for name, step in STEPS.items():
        sch = mlcc.Schedule(module)
        try:
            step(sch)
        except mlcc.CompileError:
            continue
        assert not verify(sch.mod) and not narrowed(sch.mod), name
        if name.startswith(("compute_at", "reverse", "compute_inline")) or want is None:
            out = np.zeros((16, 16), np.float32)
            mlcc.load(mlcc.build(sch.mod, "llvm", opt_level=1))["main"](a, out)
            want = out if want is None else want
            np.testing.assert_array_equal(out, want)


def test_the_verifier_sees_an_axis_that_is_too_narrow() -> None:
    with pytest.raises(mlcc.CompileError) as caught:
        mlcc.build(
            mlcc.parse("""
@T.prim_func
def main(A: T.Buffer((16,), "float32")):
    for i in T.serial(T.int64(16)):
        with T.block("A"):
            vi = T.axis.spatial(16, i)
            A[vi] = T.float32(1)
"""),
            "llvm",
        )
    assert [d.code for d in caught.value.diagnostics] == ["E0337"]
    assert "axis `vi` of block `A` is int32, but bound to int64" in str(caught.value)

"""Index maps over sampled integers: as design spaces write them, in scripts, traces and Python."""

from __future__ import annotations

import pytest

import mlcc
from mlcc.ir.equal import assert_structural_equal

TEXT = """
@T.prim_func
def main(A: T.Buffer((32, 64), "float32"), C: T.Buffer((32, 64), "float32")):
    for i, j in T.grid(32, 64):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] + T.float32(1)
"""
SCRIPT = """
b = sch.get_block("C")
i, j = sch.get_loops(b)
v0, v1 = sch.sample_perfect_tile(i, n=2, decision=[8, 4])
c = sch.cache_read(b, 0, "global")
sch.transform_layout(b, ("read", 0), lambda x, y: (x // v1 // (v0 // 4), y, x % (v1 * (v0 // 4))))
sch.transform_block_layout(c, lambda x, y: (x // v1, x % v1 * 64 + y))
"""


def plain(*factors: int) -> mlcc.IRModule:
    """What the script makes for these decisions, in numbers."""
    a, b = factors
    script = SCRIPT.replace("[8, 4]", str([a, b])).replace("v0, v1 = sch", "_ = sch")
    return mlcc.apply_schedule(mlcc.parse(TEXT), script.replace("v0", str(a)).replace("v1", str(b)))


def test_sampled_integers_are_the_numbers_that_were_chosen() -> None:
    assert_structural_equal(mlcc.apply_schedule(mlcc.parse(TEXT), SCRIPT), plain(8, 4))


def scheduled() -> mlcc.Schedule:
    sch = mlcc.Schedule(mlcc.parse(TEXT))
    block = sch.get_block("C")
    v0, v1 = sch.sample_perfect_tile(sch.get_loops(block)[0], n=2, decision=[8, 4])
    cache = sch.cache_read(block, 0, "global")
    sch.transform_layout(block, ("read", 0), lambda x, y: (x // v1 // (v0 // 4), y, x % (v1 * (v0 // 4))))
    sch.transform_block_layout(cache, lambda x, y: (x // v1, x % v1 * 64 + y))
    return sch


def test_python_maps_take_handles() -> None:
    assert_structural_equal(scheduled().mod, plain(8, 4))


def test_traces_keep_them_symbolic() -> None:
    sch = scheduled()
    text = str(sch.trace)
    assert "lambda x, y: (x // v4 // (v3 // 4), y, x % (v4 * (v3 // 4)))" in text
    assert_structural_equal(mlcc.apply_schedule(mlcc.parse(TEXT), text), sch.mod)
    again = mlcc.apply_schedule(mlcc.parse(TEXT), text.replace("[8, 4]", "[16, 2]"))
    assert_structural_equal(again, plain(16, 2))


def test_another_decision_makes_another_map() -> None:
    sch = scheduled()
    (sample,) = [i for i in sch.trace.insts if i.is_sampling]
    other = mlcc.Schedule(mlcc.parse(TEXT))
    sch.trace.with_decision(sample, [4, 8]).apply_to_schedule(other)
    assert_structural_equal(other.mod, plain(4, 8))
    assert "decision=[4, 8]" in str(other.trace) and "// v4" in str(other.trace)
    simple = sch.trace.simplified()
    assert any(i is sample for i in simple.insts), "the map uses what it sampled"


def test_a_value_of_another_schedule_is_refused() -> None:
    mine, other = mlcc.Schedule(mlcc.parse(TEXT)), mlcc.Schedule(mlcc.parse(TEXT))
    v, _ = other.sample_perfect_tile(other.get_loops(other.get_block("C"))[0], n=2)
    with pytest.raises(mlcc.CompileError, match="E0613.*not a value of this schedule"):
        mine.transform_layout(mine.get_block("C"), ("read", 0), lambda x, y: (x // v, y, x % v))
    assert len(mine.trace) == 1, "the look-up alone"


def test_symbolic_expressions_are_no_other_arguments() -> None:
    script = SCRIPT + 'sch.annotate(b, "key", T.Cast("int64", v0) * 2)\n'
    with pytest.raises(mlcc.CompileError, match="E0613"):
        mlcc.apply_schedule(mlcc.parse(TEXT), script)


def test_maps_with_an_inverse_are_accepted() -> None:
    maps = "lambda x, y: (x // 4, y, x % 4), inverse_index_map=lambda a, b, c: (a * 4 + c, b)"
    lines = 'b = sch.get_block("C")\nsch.transform_layout(block=b, buffer=("read", 0), index_map=MAP)\n'
    module = mlcc.parse(TEXT)
    plainly = mlcc.apply_schedule(module, lines.replace("MAP", maps.split(", inverse")[0]))
    for name in ("tvm.tir.IndexMap", "tvm.tirx.IndexMap"):
        assert_structural_equal(mlcc.apply_schedule(module, lines.replace("MAP", f"{name}.from_func({maps})")), plainly)
    with pytest.raises(mlcc.CompileError, match="E0606.*functions of indices"):
        mlcc.apply_schedule(module, lines.replace("MAP", "tvm.tir.IndexMap.from_func(3)"))

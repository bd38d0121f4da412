"""Stages that move and disappear, every block at every loop: as TVM does it."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest

tvm = pytest.importorskip("tvm")

import mlcc  # noqa: E402
from mlcc.ir.equal import assert_structural_equal  # noqa: E402
from tests.interop.harness import from_tvm  # noqa: E402
from tests.interop.schedule import programs  # noqa: E402
from tests.interop.schedule.agree import read, theirs  # noqa: E402
from tests.schedule.tools import assert_same_results  # noqa: E402

FAMILIES = (
    "elementwise", "diamond", "matmul_chain", "two_matmuls", "padded_matmul", "conv2d", "pooling", "blur", "softmax",
    "layer_norm", "symbolic", "transpose", "gather", "resize", "nested", "matched", "split_nest", "padding", "opaque",
    "kinds_of_loops", "separate", "shifted", "shared_copy", "predicated",
)  # fmt: skip
ON_PURPOSE = re.compile(
    r"E0646.*reads it too|E0645.*the same element in several|E0650.*runs before loop|E0652|E0669|"
    r"E0651.*(more than once|before they are finished|not a multiple of them|for a part of its axis)",
    re.DOTALL,
)
read = functools.cache(read)


def compare(text: str, step: tuple[str, tuple[Any, ...], dict[str, Any]]) -> bool | None:
    """Was the step accepted by both? None if one refuses on purpose what the other one accepts."""
    module, mirrored = read(text)
    name, args, kwargs = step
    other = theirs(module, step)
    sch = mlcc.Schedule(mirrored)
    handles = [sch.get_loops(a[1])[a[2]] if isinstance(a, tuple) else a for a in args]
    try:
        getattr(sch, name)(*handles, **kwargs)
    except mlcc.CompileError as exc:
        if other is not None and ON_PURPOSE.search(str(exc)):
            return None
        assert other is None, f"{text}\nmlcc alone refuses {step}: {exc}"
        return False
    if other is None and name == "reverse_compute_at":  # a producer that is done before the loops begin
        assert_same_results(mirrored, sch.mod)
        return None
    assert other is not None, f"{text}\nTVM alone refuses {step}"
    assert_structural_equal(sch.mod, from_tvm(other))
    return True


def blocks(text: str) -> list[tuple[str, int]]:
    """Blocks that have a name of their own, and how many loops are around each."""
    tree = mlcc.Schedule(read(text)[1]).state.tree("main")
    names = [r.block.name for r in tree.realizes[1:]]
    return [(r.block.name, len(tree.loops_above(r.block))) for r in tree.realizes[1:] if names.count(r.block.name) == 1]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("primitive", ["compute_at", "reverse_compute_at"])
def test_moves_to_every_loop_agree(primitive: str, family: str) -> None:
    for seed in range(1):
        text = programs.program(family, f"moves {seed}", programs.SMALL)
        known = blocks(text)
        for moved, _ in known:
            for other, depth in known:
                for at in range(depth if other != moved else 0):
                    options = {"preserve_unit_loops": bool((at + seed) % 2), "index": -1 - (at % 2)}
                    compare(text, (primitive, (moved, ("loop", other, at)), options))


@pytest.mark.parametrize("family", FAMILIES)
def test_inlining_every_block_agrees(family: str) -> None:
    for seed in range(2):
        text = programs.program(family, f"inline {seed}", programs.SMALL)
        for name, _ in blocks(text):
            compare(text, ("compute_inline", (name,), {}))
            if "()" not in text:  # blocks without axes go on purpose
                compare(text, ("reverse_compute_inline", (name,), {}))


@pytest.mark.parametrize("index", [-3, -2, -1, 0, 1, 2, 3])
def test_insertion_positions_agree(index: int) -> None:
    text = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    X = T.sblock_alloc_buffer((8,))
    for i in range(8):
        with T.sblock("X"):
            vi = T.axis.spatial(8, i)
            X[vi] = A[vi] + T.float32(1)
    for i in range(8):
        with T.sblock("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
        with T.sblock("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = X[vi] * T.float32(2)
"""
    assert compare(text, ("compute_at", ("X", ("loop", "C", 0)), {"index": index})) is (-3 < index < 2)


EPILOGUES = {
    "C[vi, vj] + bias[vj]": True, "bias[vj] + C[vi, vj]": True, "C[vi, vj]": True,
    "bias[vj] * bias[vj] + C[vi, vj]": True,
    "T.max(C[vi, vj] + bias[vj], T.float32(0))": None, "T.min(T.max(C[vi, vj], T.float32(-5)), T.float32(5))": None,
    "C[vi, vj] * T.float32(2) + bias[vj]": False, "C[vi, vj] / bias[vj]": False, "C[vi, vj] + C[vi, vj]": False,
    "bias[vj] - C[vi, vj]": None, "T.exp(C[vi, vj])": None, "bias[vj]": False,
}  # fmt: skip


@pytest.mark.parametrize("value", EPILOGUES)
def test_moved_epilogues_agree(value: str) -> None:
    text = f"""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8, 6)), B: T.Buffer((6, 10)), bias: T.Buffer((10,)), D: T.Buffer((8, 10))):
    C = T.sblock_alloc_buffer((8, 10))
    for i, j, k in T.grid(8, 10, 6):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(8, 10):
        with T.sblock("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = {value}
"""
    assert compare(text, ("fuse_reduction_epilogue", ("C", "D"), {})) is EPILOGUES[value]
    if EPILOGUES[value] is None and "T.m" in value:  # what TVM makes is made when asked for
        module, mirrored = read(text)
        sch = mlcc.Schedule(mirrored)
        sch.fuse_reduction_epilogue("C", "D", every_step=True)
        assert_structural_equal(sch.mod, from_tvm(theirs(module, ("fuse_reduction_epilogue", ("C", "D"), {}))))


TRANSPOSED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((6,), "float32"), C: T.Buffer((8,), "float32")):
    P = T.sblock_alloc_buffer((6,), "float32")
    for i in range(6):
        with T.sblock("P"):
            vi = T.axis.spatial(6, i)
            P[vi] = A[vi] * T.float32(2)
    for o, i, r in T.grid(4, 2, 4):
        with T.sblock("C"):
            vh = T.axis.spatial(8, o * 2 + i)
            vr = T.axis.reduce(4, r)
            with T.init():
                C[vh] = T.float32(0)
            C[vh] = C[vh] + P[(vh + vr) // 2]
"""


def test_minima_that_ranges_decide_stand_as_in_tvm() -> None:
    step = ("compute_at", ("P", ("loop", "C", 1)), {})
    assert compare(TRANSPOSED, step)
    sch = mlcc.Schedule(read(TRANSPOSED)[1])
    sch.compute_at("P", sch.get_loops("C")[1])
    assert "T.min(o, " in mlcc.script(sch.mod)
    lowered = mlcc.script(mlcc.run_passes(sch.mod, "lower-loops"))
    assert "range((i + 3) // 2 + 1)" in lowered and "T.min" not in lowered
    assert_same_results(read(TRANSPOSED)[1], sch.mod)

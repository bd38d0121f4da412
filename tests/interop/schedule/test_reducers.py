"""Which reductions can be taken apart: those that TVM's rfactor takes."""

from __future__ import annotations

import pytest

tvm = pytest.importorskip("tvm")

from mlcc.ir import tir  # noqa: E402
from mlcc.passes.schedule.analysis.reducers import reduction_parts  # noqa: E402
from mlcc.passes.schedule.refusal import Refusal  # noqa: E402
from mlcc.passes.schedule.tree import Tree  # noqa: E402
from tests.interop.harness import from_tvm, to_tvm  # noqa: E402

HEAD = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16, 16), "{d}"), K: T.Buffer((16, 16), "int32"), P: T.Buffer((16,), "int32"),
         C: T.Buffer((16,), "{d}"), D: T.Buffer((16,), "{d}")):
    for i, k in T.grid(16, 16):
        with T.sblock("X"):
            vi, vk = T.axis.remap("SR", [i, k])
"""

SINGLE = {
    "sum": ("0", "C[vi] + A[vi, vk]"),
    "sum, the other way": ("0", "A[vi, vk] + C[vi]"),
    "sum from 1": ("1", "C[vi] + A[vi, vk]"),
    "product": ("1", "C[vi] * A[vi, vk]"),
    "product from 0": ("0", "C[vi] * A[vi, vk]"),
    "max": ("T.min_value({q})", "T.max(C[vi], A[vi, vk])"),
    "max from 0": ("0", "T.max(C[vi], A[vi, vk])"),
    "min": ("T.max_value({q})", "T.min(C[vi], A[vi, vk])"),
    "difference": ("0", "C[vi] - A[vi, vk]"),
    "of a product": ("0", "C[vi] + A[vi, vk] * A[vk, vi]"),
    "of itself": ("0", "C[vi] + C[vi]"),
    "associated otherwise": ("0", "C[vi] + A[vi, vk] + A[vk, vi]"),
    "elsewhere": ("0", "C[vk] + A[vi, vk]"),
}

PAIR = {
    "argmax": (">=", ">=", "min", "P[vi]", "K[vi, vk]"),
    "argmin": ("<=", "<=", "max", "P[vi]", "K[vi, vk]"),
    "argmax, strict": (">", ">", "min", "P[vi]", "K[vi, vk]"),
    "mixed": (">=", "<=", "min", "P[vi]", "K[vi, vk]"),
    "swapped": (">=", ">=", "min", "K[vi, vk]", "P[vi]"),
    "argmax from the largest": (">=", ">=", "max", "P[vi]", "K[vi, vk]"),
}


def single(dtype: str, start: str, update: str) -> str:
    start = start.replace("{q}", f'"{dtype}"') if "T." in start else f"T.{dtype}({start})"
    return (
        HEAD.format(d=dtype)
        + f"""
            with T.init():
                C[vi] = {start}
            C[vi] = {update}
"""
    )


def pair(dtype: str, one: str, two: str, worst: str, yes: str, no: str) -> str:
    return (
        HEAD.format(d=dtype)
        + f"""
            with T.init():
                P[vi] = -1
                C[vi] = T.{worst}_value("{dtype}")
            v0: T.let[T.int32] = T.Select(C[vi] {one} A[vi, vk], {yes}, {no})
            v1: T.let[T.{dtype}] = T.Select(C[vi] {two} A[vi, vk], C[vi], A[vi, vk])
            P[vi] = v0
            C[vi] = v1
"""
    )


TIES = (
    HEAD.format(d="float32")
    + """
            with T.init():
                P[vi] = -1
                C[vi] = T.min_value("float32")
            v0: T.let[T.int32] = T.Select({wins}, P[vi], K[vi, vk])
            v1: T.let[T.float32] = T.Select(C[vi] > A[vi, vk], C[vi], A[vi, vk])
            P[vi] = v0
            C[vi] = v1
"""
)  # noqa: E501
SUMS = (
    HEAD.format(d="float32")
    + """
            with T.init():
                D[vi] = T.float32(0)
                C[vi] = T.float32(0)
            v0: T.let[T.float32] = C[vi] + A[vi, vk]
            v1: T.let[T.float32] = D[vi] + A[vi, vk] * A[vi, vk]
            {stores}
"""
)
STORES = {
    "two sums": "C[vi] = v0\n            D[vi] = v1",
    "two sums, stored in the other order": "D[vi] = v1\n            C[vi] = v0",
    "crossed": "C[vi] = v1\n            D[vi] = v0",
    "one stored twice": "C[vi] = v0\n            C[vi] = v1",
    "one not stored": "C[vi] = v0",
}

WINS = "C[vi] > A[vi, vk] or C[vi] == A[vi, vk] and P[vi] < K[vi, vk]"

CASES = {
    **{f"{n}, {d}": single(d, *c) for d in ("float32", "int32", "int64", "float16") for n, c in SINGLE.items()},
    **{f"{n}, {d}": pair(d, *c) for d in ("float32", "int32") for n, c in PAIR.items()},
    **{n: SUMS.format(stores=s) for n, s in STORES.items()},
    "argmax with ties": TIES.replace("{wins}", WINS),
}


@pytest.mark.parametrize("name", CASES)
def test_rfactor_takes_what_can_be_taken_apart(name: str) -> None:
    mod = to_tvm(CASES[name])
    sch = tvm.s_tir.Schedule(mod)
    try:
        sch.rfactor(sch.get_loops(sch.get_sblock("X"))[1], 0)
        theirs = True
    except tvm.s_tir.ScheduleError:
        theirs = False
    func = from_tvm(mod)["main"]
    assert isinstance(func, tir.PrimFunc)
    (block,) = Tree(func).blocks_named("X")
    try:
        reduction_parts(block)
        mine = True
    except Refusal:
        mine = False
    assert mine == theirs

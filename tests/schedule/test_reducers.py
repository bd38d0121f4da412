"""Reductions taken apart."""

from __future__ import annotations

import pytest

import mlcc
from mlcc.ir import tir
from mlcc.passes.schedule.analysis.reducers import ReductionParts, reduction_parts
from mlcc.passes.schedule.refusal import Refusal

HEAD = """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), K: T.Buffer((16, 16), "int32"),
         P: T.Buffer((16,), "int32"), C: T.Buffer((16,), "float32"), D: T.Buffer((8,), "float32")):
    for i, k in T.grid(16, 16):
        with T.block("X"):
            vi, vk = T.axis.remap("SR", [i, k])
"""


def block_of(body: str) -> tir.Block:
    text = HEAD + "".join(f"            {line}\n" for line in body.strip("\n").splitlines())
    func = mlcc.parse(text)["main"]
    assert isinstance(func, tir.PrimFunc) and func.root is not None
    (i,) = func.root.body
    assert isinstance(i, tir.For) and isinstance(i.body[0], tir.For)
    realize = i.body[0].body[0]
    assert isinstance(realize, tir.BlockRealize)
    return realize.block


def single(start: str, update: str) -> tir.Block:
    return block_of(f"with T.init():\n    C[vi] = {start}\nC[vi] = {update}")


@pytest.mark.parametrize(
    ("start", "update", "rhs"),
    [
        ("T.float32(0)", "C[vi] + A[vi, vk]", "A[vi, vk]"),
        ("T.float32(0)", "C[vi] + A[vi, vk] * A[vk, vi]", "A[vi, vk] * A[vk, vi]"),
        ("T.float32(1)", "C[vi] * T.exp(A[vi, vk])", "T.exp(A[vi, vk])"),
        ('T.max_value("float32")', "T.min(C[vi], A[vi, vk])", "A[vi, vk]"),
        ('T.min_value("float32")', "T.max(C[vi], A[vi, vk])", "A[vi, vk]"),
    ],
)
def test_reductions_of_one_output_are_taken_apart(start: str, update: str, rhs: str) -> None:
    block = single(start, update)
    parts = reduction_parts(block)
    assert [str(r) for r in parts.rhs] == [rhs]
    assert [str(x) for x in parts.lhs] == ["C[vi]"] and [b.name for b in parts.buffers] == ["C"]
    store = block.body[0]
    assert isinstance(store, tir.BufferStore)
    (again,) = parts.combine(parts.lhs, parts.rhs)
    assert mlcc.structural_equal(again, store.value, map_free_vars=True)


def pair(first: str, second: str, start: str = "T.float32(-3.4028234663852886e+38)",
         stores: str = "P[vi] = v0\nC[vi] = v1", place: str = "-1") -> tir.Block:  # fmt: skip
    return block_of(
        f"with T.init():\n    P[vi] = {place}\n    C[vi] = {start}\n"
        f"v0: T.int32 = {first}\nv1: T.float32 = {second}\n{stores}"
    )


INIT = "with T.init():\n    C[vi] = T.float32(0)\n"
MOST = ("T.Select(C[vi] >= A[vi, vk], P[vi], K[vi, vk])", "T.Select(C[vi] >= A[vi, vk], C[vi], A[vi, vk])")


def check_pair(parts: ReductionParts) -> None:
    assert [str(r) for r in parts.rhs] == ["K[vi, vk]", "A[vi, vk]"]
    assert [b.name for b in parts.buffers] == ["P", "C"]
    assert [str(v) for v in parts.init_values][0] == "-1"


def test_argmax_is_taken_apart() -> None:
    check_pair(reduction_parts(pair(*MOST)))
    wins = "C[vi] > A[vi, vk]"
    tie = f"{wins} or (C[vi] == A[vi, vk] and P[vi] < K[vi, vk])"
    check_pair(reduction_parts(pair(f"T.Select({tie}, P[vi], K[vi, vk])", f"T.Select({wins}, C[vi], A[vi, vk])")))


def test_argmin_is_taken_apart() -> None:
    least = [side.replace(">=", "<=") for side in MOST]
    check_pair(reduction_parts(pair(*least, start="T.float32(3.4028234663852886e+38)")))


def test_outputs_follow_the_order_of_the_bound_values() -> None:
    parts = reduction_parts(pair(*MOST, stores="C[vi] = v1\nP[vi] = v0"))
    check_pair(parts)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (single("T.float32(1)", "C[vi] + A[vi, vk]"), "by sum from the start value .* not neutral"),
        (single("T.float32(0)", "C[vi] - A[vi, vk]"), "not known to be a reduction: C.vi. = C.vi. - A"),
        (single("T.float32(0)", "A[vi, vk] + C[vi]"), "not known to be a reduction"),
        (single("T.float32(0)", "A[vi, vk]"), "not known"),
        (pair(MOST[0], "T.Select(C[vi] >= A[vi, vk], A[vi, vk], C[vi])"), "not known"),
        (pair(*MOST, place="0"), "argmax .* not neutral"),
    ],
)
def test_unknown_combiners_are_refused(block: tir.Block, words: str) -> None:
    with pytest.raises(Refusal, match=words) as caught:
        reduction_parts(block)
    assert caught.value.code == "E0669" and caught.value.at == (block,) and caught.value.help


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("C[vi] = C[vi] + A[vi, vk]", "no init that stores"),
        ("with T.init():\n    for x in range(1):\n        C[vi] = T.float32(0)\nC[vi] = C[vi]", "its init does"),
        (INIT + "    C[vi] = T.float32(1)\nC[vi] = C[vi] + A[vi, vk]",
         "its init stores to `C` twice"),
        (INIT + "for x in range(2):\n    C[vi] = C[vi] + A[vi, vk]", "begin by binding"),
        (INIT + "C[vi] = C[vi]\nC[vi] = C[vi]", "begin by binding"),
        (INIT + "P[vi] = P[vi] + 1", "its body stores to `P`, and its init to `C`"),
        (INIT + "C[vi + 1] = C[vi + 1] + A[vi, vk]", "at different indices"),
        (INIT + "v: T.float32 = C[vi] + A[vi, vk]\nC[vi] = v + v", "not one of the variab"),
        (INIT + "v: T.float32 = C[vi] + A[vi, vk]\nT.evaluate(v)", "does more than bind new values and store them"),
        (INIT + "v: T.float32 = C[vi] + A[vi, vk]", "stores 0 values for 1 outputs"),
        (INIT + "    D[vi] = T.float32(0)\nv: T.float32 = C[vi] + A[vi, vk]\n"
         "w: T.float32 = D[vi] + A[vi, vk]\nC[vi] = v\nD[vi] = w", "`C` and `D` have different shapes"),
    ],
)  # fmt: skip
def test_other_forms_are_refused(body: str, words: str) -> None:
    block = block_of(body)
    with pytest.raises(Refusal, match=words) as caught:
        reduction_parts(block)
    assert caught.value.code == "E0668" and caught.value.at == (block,)


def test_one_output_through_a_variable() -> None:
    parts = reduction_parts(block_of(INIT + "v: T.float32 = C[vi] + A[vi, vk]\nC[vi] = v"))
    assert str(parts.rhs[0]) == "A[vi, vk]" and parts.indices == parts.updates[0].indices

"""`simplify-arg-updates`: only where the index that is kept is less than that of every later element."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.arith.analyzer import Analyzer
from mlcc.interp.graph import run_function
from mlcc.ir import tir
from mlcc.ir.node import find

TEXT = """
@T.prim_func
def main(A: T.Buffer((4, 6, 7), "float32"), P: T.Buffer((4,), "int64")):
    V = T.alloc_buffer((4,))
    for i, j, k in T.grid(4, 6, 7):
        with T.block("arg"):
            vi, vj, vk = T.axis.remap("SRR", [i, j, k])
            with T.init():
                P[vi] = T.int64(-1)
                V[vi] = T.float32("-inf")
            p: T.int64 = T.Select(P[vi] >= T.int64(0) and (INDEX < T.int64(0) or V[vi] > VALUE or V[vi] == VALUE and P[vi] < INDEX), P[vi], INDEX)
            v: T.float32 = T.Select(V[vi] > VALUE, V[vi], VALUE)
            P[vi] = p
            V[vi] = v
"""  # noqa: E501
FLAT = 'T.Cast("int64", vj * 7 + vk)'


def text(index: str = FLAT, value: str = "A[vi, vj, vk]") -> str:
    return TEXT.replace("INDEX", index).replace("VALUE", value)


def compares_indices(source: str) -> bool:
    """Whether the update still compares the kept index with that of the element."""
    made = mlcc.run_passes(mlcc.parse(source), "init-empty-reductions,simplify-arg-updates", target="llvm")["main"]
    bind = next(find(made, tir.Bind))
    kept = (n for n in find(bind.value, tir.LT) if isinstance(n.lhs, tir.BufferLoad) and n.lhs.buffer.name == "P")
    return any(not isinstance(node.rhs, tir.IntImm) for node in kept)


def run(source: str, a: np.ndarray) -> np.ndarray:
    place = np.empty(4, np.int64)
    mlcc.load(mlcc.build(mlcc.parse(source), opt_level=1))["main"](a, place)
    return place


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        (text(), False),
        (text('T.Cast("int64", vj * 8 + vk + 3)'), False),
        (text('T.Cast("int64", vk * 6 + vj)'), True),
        (text('T.Cast("int64", vj * 6 + vk)'), True),  # the last of a row has the index of the next one's first
        (text('T.Cast("int64", vj * 7 + vk - 1)'), True),
        (text('T.Cast("int64", 41 - vj * 7 - vk)'), True),
        (text().replace("[i, j, k]", "[i, k, j]").replace("grid(4, 6, 7)", "grid(4, 7, 6)"), True),
        (text().replace("T.int64(-1)", "T.int64(9)"), True),
        (text().replace("for i, j, k in T.grid(4, 6, 7)", "for i, again, j, k in T.grid(4, 2, 6, 7)"), True),
        (text().replace("for i, j, k in T.grid(4, 6, 7)", "for j, k, i in T.grid(6, 7, 4)"), False),
    ],
)
def test_only_ascending_indices(source: str, kept: bool) -> None:
    assert compares_indices(source) is kept
    a = np.random.default_rng(0).integers(0, 9, (4, 6, 7)).astype(np.float32)
    a[1] = -np.inf
    want = np.empty(4, np.int64)
    run_function(mlcc.parse(source), "main", [a, want])
    np.testing.assert_array_equal(run(source, a), want)


@pytest.mark.parametrize(
    ("source", "starts"),
    [
        (text(), [0]),
        (text('T.Cast("int64", vj * 8 + vk + 3)'), [3]),
        (text().replace("for i, j, k in T.grid(4, 6, 7)", "for i, again, j, k in T.grid(4, 1, 6, 7)"), [0]),
        (text().replace("            with T.init", "            T.where(k < 5)\n            with T.init"), [-1]),
        (text().replace('T.float32("-inf")', "T.float32(-3.4028234663852886e+38)"), [-1]),
        (text().replace('T.float32("-inf")', 'T.float32("inf")'), [-1]),
    ],
)
def test_kept_indices_start_from_the_first_where_nothing_is_worse(source: str, starts: list[int]) -> None:
    made = mlcc.run_passes(mlcc.parse(source), "init-empty-reductions,simplify-arg-updates", target="llvm")["main"]
    stores = [s.value for s in find(made, tir.BufferStore) if s.buffer.name == "P" and not isinstance(s.value, tir.Var)]
    assert [Analyzer().simplify(value).value for value in stores] == starts  # type: ignore[attr-defined]
    a = np.random.default_rng(0).integers(0, 9, (4, 6, 7)).astype(np.float32)
    a[1] = -np.inf
    a[2, 0, 0] = -np.inf
    a[3] = -np.inf
    a[3, 2] = np.finfo(np.float32).min
    want = np.empty(4, np.int64)
    run_function(mlcc.parse(source), "main", [a, want])
    np.testing.assert_array_equal(run(source, a), want)


def test_padded_elements_are_never_taken() -> None:
    """They are pairs of -1 and an infinity."""
    inside = "vk < 5"
    source = text(
        f"T.if_then_else({inside}, {FLAT}, T.int64(-1))", f'T.if_then_else({inside}, A[vi, vj, vk], T.float32("-inf"))'
    )
    assert compares_indices(source)  # NaN would take none
    numbers = source.replace('"float32"', '"int32"').replace("float32", "int32").replace('T.int32("-inf")', "LEAST")
    numbers = numbers.replace("LEAST", 'T.min_value("int32")').replace(
        "alloc_buffer((4,))", 'alloc_buffer((4,), "int32")'
    )
    assert not compares_indices(numbers)
    a = np.random.default_rng(0).integers(0, 9, (4, 6, 7)).astype(np.int32)
    a[1] = np.iinfo(np.int32).min
    want = a[..., :5].reshape(4, -1).argmax(1)
    np.testing.assert_array_equal(run(numbers, a), want // 5 * 7 + want % 5)


@pytest.mark.parametrize(("offset", "kept"), [(0, False), (86, False), (87, True)])
def test_indices_in_fewer_bits_must_fit(offset: int, kept: bool) -> None:
    narrow = text(f'T.Cast("int8", vj * 7 + vk + {offset})').replace("T.int64", "T.int8").replace('"int64"', '"int8"')
    assert compares_indices(narrow) is kept


@pytest.mark.parametrize(
    ("extent", "dtype"), [(5, "int32"), ((1 << 31) - 1, "int32"), (1 << 31, "int64"), ("n", "int64")]
)
def test_argmax_counts_in_32_bits_where_they_are_enough(extent: int | str, dtype: str) -> None:
    shape = f'("{extent}",)' if extent == "n" else f"({extent},)"
    source = f'@R.function\ndef main(x: R.Tensor({shape}, "float32")):\n    return R.argmax(x)\n'
    made = mlcc.run_passes(mlcc.parse(source), "lower-to-tir{accurate=true}", target="llvm")
    kernel = next(f for f in made.functions.values() if isinstance(f, tir.PrimFunc))
    assert {str(bind.var.dtype) for bind in find(kernel, tir.Bind)} == {dtype, "float32"}
    assert str(kernel.buffers[-1].dtype) == "int64"

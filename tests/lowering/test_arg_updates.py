"""`simplify-arg-updates`: only where the index that is kept is less than that of every later element."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import mlcc
from mlcc.arith.analyzer import Analyzer
from mlcc.interp import run_prim_func
from mlcc.interp.graph import run_function
from mlcc.ir import tir
from mlcc.ir.node import find
from mlcc.passes.lowering.arg_updates import SimplifyArgUpdates
from mlcc.passes.lowering.options import LowerOptions
from tests.targets.harness import Native

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


START = """
for i in range(10):
    with T.block("start"):
        vi = T.axis.spatial(10, i)
        I[vi] = T.int64(-1)
        V[vi] = T.float32("-inf")
"""
UPDATE = """
for i, k in T.grid(10, 8):
    with T.block("update"):
        vi, vk = T.axis.remap("SR", [i, k])
        p: T.int64 = T.Select(I[vi] >= T.int64(0) and (T.Cast("int64", vk) < T.int64(0) or V[vi] > A[vi, vk] or V[vi] == A[vi, vk] and I[vi] < T.Cast("int64", vk)), I[vi], T.Cast("int64", vk))
        v: T.float32 = T.Select(V[vi] > A[vi, vk], V[vi], A[vi, vk])
        I[vi] = p
        V[vi] = v
"""  # noqa: E501
COPY = """
for i in range(10):
    with T.block("copy"):
        vi = T.axis.spatial(10, i)
        P[vi] = I[vi]
"""
READ = COPY.replace("P[vi] = I[vi]", "Q[vi] = I[vi]")
FEW = UPDATE.replace("T.grid(10, 8)", "T.grid(7, 8)")
BINDING = 'vi, vk = T.axis.remap("SR", [i, k])'
LATE = UPDATE.replace("T.grid(10, 8)", "T.grid(10, 5)").replace(
    BINDING, "vi = T.axis.spatial(10, i)\n        vk = T.axis.reduce(8, k + 3)"
)


def indented(text: str, spaces: int = 4) -> str:
    return textwrap.indent(text, " " * spaces)


def at_row(text: str) -> str:
    """Return the body of the loop over the rows."""
    lines = text.strip("\n").splitlines()
    inside = textwrap.dedent("\n".join(lines[1:])) + "\n"
    return inside if "T.grid" not in lines[0] else "for k in range(8):\n" + indented(inside)


PARTS = UPDATE.replace("for i, k in T.grid(10, 8)", "for i, k_1 in T.grid(10, 4)").replace(
    BINDING, "vi = T.axis.spatial(10, i)\n        vk = T.axis.reduce(8, k_0 * 4 + k_1)"
)
ROWS = "for i in range(10):\n"


@pytest.mark.parametrize(
    ("body", "starts"),
    [
        (START + UPDATE + COPY, [0]),
        (ROWS + indented(at_row(START) + at_row(UPDATE) + at_row(COPY)), [0]),
        (START + "for k_0 in range(2):\n" + indented(PARTS) + COPY, [0]),
        ("for k_0 in range(2):\n" + indented(START + PARTS) + COPY, [-1]),  # the last part has its own start
        (START + FEW + COPY, [-1]),  # three rows have no update
        (START + FEW.replace(BINDING, "vi = T.axis.spatial(10, i)\n        vk = T.axis.reduce(8, k)") + COPY, [-1]),
        (START + LATE + COPY, [-1]),  # the first index is 3
        (START + READ + UPDATE + COPY, [-1]),
        (ROWS + indented(at_row(START) + at_row(READ) + at_row(UPDATE) + at_row(COPY)), [-1]),
        (START + ROWS + indented(at_row(UPDATE) + at_row(READ)) + COPY, [0]),
        (START + ROWS + indented(at_row(UPDATE) + at_row(READ).replace("i)", "9 - i)")) + COPY, [-1]),
        (
            ROWS + indented(at_row(READ).replace("i)", "i - 1)\n    T.where(i > 0)") + at_row(START)) + UPDATE + COPY,
            [-1],
        ),
        (START + UPDATE + READ + START + COPY, [-1, -1]),
        (
            START + "for k in range(0):\n" + indented(UPDATE.replace("i, k in T.grid(10, 8)", "i in range(10)")) + COPY,
            [-1],
        ),
        ("N[0] = 0\n" + START + "while N[0] < 2:\n" + indented(UPDATE + "N[0] = N[0] + 1\n") + COPY, [-1]),
        (START + 'with T.block("outer"):\n    T.where(A[0, 0] > 9)\n' + indented(UPDATE) + COPY, [-1]),
    ],
)
def test_starts_that_the_whole_reduction_follows(body: str, starts: list[int]) -> None:
    head = """
@T.prim_func
def main(A: T.Buffer((10, 8), "float32"), P: T.Buffer((10,), "int64"), Q: T.Buffer((10,), "int64")):
    T.func_attr({"tir.noalias": True})
    I = T.alloc_buffer((10,), "int64")
    V = T.alloc_buffer((10,), "float32")
    N = T.alloc_buffer((1,), "int32")
"""
    func = mlcc.parse(head + indented(body))["main"]
    assert isinstance(func, tir.PrimFunc)
    made = SimplifyArgUpdates().lower(func, {}, LowerOptions())
    stores = [s.value for s in find(made, tir.BufferStore) if s.buffer.name == "I" and not isinstance(s.value, tir.Var)]
    assert [next(find(Analyzer().simplify(value), tir.IntImm)).value for value in stores] == starts
    a = np.random.default_rng(0).integers(0, 9, (10, 8)).astype(np.float32)
    a[[1, 8]] = -np.inf
    a[2, :5] = -np.inf
    want, native = ([a, np.zeros(10, np.int64), np.zeros(10, np.int64)] for _ in range(2))
    run_prim_func(func, want)
    assert Native(func)(*native) == 0
    for got, expected in zip(native[1:], want[1:], strict=True):
        np.testing.assert_array_equal(got, expected)


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

"""The roofline estimate of parallel loops: arithmetic at full rate or each byte of a buffer once, if that is longer."""

from __future__ import annotations

import pytest

import mlcc
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.lowering.loop_time import PER_BYTE, picoseconds
from mlcc.passes.lowering.work import KERNEL, OPERATION, iteration_picoseconds
from tests.lower import lower_func


def loop_of(
    body: str, params: str = 'A: T.Buffer((512, 512), "float32"), B: T.Buffer((512, 512), "float32")'
) -> tir.For:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    text = f"@T.prim_func\ndef f({params}):\n{lines}\n"
    lowered = lower_func(mlcc.parse(text)["f"])
    return next(n for n in walk(lowered.body) if isinstance(n, tir.For) and n.kind is tir.ForKind.PARALLEL)


def time_of(*args: str) -> int:
    found = tir.const_int(picoseconds(loop_of(*args)))
    assert found is not None
    return found


COPY = "for i in T.parallel(512):\n  for j in range(512):\n    B[{place}] = A[i, j]"


@pytest.mark.parametrize("place", ["i, j", "j, i", "511 - i, j"])
def test_copies_take_as_long_as_their_bytes(place: str) -> None:
    assert time_of(COPY.format(place=place)) >= 2 * 512 * 512 * 4 * PER_BYTE


def test_vectors_count_the_bytes_they_move() -> None:
    body = "for i in T.parallel(512):\n  for j in range(32):\n    for v in T.vectorized(16):\n      "
    assert time_of(body + "B[i, j * 16 + v] = A[i, j * 16 + v]") == 2 * 512 * 512 * 4 * PER_BYTE


def test_buffers_count_once_however_often_they_are_read() -> None:
    body = (
        "for i in T.parallel(512):\n  for j in range(32):\n    for v in T.vectorized(16):\n      B[i, j * 16 + v] = {}"
    )
    one, many = "A[i, j * 16 + v]", "T.max(A[i, j * 16 + v], T.max(A[511 - i, j * 16 + v], A[0, j * 16 + v]))"
    assert time_of(body.format(one)) == time_of(body.format(many))


def test_memory_of_an_iteration_is_no_traffic() -> None:
    body = """
for i in T.parallel(4):
    with T.block("row"):
        vi = T.axis.spatial(4, i)
        row = T.alloc_buffer((512,), "float32")
        for j in T.vectorized(16):
            with T.block("in"):
                vj = T.axis.spatial(16, j)
                row[vj] = A[vi, vj]
        for j in T.vectorized(16):
            with T.block("out"):
                vj = T.axis.spatial(16, j)
                B[vi, vj] = row[15 - vj]
"""
    assert time_of(body) == 2 * 4 * 16 * 4 * PER_BYTE


PRODUCT = """
for i in T.parallel(512):
  for k in range(512):
    for j in range(32):
      for v in T.vectorized(16):
        B[i, j * 16 + v] = B[i, j * 16 + v] + A[i, k] * A[k, j * 16 + v]
"""


def test_products_are_multiply_adds() -> None:
    """A vector of 16 floats is two operations; a quarter of that goes to the loops around."""
    vectors = 512 * 512 * 32
    assert vectors * 2 * OPERATION <= time_of(PRODUCT) <= vectors * 4 * OPERATION
    loop = loop_of(PRODUCT)
    counted = tir.const_int(iteration_picoseconds(loop))
    assert counted is not None and 512 * counted > 2 * time_of(PRODUCT)


def test_what_is_called_counts() -> None:
    exponentials = "for i in T.parallel(512):\n  for j in range(512):\n    B[i, j] = T.exp(A[i, j])"
    assert time_of(exponentials) > 10 * 512 * 512 * OPERATION
    assert KERNEL > OPERATION


def test_sizes_that_are_not_known_stay_in_the_estimate() -> None:
    params = "a: T.handle, b: T.handle"
    head = "n = T.int64()\nm = T.int64()\n"
    head += "".join(f'{b.upper()} = T.match_buffer({b}, (n, m), "float32")\n' for b in "ab")
    body = "for i in T.parallel(n):\n  for j in range(m):\n    B[i, j] = A[i, j]"
    found = picoseconds(loop_of(head + body, params))
    assert {v.name for v in walk(found) if isinstance(v, tir.Var)} == {"n", "m"}
    inner = head + body.replace("range(m)", "range(i)")
    found = picoseconds(loop_of(inner, params))
    assert {v.name for v in walk(found) if isinstance(v, tir.Var)} == {"n"}
    bound = head + body.replace("range(m)", "range(k)").replace("  for j", "  k: T.int64 = m * T.int64(2)\n  for j")
    assert {v.name for v in walk(picoseconds(loop_of(bound, params))) if isinstance(v, tir.Var)} <= {"n", "m"}
    data = head + body.replace("range(m)", 'range(T.cast(A[i, 0], "int64"))')
    assert {v.name for v in walk(picoseconds(loop_of(data, params))) if isinstance(v, tir.Var)} == {"n"}

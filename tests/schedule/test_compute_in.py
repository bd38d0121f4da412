"""unsafe_compute_in: narrow floats computed in wide ones, rounded as they are stored."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.verify import check
from tests.schedule.tools import refused, schedule
from tests.targets.build import from_bfloat16, to_bfloat16

BLOCK = """
@T.prim_func
def main(A: T.Buffer((64,), "{dtype}"), B: T.Buffer((64,), "{dtype}"), C: T.Buffer((64,), "{out}")):
    for i in range(64):
        with T.block("C"):
            vi = T.axis.spatial(64, i)
            {body}
"""


def random_operand(dtype: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The elements as memory has them, and as float32."""
    values = np.random.default_rng(seed).standard_normal(64).astype("float32") + np.float32(2)
    if dtype == "bfloat16":
        bits = to_bfloat16(values)
        return bits, from_bfloat16(bits)
    return values.astype(dtype), values.astype(dtype).astype("float32")


def computed(module: mlcc.IRModule, dtype: str, out: str) -> np.ndarray:
    made = np.zeros(64, "uint16" if out == "bfloat16" else out)
    func = module["main"]
    assert isinstance(func, tir.PrimFunc)
    run_prim_func(func, [random_operand(dtype, 1)[0], random_operand(dtype, 2)[0], made])
    return made


BODIES = {
    "C[vi] = A[vi] * B[vi] + A[vi] - B[vi]": lambda a, b: a * b + a - b,
    'C[vi] = T.exp(A[vi]) / (T.sqrt(T.fabs(B[vi])) + T.Cast("{dtype}", 1.1))': lambda a, b: (
        np.exp(a.astype("float64")).astype("float32") / (np.sqrt(np.abs(b)) + np.float32(1.1))
    ),
    "C[vi] = T.Select(A[vi] * B[vi] < A[vi], A[vi] * A[vi] - B[vi], T.max(B[vi] * B[vi], A[vi]))": lambda a, b: (
        np.where(a * b < a, a * a - b, np.maximum(b * b, a))
    ),
    "t: T.{dtype} = A[vi] * B[vi]\n            C[vi] = t * t + T.if_then_else(vi < 9, t, B[vi])": lambda a, b: (
        (a * b) * (a * b) + np.where(np.arange(64) < 9, a * b, b)
    ),
    'C[vi] = T.Cast("{dtype}", T.Cast("float32", A[vi] * B[vi]) * T.float32(3)) - A[vi]': lambda a, b: (
        (a * b) * np.float32(3) - a
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("body", BODIES)
def test_results_are_rounded_once(body: str, dtype: str) -> None:
    sch = schedule(BLOCK.format(dtype=dtype, out=dtype, body=body.format(dtype=dtype)))
    before = computed(sch.mod, dtype, dtype)
    sch.unsafe_compute_in("C", "float32")
    check(sch.mod)
    a, b = random_operand(dtype, 1)[1], random_operand(dtype, 2)[1]
    exact = BODIES[body](a, b)
    wanted = to_bfloat16(exact) if dtype == "bfloat16" else exact.astype("float16")
    if "1.1" in body:  # the constant is a rounded one
        near = (
            from_bfloat16(computed(sch.mod, dtype, dtype)) if dtype == "bfloat16" else computed(sch.mod, dtype, dtype)
        )
        np.testing.assert_allclose(near.astype("float32"), exact, rtol=1e-2)
    else:
        np.testing.assert_array_equal(computed(sch.mod, dtype, dtype), wanted)
    assert not np.array_equal(before, computed(sch.mod, dtype, dtype))
    again = mlcc.apply_schedule(
        mlcc.parse(BLOCK.format(dtype=dtype, out=dtype, body=body.format(dtype=dtype))), str(sch.trace)
    )
    mlcc.assert_structural_equal(again, sch.mod)


def test_sums_stored_wide_are_rounded_once() -> None:
    """With the sums stored as float32, nothing is rounded on the way."""
    text = """
@T.prim_func
def main(A: T.Buffer((64,), "float16"), B: T.Buffer((64,), "float16"), C: T.Buffer((1,), "float16")):
    S = T.alloc_buffer((1,), "float16")
    for i, k in T.grid(1, 64):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float16(0)
            S[vi] = S[vi] + A[vk] * B[vk]
    for i in range(1):
        with T.block("C"):
            vi = T.axis.spatial(1, i)
            C[vi] = S[vi]
"""
    sch = schedule(text)
    sch.unsafe_set_dtype("S", 0, "float32")
    sch.unsafe_compute_in("S", "float32")
    assert 'S[vi] = S[vi] + T.Cast("float32", A[vk]) * T.Cast("float32", B[vk])' in sch.mod.script()
    (a, wide_a), (b, wide_b), out = random_operand("float16", 1), random_operand("float16", 2), np.zeros(1, "float16")
    run_prim_func(sch.mod["main"], [a, b, out])
    total = np.float32(0)
    for x, y in zip(wide_a, wide_b, strict=True):
        total += x * y
    assert out[0] == np.float16(total)


def test_illegal_uses_are_refused() -> None:
    sch = schedule(BLOCK.format(dtype="float16", out="int32", body='C[vi] = T.Cast("int32", A[vi] * B[vi])'))
    with refused("E0691", "converts float16 to int32"):
        sch.unsafe_compute_in("C", "float32")
    for dtype in ("float16", "int32", "nonsense"):
        with refused("E0683", "is not a wide float type"):
            sch.unsafe_compute_in("C", dtype)
    with refused("E0643", "contains other blocks"):
        sch.unsafe_compute_in("root", "float32")

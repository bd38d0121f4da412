"""Rounding to tf32 as blocks annotated `mlcc.round_tf32` copy."""

from __future__ import annotations

import numpy as np

import mlcc

COPY = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in T.thread_binding(64, "threadIdx.x"):
        with T.block("copy"):
            T.block_attr({"mlcc.round_tf32": True})
            vi = T.axis.spatial(64, i)
            B[vi] = A[vi]
"""


def test_copies_round_to_nearest() -> None:
    """Halfway cases away from zero; infinities and NaN of every payload stay; the largest number rounds up."""
    words = np.array(
        [
            *(0x00000000, 0x80000000, 0x3F800FFF, 0x3F801000, 0x3F801001, 0xBF801000, 0x3F802FFF, 0x3F803000),
            *(0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001),
            *(0x00000001, 0x00001000, 0x80000FFF, 0x007FFFFF, 0x42280000, 0x3EAAAAAB),
        ],
        "uint32",
    )
    a = np.resize(words, 64).view("float32")
    out = np.zeros_like(a)
    mlcc.load(mlcc.build(mlcc.parse(COPY), "cuda{arch=sm_80}"), emulate=True)["main"](a, out)
    word = a.view("uint32")
    nearest = ((word.astype("uint64") + 0x1000) & 0xFFFFE000).astype("uint32")
    finite = np.isfinite(a)
    np.testing.assert_array_equal(out.view("uint32")[finite] & 0xFFFFE000, nearest[finite])
    np.testing.assert_array_equal(out[~finite], a[~finite])


def test_a_cpu_copies_as_it_is() -> None:
    a = np.random.default_rng(0).standard_normal(64, np.float32)
    out = np.zeros_like(a)
    text = COPY.replace('T.thread_binding(64, "threadIdx.x")', "range(64)")
    mlcc.load(mlcc.build(mlcc.parse(text)))["main"](a, out)
    np.testing.assert_array_equal(out, a)

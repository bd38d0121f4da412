"""flip_sign and widen: operands of products of bytes, and of halves, as what a CPU multiplies."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from tests.schedule.tools import refused, schedule

PRODUCT = """
@T.prim_func
def main(A: T.Buffer((5, 7), "{a}"), B: T.Buffer((7, 3), "{b}"), C: T.Buffer((5, 3), "{out}")):
    for i, j, k in T.grid(5, 3, 7):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.{out}(0)
            C[vi, vj] = C[vi, vj] + T.Cast("{out}", A[vi, vk]) * T.Cast("{out}", B[vk, vj])
"""
CONV = """
@T.prim_func
def main(X: T.Buffer((1, 9, 2), "int8"), W: T.Buffer((3, 2, 4), "int8"), Y: T.Buffer((1, 4, 4), "int32")):
    for n, x, o, r, c in T.grid(1, 4, 4, 3, 2):
        with T.block("Y"):
            vn, vx, vo, vr, vc = T.axis.remap("SSSRR", [n, x, o, r, c])
            with T.init():
                Y[vn, vx, vo] = 0
            Y[vn, vx, vo] = Y[vn, vx, vo] + T.Cast("int32", W[vr, vc, vo]) * T.Cast("int32", X[vn, vx * 2 + vr, vc])
"""


def extremes(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Random bytes, many of them the least and the greatest."""
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max + 1, shape)
    return np.where(rng.random(shape) < 0.5, rng.choice([info.min, info.max], shape), values).astype(dtype)


@pytest.mark.parametrize("operand", [0, 1])
@pytest.mark.parametrize(("a", "b", "out"), [("int8", "int8", "int32"), ("uint8", "uint8", "int32"),
                                             ("int8", "uint8", "int64"), ("uint8", "int8", "int16")])  # fmt: skip
def test_either_operand_of_any_signs(a: str, b: str, out: str, operand: int) -> None:
    sch = schedule(PRODUCT.format(a=a, b=b, out=out))
    sch.flip_sign("C", operand)
    one, other = extremes((5, 7), a, 1), extremes((7, 3), b, 2)
    made = np.zeros((5, 3), out)
    run_prim_func(sch.mod["main"], [one, other, made])
    wide = one.astype("int64") @ other.astype("int64")
    np.testing.assert_array_equal(made, wide.astype(out))
    flipped = next(
        s for s in ("A_", "B_") if f"{s}{'uint8' if (a, b)[operand] == 'int8' else 'int8'}" in sch.mod.script()
    )
    assert flipped == ("A_", "B_")[operand]
    again = mlcc.apply_schedule(mlcc.parse(PRODUCT.format(a=a, b=b, out=out)), str(sch.trace))
    mlcc.assert_structural_equal(again, sch.mod)


@pytest.mark.parametrize("operand", ["X", "W"])
def test_flipped_windows_keep_results(operand: str) -> None:
    sch = schedule(CONV)
    sch.flip_sign("Y", operand)
    x, w = extremes((1, 9, 2), "int8", 3), extremes((3, 2, 4), "int8", 4)
    made = np.zeros((1, 4, 4), "int32")
    run_prim_func(sch.mod["main"], [x, w, made])
    windows = np.stack([x[0, 2 * i : 2 * i + 3] for i in range(4)]).astype("int64")
    np.testing.assert_array_equal(made[0], np.einsum("xrc,rco->xo", windows, w.astype("int64")))


def test_what_is_no_sum_of_products_of_bytes() -> None:
    text = PRODUCT.format(a="int8", b="int8", out="int32")
    for before, after, code, why in (
        ("C[vi, vj] + T.Cast", "C[vi, vj] * T.Cast", "E0669", "not known to be a reduction"),
        ("A[vi, vk])", "A[vi, vk] * T.int8(2))", "E0690", "not a product with an element"),
        ('"int8"), B', '"int16"), B', "E0690", "is int16, not int8 or uint8"),
    ):
        changed = text.replace(before, after)
        assert changed != text
        sch = schedule(changed)
        with refused(code, why):
            sch.flip_sign("C", 0)
    sch = schedule(PRODUCT.format(a="int8", b="int8", out="float32"))
    with refused("E0690", "sums up float32"):
        sch.flip_sign("C", 0)
    sch = schedule(text)
    with refused("E0614", "no read buffer 5"):
        sch.flip_sign("C", 5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int8", "int16"), ("uint8", "int16"), ("int8", "int32"), ("uint8", "float16"), ("int16", "float32"),
        ("float16", "float32"), ("bfloat16", "float64"),
    ],
)  # fmt: skip
def test_widened_copies_keep_results(old: str, new: str) -> None:
    text = PRODUCT.format(a=old, b=old, out="float64" if "float" in old else "int64")
    sch = schedule(text)
    sch.widen(sch.cache_read("C", 0, "global"), 0, new)
    script = sch.mod.script()
    assert f'A_global = T.alloc_buffer((5, 7), "{new}")' in script
    assert f'T.Cast("{old}"' not in script and f'T.Cast("{new}", A[' in script
    data = [extremes(s, "int8", n).astype("float32") for n, s in enumerate(((5, 7), (7, 3)))]
    arrays = [np.abs(d) if old.startswith("uint") else d for d in data]
    if old == "bfloat16":
        given = [(a.view(np.uint32) >> np.uint32(16)).astype(np.uint16) for a in arrays]
        arrays = [(g.astype(np.uint32) << np.uint32(16)).view(np.float32) for g in given]
    else:
        given = [a.astype(old) for a in arrays]
    made = np.zeros((5, 3), "float64" if "float" in old else "int64")
    run_prim_func(sch.mod["main"], [*given, made])
    np.testing.assert_array_equal(made, arrays[0].astype("float64") @ arrays[1].astype("float64"))


def test_other_reads_and_narrower_types() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "int16"), C: T.Buffer((8,), "int32")):
    B = T.alloc_buffer((8,), "int16")
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] + T.int16(1)
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = T.Cast("int32", T.Cast("int8", B[vi])) + T.Cast("int32", B[vi] * B[vi])
"""
    sch = schedule(text)
    for dtype in ("int8", "uint16", "uint32", "float16", "nonsense"):
        with refused("E0683", "does not hold every value|not a data type"):
            sch.widen("B", 0, dtype)
    with refused("E0679", "a parameter"):
        sch.widen("C", 0, "int64")
    sch.widen("B", 0, "int32")
    results = []
    for mod in (mlcc.parse(text), sch.mod):
        made = np.zeros(8, "int32")
        run_prim_func(mod["main"], [np.array([0, 126, 127, 200, 32767, -32768, -1, 181], "int16"), made])
        results.append(made)
    np.testing.assert_array_equal(*results)

"""Short sums of products inside a loop over lanes: `T.dp4a` and `T.dp2a`, and what they compute."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.tir import Expr, ForKind
from mlcc.machine import host
from mlcc.machine.dot_products import dot_pairs
from mlcc.passes.lowering.options import LowerOptions
from mlcc.targets.llvm.object.compile import Machine, compile_text
from tests.lower import lower_func
from tests.targets.build import call, from_bfloat16, func, to_bfloat16
from tests.targets.harness import Native, kernel_module

ALL = frozenset((a, b) for a in ("int8", "uint8") for b in ("int8", "uint8")) | {("int16", "int16")}
X86 = "x86_64-unknown-linux-gnu"
ARM = "aarch64-unknown-linux-gnu"

SUM = """
@T.prim_func
def main(A: T.Buffer((8,), "{a}"), B: T.Buffer((512,), "{b}"), C: T.Buffer((64,), "{out}")):
    T.func_attr({{"tir.noalias": True}})
    for v in T.vectorized({lanes}):
        for k in T.unroll({size}):
            C[v] = C[v] + {product}
"""
PLAIN = 'T.Cast("int32", A[k]) * T.Cast("int32", B[v * {size} + k])'


def extremes(size: int, dtype: str, seed: int) -> np.ndarray:
    info, rng = np.iinfo(dtype), np.random.default_rng(seed)
    values = rng.integers(info.min, info.max + 1, size)
    return np.where(rng.random(size) < 0.6, rng.choice([info.min, info.max], size), values).astype(dtype)


def lowered(product: str, a: str, b: str, lanes: int = 16, size: int = 4, out: str = "int32", dots: Any = ALL) -> Any:
    text = SUM.format(a=a, b=b, lanes=lanes, size=size, out=out, product=product.format(size=size))
    return mlcc.parse(text)["main"], lower_func(mlcc.parse(text)["main"], {}, LowerOptions(dots=dots))


def names(made: tir.PrimFunc) -> list[str]:
    return [n.op.name.removeprefix("tir.") for n in walk(made) if isinstance(n, tir.Call) and isinstance(n.op, tir.Op)]


@pytest.mark.parametrize(
    ("product", "a", "b", "size", "name"),
    [
        (PLAIN, "int8", "int8", 4, "dp4a"),
        (PLAIN, "uint8", "int8", 4, "dp4a"),
        (PLAIN, "int16", "int16", 2, "dp2a"),
        (PLAIN, "uint8", "int8", 2, "dp2a"),  # bytes as words
        ('T.Cast("int32", B[v * 4 + k]) * T.Cast("int32", B[256 + v * 4 + k])', "int8", "uint8", 4, "dp4a"),
        ('T.Cast("int32", B[v * 4 + k])', "int8", "uint8", 4, "dp4a"),  # a product with 1
        ('T.Cast("int32", T.Cast("uint8", A[k]) + T.uint8(128)) * T.Cast("int32", B[v * 4 + k])',
         "int8", "int8", 4, "dp4a"),
        ('T.if_then_else(v * 4 + k < 37, T.Cast("int32", B[v * 4 + k]) * T.Cast("int32", B[v * 4 + k + 64]), 0)',
         "int8", "uint8", 4, "dp4a"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("lanes", [2, 11, 16])
def test_sums_become_one_call_and_compute_the_same(
    product: str, a: str, b: str, size: int, name: str, lanes: int
) -> None:
    before, after = lowered(product, a, b, lanes, size)
    assert [n for n in names(after) if n.startswith("dp")] == [name]
    results = []
    given = [extremes(8, a, 1), extremes(512, b, 2), extremes(64, "int32", 3)]
    for f in (before, after):
        arrays = [g.copy() for g in given]
        run_prim_func(f, arrays)
        results.append(arrays[2])
    arrays = [g.copy() for g in given]
    Native(before)(*arrays)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], arrays[2])
    assert not np.array_equal(results[0], given[2])


@pytest.mark.parametrize(
    ("product", "a", "b", "lanes", "size", "out", "dots"),
    [
        (PLAIN, "int8", "int8", 16, 4, "int32", frozenset()),
        (PLAIN, "int8", "int8", 16, 4, "int32", frozenset({("int8", "uint8"), ("uint8", "int8")})),
        (PLAIN, "int8", "int8", 16, 3, "int32", ALL),
        (PLAIN, "int16", "int16", 16, 4, "int32", ALL),
        (PLAIN.replace("int32", "int64"), "int8", "int8", 16, 4, "int64", ALL),
        ('T.Cast("int32", A[k]) * T.Cast("int32", B[v * 5 + k])', "int8", "int8", 16, 4, "int32", ALL),
        ('T.Cast("int32", A[k]) * T.Cast("int32", B[v * 4 + k * 2])', "int8", "int8", 16, 4, "int32", ALL),
        ('T.Cast("int32", A[k] * B[v * 4 + k])', "int8", "int8", 16, 4, "int32", frozenset({("int16", "int16")})),
        ('T.Cast("int32", A[k]) * T.Cast("int32", B[v * 4 + k] + T.Cast("int8", k))',
         "int8", "int8", 16, 4, "int32", ALL),
    ],
)  # fmt: skip
def test_other_sums_stay(
    product: str, a: str, b: str, lanes: int, size: int, out: str, dots: frozenset[tuple[str, str]]
) -> None:
    before, after = lowered(product, a, b, lanes, size, out, dots)
    assert not [n for n in names(after) if n.startswith("dp")]
    results = []
    for f in (before, after):
        arrays = [extremes(8, a, 1), extremes(512, b, 2), np.arange(64).astype(out)]
        run_prim_func(f, arrays)
        results.append(arrays[2])
    np.testing.assert_array_equal(*results)


# ---------------------------------------------------------------- the instructions


def dot_func(name: str, a: str, b: str, lanes: int, start: bool = True, same: bool = False) -> tir.PrimFunc:
    """`C[...] = dp4a(A[...], B[...], C[...])` for so many lanes; `same`: one group of A for all of them."""
    size = 4 if name == "dp4a" else 2
    one, other = c.make_buffer("A", (size * lanes,), a), c.make_buffer("B", (size * lanes,), b)
    sums = "float32" if a == "bfloat16" else "int32"
    out = c.make_buffer("C", (lanes,), sums)

    def ramp(count: int) -> Expr:
        return c.const(0) if count == 1 else tir.Ramp(c.const(0).dtype.with_lanes(count), c.const(0), c.const(1), count)

    x, y = c.load(one, ramp(size if same else size * lanes)), c.load(other, ramp(size * lanes))
    before = [c.load(out, ramp(lanes))] if start else []
    made = call(name, f"{sums}x{lanes}" if lanes > 1 else sums)(x, y, *before)
    return func([one, other, out], c.store(out, made, ramp(lanes)))


MACHINES = {
    "x86-64": Machine(), "x86-64-v3": Machine(cpu="x86-64-v3"), "avxvnni": Machine(cpu="alderlake"),
    "avxvnniint8": Machine(cpu="sierraforest"), "x86-64-v4": Machine(cpu="x86-64-v4"), "znver4": Machine(cpu="znver4"),
    "avx512vnni alone": Machine(cpu="x86-64", features=("+avx512f", "+avx512bw", "+avx512vnni")),
    "avx512bf16 alone": Machine(cpu="x86-64", features=("+avx512f", "+avx512bw", "+avx512bf16")),
    **{cpu: Machine(cpu=cpu) for cpu in ("cooperlake", "sapphirerapids", "znver5")},
    "neon": Machine(ARM, "generic"), "dotprod": Machine(ARM, "cortex-a76"), "i8mm": Machine(ARM, "neoverse-n2"),
}  # fmt: skip
HERE = {f.removeprefix("+") for f in host.cpu_features()}


@pytest.mark.parametrize(
    "machine", [m for m in MACHINES if MACHINES[m].triple == host.triple() and MACHINES[m].enabled <= HERE]
)
def test_all_signs_and_lanes_match(machine: str) -> None:
    """Each CPU that this one can be: the sums wrap, and nothing saturates."""
    for number, lanes in enumerate((1, 2, 4, 5, 8, 16, 23, 64)):
        for name, dtypes in (("dp4a", ("int8", "uint8")), ("dp2a", ("int16", "uint16"))):
            for a in dtypes:
                for b in dtypes:
                    same, start = bool(number % 2), number % 3 != 0
                    size = 4 if name == "dp4a" else 2
                    x, y = extremes(size * lanes, a, number), extremes(size * lanes, b, number + 1)
                    sums = extremes(lanes, "int32", 2)
                    f = dot_func(name, a, b, lanes, start, same)
                    wide = (np.tile(x[:size], lanes) if same else x).astype("int64") * y
                    wanted = (wide.reshape(lanes, size).sum(1) + (sums if start else 0)).astype("int32")
                    interpreted, compiled = sums.copy(), sums.copy()
                    run_prim_func(f, [x, y, interpreted])
                    assert Native(f, machine=MACHINES[machine])(x, y, compiled) == 0
                    np.testing.assert_array_equal(interpreted, wanted)
                    np.testing.assert_array_equal(compiled, wanted)


@pytest.mark.parametrize(
    "machine", [m for m in MACHINES if MACHINES[m].triple == host.triple() and MACHINES[m].enabled <= HERE]
)
def test_pairs_of_bfloat16_match_in_every_bit(machine: str) -> None:
    """One product after the other, the second one first, with float32 between them: with the instruction or without."""
    rng = np.random.default_rng(5)
    for number, lanes in enumerate((1, 2, 5, 8, 16, 23, 32)):
        same, start = bool(number % 2), number % 3 != 0
        values = rng.standard_normal((2, 2 * lanes)) * 2.0 ** rng.integers(-12, 12, (2, 2 * lanes))
        values[:, rng.integers(0, 2 * lanes)] = [np.inf, 1.0]
        x, y = (to_bfloat16(v) for v in values)
        sums = (rng.standard_normal(lanes) * 2.0**9).astype("float32")
        a, b = (from_bfloat16(v).reshape(lanes, 2) for v in (np.tile(x[:2], lanes) if same else x, y))
        wanted = (sums if start else np.float32(0)) + a[:, 1] * b[:, 1] + a[:, 0] * b[:, 0]
        f = dot_func("dp2a", "bfloat16", "bfloat16", lanes, start, same)
        interpreted, compiled = sums.copy(), sums.copy()
        run_prim_func(f, [x, y, interpreted])
        assert Native(f, machine=MACHINES[machine])(x, y, compiled) == 0
        np.testing.assert_array_equal(interpreted, wanted)
        np.testing.assert_array_equal(compiled, wanted)
        assert not np.isfinite(wanted).all() or same


@pytest.mark.skipif("avx512bf16" not in HERE, reason="this CPU has no products of bfloat16")
def test_subnormal_bfloat16_are_zeros() -> None:
    """Of operands and of sums, as docs/semantics.md says."""
    f = dot_func("dp2a", "bfloat16", "bfloat16", 16)
    x, y = (np.zeros(32, "uint16") for _ in range(2))
    x[:6:2], y[:6:2] = to_bfloat16(np.array([[2.0**-130, 2.0**-70, 1.0], [2.0**100, 2.0**-60, 2.0**-126]]))
    sums = np.zeros(16, "float32")
    assert Native(f, machine=MACHINES["avx512bf16 alone"])(x, y, sums) == 0
    np.testing.assert_array_equal(sums[:4], np.array([0, 0, 2.0**-126, 0], "float32"))


PAIR = 'T.Cast("float32", A[k]) * T.Cast("float32", B[v * 2 + k])'
PAIRS = ALL | {("bfloat16", "bfloat16")}


def test_pairs_of_bfloat16_need_permission() -> None:
    """Their sums are rounded, so that the loop has to permit another order."""
    for permitted in (False, True):
        text = SUM.format(a="bfloat16", b="bfloat16", lanes=16, size=2, out="float32", product=PAIR)
        if permitted:
            text = text.replace("T.unroll(2)", 'T.unroll(2, annotations={"reassociate": 1})')
        before, after = (lower_func(mlcc.parse(text)["main"], {}, LowerOptions(dots=d)) for d in (ALL, PAIRS))
        assert ("dp2a" in names(after)) == permitted and "dp2a" not in names(before)
        x, y = (to_bfloat16(np.random.default_rng(n).standard_normal(512 if n else 8)) for n in (0, 1))
        results = []
        for f in (mlcc.parse(text)["main"], before, after):
            arrays = [x, y, np.ones(64, "float32")]
            run_prim_func(f, arrays)
            results.append(arrays[2])
        compiled = np.ones(64, "float32")
        Native(after)(x, y, compiled)
        np.testing.assert_array_equal(results[2], compiled)
        for result in results[:2]:
            np.testing.assert_allclose(result, compiled, rtol=0, atol=2.0**-22 * np.abs(result).max())
        mlcc.assert_structural_equal(mlcc.parse(mlcc.script(after))["main"], after)


@pytest.mark.parametrize(
    ("machine", "name", "a", "b", "instruction"),
    [
        ("x86-64", "dp2a", "int16", "int16", r"pmaddwd\s.*xmm"),
        ("x86-64-v3", "dp2a", "int16", "int16", r"vpmaddwd\s.*ymm"),
        ("x86-64-v4", "dp2a", "int16", "int16", r"vpmaddwd\s.*zmm"),
        ("avxvnni", "dp4a", "uint8", "int8", r"vpdpbusd\s.*ymm"),
        ("avxvnniint8", "dp4a", "int8", "int8", r"vpdpbssd\s.*ymm"),
        ("avxvnniint8", "dp4a", "uint8", "uint8", r"vpdpbuud\s.*ymm"),
        ("znver4", "dp4a", "int8", "uint8", r"vpdpbusd\s.*zmm"),
        ("avx512bf16 alone", "dp2a", "bfloat16", "bfloat16", r"vdpbf16ps\s.*zmm"),
        ("cooperlake", "dp2a", "bfloat16", "bfloat16", r"vdpbf16ps\s.*zmm"),
        ("sapphirerapids", "dp2a", "bfloat16", "bfloat16", r"vdpbf16ps\s.*zmm"),
        ("znver4", "dp2a", "bfloat16", "bfloat16", r"vdpbf16ps\s.*zmm"),
        ("znver5", "dp2a", "bfloat16", "bfloat16", r"vdpbf16ps\s.*zmm"),
        ("dotprod", "dp4a", "int8", "int8", r"sdot\tv\d+\.4s"),
        ("dotprod", "dp4a", "uint8", "uint8", r"udot\tv\d+\.4s"),
        ("i8mm", "dp4a", "int8", "uint8", r"usdot\tv\d+\.4s"),
    ],
)
def test_machine_code_has_the_instructions(machine: str, name: str, a: str, b: str, instruction: str) -> None:
    to = MACHINES[machine]
    assert (a, b) in dot_pairs(to.triple.partition("-")[0], to.enabled)
    text = kernel_module(dot_func(name, a, b, 32, same=True), to).text()
    asm = compile_text(text.replace("define internal", "define"), to, 3, frozenset({"asm"})).asm
    body = asm.partition("\nkernel.f:")[2]  # helpers are kept, as nothing is internal
    assert re.search(instruction, body)
    assert not re.search(r"\b(vpmull|pmull|mul\t|smull|umull|vmul|vfmadd|vpslld|vpmovzx)", body)


def test_a_condition_on_both_loops_goes_around() -> None:
    text = SUM.format(a="int8", b="int8", lanes=16, size=4, out="int32", product=PLAIN.format(size=4))
    text = text.replace("B: T.Buffer", "n: T.int32, B: T.Buffer").replace(
        "            C[v] =", "            if n < 3:\n                C[v] ="
    )
    made = lower_func(mlcc.parse(text)["main"], {}, LowerOptions(dots=ALL))
    assert [n for n in names(made) if n == "dp4a"]
    for n in (2, 3):
        results = []
        for f in (mlcc.parse(text)["main"], made):
            arrays = [extremes(8, "int8", 1), n, extremes(512, "int8", 2), np.zeros(64, "int32")]
            run_prim_func(f, arrays)
            results.append(arrays[3])
        np.testing.assert_array_equal(*results)
        assert results[0].any() == (n < 3)


def test_loops_of_vectors_take_part() -> None:
    """The tile of a product: every sum of a row and a vector is one call, with the row's bytes for all lanes."""
    text = """
@T.prim_func
def main(A: T.Buffer((3, 8), "uint8"), B: T.Buffer((2, 32, 4), "int8"), C: T.Buffer((3, 32), "int32")):
    T.func_attr({"tir.noalias": True})
    for k in range(2):
        for i in T.unroll(3):
            for j in T.unroll(2):
                for v in T.vectorized(16):
                    for q in T.unroll(4):
                        C[i, j * 16 + v] = C[i, j * 16 + v] + (
                            T.Cast("int32", A[i, k * 4 + q]) * T.Cast("int32", B[k, j * 16 + v, q]))
"""
    made = lower_func(mlcc.parse(text)["main"], {}, LowerOptions(dots=ALL))
    calls = [n for n in walk(made) if isinstance(n, tir.Call) and n.op == tir.Op("tir.dp4a")]
    assert len(calls) == 6 and all([a.dtype.lanes for a in n.args] == [4, 64, 16] for n in calls)
    assert not [n for n in walk(made) if isinstance(n, tir.For) and n.kind is ForKind.VECTORIZED]
    mlcc.assert_structural_equal(mlcc.parse(mlcc.script(made))["main"], made)

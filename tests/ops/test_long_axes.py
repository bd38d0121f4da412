"""Operators accumulate 16- and 8-bit floats in float32 and round once, on every level and target: long axes, with a
bound that follows from the rounding errors."""

from __future__ import annotations

import functools
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ir.narrow_floats import decode, encode
from tests.generate import long_axes

DTYPES = ("float16", "bfloat16")
SHARE = 3  # a run takes every third operator on each level; `--all-cases` all


@pytest.mark.parametrize("dtype", (*DTYPES, "float8_e4m3fn"))
def test_references_round_once(dtype: str) -> None:
    """The NumPy reference of an operator, rounded once."""
    for call in long_axes.calls(dtype, 0):
        arrays = call.arrays()
        wrong = call.wrong(run_function(call.module(), "main", arrays), arrays)
        assert not wrong, f"{call}: {wrong}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("target", ("llvm", "cuda{arch=sm_80}"))
def test_compiled_operators_round_once(target: str, level: int, dtype: str, all_cases: bool) -> None:
    rng = random.Random(f"{target} {level} {dtype}")
    drawn = long_axes.calls(dtype, level)
    chosen = drawn if all_cases else rng.sample(drawn, len(drawn) // SHARE)
    wrong = long_axes.differences(chosen, target, level)
    assert not wrong, "\n".join(wrong)


def test_accumulating_in_the_narrow_type_is_seen() -> None:
    """The judge itself: what TVM's functions give is beyond the bound."""
    for call in long_axes.calls("float16", 0, {"sum", "mean", "matmul", "cumsum", "variance", "nn.softmax"}):
        arrays = call.arrays()
        plain = mlcc.load(mlcc.build(call.module(), pipeline="lower-to-tir"))
        assert call.wrong(plain["main"](*arrays), arrays), str(call)


# ---------------------------------------------------------------- a kernel of the text, and fused ones

TEXT = """
@I.ir_module
class Module:
    @T.prim_func
    def total(x: T.Buffer((10000,), "float16"), out: T.Buffer((1,), "float16")):
        for i, k in T.grid(1, 10000):
            with T.block("total"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    out[vi] = T.float16(0)
                out[vi] = out[vi] + x[vk]

    @R.function
    def main(x: R.Tensor((10000,), "float16")):
        cls = Module
        with R.dataflow():
            y = R.add(x, x)
            z = R.call_tir(cls.total, (y,), out_sinfo=R.Tensor((1,), "float16"))
            m = R.mean(x)
            w = R.add(z, m)
            R.output(w)
        return w
"""


@functools.cache
def text_module() -> IRModule:
    return mlcc.parse(TEXT)


@pytest.mark.parametrize("level", range(2))
def test_a_function_of_the_text_keeps_its_roundings(level: int) -> None:
    """Without a schedule its sum stops at 4096, fused with operators or not; the mean beside it does not."""
    made = mlcc.load(mlcc.build(text_module(), opt_level=level))["main"](np.ones(10000, np.float16))
    assert made.tolist() == [4096.0 + 1.0] or made.tolist() == [4096.0]  # 4097 is no float16


def test_marks_do_not_stay() -> None:
    """`mlcc.operator` tells `promote-narrow-floats` what operators became, and nobody after it."""
    for level in range(4):
        made = mlcc.run_passes(text_module(), f"O{level}")
        assert "mlcc.operator" not in made.script()
    assert "mlcc.operator" not in mlcc.run_passes(text_module(), "lower-to-tir").script()
    marked = mlcc.run_passes(text_module(), "lower-to-tir{accurate=true}").script()
    assert marked.count('"mlcc.operator": True') == 3
    again = mlcc.run_passes(mlcc.parse(marked), "promote-narrow-floats")
    assert mlcc.structural_equal(
        again, mlcc.run_passes(text_module(), "lower-to-tir{accurate=true},promote-narrow-floats")
    )


def test_check_each_sees_no_rounding(tmp_path: Path) -> None:
    """Between `lower-to-tir` and `promote-narrow-floats` a program means what it will compute."""
    text = "@R.function\ndef main(x: R.Tensor((10000,), 'float16')):\n    return R.mean(x)\n"
    (tmp_path / "m.mlc").write_text(text.replace("'", '"'))
    np.savez(tmp_path / "x.npz", x=np.ones(10000, np.float16))
    for level in ("-O0", "-O2", "-O3"):
        given = ["passes", str(tmp_path / "m.mlc"), level, "--check-each", str(tmp_path / "x.npz")]
        done = subprocess.run([sys.executable, "-m", "mlcc", *given], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "check-each: lower-to-tir: results unchanged" in done.stderr


SYMBOLIC = """
@R.function
def main(x: R.Tensor(("n",), "DTYPE")):
    with R.dataflow():
        m = R.mean(x)
        v = R.variance(x)
        s = R.cumsum(x)
        R.output(m, v, s)
    return (m, v, s)
"""


@pytest.mark.parametrize("target", ("llvm", "cuda{arch=sm_80}"))
@pytest.mark.parametrize("dtype", DTYPES)
def test_symbolic_extents_round_once(dtype: str, target: str) -> None:
    ones = encode(np.where(np.arange(10007) % 2, 1.5, 0.5), DType.of(dtype))
    for level in range(4):
        artifact = mlcc.build(mlcc.parse(SYMBOLIC.replace("DTYPE", dtype)), target, opt_level=level)
        made = mlcc.load(artifact, emulate=True) if target != "llvm" else mlcc.load(artifact)
        mean, variance, sums = (decode(np.asarray(r), DType.of(dtype)) for r in made["main"](ones))
        assert (mean, variance) == (1.0, 0.25)
        want = np.cumsum(np.where(np.arange(10007) % 2, 1.5, 0.5))
        np.testing.assert_array_equal(sums, decode(encode(want, DType.of(dtype)), DType.of(dtype)))


CAST = """
@R.function
def main(x: R.Tensor((8,), "float32")):
    with R.dataflow():
        h = R.astype(x, "float16")
        y = R.astype(h, "float32")
        z = R.multiply(y, y)
        R.output(z)
    return z
"""


@pytest.mark.parametrize("level", range(4))
def test_a_rounding_that_the_program_asks_for_stays(level: int) -> None:
    x = (np.arange(8) / 3).astype("float32")
    want = x.astype("float16").astype("float32") ** 2
    assert np.array_equal(mlcc.load(mlcc.build(mlcc.parse(CAST), opt_level=level))["main"](x), want)


DECIDES = """
@R.function
def main(x: R.Tensor((4096,), "bfloat16"), y: R.Tensor((4096,), "bfloat16")):
    with R.dataflow():
        a = R.multiply(x, y)
        f = R.floor(a)
        g = R.greater(a, y)
        i = R.astype(a, "int32")
        s = R.sign(a)
        R.output(f, g, i, s)
    return (f, g, i, s)
"""


@pytest.mark.parametrize("target", ("llvm", "cuda{arch=sm_80}"))
def test_what_a_number_decides_is_the_same_on_every_level(target: str) -> None:
    """Rounding the product first, as the operators one by one do."""
    rng = np.random.default_rng(3)
    x, y = ((rng.uniform(-8, 8, 4096).astype("float32").view("uint32") >> 16).astype("uint16") for _ in range(2))
    module = mlcc.parse(DECIDES)
    wanted = run_function(module, "main", [x, y])
    for level in range(4):
        artifact = mlcc.build(module, target, opt_level=level)
        made = mlcc.load(artifact, emulate=True) if target != "llvm" else mlcc.load(artifact)
        for got, want in zip(made["main"](x, y), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


CONSTANTS = """
@R.function
def main(x: R.Tensor((70000,), "float16"), q: R.Tensor((1, 2, 1, 3), "bfloat16")):
    with R.dataflow():
        m = R.mean(x)
        a = R.nn.attention(q, q, q, scale=0.1)
        R.output(m, a)
    return (m, a)
"""


@pytest.mark.parametrize("level", range(4))
def test_constants_keep_their_digits(level: int) -> None:
    """70000 is no float16; a tenth in bfloat16 is off by 0.1 %."""
    x = np.full(70000, 2, np.float16)
    q = (np.full((1, 2, 1, 3), 20, np.float32).view("uint32") >> 16).astype("uint16")
    made = mlcc.load(mlcc.build(mlcc.parse(CONSTANTS), opt_level=level))["main"](x, q)
    assert made[0] == 2

"""Kernels of float16 and bfloat16: computed in float32, rounded as they are stored."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from tests.auto_schedule.kernels import NATIVE, chosen, graph, lowered, scheduled
from tests.targets.build import from_bfloat16, to_bfloat16

GPU = "cuda{arch=sm_90}"
GRAPHS: dict[str, tuple[list[tuple[int, ...]], list[str]]] = {
    "matmul": ([(33, 45), (45, 70), (70,)], ["y = R.matmul(a, b)", "z = R.nn.relu(R.add(y, c))"]),
    "transposed": ([(40, 33), (40, 70), (70,)], ["y = R.matmul(R.permute_dims(a), b)", "z = R.add(y, c)"]),
    "conv": ([(1, 6, 9, 9), (17, 6, 3, 3), (1, 17, 1, 1)], ["y = R.nn.conv2d(a, b, padding=1)", "z = R.add(y, c)"]),
    "softmax": ([(5, 77), (1,), (77,)], ["y = R.multiply(a, c)", "u = R.nn.softmax(y)", "z = R.multiply(u, b)"]),
    "norm": ([(5, 77), (77,), (77,)], ["z = R.nn.layer_norm(a, b, c, axes=[-1])"]),
    "chain": ([(300,), (300,), (300,)], ["y = R.tanh(R.multiply(a, b))", "z = R.divide(y, R.add(R.exp(c), b))"]),
    "sum": ([(300, 7), (7,), (7,)], ["y = R.sum(a, axis=0)", "z = R.add(R.multiply(y, b), c)"]),
}


def module(name: str, dtype: str) -> mlcc.IRModule:
    shapes, lines = GRAPHS[name]
    params = ", ".join(f'{n}: R.Tensor({s}, "{dtype}")' for n, s in zip("abc", shapes, strict=True))
    return lowered(graph(params, *lines, result="z"))


def arrays(name: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype("float32") + np.float32(0.5) for s in GRAPHS[name][0]]


def run(mod: mlcc.IRModule, given: list[np.ndarray], dtype: str) -> np.ndarray:
    exe = mlcc.load(mlcc.build(mod, target=NATIVE, pipeline="lower-to-tir"))
    made = np.array(exe["main"](*given))
    return from_bfloat16(made) if dtype == "bfloat16" else made.astype("float32")


@pytest.mark.parametrize(
    ("name", "dtype"), [*((n, "float16") for n in GRAPHS), *((n, "bfloat16") for n in ("matmul", "chain"))]
)
def test_close_to_what_float32_gives(name: str, dtype: str) -> None:
    """Within a rounding of each kernel, not one of each operation."""
    digits = 8 if dtype == "bfloat16" else 11
    mod = module(name, dtype)
    made = scheduled(mod) if name == "matmul" else mlcc.run_passes(mod, "auto-schedule", target=NATIVE)
    rounded = [to_bfloat16(a) if dtype == "bfloat16" else a.astype(dtype) for a in arrays(name)]
    wide = [from_bfloat16(a) if dtype == "bfloat16" else a.astype("float32") for a in rounded]
    wanted = run(module(name, "float32"), wide, "float32")
    got = run(made, rounded, dtype)
    kernels = sum(isinstance(f, tir.PrimFunc) for f in made.functions.values())
    assert np.abs(got - wanted).max() <= 1.01 * kernels * 2.0**-digits * np.abs(wanted).max()
    assert "T.exp" not in mlcc.script(made) or 'T.Cast("float32", ' in mlcc.script(made)
    assert f'T.Cast("{dtype}", ' in mlcc.script(made)


@pytest.mark.parametrize(("name", "dtype"), [("matmul", "bfloat16"), ("softmax", "float16")])
def test_gpu_kernels_round_once(name: str, dtype: str) -> None:
    digits = 8 if dtype == "bfloat16" else 11
    rounded = [to_bfloat16(a) if dtype == "bfloat16" else a.astype(dtype) for a in arrays(name)]
    wide = [from_bfloat16(a) if dtype == "bfloat16" else a.astype("float32") for a in rounded]
    wanted = run(module(name, "float32"), wide, "float32")
    mod = module(name, dtype)
    exe = mlcc.load(mlcc.build(scheduled(mod, GPU), target=GPU, pipeline="lower-to-tir"), emulate=True)
    made = np.array(exe["main"](*rounded))
    got = from_bfloat16(made) if dtype == "bfloat16" else made.astype("float32")
    kernels = sum(isinstance(f, tir.PrimFunc) for f in mod.functions.values())
    assert np.abs(got - wanted).max() <= 1.01 * kernels * 2.0**-digits * np.abs(wanted).max()


def test_the_interpreter_agrees_on_the_schedule() -> None:
    for name in ("matmul", "norm"):
        for one in chosen(module(name, "float16")).values():
            assert one.func is not None and "computed in float32" in one.choices[0]
            shapes = [[tir.const_int(n) or 0 for n in b.shape] for b in one.func.buffers if b is not None]
            rng = np.random.default_rng(3)
            before = [rng.standard_normal(shape).astype("float16") for shape in shapes]
            interpreted, compiled = [b.copy() for b in before], [b.copy() for b in before]
            run_prim_func(one.func, interpreted)
            public = mlcc.parse(mlcc.script(one.func).replace("(private=True)", ""))
            mlcc.load(mlcc.build(public, target=NATIVE, pipeline="lower-to-tir"))["main"](*compiled)
            np.testing.assert_allclose(interpreted[-1], compiled[-1], rtol=2**-10, atol=2**-12)


def test_what_becomes_an_integer_stays() -> None:
    """Rounded to halves as the text says: a last bit more would be another integer."""
    mod = lowered(graph(
        'a: R.Tensor((500,), "float16"), b: R.Tensor((500,), "float16")',
        "y = R.multiply(a, b)", 'z = R.astype(R.round(R.multiply(y, R.const(10, "float16"))), "int32")', result="z",
    ))  # fmt: skip
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(500).astype("float16") * np.float16(4) for _ in range(2))
    exe = mlcc.load(mlcc.build(scheduled(mod), target=NATIVE, pipeline="lower-to-tir"))
    np.testing.assert_array_equal(exe["main"](a, b), np.rint(a * b * np.float16(10)).astype("int32"))
    assert not np.array_equal(exe["main"](a, b), np.rint(a.astype("float32") * b * 10).astype("int32"))

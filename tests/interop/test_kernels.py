"""Functions of TVM's operator inventory: our code for TVM's text computes what TVM's code does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

from tvm import te, topi  # noqa: E402

import mlcc  # noqa: E402
from tests.targets.harness import Native  # noqa: E402

F, I = "float32", "int32"
CASES: dict[str, tuple[Callable[..., Any], list[tuple[tuple[int, ...], str]]]] = {
    "softmax": (topi.nn.softmax, [((5, 17), F)]),
    "log_softmax": (topi.nn.log_softmax, [((5, 17), F)]),
    "conv2d": (lambda x, w: topi.nn.conv2d_nchw(x, w, 1, 1, 1), [((1, 3, 9, 9), F), ((4, 3, 3, 3), F)]),
    "strided_conv2d": (lambda x, w: topi.nn.conv2d_nchw(x, w, 2, 0, 2), [((2, 3, 9, 9), F), ((4, 3, 3, 3), F)]),
    "depthwise": (lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1), [((1, 3, 9, 9), F), ((3, 1, 3, 3), F)]),
    "conv2d_transpose": (
        lambda x, w: topi.nn.conv2d_transpose_nchw(x, w, (2, 2), (1, 1), F, (0, 0)),
        [((1, 3, 5, 5), F), ((3, 4, 3, 3), F)],
    ),
    "max_pool": (lambda x: topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max"), [((1, 3, 8, 8), F)]),
    "avg_pool": (
        lambda x: topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "avg", count_include_pad=False),
        [((1, 3, 9, 9), F)],
    ),
    "argmax": (lambda x: topi.argmax(x, 1), [((5, 17), F)]),
    "argmin": (lambda x: topi.argmin(x, 0), [((5, 17), F)]),
    "sum": (lambda x: topi.sum(x, [0, 2]), [((3, 4, 5), F)]),
    "prod": (lambda x: topi.prod(x, 1), [((3, 4), F)]),
    "layer_norm": (lambda x, g, b: topi.nn.layer_norm(x, g, b, [1], 1e-5), [((4, 16), F), ((16,), F), ((16,), F)]),
    "batch_matmul": (topi.nn.batch_matmul, [((2, 5, 7), F), ((2, 6, 7), F)]),
    "dense_float16": (topi.nn.dense, [((5, 7), "float16"), ((6, 7), "float16")]),
    "matmul_float64": (topi.nn.matmul, [((4, 5), "float64"), ((5, 6), "float64")]),
    "concatenate": (lambda a, b: topi.concatenate([a, b], 1), [((3, 4), F), ((3, 5), F)]),
    "split": (lambda a: topi.split(a, 3, 1), [((2, 9), F)]),
    "transpose": (lambda a: topi.transpose(a, (2, 0, 1)), [((2, 3, 4), F)]),
    "strided_slice": (lambda a: topi.strided_slice(a, [1, 0], [5, 9], [2, 3]), [((6, 10), F)]),
    "take": (lambda a, i: topi.take(a, i, axis=0, mode="clip"), [((6, 4), F), ((3,), I)]),
    "gather_nd": (topi.gather_nd, [((6, 4), F), ((2, 3), I)]),
    "scatter": (
        lambda d, i, u: topi.scatter_elements(d, i, u, 0, "add"), [((5, 4), F), ((3, 4), I), ((3, 4), F)],
    ),
    "cumsum": (lambda x: topi.cumsum(x, 1), [((3, 7), F)]),
    "gelu": (lambda a: te.compute((8,), lambda i: a[i] * (1 + te.erf(a[i] * 0.7071)) * 0.5), [((8,), F)]),
    "sigmoid": (topi.sigmoid, [((8,), F)]),
    "where": (topi.where, [((8,), "bool"), ((8,), F), ((8,), F)]),
    "cast": (lambda a: topi.cast(a * 10, "int8"), [((8,), F)]),
    "floor_divide": (topi.floor_divide, [((50,), I), ((50,), I)]),
    "floor_mod": (topi.floor_mod, [((50,), I), ((50,), I)]),
    "bitwise": (lambda a, b: topi.bitwise_xor(topi.left_shift(a, tvm.tirx.const(2, I)), b), [((8,), I), ((8,), I)]),
    "pad": (lambda a: topi.nn.pad(a, [0, 1], [2, 1], pad_value=3.0), [((3, 4), F)]),
    "resize": (
        lambda a: topi.image.resize2d(a, [0.0] * 4, (7, 9), layout="NCHW", method="linear"), [((1, 2, 5, 5), F)],
    ),
    "lrn": (lambda x: topi.nn.lrn(x, 5, 1, 0.0001, 0.75, 2), [((1, 8, 4, 4), F)]),
    "tril": (lambda x: topi.trilu(x, tvm.tirx.const(0, I), False), [((5, 5), F)]),
    "einsum": (lambda a, b: topi.einsum("ij,jk->ik", a, b), [((3, 4), F), ((4, 5), F)]),
    "power": (lambda a, b: topi.power(topi.abs(a), b), [((9,), F), ((9,), F)]),
    "round": (lambda a: topi.round(a * 3), [((9,), F)]),
}  # fmt: skip


def data(shape: tuple[int, ...], dtype: str, rng: np.random.Generator, divisors: bool) -> np.ndarray:
    if dtype == "bool":
        return rng.random(shape) > 0.5
    if dtype == I and divisors:
        return (rng.integers(1, 60, shape) * rng.choice([-1, 1], shape)).astype(I)
    return rng.integers(0, 3, shape).astype(I) if dtype == I else rng.uniform(-1, 1, shape).astype(dtype)


@pytest.mark.parametrize("name", list(CASES))
def test_our_code_matches_tvms(name: str) -> None:
    make, inputs = CASES[name]
    placeholders = [te.placeholder(shape, dtype, f"A{k}") for k, (shape, dtype) in enumerate(inputs)]
    made = make(*placeholders)
    outputs = [made] if isinstance(made, te.Tensor) else list(made)
    theirs = te.create_prim_func(placeholders + outputs).with_attr("global_symbol", "main")
    mine = mlcc.parse(tvm.IRModule({"main": theirs}).script())["main"]
    rng = np.random.default_rng(len(name))
    args = [data(shape, dtype, rng, name.startswith("floor")) for shape, dtype in inputs]
    results = [np.zeros([int(n) for n in t.shape], str(t.dtype)) for t in outputs]
    native = Native(mine)
    assert native(*args, *results, symbols=(0,) * len(native.kernel.signature.symbols)) == 0
    tensors = [tvm.runtime.tensor(x) for x in (*args, *results)]
    tvm.compile(theirs, target="llvm")(*tensors)
    for result, expected in zip(results, tensors[len(args) :], strict=True):
        tolerance = 5e-3 if result.dtype == "float16" else 2e-5
        np.testing.assert_allclose(result, expected.numpy(), rtol=tolerance, atol=tolerance)

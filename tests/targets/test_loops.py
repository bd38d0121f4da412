"""Relax functions that end by calling themselves: loops, wherever they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc import relax
from mlcc.errors import CallError, CompileError
from mlcc.interp import run_function
from mlcc.ir import construct, tir
from mlcc.ir.dtypes import FLOAT32, INT64
from mlcc.relax import op

SWAP = """
@I.ir_module
class Module:
    @R.function(private=True)
    def loop(i: R.Tensor((), "int64"), x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32"), w: R.Tensor(("n", "n"), "float32"), stop: R.Tensor((), "int64")) -> R.Tuple(R.Tensor((), "int64"), R.Tensor(("n",), "float32"), R.Tensor(("n",), "float32")):
        cls = Module
        more = R.less(i, stop)
        if more:
            z = R.tanh(R.matmul(w, x))
            j = R.add(i, R.const(1, "int64"))
            r = cls.loop(j, y, z, w, stop)
        else:
            r = (i, x, y)
        return r

    @R.function
    def main(x: R.Tensor(("n",), "float32"), w: R.Tensor(("n", "n"), "float32"), stop: R.Tensor((), "int64")):
        cls = Module
        r = cls.loop(R.const(0, "int64"), x, R.exp(x), w, stop)
        return (r[0], R.add(r[1], r[2]), r[1])
"""  # noqa: E501

NESTED = """
@I.ir_module
class Module:
    @R.function(private=True)
    def inner(i: R.Tensor((), "int64"), s: R.Tensor((2,), "int64")) -> R.Tensor((2,), "int64"):
        cls = Module
        if R.greater(i, R.const(0, "int64")):
            r = cls.inner(R.subtract(i, R.const(1, "int64")), R.add(s, i))
        else:
            r = s
        return r

    @R.function(private=True)
    def outer(i: R.Tensor((), "int64"), s: R.Tensor((2,), "int64"), k: R.Shape(["m"])) -> R.Tensor((2,), "int64"):
        m = T.int64()
        cls = Module
        if R.greater(i, R.const(0, "int64")):
            even = R.equal(R.floor_mod(i, R.const(2, "int64")), R.const(0, "int64"))
            j = R.subtract(i, R.const(1, "int64"))
            if even:
                q = cls.outer(j, cls.inner(i, s), k)
            else:
                q = cls.outer(j, R.multiply(s, R.full((2,), R.prim_value(m))), k)
            r = q
        else:
            r = s
        return r

    @R.function
    def main(x: R.Tensor((2,), "int64"), n: R.Tensor((), "int64"), z: R.Tensor(("m",), "int8")):
        m = T.int64()
        cls = Module
        if R.less(n, R.const(100, "int64")):
            r = cls.outer(n, x, R.shape([m]))
        else:
            r = x
        return r
"""


def everywhere(mod: mlcc.IRModule) -> list[Callable[..., Any]]:
    """The function `main` interpreted, compiled, and on the emulated device; the text reads back."""
    mlcc.assert_structural_equal(mlcc.parse(mlcc.script(mod)), mod)
    runs: list[Callable[..., Any]] = [lambda *args: run_function(mod, "main", list(args))]
    runs += [mlcc.load(mlcc.build(mod, opt_level=level))["main"] for level in (0, 2)]
    return [*runs, mlcc.load(mlcc.build(mod, "cuda{arch=sm_90}"), emulate=True)["main"]]


def test_values_that_change_places() -> None:
    x, w = np.linspace(-1, 1, 5, dtype="float32"), np.linspace(-0.5, 0.7, 25, dtype="float32").reshape(5, 5)
    runs = everywhere(mlcc.parse(SWAP))
    for stop in (0, 1, 2, 7):
        a, b = x, np.exp(x)
        for _ in range(stop):
            a, b = b, np.tanh(w @ a)
        for run in runs:
            for made, want in zip(run(x, w, np.array(stop)), (stop, a + b, a), strict=True):
                np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-6)


def test_loops_run_any_number_of_rounds() -> None:
    """More than any stack of calls has room for."""
    x, w, stop = np.ones(2, "float32"), np.eye(2, dtype="float32"), np.array(20_000)
    for run in everywhere(mlcc.parse(SWAP))[:2]:
        assert run(x, w, stop)[0] == 20_000


def test_loops_in_loops_and_branches() -> None:
    for run in everywhere(mlcc.parse(NESTED)):
        for n in (0, 1, 5, 200):
            want = np.array([1, 2])
            for i in range(n if n < 100 else 0, 0, -1):
                want = want + i * (i + 1) // 2 if i % 2 == 0 else want * 3
            np.testing.assert_array_equal(run(np.array([1, 2]), np.array(n), np.zeros(3, "int8")), want)


def test_growing_shapes_are_refused() -> None:
    grows = SWAP.replace("(j, y, z, w, stop)", "(j, R.concat([y, y], 0), z, w, stop)")
    run = mlcc.load(mlcc.build(mlcc.parse(grows)))["main"]
    x, w = np.ones(3, "float32"), np.eye(3, dtype="float32")
    assert run(x, w, np.array(0))[0] == 0
    with pytest.raises(CallError, match=r"E0814.*dim 0 of argument `x` of `loop` is not n"):
        run(x, w, np.array(1))
    known = grows.replace('"n",', "3,").replace('"n"', "3")
    with pytest.raises(CompileError, match=r"E0487.*dimension 0 is 6, not 3"):
        mlcc.build(mlcc.parse(known))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("r = (i, x, y)", "r = cls.loop(i, x, y, w, stop)", "E0756.*never ends"),
        (
            "r = cls.loop(j, y, z, w, stop)",
            "q = cls.loop(j, y, z, w, stop)\n            r = (q[0], q[2], q[1])",
            "recursive relax functions",
        ),
    ],
)
def test_other_recursions_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        mlcc.build(mlcc.parse(SWAP.replace(old, new)))


def test_a_scalar_that_changes() -> None:
    text = """
@R.function(private=True)
def loop(i: R.Prim("int64"), x: R.Tensor((), "bool")) -> R.Tensor((), "bool"):
    if x:
        r = loop(i + 1, x)
    else:
        r = x
    return r

@R.function
def main(x: R.Tensor((), "bool")):
    return loop(R.prim_value(0), x)
"""
    with pytest.raises(CompileError, match="E0756.* of `loop` is not a tensor, but changes"):
        mlcc.build(mlcc.parse(text))


def _vector_loop(body: Callable[..., Any]) -> mlcc.IRModule:
    """A loop over a counter, and a vector of a size that stands alone nowhere."""
    n = tir.Var("n", INT64)
    twice = relax.Var("z", relax.TensorStructInfo([construct.mul(n, construct.const(2, INT64))], FLOAT32))
    stop, like = relax.Var("k", relax.TensorStructInfo([], INT64)), relax.Var("x", relax.TensorStructInfo([n], FLOAT32))
    bb = relax.BlockBuilder()
    with bb.function("main", [like, stop, twice]):
        init = (relax.const(0, "int64"), twice, stop)
        made = bb.emit_while(lambda i, z, k: op.less(i, k), lambda *v: body(bb, *v), init)
        bb.emit_func_output(made[1])
    return bb.finalize()


def test_loops_built_in_python_run() -> None:
    def body(bb: relax.BlockBuilder, i: Any, z: Any, k: Any) -> Any:
        return op.add(i, relax.const(1, "int64")), bb.emit(op.multiply(z, relax.const(2.0, "float32"))), k

    for run in everywhere(_vector_loop(body)):
        made = run(np.zeros(3, "float32"), np.array(5), np.ones(6, "float32"))
        np.testing.assert_array_equal(made, np.full(6, 32, "float32"))


def test_wrong_loops_are_refused() -> None:
    with pytest.raises(CompileError, match="returns 2 values, but the loop carries 3"):
        _vector_loop(lambda bb, i, z, k: (i, z))
    with pytest.raises(CompileError, match="after one iteration"):
        _vector_loop(lambda bb, i, z, k: (op.astype(i, "int32"), z, k))

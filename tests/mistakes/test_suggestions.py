"""What messages tell people to write does what they meant: it compiles, and gives NumPy's numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mlcc
from mlcc.ops.meant import call_text, meant_operator

X = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
W = np.random.default_rng(1).standard_normal((8, 16)).astype("float32")
HEAD = '@R.function\ndef main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 16), "float32")):\n'


def suggested(expression: str) -> str:
    """The expression that the message about `expression` tells to write."""
    with pytest.raises(mlcc.CompileError) as caught:
        mlcc.parse(f"{HEAD}    y = {expression}\n    return y\n")
    (found,) = caught.value.diagnostics
    match = re.search(r"write `([^`]*)`", found.help or "")
    assert match is not None, found
    return match[1]


def value(expression: str) -> np.ndarray:
    text = f"{HEAD}    y = {expression}\n    return y\n"
    exe = mlcc.load(mlcc.build(mlcc.parse(text), opt_level=0))
    return np.asarray(exe["main"](X, W))


@pytest.mark.parametrize(
    "index", ["0", "-1", "0, 1", "-1, -8", "0:2", "1:", ":3", "-2:", ":, 0", "1, 2:5", ":, ::2", "1:3, ::3", ":, 2:7:2"]
)
def test_indices(index: str) -> None:
    expected = eval(f"X[{index}]", {"X": X})
    got = value(suggested(f"x[{index}]"))
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("said", "expected"),
    [("torch.relu(x)", np.maximum(X, 0)), ("np.exp(x)", np.exp(X)), ("math.sin(x)", np.sin(X)), ("x.abs()", abs(X))],
)
def test_functions_of_one_tensor(said: str, expected: np.ndarray) -> None:
    np.testing.assert_allclose(value(suggested(said)), expected, rtol=1e-5)


def test_operators_of_two_tensors() -> None:
    for said, expected in (("np.matmul(x, w)", X @ W), ("x.matmul(w)", X @ W), ("np.multiply(x, x)", X * X)):
        call = re.sub(r", \w+=\.\.\.", "", suggested(said))
        second = "w" if "matmul" in said else "x"
        call = call.replace("x1", "x").replace("x2", second)
        np.testing.assert_allclose(value(call), expected, rtol=1e-4, atol=1e-5)


def test_reversed_axes_are_not_sliced() -> None:
    for index in ("::-1", ":, ::-2", "3:0:-1"):
        with pytest.raises(mlcc.CompileError, match=r"R\.flip\(x, axis=\.\.\.\)"):
            mlcc.parse(f"{HEAD}    y = x[{index}]\n    return y\n")


def test_where_and_the_like() -> None:
    assert suggested("x if x else x") == "R.where(condition, x1, x2)"
    assert suggested("x and x") == "R.logical_and(x1, x2)"


@pytest.mark.parametrize(
    ("word", "operator"),
    [
        ("nn.linear", "linear"), ("relu", "nn.relu"), ("nn.ReLU", "nn.relu"), ("torch.cat", "concat"),
        ("mul", "multiply"), ("view", "reshape"), ("nn.maxpool2d", "nn.max_pool2d"), ("BatchNorm", "nn.batch_norm"),
        ("leaky_relu", "nn.leakyrelu"), ("np.dot", "matmul"), ("zerso", "zeros"), ("frobnicate", None), ("qq", None),
    ],
)  # fmt: skip
def test_words_from_elsewhere(word: str, operator: str | None) -> None:
    assert meant_operator(word) == operator


def test_every_meant_operator_is_one() -> None:
    from mlcc import ops
    from mlcc.ops import meant

    for word, name in meant._WORDS.items():
        assert ops.is_operator(name), word
        own = [n for n in ops.names() if n.rpartition(".")[2] == word and n.split(".")[1] not in meant._INTERNAL]
        assert not own, f"{word} is an operator itself"
        assert call_text(name).startswith(f"R.{name}(")


def test_functions_that_hints_name() -> None:
    from mlcc.grammar.foreign import _KERNEL_WORDS, FUNCTIONS
    from mlcc.grammar.tir import functions
    from mlcc.ir.intrinsics import INTRINSICS

    assert {*FUNCTIONS} <= {*functions.FUNCTIONS} - {*INTRINSICS}
    assert {w for w in _KERNEL_WORDS.values() if w is not None} <= {*FUNCTIONS, *INTRINSICS}


@pytest.mark.parametrize(
    ("said", "expected"),
    [("math.sqrt(A[i])", np.sqrt), ("np.exp(A[i])", np.exp), ("A[i].sqrt()", np.sqrt), ("T.relu(A[i])", None)],
)
def test_functions_of_kernels(said: str, expected: object) -> None:
    head = '@T.prim_func\ndef main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):\n'

    def kernel(expression: str) -> mlcc.IRModule:
        return mlcc.parse(f"{head}    for i in range(8):\n        B[i] = {expression}\n")

    with pytest.raises(mlcc.CompileError) as caught:
        kernel(said)
    match = re.search(r"write `(.*)`$", caught.value.diagnostics[0].help or "")
    assert match is not None
    call = match[1].replace("(...)", "(A[i])").replace("(x,", "(A[i],")
    a, b = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    mlcc.load(mlcc.build(kernel(call), opt_level=0))["main"](a, b)
    np.testing.assert_allclose(b, a if expected is None else expected(a), rtol=1e-5)  # type: ignore[operator]

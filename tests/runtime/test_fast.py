"""The short way of a call keeps its argument vector between calls: what changes from call to call must come through."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError
from mlcc.runtime.fast import address_of
from mlcc.runtime.function import Function
from mlcc.runtime.native import NativeExecutor

TEXT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), w: R.Tensor((3, "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            y: R.Tensor((n, m), "float32") = R.matmul(x, w)
            h = R.sum(y, axis=0, keepdims=True)
            z: R.Tensor((n, m), "float32") = R.add(y, h)
            R.output(z)
        return z

    @R.function
    def pair(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
        a = R.nn.relu(x)
        b = R.negative(x)
        return (a, b)
"""


@pytest.fixture(scope="module")
def functions() -> dict[str, Function]:
    exe = mlcc.load(mlcc.build(mlcc.parse(TEXT)))
    return {name: exe[name] for name in ("main", "pair")}


def operands(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(n * 100 + m)
    return random.random((n, 3), dtype=np.float32), random.random((3, m), dtype=np.float32)


def expected_results(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    y = x @ w
    return y + y.sum(0, keepdims=True)


def test_extents_may_change_and_come_back(functions: dict[str, Function]) -> None:
    for n, m in ((2, 5), (2, 5), (7, 5), (7, 1), (0, 4), (2, 0), (64, 33), (2, 5)):
        x, w = operands(n, m)
        np.testing.assert_allclose(functions["main"](x, w), expected_results(x, w), rtol=1e-5)
    executor = functions["main"].executor
    assert isinstance(executor, NativeExecutor) and executor.fast is not None and len(executor.fast.areas) == 1


def repeats(function: Function) -> NativeExecutor:
    """Call the function until its repeated call is made, and return its executor."""
    executor = function.executor
    assert isinstance(executor, NativeExecutor) and executor._repeat is None
    for _ in range(2):
        function(*operands(2, 5))
    assert executor._repeat is not None
    return executor


def fresh_function(name: str = "main", text: str = TEXT) -> Function:
    return mlcc.load(mlcc.build(mlcc.parse(text)))[name]


def test_equal_extents_are_checked_once() -> None:
    main = fresh_function()
    executor = repeats(main)
    asked = []
    query = executor.entry.query
    executor.entry.query = lambda *args: asked.append(args) or query(*args)
    for n, m in ((2, 5), (2, 5), (7, 5), (7, 5), (7, 5), (2, 5)):
        x, w = operands(n, m)
        np.testing.assert_allclose(main(x, w), expected_results(x, w), rtol=1e-5)
    assert len(asked) == 2
    assert executor.fast is not None and len(executor.fast.areas) == 1 and not executor.spare


def test_repeated_calls_take_what_first_calls_take() -> None:
    main = fresh_function()
    executor = repeats(main)
    x, w = operands(2, 5)
    want = expected_results(x, w)
    fixed = x.copy()
    fixed.flags.writeable = False
    wide = np.zeros((2, 6), np.float32)
    wide[:, ::2] = x
    swapped = np.asfortranarray(w)
    for a, b in ((x, w), (fixed, w), (wide[:, ::2], w), (x, swapped), (x, w)):
        np.testing.assert_allclose(main(a, b), want, rtol=1e-5)
    for n, m in ((0, 4), (0, 4), (0, 4), (2, 0), (2, 0), (2, 0)):
        assert main(*operands(n, m)).shape == (n, m)
    for args in ((x,), (x, w, w), (x, w.astype(np.float64)), (x, w[0]), (x, None), (x, w[:2])):
        for _ in range(2):
            with pytest.raises(CallError):
                main(*args)
    np.testing.assert_allclose(main(x, w), want, rtol=1e-5)
    assert executor.fast is not None and len(executor.fast.areas) == 1


def test_a_failing_call_fails_again_and_again() -> None:
    text = """
@R.function
def main(x: R.Tensor((4,), "float32"), i: R.Tensor((2,), "int64")) -> R.Tensor((2,), "float32"):
    return R.take(x, i, axis=0, mode="raise")
"""
    main = fresh_function(text=text)
    x, inside, outside = np.arange(4, dtype=np.float32), np.array([3, 0]), np.array([1, 4])
    for indices in (inside, inside, inside, outside, inside, outside, outside, inside):
        if indices is outside:
            with pytest.raises(CallError, match="E0818|outside|index"):
                main(x, indices)
        else:
            np.testing.assert_array_equal(main(x, indices), [3, 0])


def test_repeated_calls_of_several_results_and_threads() -> None:
    pair = fresh_function("pair")
    inputs = [np.random.default_rng(n).normal(size=4).astype(np.float32) for n in range(64)]
    with ThreadPoolExecutor(4) as pool:
        for x, (a, b) in zip(inputs * 8, pool.map(pair, inputs * 8), strict=True):
            np.testing.assert_array_equal(a, np.maximum(x, 0))
            np.testing.assert_array_equal(b, -x)


def test_refused_extents_stay_refused(functions: dict[str, Function]) -> None:
    x, w = operands(2, 5)
    functions["main"](x, w)
    for _ in range(2):
        with pytest.raises(CallError, match="dim 0 of `w` is 4"):
            functions["main"](x, np.ones((4, 5), np.float32))
    np.testing.assert_allclose(functions["main"](x, w), expected_results(x, w), rtol=1e-5)


def test_read_only_arrays_and_results_of_their_own(functions: dict[str, Function]) -> None:
    x, w = operands(3, 4)
    x.flags.writeable = False
    first, second = functions["main"](x, w), functions["main"](x, w)
    assert first is not second and not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, second)


def test_out_is_written_and_returned(functions: dict[str, Function]) -> None:
    x, w = operands(3, 3)
    out = np.zeros((3, 3), np.float32)
    assert functions["main"](x, w, out=out) is out
    np.testing.assert_allclose(out, expected_results(x, w), rtol=1e-5)
    for _ in range(2):
        with pytest.raises(CallError, match="shares memory"):
            functions["main"](x, w, out=x)
        with pytest.raises(CallError, match="`out`"):
            functions["main"](x, w, out=np.zeros((2, 3), np.float32))
    fixed = np.zeros((3, 3), np.float32)
    fixed.flags.writeable = False
    with pytest.raises(CallError, match="read-only"):
        functions["main"](x, w, out=fixed)
    assert not fixed.any()


def test_out_takes_several_results(functions: dict[str, Function]) -> None:
    x = np.array([-1, 2, -3, 4], np.float32)
    out = (np.zeros(4, np.float32), np.zeros(4, np.float32))
    assert functions["pair"](x, out=out) is out
    np.testing.assert_array_equal(out, (np.maximum(x, 0), -x))
    with pytest.raises(CallError, match="shares memory"):
        functions["pair"](x, out=(out[0], out[0]))
    with pytest.raises(CallError):
        functions["pair"](x, out=out[:1])


def test_address_of_is_numpys() -> None:
    fixed = np.ones(3)
    fixed.flags.writeable = False
    for array in (np.ones((2, 3), np.float32), np.ones(7)[2:5], np.empty(0), np.array(3.0), fixed, np.ones(2, np.int8)):
        assert address_of(array) == array.__array_interface__["data"][0]


def test_a_bound_call_allocates_nothing(functions: dict[str, Function]) -> None:
    x, w = operands(64, 33)
    call = functions["main"].bind(x, w, out=np.empty((64, 33), np.float32))
    assert call.workspace.size > 0
    call()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(100):
            call()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # the numbers that Python passes to C, and nothing that stays or grows with the arrays
    assert peak - before < 1000 and after - before < 500

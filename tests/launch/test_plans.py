"""Launch plans, carried out over emulation, against the same module compiled for the CPU."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError
from tests.launch.texts import MLP, built, emulated, native

GRAPH = """
@I.ir_module
class Module:
    @T.prim_func
    def double(x: T.handle, y: T.handle):
        n = T.int64()
        X = T.match_buffer(x, (n,), "float32")
        Y = T.match_buffer(y, (n,), "float32")
        for b in T.thread_binding(n, thread="blockIdx.x"):
            with T.block("Y"):
                v = T.axis.spatial(n, b)
                Y[v] = X[v] * T.float32(2)

    @T.prim_func
    def positive(x: T.Buffer((4,), "float32"), y: T.Buffer((), "bool")):
        for b in T.thread_binding(1, thread="blockIdx.x"):
            with T.block("Y"):
                v = T.axis.spatial(1, b)
                y[()] = x[v] > T.float32(0)

    @T.prim_func
    def count(x: T.Buffer((4,), "float32"), y: T.Buffer((1,), "int64")):
        for b in T.thread_binding(1, thread="blockIdx.x"):
            with T.block("Y"):
                v = T.axis.spatial(1, b)
                y[v] = T.Cast("int64", x[v])
"""


@pytest.fixture(scope="module")
def mlp() -> tuple[Any, Any]:
    return emulated(MLP), native(MLP)


@pytest.mark.parametrize("n", [0, 1, 7, 64, 127])
def test_symbolic_shapes_and_temporaries_match_the_cpu(mlp: tuple[Any, Any], n: int) -> None:
    gpu, cpu = mlp
    rng = np.random.default_rng(n)
    x, y = rng.random(n, dtype=np.float32), rng.random(n, dtype=np.float32)
    np.testing.assert_array_equal(gpu["main"](x, y), cpu["main"](x, y))
    got, want = np.full_like(x, np.nan), np.full_like(x, np.nan)
    gpu["scale"](x, got, 2.5)
    cpu["scale"](x, want, 2.5)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f(np.zeros(3, np.float32)),
        lambda f: f(np.zeros(3, np.float32), np.zeros(4, np.float32)),
        lambda f: f(np.zeros((3, 1), np.float32), np.zeros(4, np.float32)),
        lambda f: f(np.zeros(3, np.float64), np.zeros(3, np.int32)),
        lambda f: f([1.0], "no"),
        lambda f: f(np.zeros(3, np.float32), np.zeros(3, np.float32), out=np.zeros(4, np.float32)),
        lambda f: f(x := np.zeros(3, np.float32), np.zeros(3, np.float32), out=x),
    ],
)
def test_arguments_are_refused_in_the_same_words(mlp: tuple[Any, Any], call: Any) -> None:
    said = []
    for exe in mlp:
        with pytest.raises(CallError) as caught:
            call(exe["main"])
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_layouts_of_host_arrays_do_not_matter(mlp: tuple[Any, Any]) -> None:
    gpu, cpu = mlp
    wide = np.random.default_rng(0).random((40, 2), dtype=np.float32)
    x, y = wide[:, 0], wide[::-1, 1]
    out = np.zeros((40, 2), np.float32)
    assert gpu["main"](x, y, out=out[:, 1]) is not None
    np.testing.assert_array_equal(out[:, 1], cpu["main"](x, y))
    assert not out[:, 0].any()
    raw = np.zeros(4 * 40 + 1, np.uint8)[1:].view(np.float32)  # not aligned to its elements
    raw[:] = x
    np.testing.assert_array_equal(gpu["main"](raw, y), cpu["main"](x, y))


def test_a_bound_call_reads_its_arrays_anew(mlp: tuple[Any, Any]) -> None:
    gpu, cpu = mlp
    x, y, out = (np.ones(5, np.float32) for _ in range(3))
    call = gpu["main"].bind(x, y, out=out)
    for value in (1, 2, 3):
        x[:] = value
        assert call() is out
        np.testing.assert_array_equal(out, cpu["main"](x, y))


def test_branches_over_data_and_checks() -> None:
    text = (
        GRAPH
        + """
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Module
        yes = R.call_tir(cls.positive, (x,), out_sinfo=R.Tensor((), "bool"))
        _ = R.assert_op(yes, format="the first is not positive")
        if yes:
            a = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((4,), "float32"))
            r = a
        else:
            r = x
        return r
"""
    )
    gpu, cpu = emulated(text), native(text)
    x = np.array([1, 2, 3, 4], np.float32)
    np.testing.assert_array_equal(gpu["main"](x), x * 2)
    said = []
    for exe in (gpu, cpu):
        with pytest.raises(CallError) as caught:
            exe["main"](-x)
        said.append(str(caught.value))
    assert said[0] == said[1] and "the first is not positive" in said[0] and "E0813" in said[0]
    np.testing.assert_array_equal(gpu["main"](x), x * 2)  # a later call works


def test_extents_that_the_data_decide() -> None:
    text = (
        GRAPH
        + """
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((8,), "float32")):
        cls = Module
        m = T.int64()
        c = R.call_tir(cls.count, (x,), out_sinfo=R.Tensor((1,), "int64"))
        s: R.Shape(ndim=1) = R.tensor_to_shape(c)
        t: R.Shape([m]) = R.match_cast(s, R.Shape([m]))
        return t
"""
    )
    gpu, cpu = emulated(text), native(text)
    for first in (0, 3):
        x = np.full(4, first, np.float32)
        assert gpu["main"](x, np.zeros(8, np.float32)) == cpu["main"](x, np.zeros(8, np.float32)) == (first,)
    with pytest.raises(CallError, match="negative"):
        gpu["main"](np.full(4, -1, np.float32), np.zeros(8, np.float32))


def test_scalars_and_tuples_in_and_out() -> None:
    text = (
        GRAPH
        + """
    @R.function
    def main(p: R.Tuple(R.Tensor(("n",), "float32"), R.Tensor((4,), "float32")), k: R.Prim("int64"), s: R.Shape(["m"])):
        n, m = T.int64(), T.int64()
        cls = Module
        a = R.call_tir(cls.double, (p[0],), out_sinfo=R.Tensor((n,), "float32"))
        return (a, p[1]), R.shape([n * 2, m + 1]), R.prim_value(n + m)
"""
    )
    gpu, cpu = emulated(text), native(text)
    args = ((np.ones(3, np.float32), np.arange(4, dtype=np.float32)), 7, (5,))
    got, want = gpu["main"](*args), cpu["main"](*args)
    np.testing.assert_array_equal(got[0][0], want[0][0])
    np.testing.assert_array_equal(got[0][1], want[0][1])
    assert got[1:] == want[1:] == ((6, 6), 8)


def test_packed_functions_get_copies_or_the_devices_arrays() -> None:
    text = (
        GRAPH
        + """
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Module
        a = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((4,), "float32"))
        b = R.call_dps_packed("t.plus", (a,), out_sinfo=R.Tensor((4,), "float32"))
        c = R.call_tir(cls.double, (b,), out_sinfo=R.Tensor((4,), "float32"))
        return c
"""
    )
    gpu = emulated(text)
    x = np.arange(4, dtype=np.float32)
    with pytest.raises(CallError, match=r"t\.plus"):
        gpu["main"](x)

    def plus(a: np.ndarray, out: np.ndarray) -> None:
        assert isinstance(a, np.ndarray)
        out[:] = a + 1

    mlcc.register_func("t.plus", plus)
    np.testing.assert_array_equal(gpu["main"](x), 4 * x + 2)
    assert gpu.host_copies == 2

    def on_device(a: Any, out: Any) -> None:
        assert not isinstance(a, np.ndarray) and a.dtype == "float32" and a.shape == (4,)
        np.from_dlpack(out)[:] = np.from_dlpack(a) + 10

    mlcc.register_func("t.plus", on_device, device="cuda")
    np.testing.assert_array_equal(gpu["main"](x), 4 * x + 20)
    assert gpu.host_copies == 2

    def broken(a: Any, out: Any) -> None:
        raise RuntimeError("no luck")

    mlcc.register_func("t.plus", broken, device="cuda", override=True)
    with pytest.raises(RuntimeError, match="no luck"):
        gpu["main"](x)


def test_packed_functions_that_return_values() -> None:
    text = (
        GRAPH
        + """
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        b = R.call_packed("t.value", x, R.shape([3]), R.str("word"), sinfo_args=(R.Tensor((4,), "float32"),))
        return b
"""
    )
    gpu = emulated(text)

    def value(x: Any, shape: tuple[int, ...], word: str) -> Any:
        assert (shape, word) == ((3,), "word")
        return x + 1

    mlcc.register_func("t.value", value)
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(gpu["main"](x), x + 1)
    mlcc.register_func("t.value", lambda x, shape, word: np.zeros(3, np.float32), override=True)
    with pytest.raises(CallError, match="E0812"):
        gpu["main"](x)


def test_host_code_loops_branches_and_memory() -> None:
    text = """
@T.prim_func
def main(x: T.handle, y: T.handle, k: T.int32):
    n = T.int64()
    X = T.match_buffer(x, (n,), "float32")
    Y = T.match_buffer(y, (n,), "float32")
    S = T.alloc_buffer((n,), "float32")
    for b in T.thread_binding(n, thread="blockIdx.x"):
        with T.block("S"):
            v = T.axis.spatial(n, b)
            S[v] = X[v]
    for i in range(k):
        if i % 2 == 0:
            for b in T.thread_binding(n, thread="blockIdx.x"):
                with T.block("A"):
                    v = T.axis.spatial(n, b)
                    w = T.axis.opaque(k, i)
                    S[v] = S[v] + T.Cast("float32", w)
        else:
            for b in T.thread_binding(n, thread="blockIdx.x"):
                with T.block("B"):
                    v = T.axis.spatial(n, b)
                    S[v] = S[v] * T.float32(2)
    for b in T.thread_binding(n, thread="blockIdx.x"):
        with T.block("Y"):
            v = T.axis.spatial(n, b)
            Y[v] = S[v]
"""
    gpu = emulated(text)
    x = np.arange(5, dtype=np.float32)
    y = np.zeros_like(x)
    gpu["main"](x, y, 5)
    want = x
    for i in range(5):
        want = want + i if i % 2 == 0 else want * 2
    np.testing.assert_array_equal(y, want)


def test_constants_are_there_once() -> None:
    module = mlcc.parse(
        GRAPH
        + """
    @R.function
    def main(x: R.Tensor((20,), "float32")) -> R.Tensor((20,), "float32"):
        cls = Module
        a = R.call_tir(cls.double, (metadata["relax.expr.Constant"][0],), out_sinfo=R.Tensor((20,), "float32"))
        return a
""",
        data={"relax.expr.Constant[0]": np.arange(20, dtype=np.float32)},
    )
    made = mlcc.build(module, target="cuda{arch=sm_80}", pipeline="")
    from mlcc.targets.emulate.device import EmulatedDevice

    exe = mlcc.load(made, device=EmulatedDevice(made.launch.kernels))
    np.testing.assert_array_equal(exe["main"](np.zeros(20, np.float32)), np.arange(20) * 2)
    (entry,) = made.plan["constants"]
    assert entry["bytes"] == 80 and len(entry["sha256"]) == 64


def test_a_plan_is_plain_json_and_says_what_is_launched() -> None:
    plan = built(MLP).plan
    assert json.loads(json.dumps(plan)) == plan
    (launch,) = plan["programs"]["add"]["steps"]
    assert launch["grid"] == [["//", ["+", "n", 63], 64], 1, 1] and launch["block"] == [64, 1, 1]
    assert [s["do"] for s in plan["functions"]["main"]["steps"]] == ["run", "run", "run"]


def test_code_that_nobody_bound_runs() -> None:
    gpu = emulated(
        """
@T.prim_func
def main(x: T.Buffer((4,), "float32")):
    for i in range(4):
        x[i] = T.Cast("float32", i)
"""
    )
    x = np.zeros(4, np.float32)
    gpu["main"](x)
    np.testing.assert_array_equal(x, np.arange(4))


def test_memory_in_a_loop_is_as_large_as_the_largest() -> None:
    text = """
@T.prim_func
def main(x: T.Buffer((4,), "float32"), k: T.int32):
    for i in range(k):
        S = T.alloc_buffer_stmt((i + 1,), "float32")
        for b in T.thread_binding(i + 1, thread="blockIdx.x"):
            S[b] = T.float32(1)
        for b in T.thread_binding(1, thread="blockIdx.x"):
            x[i] = x[i] + S[i] + S[0]
"""
    plan = built(text).plan
    (loop,) = plan["programs"]["main"]["steps"]
    assert [s["do"] for s in loop["body"]] == ["alloc", "launch", "launch"]
    assert "k" in str(plan["functions"]["main"]["places"])
    x = np.zeros(4, np.float32)
    emulated(text)["main"](x, 3)
    np.testing.assert_array_equal(x, [2, 2, 2, 0])


def test_results_whose_extents_the_data_decide() -> None:
    module = mlcc.parse(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((6,), "float32")):
        r = R.nonzero(x)
        return r
"""
    )
    gpu: Any = mlcc.load(mlcc.build(module, target="cuda{arch=sm_80}"), emulate=True)
    for values in ([0, 1, 0, 2, 3, 0], [0] * 6, [1] * 6):
        x = np.array(values, np.float32)
        want = np.array(np.nonzero(x))
        np.testing.assert_array_equal(gpu["main"](x), want)
        made = gpu["main"](gpu.to_device(x))
        assert made.shape == want.shape
        np.testing.assert_array_equal(made.numpy(), want)

"""Graph-level functions against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.errors import CallError
from mlcc.interp import run_function
from mlcc.ir.module import IRModule

RANDOM = np.random.default_rng(3)
SIZES = st.sampled_from([1, 2, 3, 5, 7, 13])


def floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(dtype)


def module(body: str) -> IRModule:
    return mlcc.parse("@I.ir_module\nclass Module:\n" + body, name="test.mlc")


def fault(program: IRModule, *args: Any, **more: Any) -> str:
    with pytest.raises(CallError) as caught:
        run_function(program, "main", args, **more)
    return str(caught.value)


KERNELS = """
    @T.prim_func
    def linear(x: T.handle, w: T.handle, b: T.handle, z: T.handle):
        n, m, k = T.int64(), T.int64(), T.int64()
        X = T.match_buffer(x, (n, m), "float32")
        W = T.match_buffer(w, (k, m), "float32")
        B = T.match_buffer(b, (k,), "float32")
        Z = T.match_buffer(z, (n, k), "float32")
        for i, j, l in T.grid(n, k, m):
            with T.block("z"):
                vi, vj, vl = T.axis.remap("SSR", [i, j, l])
                with T.init():
                    Z[vi, vj] = B[vj]
                Z[vi, vj] = Z[vi, vj] + X[vi, vl] * W[vj, vl]
"""

MLP = (
    KERNELS
    + """
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32"), w0: R.Tensor(("k", "m"), "float32"), b0: R.Tensor(("k",), "float32"),
             w1: R.Tensor((3, "k"), "float32"), b1: R.Tensor((3,), "float32")):
        n, m, k = T.int64(), T.int64(), T.int64()
        with R.dataflow():
            lv = R.call_tir(linear, (x, w0, b0), R.Tensor((n, k), "float32"))
            lv1 = R.nn.relu(lv)
            lv2 = R.call_dps_packed("env.linear", (lv1, w1, b1), R.Tensor((n, 3), "float32"))
            R.output(lv2)
        return lv2
"""
)


def linear(x: np.ndarray, w: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    out[...] = x @ w.T + b


@settings(max_examples=15, deadline=None)
@given(n=SIZES, m=SIZES, k=SIZES)
def test_mlp_with_symbolic_sizes_matches_numpy(n: int, m: int, k: int) -> None:
    args = floats(n, m), floats(k, m), floats(k), floats(3, k), floats(3)
    made = run_function(module(MLP), "main", args, {"env.linear": linear})
    x, w0, b0, w1, b1 = args
    assert np.allclose(made, np.maximum(x @ w0.T + b0, 0) @ w1.T + b1, rtol=1e-4, atol=1e-5)


def test_packed_functions_by_name_and_from_the_registry() -> None:
    args = floats(2, 3), floats(4, 3), floats(4), floats(3, 4), floats(3)
    assert "env.linear" in fault(module(MLP), *args)
    mlcc.register_func("env.linear", linear, override=True)
    try:
        assert run_function(module(MLP), "main", args).shape == (2, 3)
    finally:
        from mlcc.runtime.registry import remove_func

        remove_func("env.linear")


def test_tuples_branches_and_calls_are_run() -> None:
    program = module("""
    @R.function
    def helper(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
        a = R.add(x, x)
        b = R.multiply(x, x)
        return (a, b)

    @R.function
    def main(x: R.Tensor((4,), "float32"), flag: R.Tensor((), "bool")):
        pair = Module.helper(x)
        if flag:
            y = pair[0]
        else:
            y = R.negative(pair[1])
        return (y, pair)
""")
    x = floats(4)
    y, pair = run_function(program, "main", [x, np.array(True)])
    assert np.array_equal(y, x + x) and np.array_equal(pair[1], x * x)
    y, _ = run_function(program, "main", [x, np.array(False)])
    assert np.array_equal(y, -(x * x))


def test_match_cast_checks_and_binds() -> None:
    program = module("""
    @R.function
    def main(x: R.Tensor(dtype="float32", ndim=2)):
        n, m = T.int64(), T.int64()
        y = R.match_cast(x, R.Tensor((n, m), "float32"))
        z = R.reshape(y, R.shape([m * n]))
        w = R.match_cast(z, R.Tensor((6,), "float32"))
        return w
""")
    x = floats(2, 3)
    assert np.array_equal(run_function(program, "main", [x]), x.reshape(6))
    message = fault(program, floats(2, 4))
    assert "E0814" in message and "test.mlc:" in message and "is 8, it should be 6" in message


def test_shapes_and_scalars_are_values() -> None:
    program = module("""
    @R.function
    def main(s: R.Shape(["n", "m"]), x: R.Prim("int64")):
        n, m = T.int64(), T.int64()
        t = R.full(R.shape([m, n + 1]), R.const(2, "float32"), dtype="float32")
        return (t, R.shape([n * m]), x)
""")
    made = run_function(program, "main", [(2, 5), 7])
    assert made[0].shape == (5, 3) and made[1] == (10,) and made[2] == 7


def test_recursion_and_closures_are_run() -> None:
    program = module("""
    @R.function
    def main(x: R.Tensor((), "int32")):
        @R.function
        def twice(y: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
            z = R.add(y, x)
            return z
        a = twice(x)
        b = twice(a)
        return b
""")
    assert run_function(program, "main", [np.array(5, "int32")]) == 15


def test_a_function_that_calls_itself() -> None:
    program = module("""
    @R.function
    def main(n: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
        stop = R.less(n, R.const(2, "int32"))
        if stop:
            r = n
        else:
            m = R.subtract(n, R.const(1, "int32"))
            s = Module.main(m)
            r = R.add(n, s)
        return r
""")
    assert run_function(program, "main", [np.array(100, "int32")]) == 5050


def test_printing_and_assertions_are_run(capsys: pytest.CaptureFixture[str]) -> None:
    program = module("""
    @R.function(pure=False)
    def main(x: R.Tensor((), "int32"), ok: R.Tensor((), "bool")):
        a = R.print(x, format="x is {}")
        b = R.assert_op(ok, x, format="{} is not ok")
        return x
""")
    assert run_function(program, "main", [np.array(3, "int32"), np.array(True)]) == 3
    assert capsys.readouterr().out == "x is 3\n"
    assert "3 is not ok" in fault(program, np.array(3, "int32"), np.array(False))


def test_call_packed_returns_what_it_returns() -> None:
    program = module("""
    @R.function(pure=False)
    def main(x: R.Tensor((3,), "float32")):
        y = R.call_packed("env.sorted", x, sinfo_args=(R.Tensor((3,), "float32"),))
        return y
""")
    x = np.array([3, 1, 2], "float32")
    assert run_function(program, "main", [x], {"env.sorted": np.sort}).tolist() == [1, 2, 3]


def test_results_are_written_in_place() -> None:
    program = module("""
    @T.prim_func
    def double(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = A[i] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.add(x, x)
        z = R.call_tir_inplace(double, (y,), inplace_indices=[0], out_sinfo=R.Tensor((4,), "float32"))
        return z
""")
    x = floats(4)
    assert np.array_equal(run_function(program, "main", [x]), x * 4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_rounded_after_each_operator(dtype: str) -> None:
    program = module(f"""
    @R.function
    def main(x: R.Tensor((2,), "{dtype}")):
        y = R.add(x, R.const([1.0, 1.0], "{dtype}"))
        z = R.subtract(y, R.const([1.0, 1.0], "{dtype}"))
        return z
""")
    tiny = 2.0**-12  # lost beside 1 in both
    if dtype == "float16":
        made = run_function(program, "main", [np.array([tiny, 0.5], "float16")])
        assert made.dtype == np.float16 and made.tolist() == [0, 0.5]
    else:
        made = run_function(program, "main", [np.array([0x3980, 0x3F00], "uint16")])
        assert made.dtype == np.uint16 and made.tolist() == [0, 0x3F00]


def test_results_must_be_written() -> None:
    program = module("""
    @T.prim_func
    def some(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
        for i in range(3):
            Y[i] = X[i]

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.call_tir(some, (x,), R.Tensor((4,), "float32"))
        return y
""")
    assert "E0871" in fault(program, floats(4)) and "(3,)" in fault(program, floats(4))


def test_arguments_that_do_not_fit() -> None:
    program = module("""
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n",), "float32")):
        return (x, y)
""")
    assert "E0802" in fault(program, floats(2, 4))
    assert "E0804" in fault(program, floats(2, 4).astype("int32"), floats(2))
    assert "E0805" in fault(program, floats(2, 5), floats(2))
    assert "E0805" in fault(program, floats(8), floats(2))
    message = fault(program, floats(2, 4), floats(3))
    assert "E0806" in message and "`y`" in message
    with pytest.raises(CallError, match="E0801"):
        run_function(program, "mian", [])


def test_constants_without_data_are_refused() -> None:
    program = module("""
    @R.function
    def main(x: R.Tensor((32,), "float32")):
        y = R.add(x, R.data("weights", R.Tensor((32,), dtype="float32")))
        return y
""")
    message = fault(program, floats(32))
    assert "E0489" in message and "weights" in message

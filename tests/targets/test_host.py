"""Graph functions as native code: every kind of value, checks at entry and inside, memory, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError, CompileError
from mlcc.runtime.registry import register_func, remove_func
from tests.targets.texts import ADD_ONE, RELU, artifact, executable, module

F4 = np.float32


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F4)


def refused(call: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(CallError) as caught:
        call(*args, **options)
    return str(caught.value)


def not_compiled(text: str) -> list[str]:
    with pytest.raises(CompileError) as caught:
        artifact(text)
    return [f"{d.code}: {d.message}" for d in caught.value.diagnostics]


# ---------------------------------------------------------------- values

CHAIN = module(
    RELU,
    """
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        n, m = T.int64(), T.int64()
        cls = Module
        a = R.call_tir(cls.relu, (x,), out_sinfo=R.Tensor((n, m), "float32"))
        b = R.call_tir(cls.relu, (a,), out_sinfo=R.Tensor((n, m), "float32"))
        c = R.call_tir(cls.relu, (b,), out_sinfo=R.Tensor((n, m), "float32"))
        d = R.call_tir(cls.relu, (c,), out_sinfo=R.Tensor((n, m), "float32"))
        return d
""",
)


def test_symbolic_shapes_match_numpy() -> None:
    exe = executable(CHAIN)
    for shape in ((3, 4), (1, 1), (0, 5), (7, 0), (13, 17)):
        x = array(*shape)
        np.testing.assert_array_equal(exe["main"](x), np.maximum(x, 0))
    assert exe.manifest["functions"]["main"]["symbols"] == ["n", "m"]


def test_tuples_of_parameters_and_results() -> None:
    exe = executable(
        module(
            RELU,
            """
    @R.function
    def main(p: R.Tuple(R.Tensor((2, 3), "float32"), R.Tuple(R.Tensor((2, 3), "float32")))):
        cls = Module
        a = p[0]
        q = p[1]
        b = R.call_tir(cls.relu, (a,), out_sinfo=R.Tensor((2, 3), "float32"))
        c = q[0]
        return (b, (c, b), p)
""",
        )
    )
    x, y = array(2, 3), array(2, 3, seed=1)
    b, (c, b2), (x2, (y2,)) = exe["main"]((x, (y,)))
    for got, want in ((b, np.maximum(x, 0)), (c, y), (b2, np.maximum(x, 0)), (x2, x), (y2, y)):
        np.testing.assert_array_equal(got, want)
    assert "`p` of `main` is a ndarray, expected a tuple of 2" in refused(exe["main"], x)
    assert "`p[1]` of `main` is a tuple of 2, expected a tuple of 1" in refused(exe["main"], (x, (y, y)))
    outs = tuple(np.zeros((2, 3), F4) for _ in range(5))
    exe["main"]((x, (y,)), out=(outs[0], (outs[1], outs[2]), (outs[3], (outs[4],))))
    np.testing.assert_array_equal(outs[4], y)


def test_shapes_and_scalars_go_in_and_out() -> None:
    exe = executable(
        module(
            """
    @R.function
    def main(s: R.Shape(["a", "b"]), n: R.Prim("int64"), k: R.Prim(value="k"), x: R.Tensor(("b",), "float32")):
        a, b, k = T.int64(), T.int64(), T.int64()
        return (R.shape([b, a * 2, k + 1]), R.prim_value(a // 2 - b % 3), R.shape_of(x))

    @R.function
    def other(s: R.Shape(["a", "b"])):
        a, b = T.int64(), T.int64()
        return R.shape([a, b])
"""
        )
    )
    assert exe["main"]((5, 4), 3, 9, array(4)) == ((4, 10, 10), 1, (4,))
    assert exe["main"](np.array([6, 2]), np.int32(1), 0, array(2)) == ((2, 12, 1), 1, (2,))
    assert "dim b of `s` is 4, of `x` is 3" in refused(exe["main"], (5, 4), 3, 9, array(3))
    assert "expected a shape of 2 integers" in refused(exe["main"], (5,), 3, 9, array(4))
    assert "expected an integer" in refused(exe["main"], (5, 4), 2.5, 9, array(4))
    assert "value 1 of `s` is negative" in refused(exe["other"], (5, -4))


def test_views_share_memory() -> None:
    text = module(
        RELU,
        """
    @R.function
    def main(x: R.Tensor(("n", 6), "float32")):
        n = T.int64()
        cls = Module
        a = R.call_tir(cls.relu, (x,), out_sinfo=R.Tensor((n, 6), "float32"))
        b = R.reshape(a, R.shape([n * 2, 3]))
        c = R.call_tir(cls.relu, (b,), out_sinfo=R.Tensor((n * 2, 3), "float32"))
        d = R.expand_dims(c, axis=[0])
        return d
""",
    )
    exe = executable(text)
    x = array(5, 6)
    np.testing.assert_array_equal(exe["main"](x), np.maximum(x, 0).reshape(1, 10, 3))
    assert artifact(text).text.count("memcpy") == 0


def test_results_that_are_no_temporaries_are_copied() -> None:
    exe = executable(
        module(
            RELU,
            """
    @R.function
    def main(x: R.Tensor((2, 2), "float32")):
        cls = Module
        c = R.const([[1.0, 2.0], [3.0, 4.0]], "float32")
        a = R.call_tir(cls.relu, (c,), out_sinfo=R.Tensor((2, 2), "float32"))
        return (x, x, a, a, c)
""",
        )
    )
    x = array(2, 2)
    want = np.array([[1, 2], [3, 4]], F4)
    for got, value in zip(exe["main"](x), (x, x, want, want, want), strict=True):
        np.testing.assert_array_equal(got, value)


def test_branches_choose_at_run_time() -> None:
    exe = executable(
        module(
            RELU,
            """
    @R.function
    def main(flag: R.Tensor((), "bool"), x: R.Tensor(("n", 2), "float32")):
        n = T.int64()
        cls = Module
        if flag:
            a = R.call_tir(cls.relu, (x,), out_sinfo=R.Tensor((n, 2), "float32"))
            y = a
        else:
            y = x
        z = R.call_tir(cls.relu, (y,), out_sinfo=R.Tensor((n, 2), "float32"))
        return (y, z)

    @R.function
    def by_scalar(flag: R.Prim("bool"), x: R.Tensor((2, 2), "float32"), w: R.Tensor((2, 2), "float32")):
        if flag:
            y = (x, R.shape([1, 2]))
        else:
            y = (w, R.shape([3, 4]))
        return y
""",
        )
    )
    x, w = array(3, 2), array(2, 2, seed=3)
    for flag in (True, False):
        y, z = exe["main"](np.array(flag), x)
        np.testing.assert_array_equal(y, np.maximum(x, 0) if flag else x)
        np.testing.assert_array_equal(z, np.maximum(x, 0))
        y, shape = exe["by_scalar"](flag, x[:2], w)
        np.testing.assert_array_equal(y, x[:2] if flag else w)
        assert shape == ((1, 2) if flag else (3, 4))


def test_private_functions_are_planned_into_their_callers() -> None:
    exe = executable(
        module(
            ADD_ONE,
            """
    @R.function(private=True)
    def twice(x: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
        k = T.int64()
        cls = Module
        a = R.call_tir(cls.add_one, (x,), out_sinfo=R.Tensor((k,), "float32"))
        b = R.call_tir(cls.add_one, (a,), out_sinfo=R.Tensor((k,), "float32"))
        return b

    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor((4,), "float32")):
        n = T.int64()
        cls = Module
        a = cls.twice(x)
        b = cls.twice(a)
        c = cls.twice(y)
        return (b, c)
""",
        )
    )
    assert list(exe) == ["main"]
    b, c = exe["main"](array(7), array(4, seed=1))
    np.testing.assert_allclose(b, array(7) + 4, rtol=1e-6)
    np.testing.assert_allclose(c, array(4, seed=1) + 2, rtol=1e-6)


def test_nested_functions_are_planned_into_their_callers() -> None:
    """They see what is around them; each call has values of its own."""
    text = """
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        @R.function
        def g(y: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            s = R.add(y, x)
            return s
        z = g(x)
        w = g(z)
        return (z, w)
"""
    x = array(3)
    z, w = mlcc.load(mlcc.build(mlcc.parse(module(text)), target="llvm"))["main"](x)
    np.testing.assert_array_equal(z, x + x)
    np.testing.assert_array_equal(w, x + x + x)


def test_nested_functions_see_what_is_around_them() -> None:
    exe = executable(
        module(
            ADD_ONE,
            """
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor((3,), "float32")):
        n = T.int64()
        cls = Module
        a = R.call_tir(cls.add_one, (x,), out_sinfo=R.Tensor((n,), "float32"))

        @R.function
        def inner(z: R.Tensor(("k",), "float32")):
            k = T.int64()
            b = R.call_tir(cls.add_one, (z,), out_sinfo=R.Tensor((k,), "float32"))
            return (b, a)

        c = inner(y)
        d = inner(x)
        return (c[0], c[1], d[0])
""",
        )
    )
    x, y = array(5), array(3, seed=2)
    for got, want in zip(exe["main"](x, y), (y + 1, x + 1, x + 1), strict=True):
        np.testing.assert_array_equal(got, want)


def test_results_are_allocated_or_given() -> None:
    exe = executable(
        module(
            RELU,
            """
    @R.function(pure=False)
    def main(x: R.Tensor((2, 3), "float32")):
        cls = Module
        out = R.builtin.alloc_tensor(R.shape([2, 3]), R.dtype("float32"), R.prim_value(0))
        _ = cls.relu(x, out)
        storage = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        t = R.memory.alloc_tensor(storage, R.prim_value(16), R.shape([2, 3]), R.dtype("float32"))
        _1 = cls.relu(out, t)
        _2 = R.memory.kill_tensor(t)
        return (out, t)
""",
        )
    )
    x = array(2, 3)
    for got in exe["main"](x):
        np.testing.assert_array_equal(got, np.maximum(x, 0))


def test_scalars_reach_kernels() -> None:
    exe = executable(
        module(
            """
    @T.prim_func(private=True)
    def fill(y: T.handle, v: T.int64):
        n = T.int64()
        Y = T.match_buffer(y, (n,), "int64")
        for i in range(n):
            Y[i] = v + i

    @R.function
    def main(s: R.Shape(["n", "v"])):
        n, v = T.int64(), T.int64()
        cls = Module
        a = R.call_tir(cls.fill, (), out_sinfo=R.Tensor((n,), "int64"), tir_vars=R.shape([v * 10]))
        return a
"""
        )
    )
    assert exe["main"]((3, 4)).tolist() == [40, 41, 42]


def test_prim_funcs_take_scalars_of_every_kind() -> None:
    exe = executable(
        """
@T.prim_func
def main(a: T.int32, b: T.float32, c: T.bool, d: T.uint8, e: T.float64, Y: T.Buffer((5,), "float64")):
    Y[0] = T.Cast("float64", a)
    Y[1] = T.Cast("float64", b)
    Y[2] = T.Cast("float64", c)
    Y[3] = T.Cast("float64", d)
    Y[4] = e
"""
    )
    assert exe["main"](-7, 0.1, True, 200, 0.1).tolist() == [-7, float(F4(0.1)), 1, 200, 0.1]
    assert "300, which uint8 cannot represent" in refused(exe["main"], -7, 0.1, True, 300, 0.1)
    assert "expected a bool" in refused(exe["main"], -7, 0.1, 1, 3, 0.1)


# ---------------------------------------------------------------- run-time checks


def test_match_cast_checks_and_binds() -> None:
    exe = executable(
        module(
            RELU,
            """
    @R.function
    def main(x: R.Tensor("float32", ndim=2), y: R.Tensor(("k", 3), "float32")):
        k = T.int64()
        n, m = T.int64(), T.int64()
        cls = Module
        a = R.match_cast(x, R.Tensor((n, m), "float32"))
        b = R.call_tir(cls.relu, (a,), out_sinfo=R.Tensor((n, m), "float32"))
        c = R.match_cast(b, R.Tensor((k, 3), "float32"))
        return c
""",
        )
    )
    x = array(4, 3)
    np.testing.assert_array_equal(exe["main"](x, x), np.maximum(x, 0))
    text = refused(exe["main"], array(4, 2), x)
    assert "E0814" in text and "dim 1 of `c` is 2, expected 3" in text
    assert "dim 0 of `c` is 5, expected k = 4" in refused(exe["main"], array(5, 3), x)


def test_assertions_and_prints(capfd: pytest.CaptureFixture[str]) -> None:
    exe = executable(
        module(
            """
    @R.function(pure=False)
    def main(flag: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")):
        n = T.int64()
        _ = R.print(x, R.prim_value(n), format="x = {} of {}")
        _1 = R.assert_op(flag, format="the flag must be set")
        return x
"""
        )
    )
    assert exe["main"](np.array(True), array(2)[:0]).shape == (0,)
    assert capfd.readouterr().out == "x = [] of 0\n"
    assert "the flag must be set" in refused(exe["main"], np.array(False), array(1))


def test_kernel_assertions_have_their_message() -> None:
    exe = executable(
        """
@T.prim_func
def main(n: T.int32, Y: T.Buffer((1,), "int32")):
    assert n > 3, "n is too small"
    Y[0] = n
"""
    )
    assert exe["main"](4).tolist() == [4]
    assert "E0813" in refused(exe["main"], 3) and "n is too small" in refused(exe["main"], 3)


MLP = module(
    """
    @T.prim_func(private=True)
    def linear(x: T.handle, w: T.handle, z: T.handle):
        n, m, k = T.int64(), T.int64(), T.int64()
        X = T.match_buffer(x, (n, k), "float32")
        W = T.match_buffer(w, (m, k), "float32")
        Z = T.match_buffer(z, (n, m), "float32")
        for i, j, l in T.grid(n, m, k):
            with T.block("Z"):
                vi, vj, vl = T.axis.remap("SSR", [i, j, l])
                with T.init():
                    Z[vi, vj] = T.float32(0)
                Z[vi, vj] = Z[vi, vj] + X[vi, vl] * W[vj, vl]

    @R.function
    def main(x: R.Tensor(("n", "k"), "float32"), w: R.Tensor(("m", "k"), "float32")):
        n, m, k = T.int64(), T.int64(), T.int64()
        cls = Module
        y = R.call_tir(cls.linear, (x, w), out_sinfo=R.Tensor((n, m), "float32"))
        return y
"""
)


def test_entry_errors_say_what_and_where() -> None:
    main = executable(MLP)["main"]
    np.testing.assert_allclose(main(array(2, 3), array(4, 3)), array(2, 3) @ array(4, 3).T, rtol=1e-5)
    assert "dim k of `x` is 3, of `w` is 5" in refused(main, array(2, 3), array(4, 5))
    assert "dim m of `w` is 4, of `out` is 9" in refused(main, array(2, 3), array(4, 3), out=array(2, 9))
    assert "`x` of `main` is float64, expected float32(n, k)" in refused(main, np.zeros((2, 3)), array(4, 3))
    both = np.zeros(100, F4)
    x, out = both[:6].reshape(2, 3), both[4:12].reshape(2, 4)
    assert "E0809" in refused(main, x, array(4, 3), out=out) and "`out` shares memory" in refused(
        main, x, array(4, 3), out=out
    )
    main(x, array(4, 3), out=both[6:14].reshape(2, 4))


def test_outputs_with_gaps_share_no_memory_either() -> None:
    text = """
@R.function
def main(x: R.Tensor((4, 4), "float32")):
    return (R.add(x, x), R.negative(x))
"""
    main = mlcc.load(mlcc.build(mlcc.parse(text)))["main"]
    x, wide, flat = array(4, 4), np.zeros((4, 8), F4), np.zeros(40, F4)
    main(x, out=(wide[:, ::2], wide[:, 1::2]))
    np.testing.assert_array_equal(wide, np.stack([x + x, -x], -1).reshape(4, 8))
    main(x, out=(flat[15::-1].reshape(4, 4), np.lib.stride_tricks.as_strided(flat[16:], (4, 4), (4, 16))))
    assert "`out[0]` shares memory with `out[1]`" in refused(main, x, out=(wide[:, :4], wide[:, 3:7]))
    assert "`out[0]` shares memory with `x`" in refused(main, wide[:, :4], out=(wide[:, 1:5], array(4, 4)))
    for strides in [(4, 4), (0, 4), (8, 4), (8, 16)]:
        for first in (False, True):
            folded = np.lib.stride_tricks.as_strided(flat, (4, 4), strides)
            out = (folded, array(4, 4)) if first else (array(4, 4), folded)
            assert "overlaps itself" in refused(main, x, out=out)
    woven = np.lib.stride_tricks.as_strided(flat, (4, 4), (12, 40))  # strides that do not nest, yet nothing is shared
    main(x, out=(woven, array(4, 4)))
    np.testing.assert_array_equal(woven, x + x)


def test_a_kernel_that_does_not_fit_its_arguments() -> None:
    text = MLP.replace("R.call_tir(cls.linear, (x, w),", "R.call_tir(cls.linear, (x, x),")
    exe = executable(text)
    assert exe["main"](array(2, 2), array(2, 2)).shape == (2, 2)
    assert "dim 1 of argument `Z` of `linear` is 4, expected n = 2" in refused(exe["main"], array(2, 3), array(4, 3))


# ---------------------------------------------------------------- memory


def test_memory_is_used_again() -> None:
    sizes = {}
    for count in (4, 40):
        body = "".join(
            f"        a{i} = R.call_tir(cls.relu, (a{i - 1},), out_sinfo=R.Tensor((8, 16), 'float32'))\n"
            for i in range(1, count)
        )
        text = module(
            RELU,
            f"""
    @R.function
    def main(a0: R.Tensor((8, 16), "float32")):
        cls = Module
{body}        return a{count - 1}
""",
        )
        made = artifact(text)
        sizes[count] = made.manifest["functions"]["main"]["workspace"]
    assert sizes[4] == sizes[40] == 2 * 8 * 16 * 4


def test_symbolic_memory_is_used_again() -> None:
    workspace = artifact(CHAIN).manifest["functions"]["main"]["workspace"]
    from mlcc.runtime.manifest import evaluate

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    assert evaluate(tuples(workspace), {"n": 16, "m": 16}) == 2 * 16 * 16 * 4, "three temporaries in two slots"


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs_keep_their_values(seed: int) -> None:
    """Values that live long beside ones that die early, of several sizes."""
    rng = np.random.default_rng(seed)
    sizes = ["n", "n * 2", "8", "n + 3"]
    lines, live, kinds = [], ["x"], {"x": 0}
    for index in range(30):
        size = int(rng.integers(len(sizes)))
        candidates = [v for v in live if kinds[v] == size]
        if candidates:
            source = candidates[int(rng.integers(len(candidates)))]
            call = f"R.call_tir(cls.add_one, ({source},), out_sinfo=R.Tensor(({sizes[size]},), 'float32'))"
        else:
            call = f"R.call_tir(cls.count, (), out_sinfo=R.Tensor(({sizes[size]},), 'float32'))"
        lines.append(f"        v{index} = {call}\n")
        live.append(f"v{index}")
        kinds[f"v{index}"] = size
    returned = [live[int(i)] for i in rng.choice(len(live), 6, replace=False)]
    text = module(
        ADD_ONE,
        """
    @T.prim_func(private=True)
    def count(y: T.handle):
        n = T.int64()
        Y = T.match_buffer(y, (n,), "float32")
        for i in range(n):
            Y[i] = T.Cast("float32", i)
""",
        f"""
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        cls = Module
{"".join(lines)}        return ({", ".join(returned)})
""",
    )
    exe = executable(text)
    for n in (1, 5, 8):
        values: dict[str, np.ndarray] = {"x": array(n)}
        for line in lines:
            name, call = line.split(" = ", 1)
            size = eval(sizes[kinds[name.strip()]], {"n": n})
            source = call.split("(")[2].split(",")[0] if "add_one" in call else None
            values[name.strip()] = values[source] + 1 if source else np.arange(size, dtype=F4)
        for got, want in zip(exe["main"](array(n)), returned, strict=True):
            np.testing.assert_array_equal(got, values[want])


def test_large_extents_do_not_wrap() -> None:
    """Empty arrays may have extents whose product is beyond 64 bits: an error, not a small workspace."""
    exe = executable(
        module(
            ADD_ONE,
            """
    @R.function
    def main(s: R.Shape(["a", "b"])):
        a, b = T.int64(), T.int64()
        cls = Module
        t = R.builtin.alloc_tensor(R.shape([a, b]), R.dtype("float32"), R.prim_value(0))
        u = R.reshape(t, R.shape([a * b]))
        v = R.call_tir(cls.add_one, (u,), out_sinfo=R.Tensor((a * b,), "float32"))
        w = R.call_tir(cls.add_one, (v,), out_sinfo=R.Tensor((a * b,), "float32"))
        return R.shape([a])
""",
        )
    )
    assert exe["main"]((3, 4)) == (3,)
    for shape in ((1 << 33, 1 << 33), (1 << 62, 1 << 62), (1 << 45, 1 << 4)):
        assert "too large" in refused(exe["main"], shape)


def test_long_graphs_match_numpy() -> None:
    """Beyond some hundred steps the host function is not optimised; it computes the same."""
    body = "".join(
        f"        a{i} = R.call_tir(cls.add_one, (a{i - 1},), out_sinfo=R.Tensor((n,), 'float32'))\n"
        for i in range(1, 350)
    )
    text = module(
        ADD_ONE,
        f"""
    @R.function
    def main(a0: R.Tensor(("n",), "float32")):
        n = T.int64()
        cls = Module
{body}        b = R.call_dps_packed("h.double", (a349,), out_sinfo=R.Tensor((n,), "float32"))
        return b
""",
    )
    register_func("h.double", lambda x, out: np.multiply(x, 2, out=out), override=True)
    try:
        assert executable(text, opt_level=2)["main"](np.zeros(3, F4)).tolist() == [698.0] * 3
    finally:
        remove_func("h.double")


def test_deep_chains_of_functions_are_run() -> None:
    functions = [
        f"""
    @R.function(private=True)
    def f{i}(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        cls = Module
        y: R.Tensor((n,), "float32") = cls.f{i + 1}(x)
        return y
"""
        for i in range(300)
    ]
    last = """
    @R.function
    def f300(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        cls = Module
        y = R.call_tir(cls.add_one, (x,), out_sinfo=R.Tensor((n,), "float32"))
        return y

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        cls = Module
        y: R.Tensor((n,), "float32") = cls.f0(x)
        return y
"""
    assert executable(module(ADD_ONE, *functions, last))["main"](np.zeros(2, F4)).tolist() == [1, 1]


# ---------------------------------------------------------------- packed functions


def test_packed_functions_write_or_return() -> None:
    exe = executable(
        module(
            """
    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        a = R.call_dps_packed("h.double", (x,), out_sinfo=R.Tensor((n,), "float32"))
        b = R.call_packed(
            "h.add", a, R.prim_value(n), R.str("up"), R.shape([n, 1]), sinfo_args=[R.Tensor((n,), "float32")]
        )
        c = R.call_packed("h.split", b, sinfo_args=[R.Tuple(R.Tensor((n,), "float32"), R.Tensor((), "int64"))])
        _ = R.call_packed("h.look", b, sinfo_args=[R.Object])
        d = c[0]
        e = c[1]
        return (b, d, e)
"""
        )
    )
    looked: list[Any] = []

    def double(x: np.ndarray, out: np.ndarray) -> None:
        np.multiply(x, 2, out=out)

    def add(a: np.ndarray, n: int, word: str, shape: tuple[int, ...]) -> np.ndarray:
        assert (n, word, shape) == (len(a), "up", (len(a), 1))
        return a + np.float32(n)

    for name, f in {
        "h.double": double, "h.add": add, "h.split": lambda b: (-b, 7), "h.look": lambda b: looked.append(b.copy()),
    }.items():  # fmt: skip
        register_func(name, f, override=True)
    try:
        x = array(3)
        b, d, e = exe["main"](x)
        np.testing.assert_array_equal(b, x * 2 + 3)
        np.testing.assert_array_equal(d, -b)
        assert e == 7 and len(looked) == 1
    finally:
        for name in ("h.double", "h.add", "h.split", "h.look"):
            remove_func(name)
    assert "no packed function `h.double`" in refused(exe["main"], x)


def test_a_packed_name_may_be_a_function_of_the_module() -> None:
    text = MLP.replace("R.call_tir(cls.linear,", 'R.call_dps_packed("linear",')
    exe = executable(text)
    assert exe["main"](array(2, 3), array(4, 3)).shape == (2, 4)
    assert exe.manifest["packed"] == []


# ---------------------------------------------------------------- what is refused


def test_everything_without_native_form_is_listed() -> None:
    found = not_compiled(
        module(
            """
    @R.function
    def main(x: R.Tensor(("n",), "float32"), f: R.Callable, y: R.Tensor("float32")):
        n = T.int64()
        return x

    @R.function
    def second(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        a = R.add(x, x)
        b = R.nn.relu(a)
        c = R.unique(b)
        d = R.call_packed("p.what", c, sinfo_args=[R.Object])
        return d
"""
        )
    )
    assert any(f.startswith("E0757: parameter `f`") for f in found)
    assert any("number of dimensions of parameter `y`" in f for f in found)
    assert "E0754: `R.add` has no native form" in found
    assert len([f for f in found if "has no native form" in f]) >= 1


def test_recursion_is_refused() -> None:
    found = not_compiled(
        module(
            """
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = Module
        y: R.Tensor((2,), "float32") = cls.main(x)
        return y
"""
        )
    )
    assert found == ["E0756: recursive relax functions: main -> main"]


def test_c_names_that_clash_are_refused() -> None:
    text = "\n".join(
        f"@T.prim_func\ndef {name}(X: T.Buffer((1,), 'float32')):\n    X[0] = T.float32(0)\n"
        for name in ("f", "f_ws", "g")
    )
    found = not_compiled(text)
    assert found == ["E0750: `f_ws` and function `f` would have the same C symbol `PREFIX_f_ws`"]


def test_constants_without_data_are_refused() -> None:
    found = not_compiled(
        module(
            """
    @R.function
    def main(x: R.Tensor((2, 2), "float32")):
        y = R.data("weights", R.Tensor((2, 2), dtype="float32"), sha256="00112233445566778899")
        return y
"""
        )
    )
    assert found == ["E0751: the data of constant `weights` are missing"]


def test_arguments_that_never_fit_are_refused() -> None:
    text = module(
        """
    @T.prim_func(private=True)
    def three(X: T.Buffer((3,), "float32"), Y: T.Buffer((3,), "float32")):
        for i in range(3):
            Y[i] = X[i]

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((3,), "float64")):
        cls = Module
        a = R.call_tir(cls.three, (x,), out_sinfo=R.Tensor((3,), "float32"))
        b = R.call_tir(cls.three, (y,), out_sinfo=R.Tensor((3,), "float32"))
        return (a, b)
"""
    )
    found = not_compiled(text)
    assert any("dim 0 of argument `X` of `three` is 4, not 3" in f for f in found), found
    assert any("argument `X` of `three` is float64, not float32" in f for f in found), found

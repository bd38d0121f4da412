"""Kernels as C source, construct by construct: dtypes, views, vectors, calls, loops, and what is refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError
from mlcc.interp import run_prim_func
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import Attrs, replace
from tests.targets import build
from tests.targets.build import call, from_bfloat16, node, to_bfloat16
from tests.targets.c_source import FLAGS, load, source

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

UNDEFINED = (*FLAGS, "-fsanitize=undefined")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def elementwise(*args: Any) -> tir.PrimFunc:
    """A public function `out[i] = fn(in0[i], ...)`."""
    made = build.elementwise(*args)
    return replace(made, attrs=Attrs({**made.attrs, "global_symbol": "f"}))


def same(func: tir.PrimFunc, *args: Any, capfd: pytest.CaptureFixture[str] | None = None, rtol: float = 0) -> None:
    """Native code and the interpreter agree, and nothing that the code did is undefined."""
    exe = load(source(func), UNDEFINED)
    given, expected = ([a.copy() if isinstance(a, np.ndarray) else a for a in args] for _ in range(2))
    exe[next(iter(exe.functions))](*given)
    run_prim_func(func, expected)
    for a, b in zip(given, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol) if rtol else np.testing.assert_array_equal(a, b)
    if capfd is not None:
        assert "runtime error" not in capfd.readouterr().err


def edges(dtype: str) -> np.ndarray:
    """Integers at and near the ends of a dtype, and small ones."""
    info = np.iinfo(dtype)
    values = {info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 8, 31, info.max // 2}
    values |= {-1, -2, -7} if info.min < 0 else set()
    return np.array(sorted(values), dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_and_divide_as_they_should(dtype: str, capfd: pytest.CaptureFixture[str]) -> None:
    pairs = np.array([(a, b) for a in edges(dtype) for b in edges(dtype)], dtype)
    kinds = (tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max)
    shifts = [call(name) for name in ("shift_left", "shift_right", "bitwise_and", "bitwise_or", "bitwise_xor")]
    results = [(dtype, node(kind)) for kind in kinds] + [(dtype, shift) for shift in shifts]
    results += [("bool", node(kind)) for kind in (tir.LT, tir.EQ, tir.GE)]
    func = elementwise(len(pairs), [dtype, dtype], results)
    out = [np.zeros(len(pairs), t) for t, _ in results]
    same(func, pairs[:, 0].copy(), pairs[:, 1].copy(), *out, capfd=capfd)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits_of_integers(dtype: str, capfd: pytest.CaptureFixture[str]) -> None:
    values = edges(dtype)
    results = [
        (dtype, call("popcount")), ("int32", call("clz", "int32")), (dtype, call("bitwise_not")), (dtype, call("abs")),
        *((other, lambda a, other=other: c.cast(other, a)) for other in (*INTEGERS, "bool", "float32", "float64")),
    ]  # fmt: skip
    func = elementwise(len(values), [dtype], results)
    same(func, values, *(np.zeros(len(values), t) for t, _ in results), capfd=capfd)


FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    2.5,
    3.5,
    -2.5,
    1e-40,
    65504.0,
    65520.0,
    1e-7,
    3e38,
    -3e38,
    448.0,
    465.0,
    0.001953125,
]
SPECIAL = [np.inf, -np.inf, np.nan, 2147483648.0, -2147483649.0, 4294967296.0, 1e30, -1e30, 9.3e18, 6e-8, 5.9e-8]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_become_integers_and_narrow_floats(dtype: str, capfd: pytest.CaptureFixture[str]) -> None:
    values = np.array([*FLOATS, *SPECIAL], dtype)
    results = [(other, lambda a, other=other: c.cast(other, a)) for other in (*INTEGERS, "bool", "float16")]
    func = elementwise(len(values), [dtype], results)
    same(func, values, *(np.zeros(len(values), t) for t, _ in results), capfd=capfd)


@pytest.mark.parametrize("dtype", NARROW)
def test_every_narrow_float_is_read_and_written(dtype: str, capfd: pytest.CaptureFixture[str]) -> None:
    """All bit patterns as float32, and back, and a sum that rounds."""
    bits = 16 if "16" in dtype else 8
    values = np.arange(1 << bits).astype(f"uint{bits}")
    results = [
        ("float32", lambda a: c.cast("float32", a)), (dtype, lambda a: a),
        (dtype, lambda a: c.cast(dtype, c.mul(c.cast("float32", a), c.const(1.003, "float32")))),
    ]  # fmt: skip
    func = elementwise(len(values), [dtype], results)
    wide, plain, scaled = np.zeros(len(values), "float32"), np.zeros_like(values), np.zeros_like(values)
    exe = load(source(func), UNDEFINED)
    judge = mlcc.load(mlcc.build(func, "llvm{cpu=x86-64}"))
    others = [x.copy() for x in (wide, plain, scaled)]
    first = next(iter(exe.functions))
    exe[first](*(_tagged(x, dtype) for x in (values,)), wide, *(_tagged(x, dtype) for x in (plain, scaled)))
    judge[first](*(_tagged(x, dtype) for x in (values,)), others[0], *(_tagged(x, dtype) for x in others[1:]))
    np.testing.assert_array_equal(wide, others[0])
    number = ~np.isnan(wide)
    for mine, theirs in ((plain, others[1]), (scaled, others[2])):
        np.testing.assert_array_equal(mine[number], theirs[number])
    assert "runtime error" not in capfd.readouterr().err


def _tagged(bits: np.ndarray, dtype: str) -> Any:
    from mlcc.runtime.abi import tagged_dtype

    return bits.view("float16") if dtype == "float16" else bits.view(tagged_dtype(dtype, bits.dtype))


def test_arithmetic_of_bfloat16_rounds_after_each_operation() -> None:
    values = to_bfloat16(np.linspace(-3, 3, 97).astype("float32"))
    func = elementwise(97, ["bfloat16"], [("bfloat16", lambda a: c.add(c.mul(a, a), a))])
    out = np.zeros(97, "uint16")
    exe = load(source(func))
    exe[next(iter(exe.functions))](_tagged(values, "bfloat16"), _tagged(out, "bfloat16"))
    wide = from_bfloat16(values)
    np.testing.assert_array_equal(out, to_bfloat16(from_bfloat16(to_bfloat16(wide * wide)) + wide))


UNARY = """
    exp exp2 exp10 sigmoid tanh sinh cosh erf log log2 log10 log1p sqrt rsqrt atan asin acos sin cos tan asinh acosh
    atanh floor ceil trunc round nearbyint fabs
"""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_elementary_functions(dtype: str) -> None:
    values = np.array([0.0, -0.0, 0.3, -0.7, 0.999, 1.0, 1.5, 2.5, -2.5, 7.25, 80.0, np.inf, -np.inf, np.nan], dtype)
    results = [(dtype, call(name)) for name in UNARY.split()]
    results += [("bool", call(name, "bool")) for name in ("isnan", "isinf", "isfinite")]
    func = elementwise(len(values), [dtype], results)
    with np.errstate(all="ignore"):
        out = [np.zeros(len(values), t) for t, _ in results]
        same(func, values, *out, rtol=1e-6 if dtype == "float32" else 1e-14)


TEXTS = {
    "views of other types": """
@T.prim_func
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int32"), C: T.Buffer((8,), "float32")):
    V = T.decl_buffer((8,), "int32", data=A.data)
    W = T.decl_buffer((8,), "float32", data=B.data)
    H = T.decl_buffer((16,), "float16", data=C.data)
    for i in range(8):
        W[i] = A[i] + T.float32(1)
        B[i] = B[i] + V[i]
        H[i] = T.Cast("float16", A[i])
""",
    "vectors": """
@T.prim_func
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int32"), C: T.Buffer((8,), "float32")):
    C[T.Ramp(0, 1, 4)] = A[T.Ramp(3, -1, 4)] * T.Broadcast(T.float32(2), 4) + C[T.Ramp(1, 1, 4)]
    B[T.Ramp(0, 2, 4)] = T.Select(A[T.Ramp(0, 1, 4)] < T.Broadcast(A[1], 4), B[T.Ramp(4, 1, 4)], T.Broadcast(7, 4))
    if A[0] < T.float32(100):
        C[T.Shuffle([T.Ramp(4, 1, 4)], [2])] = T.float32(5)
""",
    "loops with steps, and left early": """
@T.prim_func
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int32"), C: T.Buffer((8,), "float32")):
    for i in T.serial(1, 8, step=3):
        C[i] = A[i]
    for i in T.serial(B[0], B[5], step=B[4]):
        C[i - 3] = C[i - 3] + T.Cast("float32", i)
    for i in range(8):
        if B[i] > 3:
            continue
        if A[i] > T.float32(1.5):
            break
        C[i] = T.float32(9)
    k = T.alloc_buffer((1,), "int32")
    k[0] = 0
    while k[0] < 5 and B[k[0]] < 100:
        k[0] = k[0] + 2
    B[0] = k[0]
""",
    "temporaries of sizes that the data give": """
@T.prim_func
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("b"):
            vi = T.axis.spatial(8, i)
            t = T.alloc_buffer((T.max(B[vi], 0) + 1,), "float32")
            for j in range(T.max(B[vi], 0) + 1):
                t[j] = A[vi] * T.Cast("float32", j)
            C[vi] = t[T.max(B[vi], 0)]
""",
    "names that C has": """
@T.prim_func
def main(double: T.Buffer((8,), "float32"), int: T.Buffer((8,), "int32"), exp: T.Buffer((8,), "float32")):
    for NULL, add_i32 in T.grid(2, 4):
        exp[NULL * 4 + add_i32] = T.exp(double[NULL * 4 + add_i32]) + T.Cast("float32", int[add_i32] + int[NULL])
""",
}


@pytest.mark.parametrize("name", TEXTS)
def test_constructs(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    (func,) = mlcc.parse(TEXTS[name]).functions.values()
    assert isinstance(func, tir.PrimFunc)
    a = np.array([0.5, 1.25, -2, 3, 4, 1.0, -6, 7], "float32")
    same(func, a, np.array([3, 1, 4, 1, 5, 9, 2, 6], "int32"), a[::-1].copy(), capfd=capfd, rtol=1e-6)


def test_dot_products_and_fixed_point(capfd: pytest.CaptureFixture[str]) -> None:
    (func,) = mlcc.parse("""
@T.prim_func
def f(
    A: T.Buffer((64,), "int8"), B: T.Buffer((64,), "int8"), C: T.Buffer((16,), "int32"), D: T.Buffer((4,), "float32")
):
    C[T.Ramp(0, 1, 16)] = T.dp4a(A[T.Ramp(0, 1, 64)], B[T.Ramp(0, 1, 64)], C[T.Ramp(0, 1, 16)])
    C[0] = T.dp4a(A[T.Ramp(0, 1, 4)], B[T.Ramp(0, 1, 4)])
    C[1] = T.q_multiply_shift(C[2], 1073741824, 31, 1)
    C[3] = T.q_multiply_shift(C[4], 2147483647, 31, -3)
    D[T.Ramp(0, 1, 2)] = T.vectorhigh("float32x2", D[T.Ramp(0, 1, 4)]) + T.vectorlow("float32x2", D[T.Ramp(0, 1, 4)])
    D[2] = T.ldexp(D[3], C[5] % 8) + T.copysign(T.float32(3), D[2]) + T.fma(D[2], D[3], D[0]) + T.atan2(D[0], D[1])
""").functions.values()
    assert isinstance(func, tir.PrimFunc)
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-128, 128, 64).astype("int8") for _ in range(2))
    counts = rng.integers(-(2**31), 2**31, 16).astype("int32")
    same(func, a, b, counts, rng.standard_normal(4).astype("float32"), capfd=capfd, rtol=1e-6)


def test_dot_products_of_bfloat16(capfd: pytest.CaptureFixture[str]) -> None:
    (func,) = mlcc.parse("""
@T.prim_func
def f(A: T.Buffer((32,), "bfloat16"), B: T.Buffer((32,), "bfloat16"), C: T.Buffer((16,), "float32")):
    C[T.Ramp(0, 1, 16)] = T.dp2a(A[T.Ramp(0, 1, 32)], B[T.Ramp(0, 1, 32)], C[T.Ramp(0, 1, 16)])
    C[0] = T.dp2a(A[T.Ramp(0, 1, 2)], B[T.Ramp(0, 1, 2)])
""").functions.values()
    assert isinstance(func, tir.PrimFunc)
    rng = np.random.default_rng(6)
    a, b = (to_bfloat16(rng.standard_normal(32)) for _ in range(2))
    same(func, a, b, rng.standard_normal(16).astype("float32"), capfd=capfd, rtol=1e-6)


def test_functions_call_each_other_and_fail() -> None:
    module = mlcc.parse("""
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def root(x: T.float32) -> T.float32:
        assert x >= T.float32(0), "the number is negative"
        T.ret(T.sqrt(x))

    @T.prim_func
    def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = T.if_then_else(A[i] < T.float32(-5), T.float32(-1), Module.root(A[i]))
""")
    exe, out = load(source(module)), np.zeros(4, "float32")
    exe["main"](np.array([4, -7, 9, 0], "float32"), out)
    assert out.tolist() == [2, -1, 3, 0]
    with pytest.raises(CallError, match="the number is negative"):
        exe["main"](np.array([4, -2, 9, 0], "float32"), out)


@pytest.mark.parametrize(("body", "text"), [
    ('B[0] = T.call_extern("float32", "tgammma", A[0])', "tgammma"),
    ("B[0] = T.tvm_warp_shuffle(T.uint32(1), A[0], 0, 32, 32)", "tvm_warp_shuffle"),
    ('B[0] = T.call_extern("float32", "exp10f", A[0])', "C99 has no"),
])  # fmt: skip
def test_what_c_has_no_form_for_is_refused_with_its_place(body: str, text: str) -> None:
    program = f"""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    {body}
"""
    with pytest.raises(mlcc.CompileError) as caught:
        source(mlcc.parse(program, name="m.mlc"))
    (diagnostic,) = caught.value.diagnostics
    assert text in str(caught.value) and diagnostic.primary.span is not None


def test_an_allowed_extern_is_declared() -> None:
    program = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    B[0] = T.call_extern("float32", "my_filter", A[0], 3)
"""
    text = source(mlcc.parse(program), allow_extern=("my_filter",)).emit().decode()
    assert "MLCC_EXTERN float my_filter(float, int32_t);" in text and "my_filter(A[0], 3)" in text


def test_loops_are_loops_and_functions_are_named() -> None:
    program = """
@T.prim_func
def scale(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
    for i, j in T.grid(4, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
"""
    text = source(mlcc.parse(program), 1).emit().decode()
    expected = """\
/* scale(A: float32(4, 8), B: float32(4, 8)) */
static void scale(const float *A, float *B) {
    for (int32_t i = 0; i < 4; ++i) {
        for (int32_t j = 0; j < 8; ++j) {
            B[i * 8 + j] = A[i * 8 + j] * 2.0f;
        }
    }
}
"""
    assert expected in text


@pytest.mark.parametrize("size", [40, 5000])
def test_constants_are_exact(size: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    weights = (rng.standard_normal(size) * 1e-30).astype("float32")
    weights[:5] = [np.inf, -np.inf, -0.0, 1e-45, 3.4028235e38]
    np.savez(tmp_path / "w.npz", w=weights)
    text = f"""
@R.function
def main(x: R.Tensor(({size},), "float32"), w: R.Tensor(({size},), "float32")):
    return R.multiply(x, w)
"""
    module = mlcc.run_passes(mlcc.parse(text), "bind-params{params=w.npz}", folder=str(tmp_path))
    result = load(source(module))["main"](np.ones(size, "float32"))
    np.testing.assert_array_equal(result.view("uint32"), weights.view("uint32"))


def test_the_stack_is_bounded() -> None:
    program = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    t = T.alloc_buffer((64,), "float32")
    for i in range(64):
        t[63 - i] = A[i]
    for i in range(64):
        B[i] = t[i] + t[0]
"""
    module = mlcc.parse(program)
    assert re.search(r"float t\[64\]", source(module, 1).emit().decode())
    small = source(module, 1, "c{stack-bytes=128}")
    assert "workspace + 0" in small.emit().decode() and small.manifest["functions"]["main"]["workspace"] == 256
    assert small.manifest["functions"]["main"]["workspace_from"] == "heap"
    assert "`mlcc_main` has its workspace on the stack" in source(module, 1).header()
    assert "`mlcc_main` allocates its workspace" in small.header()
    out = np.zeros(64, "float32")
    load(small)["main"](np.arange(64, dtype="float32"), out)
    np.testing.assert_array_equal(out, np.arange(64)[::-1] + 63)

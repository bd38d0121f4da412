"""Elementary functions as a GPU computes them, judged on this CPU: the same IR, compiled for it."""

from __future__ import annotations

import functools

import llvmlite.binding as llvm
import numpy as np
import pytest

import mlcc
from bench import ulps
from mlcc.targets.cuda import approximate
from mlcc.targets.cuda.approximate import EXACT_ENOUGH
from mlcc.targets.cuda.ptx import TRIPLE
from mlcc.targets.llvm.codegen.vmath import BINARY, UNARY, exponentials
from mlcc.targets.llvm.object.compile import Machine
from tests.targets.build import call, elementwise
from tests.targets.harness import Native

COUNT = 4096
LIMIT = 4.0
pytestmark = pytest.mark.skipif(not llvm.get_host_cpu_features().get("fma"), reason="needs fused multiply-add")


@functools.cache
def compiled(name: str, dtype: str) -> Native:
    arity = 2 if name in BINARY else 1
    func = elementwise(COUNT, [dtype] * arity, [(dtype, call(name))])
    return Native(func, machine=Machine(cpu="x86-64-v3"), triple=TRIPLE)


def run(name: str, *args: np.ndarray) -> np.ndarray:
    out = np.empty_like(args[0])
    assert compiled(name, str(args[0].dtype))(*args, out) == 0
    return out


def worst(name: str, *args: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        truth = ulps.TRUTH[name](*(a.astype(ulps.wide(str(a.dtype))) for a in args))
    return float(np.max(ulps.distance(run(name, *args), truth)))


def sample_points(dtype: str, seed: int) -> list[np.ndarray]:
    special = np.resize(ulps.special(dtype), COUNT)
    return [special, ulps.usual(dtype, COUNT, seed), ulps.anywhere(dtype, COUNT, seed + 1)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(UNARY))
def test_functions_are_within_4_ulps(name: str, dtype: str) -> None:
    if not ulps.can_judge(dtype):
        pytest.skip("no wider type to judge by")
    for x in sample_points(dtype, 1):
        assert worst(name, x) <= LIMIT


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["pow", "atan2", "hypot"])
def test_functions_of_two_arguments_are_within_4_ulps(name: str, dtype: str) -> None:
    if not ulps.can_judge(dtype):
        pytest.skip("no wider type to judge by")
    for x, y in zip(sample_points(dtype, 1), sample_points(dtype, 5), strict=True):
        assert worst(name, x, y) <= LIMIT
        assert worst(name, np.abs(x), y) <= LIMIT


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_angles_of_any_size_are_within_4_ulps(dtype: str) -> None:
    """Reduced by the bits of 2 / pi: also those that lie nearest to multiples of pi / 2."""
    hard = {"float32": [16367173 * 2.0**72, 11853.0, 3.0e38], "float64": [6381956970095103 * 2.0**797, 1.7e308, 1e22]}
    large = np.geomspace(1e6, float(np.finfo(dtype).max) / 2, COUNT).astype(dtype)
    for x in (large, -large, np.resize(np.array(hard[dtype], dtype), COUNT)):
        for name in ("sin", "cos", "tan"):
            assert worst(name, x) <= LIMIT


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_are_exact(dtype: str) -> None:
    some = ulps.special(dtype)
    x, y = (np.resize(v.ravel(), COUNT) for v in np.meshgrid(some, some))
    pairs = [(x, y), (ulps.anywhere(dtype, COUNT, 1), ulps.anywhere(dtype, COUNT, 2))]
    near = ulps.usual(dtype, COUNT, 3)
    pairs.append((near, near * np.geomspace(1e-30, 1, COUNT).astype(dtype)))
    for a, b in pairs:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(run("fmod", a, b), np.fmod(a, b))


def test_nothing_is_called() -> None:
    for name in [*UNARY, *BINARY]:
        for dtype in ("float32", "float64"):
            text = compiled(name, dtype).text
            outside = [line for line in text.splitlines() if line.startswith("declare") and "@llvm." not in line]
            assert not outside, (name, dtype)


def test_the_approximate_reciprocal_root_is_near_enough() -> None:
    """Its documented error is 2**-22.4 relative, either way, everywhere."""
    x = np.concatenate([np.abs(part) for part in sample_points("float32", 1)])
    x = x[np.isfinite(x) & (x > 0)]
    truth = 1 / np.sqrt(x.astype("float64"))
    for error in (1 + 2.0**-22.4, 1 - 2.0**-22.4):
        assert np.max(ulps.distance((truth * error).astype("float32"), truth)) <= LIMIT


@pytest.mark.parametrize("name", ["exp", "sigmoid"])
def test_exponentials_by_the_instruction_for_powers_of_two(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is off by 2 units at most, so that the rest may be off by 2: with own powers of two in its place, which are
    off by less than 1."""
    assert set(EXACT_ENOUGH) == {"rsqrt", "exp", "exp2", "sigmoid"}
    monkeypatch.setattr(approximate, "_approx", lambda code, instruction, x: exponentials.exp2(code, x))
    func = elementwise(COUNT, ["float32"], [("float32", call(name))])
    kernel = Native(func, machine=Machine(cpu="x86-64-v3"), triple=TRIPLE, formulas=EXACT_ENOUGH)
    edges = np.resize(np.float32([88.72283, 88.72284, -87.33655, -103.97208, -103.9721, -103.28, -95.0]), COUNT)
    near = np.linspace(-104, 89, COUNT, dtype=np.float32)
    for x in (*sample_points("float32", 1), edges, near):
        out = np.empty_like(x)
        assert kernel(x, out) == 0
        with np.errstate(all="ignore"):
            truth = ulps.TRUTH[name](x.astype(ulps.wide("float32")))
        assert float(np.max(ulps.distance(out, truth))) <= 2.0


OF_C = """
@T.prim_func
def f(X: T.Buffer(({count},), "{dtype}"), Y: T.Buffer(({count},), "{dtype}"), Z: T.Buffer(({count},), "{dtype}")):
    for b in T.thread_binding({count} // 256, thread="blockIdx.x"):
        for t in T.thread_binding(256, thread="threadIdx.x"):
            with T.block("z"):
                i = T.axis.spatial({count}, b * 256 + t)
                Z[i] = T.call_pure_extern("{dtype}", "{name}", {args})
"""


def round_away(x: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(x), np.copysign(np.trunc(np.abs(x) + 0.5), x), x)


def fdim(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x > y, x - y, 0))


TRUTH = {"expm1": np.expm1, "cbrt": np.cbrt, "round": round_away, "fdim": fdim, "fmin": np.fmin, "fmax": np.fmax}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(TRUTH))
def test_functions_of_c_are_within_their_limit(name: str, dtype: str) -> None:
    """What kernels compute by own formulas, under emulation as on a device."""
    if not ulps.can_judge(dtype):
        pytest.skip("no wider type to judge by")
    truth, two = TRUTH[name], name.startswith("fm") or name == "fdim"
    args = "X[i], Y[i]" if two else "X[i]"
    symbol = name + ("f" if dtype == "float32" else "")
    text = OF_C.format(count=COUNT, dtype=dtype, name=symbol, args=args)
    made = mlcc.load(mlcc.build(mlcc.parse(text), "cuda{arch=sm_80}"), emulate=True, check=False)["f"]
    for x in sample_points(dtype, 5):
        y = np.roll(x, 1)
        z = np.zeros_like(x)
        made(x, y, z)
        with np.errstate(all="ignore"):
            wanted = truth(*(a.astype(ulps.wide(dtype)) for a in ((x, y) if two else (x,))))
        if name in ("fmin", "fmax"):
            assert np.array_equal(z, wanted.astype(dtype), equal_nan=True)
            continue
        error = ulps.distance(z, wanted)
        worst = int(np.argmax(error))
        assert error[worst] <= (2 if name in ("expm1", "cbrt") else 0.5), (x[worst], z[worst], wanted[worst])


def test_functions_of_c_that_no_kernel_has() -> None:
    for given, said in (
        ('"tgammaf", X[i]', "cannot be called inside a kernel"),
        ('"fdimf", X[i]', "takes 2 arguments"),
    ):
        text = OF_C.format(count=COUNT, dtype="float32", name="NAME", args="").replace('"NAME", ', given)
        with pytest.raises(mlcc.CompileError, match=said):
            mlcc.build(mlcc.parse(text), "cuda{arch=sm_80}")

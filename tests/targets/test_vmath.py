"""Elementary functions as inline code: errors against a wider type, special values, lanes and scalars alike."""

from __future__ import annotations

import functools
import math
import re
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from bench import ulps
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import ForKind
from mlcc.targets.llvm.codegen.vmath import BINARY, C_ONLY, ROUNDING, UNARY
from mlcc.targets.llvm.codegen.vmath.formulas import FORMULAS
from mlcc.targets.llvm.object.compile import Machine, compile_text
from tests.targets.build import call, elementwise
from tests.targets.harness import Native, kernel_module

_HAS = {"x86-64": True, "x86-64-v3": "fma", "x86-64-v4": "avx512dq"}
_FEATURES = llvm.get_host_cpu_features()
CPUS = [cpu for cpu, needs in _HAS.items() if needs is True or _FEATURES.get(needs)]
COUNT = 2048
ALL = {**dict.fromkeys(UNARY, 1), "pow": 2, "atan2": 2, "hypot": 2, "fmod": 2}
LIMIT = 4.0


@functools.cache
def compiled(name: str, dtype: str, cpu: str, count: int = COUNT, kind: ForKind = ForKind.VECTORIZED) -> Native:
    arity = 3 if name == "fma" else 2 if name in BINARY or name == "copysign" else 1
    return Native(elementwise(count, [dtype] * arity, [(dtype, call(name))], kind), machine=Machine(cpu=cpu))


def run(native: Native, *args: np.ndarray) -> np.ndarray:
    out = np.empty_like(args[0])
    assert native(*args, out) == 0
    return out


def arguments(arity: int, dtype: str) -> tuple[np.ndarray, ...]:
    """Special values (every pair of them), numbers as programs have them, and bit patterns."""
    some = ulps.special(dtype)
    if arity == 1:
        parts = [(np.resize(some, COUNT),), (ulps.usual(dtype, COUNT, 1),), (ulps.anywhere(dtype, COUNT, 2),)]
    else:
        pairs = [np.resize(v.ravel(), -(-(some.size**2) // COUNT) * COUNT) for v in np.meshgrid(some, some)]
        x, y = ulps.usual(dtype, COUNT, 1), ulps.usual(dtype, COUNT, 2)
        mixed = [ulps.anywhere(dtype, COUNT, seed) for seed in (3, 4)]
        parts = [tuple(pairs), (x, y), (np.abs(x), y), (1 + x / 300, y * 1000), tuple(mixed), (np.abs(mixed[0]), y)]
    return tuple(np.concatenate([p[k] for p in parts]) for k in range(arity))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ALL)
def test_functions_are_within_4_ulps(name: str, dtype: str) -> None:
    if not ulps.can_judge(dtype):
        pytest.skip("long double is no wider than double here")
    args = arguments(ALL[name], dtype)
    with np.errstate(all="ignore"):
        truth = ulps.TRUTH[name](*(a.astype(ulps.wide(dtype)) for a in args))
    made = []
    for cpu in CPUS:
        native = compiled(name, dtype, cpu)
        parts = [run(native, *(a[at : at + COUNT] for a in args)) for at in range(0, args[0].size, COUNT)]
        made.append(np.concatenate(parts))
        error = ulps.distance(made[-1], truth)
        worst = int(np.argmax(error))
        given = [a[worst] for a in args]
        assert error[worst] <= LIMIT, f"{name}{given} on {cpu} is {truth[worst]}, not {made[-1][worst]}"
    for one, other in zip(made[1:], made[2:], strict=False):  # with fma, whatever the lanes
        np.testing.assert_array_equal(one, other)


def test_float_powers_are_within_an_ulp() -> None:
    rng = np.random.default_rng(0)
    x = np.exp2(rng.uniform(-149, 128, 8 * COUNT)).astype("float32")
    x[::2] = np.exp2(rng.uniform(-2, 2, 4 * COUNT)).astype("float32")
    exponents = rng.uniform(-151, 130, 8 * COUNT)  # of the results: denormals, zero and infinity as well
    y = (exponents / np.log2(x.astype("float64"))).astype("float32")
    truth = np.power(x.astype("float64"), y.astype("float64"))
    for cpu in CPUS:
        native = compiled("pow", "float32", cpu)
        made = np.concatenate([run(native, x[at : at + COUNT], y[at : at + COUNT]) for at in range(0, x.size, COUNT)])
        assert ulps.distance(made, truth).max() <= 1


def test_float_powers_that_are_floats_are_exact() -> None:
    pairs = [(base, n) for n in range(2, 16) for base in range(1, 4097, 2) if base**n < 2**24]
    x, y = (np.array(column, "float32") for column in zip(*pairs, strict=True))
    assert x.size < 2 * COUNT
    for scale in (0, 5, -7):
        given = [np.resize(np.ldexp(x, scale).astype("float32"), 2 * COUNT), np.resize(y, 2 * COUNT)]
        for cpu in CPUS:
            native = compiled("pow", "float32", cpu)
            made = np.concatenate([run(native, *(a[at : at + COUNT] for a in given)) for at in (0, COUNT)])
            np.testing.assert_array_equal(made, np.power(*(a.astype("float64") for a in given)))


# ---------------------------------------------------------------- special values, as C's Annex F has them

_INF, _NAN = math.inf, math.nan
SPECIAL: list[tuple[str, tuple[float, ...], float]] = [
    ("exp", (-_INF,), 0.0), ("exp", (_INF,), _INF), ("exp", (-0.0,), 1.0), ("exp", (_NAN,), _NAN),
    ("exp2", (10.0,), 1024.0), ("exp2", (-3.0,), 0.125), ("exp10", (0.0,), 1.0), ("log", (1.0,), 0.0),
    ("log", (0.0,), -_INF), ("log", (-0.0,), -_INF), ("log", (-1.0,), _NAN), ("log", (_INF,), _INF),
    ("log2", (1024.0,), 10.0), ("log2", (0.125,), -3.0), ("log1p", (-1.0,), -_INF), ("log1p", (-0.0,), -0.0),
    ("log1p", (-2.0,), _NAN), ("tanh", (_INF,), 1.0), ("tanh", (-_INF,), -1.0), ("tanh", (-0.0,), -0.0),
    ("erf", (_INF,), 1.0), ("erf", (-_INF,), -1.0), ("erf", (-0.0,), -0.0), ("sigmoid", (-_INF,), 0.0),
    ("sigmoid", (_INF,), 1.0), ("sigmoid", (0.0,), 0.5), ("rsqrt", (0.0,), _INF), ("rsqrt", (-0.0,), -_INF),
    ("rsqrt", (_INF,), 0.0), ("rsqrt", (-1.0,), _NAN), ("sqrt", (-0.0,), -0.0), ("sin", (-0.0,), -0.0),
    ("sin", (_INF,), _NAN), ("cos", (0.0,), 1.0), ("tan", (-0.0,), -0.0), ("atan", (-0.0,), -0.0),
    ("asin", (-0.0,), -0.0), ("asin", (1.5,), _NAN), ("acos", (1.0,), 0.0), ("acosh", (0.5,), _NAN),
    ("acosh", (1.0,), 0.0), ("atanh", (1.0,), _INF), ("atanh", (-0.0,), -0.0), ("sinh", (-0.0,), -0.0),
    *(("pow", (x, y), 1.0) for y in (0.0, -0.0) for x in (0.0, _INF, -_INF, _NAN, -2.0)),
    *(("pow", (1.0, y), 1.0) for y in (_NAN, _INF, -_INF, 3.0)),
    *(("pow", (-1.0, y), 1.0) for y in (_INF, -_INF)),
    ("pow", (-2.0, 3.0), -8.0), ("pow", (-2.0, 2.0), 4.0), ("pow", (-2.0, 0.5), _NAN), ("pow", (-8.0, 1 / 3), _NAN),
    ("pow", (-0.0, 3.0), -0.0), ("pow", (-0.0, 2.0), 0.0), ("pow", (-0.0, 0.5), 0.0), ("pow", (-0.0, -3.0), -_INF),
    ("pow", (0.0, -2.5), _INF), ("pow", (-_INF, 3.0), -_INF), ("pow", (-_INF, -3.0), -0.0), ("pow", (-_INF, 2.5), _INF),
    ("pow", (0.5, _INF), 0.0), ("pow", (2.0, -_INF), 0.0), ("pow", (0.5, -_INF), _INF), ("pow", (3.0, 4.0), 81.0),
    ("atan2", (0.0, -0.0), math.pi), ("atan2", (-0.0, 0.0), -0.0), ("atan2", (_INF, _INF), math.pi / 4),
    ("atan2", (1.0, _INF), 0.0), ("hypot", (_INF, _NAN), _INF), ("hypot", (3.0, 4.0), 5.0), ("fmod", (-6.0, 3.0), -0.0),
    ("fmod", (5.5, _INF), 5.5), ("fmod", (5.5, 0.0), _NAN), ("fmod", (-7.5, 2.0), -1.5),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_values_are_exact(dtype: str) -> None:
    for name, args, expected in SPECIAL:
        for cpu in CPUS[:2]:
            given = [np.full(COUNT, a, dtype) for a in args]
            made, wanted = run(compiled(name, dtype, cpu), *given)[0], np.dtype(dtype).type(expected)
            same = made == wanted and np.signbit(made) == np.signbit(wanted)
            assert same or np.isnan(made) and np.isnan(wanted), f"{name}{args} is {made}, not {expected}, on {cpu}"


# ---------------------------------------------------------------- lanes and scalars

EXACT: dict[str, Any] = {
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "nearbyint": np.rint, "round": np.rint,
    "nextafter": np.nextafter, "copysign": np.copysign,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EXACT)
def test_exact_functions_match_numpy(name: str, dtype: str) -> None:
    assert set(ROUNDING) <= set(EXACT)
    args = arguments(2 if name in ("nextafter", "copysign") else 1, dtype)
    for cpu in CPUS[:2]:
        native = compiled(name, dtype, cpu)
        for at in range(0, args[0].size, COUNT):
            part = [a[at : at + COUNT] for a in args]
            with np.errstate(all="ignore"):
                expected = EXACT[name](*part)
            made = run(native, *part)
            np.testing.assert_array_equal(made, expected)
            numbers = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(made)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize("cpu", CPUS)
def test_fma_rounds_once(cpu: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(COUNT).astype("float32") for _ in range(2))
    z = (-x * y * rng.choice([1, 1, 1 + 2**-12, 2.0**-24, 1e5], COUNT)).astype("float32")
    exact = x.astype(np.longdouble) * y + z  # 48 bits and few more: no rounding where the sizes are alike
    alike = np.abs(z) > np.abs(x * y) / 4
    made = run(compiled("fma", "float32", cpu), x, y, z)
    np.testing.assert_array_equal(made[alike], exact[alike].astype("float32"))
    halfway = [np.full(COUNT, v, "float32") for v in (1 + 2**-12, 1 + 2**-12, 2.0**-80)]  # rounding twice gives less
    assert run(compiled("fma", "float32", cpu), *halfway)[0] == np.float32(1 + 2**-11 + 2**-23)


_WIDTHS = {
    "exp": (1, 2, 3, 5, 6, 7, 8, 11, 16, 20, 31, 33), "tanh": (3,), "erf": (1, 5), "sin": (1, 33), "log": (1, 20, 33),
    "pow": (1, 3, 33, 48, 80),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_number_of_lanes_gives_the_scalar_bits(dtype: str) -> None:
    for name, widths in _WIDTHS.items():
        for cpu in CPUS[::2] if dtype == "float32" else CPUS[1:2]:
            native = compiled(name, dtype, cpu)
            args = [ulps.usual(dtype, COUNT, k) for k in range(2 if name == "pow" else 1)]
            args[0][0] = args[0][5] = 1e7  # where sin goes to libm
            expected = run(native, *args)
            for lanes in widths:
                short = compiled(name, dtype, cpu, lanes)
                made = run(short, *(np.ascontiguousarray(a[:lanes]) for a in args))
                np.testing.assert_array_equal(made, expected[:lanes], f"{name} {cpu} {lanes}")
            serial = compiled(name, dtype, cpu, COUNT, ForKind.SERIAL)
            np.testing.assert_array_equal(run(serial, *args), expected)


# ---------------------------------------------------------------- the code


def assembly(name: str, dtype: str, machine: Machine, kind: ForKind) -> str:
    arity = 2 if name in BINARY or name == "copysign" else 1
    return compiled_text(elementwise(1024, [dtype] * arity, [(dtype, call(name))], kind), machine)


def compiled_text(func: tir.PrimFunc, machine: Machine) -> str:
    return compile_text(kernel_module(func, machine).text(), machine, 2, frozenset({"asm"})).asm


MACHINES = {
    "x86-64": Machine(), "x86-64-v3": Machine(cpu="x86-64-v3"), "x86-64-v4": Machine(cpu="x86-64-v4"),
    "aarch64": Machine("aarch64-unknown-linux-gnu", "generic"),
}  # fmt: skip
VECTOR = {
    "x86-64": r"mulp[sd]",
    "x86-64-v3": r"vf\w+p[sd].*ymm",
    "x86-64-v4": r"vf\w+p[sd].*zmm",
    "aarch64": r"fmla.*\.(4s|2d)",
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", [ForKind.SERIAL, ForKind.VECTORIZED], ids=lambda k: k.value)
def test_code_is_on_vectors_and_calls_nothing(machine: str, kind: ForKind) -> None:
    for name in ("exp", "tanh", "erf", "pow"):
        asm = assembly(name, "float32", MACHINES[machine], kind)
        assert not re.search(r"^\s+(callq|bl)\s", asm, re.M)
        assert re.search(VECTOR[machine], asm)


@pytest.mark.parametrize("name", ["floor", "trunc", "nearbyint", "copysign", "nextafter"])
def test_rounding_calls_nothing_on_the_oldest_cpu(name: str) -> None:
    for kind in (ForKind.SERIAL, ForKind.VECTORIZED):
        assert "callq" not in assembly(name, "float32", MACHINES["x86-64"], kind)


@pytest.mark.parametrize("machine", ["x86-64", "x86-64-v4"])
def test_casts_to_integers_are_on_vectors(machine: str) -> None:
    for kind in (ForKind.SERIAL, ForKind.VECTORIZED):
        for target in ("int32", "int8", "uint8"):
            func = elementwise(1024, ["float32"], [(target, lambda x, t=target: c.cast(t, x))], kind)
            asm = compiled_text(func, MACHINES[machine])
            assert "cvttps2dq" in asm
            assert "cvttss2si" not in asm


def test_llvm_intrinsics_by_name_are_the_same_code() -> None:
    by_name = elementwise(
        64, ["float32"], [("float32", lambda x: c.call("float32", "call_llvm_pure_intrin", "llvm.exp", x))]
    )
    data = ulps.usual("float32", 64, 1)
    out = np.empty_like(data)
    native = Native(by_name)
    assert native(data, out) == 0
    np.testing.assert_array_equal(out, run(compiled("exp", "float32", "x86-64", 64), data))
    assert "@expf" not in native.text
    assert "llvm.exp" not in native.text


def test_every_name_has_a_formula() -> None:
    assert [*UNARY, *BINARY, *ROUNDING, *C_ONLY, "fma"] == [*FORMULAS]

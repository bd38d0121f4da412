"""The pass `fixed-point-products`: what it takes, and how exact the products are, judged by NumPy in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.interp import run_function
from mlcc.ir.module import IRModule
from mlcc.passes.graph.bind_params import bind
from mlcc.targets.llvm.backend import BACKEND
from tests.auto_schedule.kernels import chosen
from tests.targets.cross import Call, Platform, run

NATIVE, VNNI = "llvm{cpu=native}", "llvm{cpu=icelake-server}"
DOTPROD = "llvm{triple=aarch64-linux-gnu cpu=neoverse-n1}"  # of signed bytes only
I8MM = "llvm{triple=aarch64-linux-gnu cpu=neoverse-v1}"
UNIT = 2.0**-24


def build(module: IRModule, target: str = NATIVE) -> Any:
    """Compile as at -O2, but without folding small weights before the pass."""
    return mlcc.build(module, target, pipeline=f"normalize,fixed-point-products,{BACKEND.levels['O2']}")


def load(module: IRModule) -> Any:
    return mlcc.load(build(module))["main"]


class Product:
    """A module with `y = x @ w` for constant weights `w` of few bits, and the same weights in float64."""

    def __init__(
        self, rows: int | str, depth: int, columns: int, group: int, bits: int = 4, zeros: str = "half",
        dtype: str = "float32", scale_dtype: str = "float32", signed: bool = False, tail: tuple[str, ...] = (),
        result: str = "y", seed: int = 0,
    ) -> None:  # fmt: skip
        random = np.random.default_rng(seed)
        each, half = 8 // bits, 1 << (bits - 1)
        codes = random.integers(0, 1 << bits, (depth, columns)).astype("uint8")
        parts = [codes[at::each] << np.uint8(bits * at) for at in range(each)]
        self.packed = np.bitwise_or.reduce(parts)
        values = codes.astype("int64")
        if signed:
            values -= (values >= half) * 2 * half
            self.packed = self.packed.view("int8") if bits == 8 else self.packed
        low, high = (-half, half) if signed else (0, 2 * half)
        kind, groups = "int8" if signed else "uint8", (depth // group, columns)
        points = {
            "half": np.array(0 if signed else half, kind), "none": np.array(0, kind),
            "groups": random.integers(low, high, groups).astype(kind),
            "wide": random.integers(-100000, 100000, groups).astype("int32"),
        }[zeros]  # fmt: skip
        scales = (random.random((depth // group, columns)) * 0.1 + 0.01).astype(scale_dtype)
        spread = np.repeat(points.astype("int64"), group, 0) if points.ndim else points.astype("int64")
        self.decoded = (values - spread) * np.repeat(scales.astype("float64"), group, 0)
        self.range = (2.0**bits + (np.abs(spread) if zeros == "wide" else 0)) * np.repeat(
            scales.astype("float64"), group, 0
        )
        shape = f'"{rows}"' if isinstance(rows, str) else rows
        unpacked = "p" if bits == 8 else f'R.unpack_bits(p, axis=0, bits={bits}, out_dtype="{kind}")'
        stated = (
            f'p: R.Tensor({self.packed.shape}, "{self.packed.dtype}"), s: R.Tensor({scales.shape}, "{scale_dtype}")'
        )
        lines = (f'w = R.dequantize({unpacked}, s, z, axis=0, out_dtype="{dtype}")', "y = R.matmul(x, w)", *tail)
        body = "".join(f"        {line}\n" for line in lines)
        text = (
            f'@R.function\ndef main(x: R.Tensor(({shape}, {depth}), "{dtype}"), {stated}, '
            f'z: R.Tensor({points.shape}, "{points.dtype}"), b: R.Tensor(({columns},), "{dtype}")):\n'
            f"    with R.dataflow():\n{body}        R.output({result})\n    return {result}\n"
        )
        self.bias = random.standard_normal(columns).astype(dtype)
        self.module: IRModule = mlcc.parse(text)
        bound = {"p": self.packed, "s": scales, "z": points, "b": self.bias}
        self.module.functions["main"] = bind(self.module["main"], bound, "main", self.module, False)

    def load(self) -> Any:
        return load(self.module)

    def is_taken(self, target: str = VNNI) -> bool:
        """Whether the pass makes the product a function in fixed point, which the rule of that name schedules."""
        made = mlcc.run_passes(self.module, "normalize,fixed-point-products", target=target)
        if "matmul_fixed_point" not in made.functions:
            return False
        assert chosen(made, target)["matmul_fixed_point"].rule == "fixed-point"
        return True

    def bound(self, x: np.ndarray, chunk: int) -> np.ndarray:
        """The error that is admitted: of the data in units, and of sums in float32."""
        rows, depth = x.shape
        greatest = np.abs(x.astype("float64")).reshape(rows, depth // chunk, chunk).max(2).repeat(chunk, 1)
        return (8 + depth // chunk) * UNIT * greatest @ self.range


def data(rows: int, depth: int, dtype: str = "float32", seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, depth)).astype(dtype)


@settings(max_examples=6, deadline=None)
@given(
    rows=st.integers(1, 9),
    groups=st.integers(1, 5),
    group=st.sampled_from([16, 32, 64, 96, 160, 256]),
    columns=st.sampled_from([16, 17, 64, 75, 144, 210]),
    bits=st.sampled_from([4, 8, 4, 2, 1]),
    zeros=st.sampled_from(["half", "none", "groups", "wide"]),
    signed=st.booleans(),
    half_scales=st.booleans(),
)
@example(1, 3, 32, 80, 4, "groups", False, True)
@example(2, 1, 1024, 64, 8, "half", True, False)
@example(1, 1, 10016, 16, 4, "groups", True, False)
@example(5, 2, 32, 1001, 8, "groups", True, True)
@example(2, 2, 128, 64, 8, "wide", False, False)
def test_products_are_within_the_bound(
    rows: int, groups: int, group: int, columns: int, bits: int, zeros: str, signed: bool, half_scales: bool
) -> None:
    product = Product(
        rows, groups * group, columns, group, bits, zeros, "float32", "float16" if half_scales else "float32", signed
    )
    chunk = next((n for n in range(min(group, 128), 0, -1) if group % n == 0 and n % (32 // bits) == 0), None)
    assert product.is_taken() == (chunk is not None)
    x = data(rows, groups * group)
    error = np.abs(product.load()(x) - x.astype("float64") @ product.decoded)
    assert (error <= product.bound(x, chunk or 1)).all()


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 40])
def test_an_unknown_number_of_rows(rows: int) -> None:
    product = Product("m", 128, 96, 32, zeros="groups")
    assert product.is_taken()
    x = data(rows, 128)
    assert (np.abs(product.load()(x) - x.astype("float64") @ product.decoded) <= product.bound(x, 32)).all()


def test_small_integers_are_multiplied_exactly() -> None:
    """Data of up to 22 bits in a chunk lose nothing; with scales of powers of two nothing is rounded at all."""
    product = Product(3, 256, 64, 64)
    x = np.random.default_rng(5).integers(-(2**20), 2**20, (3, 256)).astype("float32")
    scaled = product.load()(x)
    assert (np.abs(scaled - x.astype("float64") @ product.decoded) <= 8 * UNIT * (np.abs(x) @ product.range)).all()
    ones = (np.arange(256) == 77).astype("float32")[None].repeat(3, 0)
    np.testing.assert_allclose(product.load()(ones), product.decoded[[77, 77, 77]], rtol=4 * UNIT)


def test_chunks_of_any_magnitude() -> None:
    """Each chunk has its own unit, from the greatest numbers to zeros."""
    product = Product(1, 256, 64, 32, zeros="groups")
    main = product.load()
    for exponent in (-120, -60, 0, 60, 110):
        x = data(1, 256)
        x[:, 32:64] *= 2.0**exponent
        x[:, 64:96] = 0
        error = np.abs(main(x).astype("float64") - x.astype("float64") @ product.decoded)
        assert (error <= product.bound(x, 32)).all()
    assert not main(np.zeros((1, 256), "float32")).any()


@pytest.mark.parametrize("depth", [32, 96])
def test_rows_of_any_magnitude(depth: int) -> None:
    """The bound holds for one chunk alone; denormal data, and results, are multiples of 2**-149."""
    magnitudes = (1e-30, 1e-36, 1e-37, 1e-38, 1e-40, 1e-44, 1.0, 1e30, 1e37)
    product = Product(len(magnitudes), depth, 64, 32, zeros="groups")
    x = (data(len(magnitudes), depth).clip(-2, 2) * np.array(magnitudes)[:, None]).astype("float32")
    chunks = np.abs(x).reshape(-1, depth // 32, 32).max(2)
    denormal = (chunks < 2.0**-126).repeat(32, 1)
    assert [row.any() for row in denormal] == [1e-44 <= n < 1e-38 for n in magnitudes]
    error = np.abs(product.load()(x) - x.astype("float64") @ product.decoded)
    assert (error <= product.bound(x, 32) + 2.0**-149 * (denormal @ product.range + depth // 32)).all()


def test_the_greatest_data_overflow_only_if_results_do() -> None:
    """Sums of a chunk are multiplied by scales, which are less than 1 here, before they are by its unit."""
    product = Product(1, 128, 64, 32)
    x = np.full((1, 128), 3e38, "float32") * (np.arange(128) == 5)
    np.testing.assert_allclose(product.load()(x.astype("float32")), 3e38 * product.decoded[[5]], rtol=1e-6)


@pytest.mark.parametrize("depth", [32, 128])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_rows_that_are_not_finite_are_nan(bad: float, depth: int) -> None:
    product = Product(3, depth, 32, 32)
    x = data(3, depth)
    expected = x.astype("float64") @ product.decoded
    x[1, 77 % depth] = bad
    y = product.load()(x)
    assert np.isnan(y[1]).all()
    np.testing.assert_allclose(y[[0, 2]], expected[[0, 2]], rtol=1e-4, atol=1e-4)


def test_float16() -> None:
    product = Product(2, 256, 64, 32, dtype="float16", scale_dtype="float16", zeros="groups")
    assert product.is_taken()
    x = data(2, 256, "float16")
    expected = x.astype("float64") @ product.decoded
    np.testing.assert_allclose(product.load()(x), expected, rtol=2.0**-10, atol=1e-4)


def test_zero_points_that_share_bytes() -> None:
    """As ONNX Runtime's MatMulNBits has them, sliced where their number is odd."""
    product = Product(1, 96, 32, 32, zeros="groups")
    points = np.random.default_rng(3).integers(0, 16, (4, 32)).astype("uint8")
    source = (
        '@R.function\ndef main(x: R.Tensor((1, 96), "float32"), p: R.Tensor((48, 32), "uint8"), '
        's: R.Tensor((3, 32), "float32"), z: R.Tensor((2, 32), "uint8")):\n    with R.dataflow():\n'
        "        q = R.unpack_bits(p, axis=0, bits=4)\n        u = R.unpack_bits(z, axis=0, bits=4)\n"
        "        t = R.strided_slice(u, axes=[0], begin=[0], end=[3])\n"
        "        y = R.matmul(x, R.dequantize(q, s, t, axis=0))\n        R.output(y)\n    return y\n"
    )
    scales = np.full((3, 32), 0.25, "float32")
    module = mlcc.parse(source)
    bound = {"p": product.packed, "s": scales, "z": points[::2] | points[1::2] << 4}
    module.functions["main"] = bind(module["main"], bound, "main", module, False)
    made = mlcc.run_passes(module, "normalize,fixed-point-products", target=VNNI)
    assert "matmul_fixed_point" in made.functions
    codes = np.stack([product.packed & 15, product.packed >> 4], 1).reshape(96, 32).astype("int64")
    x = np.random.default_rng(4).integers(-99, 100, (1, 96)).astype("float32")
    expected = x @ ((codes - points[:3].astype("int64").repeat(32, 0)) * 0.25)
    np.testing.assert_array_equal(run_function(made, "main", [x]), expected)


def test_epilogues_are_computed_with_the_panels() -> None:
    tail = ("c = R.add(y, b)", "g = R.sigmoid(c)", "d = R.multiply(c, g)")
    product = Product(2, 128, 80, 32, tail=tail, result="d")
    x = data(2, 128)
    y = x.astype("float64") @ product.decoded + product.bias
    np.testing.assert_allclose(product.load()(x), y / (1 + np.exp(-y)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zeros", ["half", "groups"])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("target", [VNNI, DOTPROD])
def test_the_interpreter_agrees(target: str, bits: int, signed: bool, zeros: str) -> None:
    """Where instructions multiply signed bytes only, unsigned weights of 8 bits are moved by 128."""
    product = Product(2, 64, 32, 32, bits, zeros, signed=signed)
    made = mlcc.run_passes(product.module, "normalize,fixed-point-products,lower-to-tir", target=target)
    assert "matmul_fixed_point" in made.functions
    x = data(2, 64)
    x[1] *= 1e-37
    interpreted = run_function(made, "main", [x])
    np.testing.assert_allclose(interpreted, product.load()(x), rtol=1e-5, atol=1e-42)
    error = np.abs(interpreted - x.astype("float64") @ product.decoded)
    assert (error <= product.bound(x, 32) + 2.0**-149 * product.range.sum(0)).all()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("target", [DOTPROD, I8MM])
def test_the_instructions_of_aarch64(target: str, bits: int, tmp_path: Path) -> None:
    platform = Platform(target, ("aarch64-linux-gnu-gcc", "-static"), ("qemu-aarch64", "-cpu", "max"))
    platform.require()
    product = Product(3, 96, 48, 32, bits, "groups")
    x = data(3, 96) * np.array([[1], [1e-36], [1e30]], "float32")
    ((y,),) = run(tmp_path, platform, build(product.module, target), [Call("main", [x, np.zeros_like(x[:, :48])], [1])])  # type: ignore[misc]
    assert (np.abs(y - x.astype("float64") @ product.decoded) <= product.bound(x, 32)).all()


def test_what_is_left_alone() -> None:
    assert not Product(33, 128, 32, 32).is_taken()  # many rows: weights are decoded before
    assert not Product(1, 128, 32, 4).is_taken()  # a group is less than a word of eight rows
    assert not Product(1, 128, 32, 32).is_taken("llvm{cpu=haswell}")  # no instruction
    assert not Product(1, 128, 32, 32).is_taken("llvm{cpu=x86-64}")
    assert Product(1, 128, 32, 32).is_taken("llvm{cpu=alderlake}")


def bound_product(
    point: Any, scale: Any, dtype: str = "float32", lines: str = "", zero: str = "z", depth: int = 128
) -> IRModule:
    """A product of 2 rows with weights 0 .. 255, one zero point and one scale; `lines` compute `zero`."""
    point, scale = np.array(point), np.array(scale)
    source = (
        f'@R.function\ndef main(x: R.Tensor((2, {depth}), "{dtype}"), p: R.Tensor(({depth}, 32), "uint8"), '
        f's: R.Tensor((), "{scale.dtype}"), z: R.Tensor((), "{point.dtype}"), u: R.Tensor((), "int32")):\n'
        f"    with R.dataflow():\n{lines}"
        f'        y = R.matmul(x, R.dequantize(p, s, {zero}, axis=0, out_dtype="{dtype}"))\n'
        "        R.output(y)\n    return y\n"
    )
    module = mlcc.parse(source)
    weights = np.random.default_rng(6).integers(0, 256, (depth, 32)).astype("uint8")
    bound = {"p": weights, "s": scale, "z": point}
    module.functions["main"] = bind(module["main"], bound, "main", module, False)
    return module


def is_taken(module: IRModule) -> bool:
    made = mlcc.run_passes(module, "normalize,fixed-point-products", target=VNNI)
    return "matmul_fixed_point" in made.functions


@pytest.mark.parametrize(
    ("kind", "point", "taken"),
    [
        ("int32", 130000, True), ("int32", -130000, True), ("int32", 131072, False), ("int32", 1000000, False),
        ("int32", -(2**31), False), ("uint32", 3000000000, False), ("uint16", 65535, True), ("int16", -32768, True),
    ],
)  # fmt: skip
def test_zero_points_whose_sums_fit_in_int32(kind: str, point: int, taken: bool) -> None:
    module = bound_product(np.array(point, kind), np.float32(0.01))
    assert is_taken(module) == taken
    x = np.array([[1], [-127 / 128]], "float32").repeat(128, 1)
    expected = run_function(module, "main", [x, np.int32(0)])
    np.testing.assert_allclose(load(module)(x, np.int32(0)), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "scale", "taken"),
    [
        ("float16", 264.0, True), ("float16", 266.0, False), ("float16", -300.0, False), ("float16", np.inf, False),
        ("float32", 300.0, True), ("float32", 1e20, False), ("float32", np.inf, False), ("float32", np.nan, False),
    ],
)  # fmt: skip
def test_scales_that_clip_or_overflow(dtype: str, scale: float, taken: bool) -> None:
    """Weights of float16 are clipped to 65504 where they are decoded, which sums of integers do not know."""
    module = bound_product(np.uint8(8), np.array(scale, dtype), dtype)
    assert is_taken(module) == taken
    if taken:
        x = np.full((2, 128), 1e-4, dtype)
        expected = run_function(module, "main", [x, np.int32(0)]).astype("float64")
        np.testing.assert_allclose(load(module)(x, np.int32(0)), expected, rtol=2e-3)


@pytest.mark.parametrize("start", ["u", 'R.astype(z, dtype="int32")'])
def test_zero_points_that_share_operands(start: str) -> None:
    """Each operator is evaluated once, and none of an operand that is not constant: 60 sums would take for ever."""
    steps = "".join(f"        a{n + 1} = R.add(a{n}, a{n})\n" for n in range(60))
    lines = f"        a0 = {start}\n{steps}"
    assert is_taken(bound_product(np.uint8(8), np.float32(1), lines=lines, zero="a60")) == (start != "u")


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        (VNNI, "vpdpbusd"),
        ("llvm{cpu=alderlake}", "vpdpbusd"),
        (DOTPROD, "sdot"),
        (I8MM, "usdot"),
    ],
)
@pytest.mark.parametrize("bits", [4, 8])
def test_code_multiplies_bytes_in_groups(target: str, instruction: str, bits: int) -> None:
    product = Product(1, 256, 128, 32, bits)
    assert instruction in build(product.module, target).emit("asm").decode()

"""The pass `winograd`: what it takes, that numbers stay, and how exact they are, judged by NumPy in float64."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_function
from mlcc.ir.module import IRModule
from mlcc.passes.convolution.winograd_transforms import Transform, Variant, variants
from mlcc.passes.graph.bind_params import bind
from mlcc.targets.llvm.backend import BACKEND
from tests.auto_schedule.kernels import assert_same_results, chosen

AVX512, NATIVE = "llvm{cpu=skylake-avx512}", "llvm{cpu=native}"
UNIT = 2.0**-24


def convolution(
    data: tuple[Any, ...], weights: np.ndarray, *lines: str, attrs: str = "", more: str = "", result: str = "c",
    layout: str = "NHWC",
) -> IRModule:  # fmt: skip
    """`main` with a convolution `c` of data `x` by constant weights in OIHW, and lines behind it."""
    shape, dtype = ", ".join(f'"{n}"' if isinstance(n, str) else str(n) for n in data), weights.dtype
    options = f'data_layout="{layout}"' + (f", {attrs}" if attrs else "")
    body = "".join(f"        {line}\n" for line in (f"c = R.nn.conv2d(x, w, {options})", *lines))
    text = (
        f'@R.function\ndef main(x: R.Tensor(({shape}), "{dtype}"), w: R.Tensor({weights.shape}, "{dtype}"){more}):\n'
        f"    with R.dataflow():\n{body}        R.output({result})\n    return {result}\n"
    )
    module = mlcc.parse(text)
    module.functions["main"] = bind(module["main"], {"w": weights}, "main", module, False)
    return module


def reference(x: np.ndarray, weights: np.ndarray, padding: tuple[int, int, int, int] = (0, 0, 0, 0)) -> np.ndarray:
    """The convolution of NHWC data by OIHW weights in float64; padding above, left, below, right, or cropping."""
    top, left, bottom, right = (max(n, 0) for n in padding)
    x = np.pad(x.astype("float64"), ((0, 0), (top, bottom), (left, right), (0, 0)))
    top, left, bottom, right = (max(-n, 0) for n in padding)
    x = x[:, top : x.shape[1] - bottom, left : x.shape[2] - right]
    height, width = weights.shape[2:]
    rows, columns = x.shape[1] - height + 1, x.shape[2] - width + 1
    return sum(  # type: ignore[return-value]
        x[:, i : i + rows, j : j + columns] @ weights[:, :, i, j].T.astype("float64")
        for i, j in itertools.product(range(height), range(width))
    )


def random_weights(outputs: int, inputs: int, height: int, width: int, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((outputs, inputs, height, width))
    return (values / np.sqrt(inputs * height * width)).astype("float32")


def computed(module: IRModule, *arrays: np.ndarray, options: str = "", target: str = NATIVE) -> Any:
    return mlcc.load(mlcc.build(module, target=target, pipeline=o2(options)))["main"](*arrays)


def o2(options: str = "") -> str:
    """The pipeline of `-O2`, with options of the pass."""
    text = BACKEND.levels["O2"]
    assert ",winograd," in text
    return text.replace(",winograd,", f",winograd{{{options}}},")


def taken(module: IRModule, options: str = "", target: str = AVX512) -> list[str]:
    """The variants in the module after the pass."""
    made = mlcc.run_passes(module, f"winograd{{{options}}}", target=target).script()
    return [part.partition(":")[0].strip(' "') for part in made.split('"mlcc.winograd_note":')[1:]]


# ---------------------------------------------------------------- transforms


@pytest.mark.parametrize(("outputs", "taps"), [(3, 2), (2, 3), (5, 2), (4, 3), (3, 4), (2, 5), (1, 1)])
def test_a_transform_is_exact_in_rational_numbers(outputs: int, taps: int) -> None:
    transform = Transform(outputs, taps)
    random = np.random.default_rng(taps)
    for _ in range(5):
        data = [Fraction(int(n), 7) for n in random.integers(-99, 99, transform.size)]
        weights = [Fraction(int(n), 3) for n in random.integers(-99, 99, taps)]
        places = [
            sum(a * x for a, x in zip(row, data, strict=True)) * sum(g * w for g, w in zip(of, weights, strict=True))
            for row, of in zip(transform.data_matrix, transform.weight_matrix, strict=True)
        ]
        found = [sum(a * m for a, m in zip(row, places, strict=True)) for row in transform.output_matrix]
        assert found == [sum(data[i + k] * weights[k] for k in range(taps)) for i in range(outputs)]


def test_constants_of_data_and_results_are_exact_in_float32() -> None:
    for size, taps in ((4, 2), (4, 3), (6, 2), (6, 3), (6, 4), (6, 5)):
        transform = Transform(size + 1 - taps, taps)
        for row in (*transform.data_matrix, *transform.output_matrix):
            assert all(Fraction(float(np.float32(float(x)))) == x for x in row)


# ---------------------------------------------------------------- numbers


@settings(max_examples=6, deadline=None)
@given(
    batch=st.integers(1, 3),
    size=st.tuples(st.integers(1, 19), st.integers(1, 19)),
    channels=st.tuples(st.sampled_from([8, 16, 24, 40]), st.sampled_from([8, 16, 24, 32, 48])),
    window=st.sampled_from([(3, 3), (1, 3), (3, 1), (5, 5), (2, 2), (1, 5), (4, 4)]),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
    tail=st.sampled_from(["", "bias", "residual", "hardswish", "twice"]),
    fast=st.booleans(),
)
@example(1, (7, 7), (16, 16), (3, 3), (1, 1, 1, 1), "residual", False)
@example(2, (1, 1), (8, 8), (3, 3), (1, 1, 1, 1), "bias", True)
@example(1, (2, 74), (8, 8), (3, 3), (0, 0, 2, 1), "hardswish", False)
@example(1, (13, 11), (16, 8), (3, 3), (-1, -2, 0, 1), "bias", False)
@example(2, (9, 12), (8, 24), (3, 3), (1, 1, -3, -1), "", True)
@example(1, (1, 1), (8, 8), (3, 3), (4, 5, 6, 3), "", False)
def test_numbers_are_those_of_the_convolution(
    batch: int, size: tuple[int, int], channels: tuple[int, int], window: tuple[int, int],
    padding: tuple[int, int, int, int], tail: str, fast: bool,
) -> None:  # fmt: skip
    top, left, bottom, right = padding
    out = size[0] + top + bottom + 1 - window[0], size[1] + left + right + 1 - window[1]
    if min(out) < 1:
        return
    weights = random_weights(channels[1], channels[0], *window)
    random = np.random.default_rng(1)
    x = random.standard_normal((batch, *size, channels[0])).astype("float32")
    other_shape = (batch, *out, channels[1]) if tail == "residual" else (1, 1, 1, channels[1])
    lines = {
        "": ["y = R.nn.relu(c)"],
        "bias": ["b = R.add(c, z)", "y = R.nn.relu(b)"],
        "residual": ["b = R.add(c, z)", "y = R.nn.relu(b)"],
        "hardswish": ["b = R.add(c, z)", "d = R.clip(R.add(b, R.const(3.0)), 0, 6)", "y = R.multiply(b, d)"],
        "twice": ["b = R.add(c, z)", "y = R.multiply(R.exp(c), b)"],
    }[tail]
    more = f', z: R.Tensor({other_shape}, "float32")'
    module = convolution(
        x.shape, weights, *lines, attrs=f"padding={list(padding)}", more=more, result="y",
    )  # fmt: skip
    other = random.standard_normal(other_shape).astype("float32")
    options = "always=true max-error=4" if fast else "always=true"
    admitted = fast or window != (4, 4)  # 4 x 4 has no variant that is exact enough by default
    assert bool(taken(module, options)) == admitted
    c = reference(x, weights, padding)
    expected = {
        "": lambda: np.maximum(c, 0),
        "bias": lambda: np.maximum(c + other, 0),
        "residual": lambda: np.maximum(c + other, 0),
        "hardswish": lambda: (c + other) * np.clip(c + other + 3, 0, 6),
        "twice": lambda: np.exp(c) * (c + other),
    }[tail]()
    found = computed(module, x, other, options=options)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * max(1.0, abs(expected).max()))
    interpreted = run_function(
        mlcc.run_passes(module, f"winograd{{{options}}}", target=AVX512), "main", [x, other]
    )  # fmt: skip
    np.testing.assert_allclose(found, interpreted, rtol=2e-5, atol=2e-5 * max(1.0, abs(expected).max()))


@pytest.mark.parametrize("channels", [(16, 32), (24, 8), (40, 24), (72, 16)])
@pytest.mark.parametrize("target", ["llvm", "llvm{cpu=x86-64-v3}", NATIVE])
def test_every_cpu_of_a_build_computes_the_same(target: str, channels: tuple[int, int]) -> None:
    weights = random_weights(channels[1], channels[0], 3, 3)
    x = np.random.default_rng(2).standard_normal((1, 13, 17, channels[0])).astype("float32")
    module = convolution(x.shape, weights, attrs="padding=[1, 1, 1, 1]")
    found = computed(module, x, options="always=true", target=target)
    np.testing.assert_allclose(found, reference(x, weights, (1, 1, 1, 1)), rtol=0, atol=2e-6 * max(1, channels[0] / 32))


def test_a_batch_of_any_size() -> None:
    weights = random_weights(32, 32, 3, 3)
    module = convolution(("n", 9, 9, 32), weights, attrs="padding=[1, 1, 1, 1]")
    assert taken(module, "always=true") == ["F(2x2, 3x3)"]
    exe = mlcc.load(mlcc.build(module, target=NATIVE, pipeline=o2("always=true")))
    for batch in (0, 1, 2, 7):
        x = np.random.default_rng(batch).standard_normal((batch, 9, 9, 32)).astype("float32")
        np.testing.assert_allclose(exe["main"](x), reference(x, weights, (1, 1, 1, 1)), rtol=0, atol=3e-6)


def test_a_network_in_the_layout_of_its_text() -> None:
    """`-O2` turns the data, computes both convolutions so, and computes what two operators read once."""
    w = random_weights(64, 64, 3, 3)
    lines = ["d = R.nn.relu(c)", "e = R.nn.conv2d(d, w, padding=[1, 1, 1, 1])", "y = R.add(e, d)"]
    module = convolution((1, 64, 28, 28), w, *lines, attrs="padding=[1, 1, 1, 1]", result="y", layout="NCHW")
    made = mlcc.run_passes(module, o2(), target=AVX512).script()
    assert made.count("F(2x2, 3x3)") >= 1 and "conv2d_nhwc" not in made
    x = np.random.default_rng(0).standard_normal((1, 64, 28, 28)).astype("float32")
    c = np.maximum(reference(x.transpose(0, 2, 3, 1), w, (1, 1, 1, 1)), 0)
    expected = (reference(c, w, (1, 1, 1, 1)) + c).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(mlcc.load(mlcc.build(module, target=NATIVE))["main"](x), expected, rtol=0, atol=1e-5)


# ---------------------------------------------------------------- errors


CASES = ("normal", "positive", "offset", "edges", "spike", "alternating")


def hard_case(name: str, channels: int, window: tuple[int, int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Data of 12 x 12 pixels and weights that make rounding errors large."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((1, 12, 12, channels)).astype("float32")
    w = random_weights(8, channels, *window, seed)
    if name == "positive":
        return abs(x), abs(w)
    if name in ("offset", "edges"):
        x = x + np.float32(1000)
    if name == "edges":
        w = w - w.mean((2, 3), keepdims=True)
    if name == "spike":
        x[:, 6, 6] *= 1e4
    if name == "alternating":
        signs = np.where((np.arange(12)[:, None] + np.arange(12)) % 2, 1, -1)
        x = (abs(x) * signs[None, :, :, None]).astype("float32")
    return x, w


def direct(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """A direct convolution of float32 that adds products in order."""
    height, width = weights.shape[2:]
    rows, columns = x.shape[1] - height + 1, x.shape[2] - width + 1
    total = np.zeros((*x.shape[:1], rows, columns, len(weights)), "float32")
    for i, j, k in itertools.product(range(height), range(width), range(x.shape[3])):
        total += x[:, i : i + rows, j : j + columns, k, None] * weights[:, k, i, j]
    return total


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("channels", [64, 2048])
@pytest.mark.parametrize(("window", "max_error"), [((3, 3), 1.25), ((3, 3), 4), ((5, 5), 1.25), ((1, 3), 4)])
def test_errors_stay_within_the_bound(name: str, channels: int, window: tuple[int, int], max_error: float) -> None:
    x, weights = hard_case(name, channels, window, channels)
    options = f"always=true max-error={max_error}"
    module = convolution(x.shape, weights)
    (variant,) = [v for v in variants(*window) if [str(v)] == taken(module, options)]
    error = abs(computed(module, x, options=options) - reference(x, weights))
    scale = abs(x).max() * abs(weights).sum((1, 2, 3))
    assert (error <= variant.error_bound(channels) * UNIT * scale).all()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("channels", [64, 512])
def test_the_default_is_no_less_exact_than_a_direct_convolution(name: str, channels: int) -> None:
    x, weights = hard_case(name, channels, (3, 3), channels + 1)
    module = convolution(x.shape, weights)
    expected = reference(x, weights)
    errors = [computed(module, x, options="always=true") - expected, direct(x, weights) - expected]
    ours, plain = (np.sqrt((e**2).mean()) for e in errors)
    assert ours <= plain


@pytest.mark.parametrize(("window", "max_error"), [((3, 3), 1.25), ((3, 3), 4), ((5, 5), 1.25), ((2, 2), 4)])
def test_the_expected_error_is_what_random_data_show(window: tuple[int, int], max_error: float) -> None:
    x, weights = hard_case("normal", 256, window, 3)
    options = f"always=true max-error={max_error}"
    module = convolution(x.shape, weights)
    (variant,) = [v for v in variants(*window) if [str(v)] == taken(module, options)]
    expected = reference(x, weights)
    errors = [computed(module, x, options=options) - expected, direct(x, weights) - expected]
    ours, plain = (np.sqrt((e**2).mean()) for e in errors)
    assert 0.4 * variant.relative_error < ours / plain < 1.6 * variant.relative_error


# ---------------------------------------------------------------- what is taken


def test_layouts_count_the_gain_only_where_the_pass_follows() -> None:
    text = convolution((1, 28, 28, 16), random_weights(16, 16, 3, 3), attrs="padding=[1, 1, 1, 1]").script()
    module = mlcc.parse(text.replace('"NHWC"', '"NCHW"').replace("(1, 28, 28, 16)", "(1, 16, 28, 28)"))
    laid_out = [
        "permute_dims" in mlcc.run_passes(module, f"auto-layout{{max-error={n}}}", target=AVX512).script()
        for n in (1.25, 0)
    ]
    assert laid_out == [True, False]


def test_variants_by_admitted_error() -> None:
    module = convolution((1, 56, 56, 64), random_weights(64, 64, 3, 3), attrs="padding=[1, 1, 1, 1]")
    assert taken(module) == ["F(2x2, 3x3)"]
    assert taken(module, "max-error=2") == ["F(4x4, 3x3)"]
    assert taken(module, target="llvm{cpu=skylake-avx512 fast-math=true}") == ["F(4x4, 3x3)"]
    assert taken(module, "max-error=0.5") == taken(module, "max-error=0") == []
    for wrong in ("nan", "-1"):
        with pytest.raises(CompileError, match="E0503"):
            taken(module, f"max-error={wrong}")
    assert taken(module, "max-error=0", "llvm{cpu=skylake-avx512 fast-math=true}") == []


@pytest.mark.parametrize(
    ("data", "weights", "attrs"),
    [
        ((1, 56, 56, 64), (64, 64, 3, 3), "strides=[2, 2]"),
        ((1, 56, 56, 64), (64, 64, 3, 3), "dilation=[2, 2]"),
        ((1, 56, 56, 64), (64, 32, 3, 3), "groups=2"),
        ((1, 56, 56, 3), (64, 3, 3, 3), ""),
        ((1, 56, 56, 64), (63, 64, 3, 3), ""),
        ((1, 56, 56, 64), (64, 64, 1, 1), ""),
        ((1, 56, 56, 64), (64, 64, 7, 7), ""),
        ((1, "h", 56, 64), (64, 64, 3, 3), ""),
        ((0, 56, 56, 64), (64, 64, 3, 3), ""),
    ],
)
def test_other_convolutions_stay(data: tuple[Any, ...], weights: tuple[int, int, int, int], attrs: str) -> None:
    module = convolution(data, random_weights(*weights), attrs=attrs)
    made = mlcc.run_passes(module, "winograd{always=true}", target=AVX512)
    assert made is module or mlcc.structural_equal(made, module)


def test_other_dtypes_and_weights_of_run_time_stay() -> None:
    half = convolution((1, 56, 56, 64), random_weights(64, 64, 3, 3).astype("float16"))
    assert taken(half, "always=true") == []
    text = (
        '@R.function\ndef main(x: R.Tensor((1, 56, 56, 64), "float32"), w: R.Tensor((64, 64, 3, 3), "float32")):\n'
        '    return R.nn.conv2d(x, w, data_layout="NHWC")\n'
    )
    assert taken(mlcc.parse(text), "always=true") == []


def test_what_does_not_pay_stays() -> None:
    """Few pixels: the larger weights would take longer to read than the products take."""
    module = convolution((1, 2, 2, 512), random_weights(512, 512, 3, 3), attrs="padding=[1, 1, 1, 1]")
    assert taken(module) == [] and taken(module, "always=true") == ["F(2x2, 3x3)"]


# ---------------------------------------------------------------- schedules


@pytest.mark.parametrize(
    ("size", "channels", "window"),
    [
        ((28, 28), (32, 32), (3, 3)),
        ((13, 37), (16, 24), (3, 3)),
        ((14, 14), (64, 64), (5, 5)),
        ((9, 9), (8, 8), (1, 3)),
    ],
)
def test_the_rule_schedules_strips_and_its_script_replays(
    size: tuple[int, int], channels: tuple[int, int], window: tuple[int, int]
) -> None:
    module = convolution((2, *size, channels[0]), random_weights(channels[1], channels[0], *window), "y = R.nn.relu(c)")
    made = mlcc.run_passes(
        module, "winograd{always=true},lower-to-tir,annotate-op-pattern,fuse,fuse-tir", target=NATIVE
    )
    (found,) = chosen(made).values()
    assert found.rule == "winograd" and any("F(" in line and "error" in line for line in found.choices), found.passed
    scheduled = assert_same_results(made)
    (name,) = (n for n in scheduled if n != "main")
    text = scheduled[name].script()
    assert ("T.parallel" in text) == (min(size) > 9)  # the smallest one is not worth another thread


def test_the_code_of_a_strip_stands_once() -> None:
    """Padding is not peeled off the loop over strips, which would copy the products for each edge."""
    module = convolution((1, 56, 56, 64), random_weights(64, 64, 3, 3), attrs="padding=[1, 1, 1, 1]")
    lowered = mlcc.run_passes(module, o2() + ",lower", target=AVX512).script()
    assert '"mlcc.partition": 0' in lowered and '"mlcc.llvm_unroll": 0' in lowered
    assert lowered.count("data_transform = T.alloc_buffer_stmt") == 1


def test_variants_are_ordered_by_their_products() -> None:
    assert [str(v) for v in variants(3, 3)] == ["F(2x2, 3x3)", "F(4x4, 3x3)"]
    assert [v.saving for v in variants(3, 3)] == [2.25, 4.0]
    assert variants(1, 1) == [] and variants(7, 7) == []
    assert Variant(Transform(2, 3), Transform(2, 3)).relative_error == pytest.approx(5 / 9)

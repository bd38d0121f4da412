"""Operators that graphs write out as several: which are recognised, and that numbers stay."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function
from mlcc.ir.module import IRModule
from mlcc.passes.graph.bind_params import bind
from mlcc.relax.queries import all_bindings

PASSES = "normalize,recognize-operators,dead-code"


def module(lines: str, result: str, dtype: str = "float32", **params: Any) -> IRModule:
    """A function of tensors; parameters are shapes, or pairs of a shape and a dtype."""
    given = []
    for name, shape in params.items():
        shape, kind = shape if isinstance(shape[0], tuple) else (shape, dtype)
        given.append(f"{name}: R.Tensor({shape!r}, dtype={kind!r})")
    body = "\n".join(f"            {line.strip()}" for line in lines.strip().splitlines() if line.strip())
    return mlcc.parse(
        "@I.ir_module\nclass Module:\n    @R.function\n"
        f"    def main({', '.join(given)}):\n        with R.dataflow():\n{body}\n"
        f"            out = {result}\n            R.output(out)\n        return out\n"
    )


def counted(made: IRModule) -> Counter[str]:
    values = [binding.value for binding, _ in all_bindings(made["main"].body)]  # type: ignore[attr-defined]
    return Counter(value.op.name.removeprefix("relax.") for value in values if hasattr(value, "op"))


def recognized(before: IRModule, *inputs: np.ndarray, rtol: float = 2e-6) -> Counter[str]:
    """The operators that are left; numbers are compared with what the graph gave before."""
    after = mlcc.run_passes(before, PASSES)
    expected, found = (np.asarray(run_function(m, "main", list(inputs))) for m in (before, after))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * max(np.abs(expected).max(initial=0), 1))
    return counted(after)


def rows(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype) * np.dtype(dtype).type(1.5)


def const(value: float, dtype: str = "float32") -> str:
    return f'R.const({value!r}, "{dtype}")'


HALF, ONE, ROOT = const(0.5), const(1.0), const(math.sqrt(2))
ERF = f"e = R.erf(R.divide(x, {ROOT}))"
GELUS = [
    (ERF, f"R.multiply(R.multiply(x, R.add(e, {ONE})), {HALF})"),
    (ERF, f"R.multiply(R.multiply({HALF}, x), R.add({ONE}, e))"),
    (ERF, f"R.multiply(x, R.multiply(R.add(e, {ONE}), {HALF}))"),
    (ERF, f"R.divide(R.multiply(x, R.add(e, {ONE})), {const(2.0)})"),
    (ERF, f"R.add(R.multiply({HALF}, x), R.multiply(R.multiply({HALF}, x), e))"),
    (ERF, f"R.multiply(x, R.add({HALF}, R.multiply({HALF}, e)))"),
    (f"e = R.erf(R.multiply(x, {const(math.sqrt(0.5))}))", f"R.multiply(R.multiply(x, R.add(e, {ONE})), {HALF})"),
]  # fmt: skip
SLOPE, CUBE = math.sqrt(2 / math.pi), 0.044715
TANHS = [
    f"R.multiply({const(SLOPE)}, R.add(x, R.multiply({const(CUBE)}, R.power(x, {const(3.0)}))))",
    f"R.multiply(R.add(x, R.multiply(R.multiply(R.multiply(x, x), x), {const(CUBE)})), {const(SLOPE)})",
    f"R.multiply(R.multiply(x, {const(SLOPE)}), R.add({ONE}, R.multiply({const(CUBE)}, R.multiply(x, x))))",
    f"R.add(R.multiply({const(SLOPE)}, x), R.multiply({const(SLOPE * CUBE)}, R.multiply(x, R.square(x))))",
]


@pytest.mark.parametrize(("lines", "result"), GELUS)
def test_gelu_by_the_error_function(lines: str, result: str) -> None:
    assert recognized(module(lines, result, x=(3, 5)), rows(3, 5)) == {"nn.gelu": 1}


@pytest.mark.parametrize("inner", TANHS)
def test_gelu_by_the_hyperbolic_tangent(inner: str) -> None:
    made = module(f"t = R.tanh({inner})", f"R.multiply(R.multiply({HALF}, x), R.add({ONE}, t))", x=(3, 5))
    assert recognized(made, rows(3, 5)) == {"nn.gelu_tanh": 1}
    doubled = module(f"t = R.sigmoid(R.multiply({inner}, {const(2.0)}))", "R.multiply(x, t)", x=(3, 5))
    assert recognized(doubled, rows(3, 5)) == {"nn.gelu_tanh": 1}


def test_silu_of_a_product_is_recognised() -> None:
    made = module("g = R.multiply(x, y)", "R.multiply(R.sigmoid(g), g)", x=(4, 3), y=(4, 3))
    assert recognized(made, rows(4, 3), rows(4, 3, seed=1)) == {"multiply": 1, "nn.silu": 1}


@pytest.mark.parametrize(
    ("lines", "result"),
    [
        ("e = R.erf(x)", f"R.multiply(R.multiply(x, R.add(e, {ONE})), {HALF})"),
        (f"e = R.erf(R.divide(x, {const(1.5)}))", f"R.multiply(R.multiply(x, R.add(e, {ONE})), {HALF})"),
        (ERF, f"R.multiply(R.multiply(y, R.add(e, {ONE})), {HALF})"),
        (ERF, f"R.multiply(R.multiply(x, R.add(e, {const(1.001)})), {HALF})"),
        (f"s = R.sigmoid(R.multiply(x, {const(1.702)}))", "R.multiply(x, s)"),
        ("s = R.sigmoid(y)", "R.multiply(x, s)"),
    ],
)
def test_what_is_no_activation_stays(lines: str, result: str) -> None:
    made = module(f"{lines}\nz = R.multiply(y, y)", f"R.add({result}, z)", x=(3, 5), y=(3, 5))
    found = recognized(made, rows(3, 5), rows(3, 5, seed=1))
    assert not any(name.startswith("nn.") for name in found)


def test_activations_of_16_bits_computed_in_32() -> None:
    lines = f'w = R.astype(x, "float32")\n{ERF.replace("(x", "(w")}'
    made = module(
        lines, f'R.astype(R.multiply(R.multiply(w, R.add(e, {ONE})), {HALF}), "float16")', "float16", x=(3, 5)
    )
    assert recognized(made, rows(3, 5, dtype="float16"), rtol=2e-3) == {"nn.gelu": 1}


# ---------------------------------------------------------------- norms

CENTRED = "m = R.mean(x, axis=[-1], keepdims=True)\nd = R.subtract(x, m)"
EPSILON = const(1e-5)
SQUARES = [f"R.power(d, {const(2.0)})", "R.multiply(d, d)", "R.square(d)"]
ENDS = [
    f"R.divide(d, R.sqrt(R.add(v, {EPSILON})))",
    f"R.multiply(d, R.rsqrt(R.add({EPSILON}, v)))",
    f"R.multiply(R.divide({ONE}, R.sqrt(R.add(v, {EPSILON}))), d)",
    f"R.multiply(d, R.power(R.add(v, {EPSILON}), {const(-0.5)}))",
    f"R.divide(d, R.power(R.add(v, {EPSILON}), {const(0.5)}))",
]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("square", SQUARES)
def test_layer_norm_is_recognised(square: str, end: str) -> None:
    lines = f"{CENTRED}\nv = R.mean({square}, axis=[-1], keepdims=True)\nn = {end}"
    made = module(lines, "R.add(R.multiply(n, g), b)", x=(2, 4, 8), g=(8,), b=(8,))
    assert recognized(made, rows(2, 4, 8), rows(8), rows(8, seed=2)) == {"nn.layer_norm": 1}


def test_layer_norm_with_everything_computed_twice() -> None:
    mean = "R.mean(x, axis=[2], keepdims=True)"
    lines = f"""
        d = R.subtract(x, {mean})
        e = R.subtract(x, {mean})
        v = R.mean(R.multiply(e, e), axis=[2], keepdims=True)
    """
    made = module(lines, f"R.add(R.multiply({ENDS[0]}, g), b)", x=(2, 4, 8), g=(8,), b=(1, 1, 8))
    assert recognized(made, rows(2, 4, 8), rows(8), rows(1, 1, 8)) == {"nn.layer_norm": 1, "reshape": 1}


def test_layer_norm_as_factor_and_shift() -> None:
    lines = f"""
        {CENTRED}
        v = R.mean(R.square(d), axis=[-1], keepdims=True)
        r = R.multiply(R.rsqrt(R.add(v, {EPSILON})), g)
    """
    made = module(lines, "R.add(R.multiply(x, r), R.subtract(b, R.multiply(m, r)))", x=(4, 8), g=(8,), b=(8,))
    assert recognized(made, rows(4, 8), rows(8), rows(8, seed=1)) == {"nn.layer_norm": 1}


def test_layer_norm_over_channels_is_recognised() -> None:
    lines = """
        m = R.mean(x, axis=[1], keepdims=True)
        d = R.subtract(x, m)
        v = R.mean(R.square(d), axis=[1], keepdims=True)
    """
    made = module(lines, f"R.add(R.multiply({ENDS[0]}, g), b)", x=(2, 6, 3, 3), g=(6, 1, 1), b=(6, 1, 1))
    found = recognized(made, rows(2, 6, 3, 3), rows(6, 1, 1), rows(6, 1, 1, seed=1))
    assert found == {"reshape": 2, "nn.layer_norm": 1}


def test_layer_norm_without_parameters_or_with_others() -> None:
    lines = f"{CENTRED}\nv = R.variance(x, axis=[-1], keepdims=True)"
    assert recognized(module(lines, ENDS[1], x=(4, 8)), rows(4, 8)) == {"ones": 1, "zeros": 1, "nn.layer_norm": 1}
    made = module(lines, f"R.multiply({ENDS[1]}, g)", x=(4, 8), g=(4, 1))
    assert recognized(made, rows(4, 8), rows(4, 1)) == {"ones": 1, "zeros": 1, "nn.layer_norm": 1, "multiply": 1}


def test_norms_of_16_bits_computed_in_wider_ones() -> None:
    lines = f"""
        {CENTRED}
        w = R.astype(d, "float64")
        v = R.mean(R.power(w, {const(2.0, "float64")}), axis=[-1], keepdims=True)
        n = R.astype(R.divide(w, R.sqrt(R.add(v, {const(1e-5, "float64")}))), "float16")
    """
    half = {"x": (4, 8), "g": (8,), "b": (8,)}
    inputs = rows(4, 8, dtype="float16"), rows(8, dtype="float16"), rows(8, dtype="float16", seed=1)
    made = module(lines, "R.add(R.multiply(n, g), b)", "float16", **half)
    assert recognized(made, *inputs, rtol=4e-3) == {"nn.layer_norm": 1}
    lines = f"""
        w = R.astype(x, "float32")
        r = R.rsqrt(R.add(R.mean(R.square(w), axis=[-1], keepdims=True), {const(1e-6)}))
        n = R.astype(R.multiply(w, r), "float16")
    """
    made = module(lines, "R.add(R.multiply(g, n), b)", "float16", **half)
    assert recognized(made, *inputs, rtol=4e-3) == {"nn.rms_norm": 1, "add": 1}


@pytest.mark.parametrize(
    "mean", ["R.mean({}, axis=[-1], keepdims=True)", "R.divide(R.sum({}, axis=[1], keepdims=True), n)"]
)
def test_rms_norm_is_recognised(mean: str) -> None:
    lines = f"v = {mean.format('R.multiply(x, x)').replace(', n)', f', {const(8.0)})')}"
    end = f"R.divide(x, R.sqrt(R.add(v, {const(1e-6)})))"
    made = module(lines, f"R.multiply({end}, g)", x=(4, 8), g=(8,))
    assert recognized(made, rows(4, 8), rows(8)) == {"nn.rms_norm": 1}


@pytest.mark.parametrize(
    ("lines", "result"),
    [
        (f"{CENTRED}\nv = R.divide(R.sum(R.square(d), axis=[-1], keepdims=True), {const(7.0)})", ENDS[0]),
        (
            f"{CENTRED}\nv = R.mean(R.square(d), axis=[-1], keepdims=True)",
            f"R.multiply(d, R.sqrt(R.add(v, {EPSILON})))",
        ),
        (f"{CENTRED}\nv = R.mean(R.square(x), axis=[-1], keepdims=True)", ENDS[0]),
        (f"{CENTRED}\nv = R.mean(R.square(d), axis=[-1], keepdims=True)", f"R.divide(d, R.add(R.sqrt(v), {EPSILON}))"),
        (f"{CENTRED}\nv = R.mean(R.square(y), axis=[-1], keepdims=True)", ENDS[0]),
    ],
)
def test_what_is_no_norm_stays(lines: str, result: str) -> None:
    made = module(f"{lines}\nz = R.add(d, y)", f"R.add({result}, z)", x=(8, 8), y=(8, 8))
    found = recognized(made, rows(8, 8), rows(8, 8, seed=1))
    assert not any(name.startswith("nn.") for name in found)


def test_a_norm_that_something_else_needs_part_of() -> None:
    lines = f"{CENTRED}\nv = R.mean(R.square(d), axis=[-1], keepdims=True)\nn = {ENDS[0]}"
    made = module(lines, "R.add(R.multiply(n, g), R.multiply(d, m))", x=(4, 8), g=(8,))
    found = recognized(made, rows(4, 8), rows(8))
    assert found["nn.layer_norm"] == 1 and found["subtract"] == 1 and found["mean"] == 1


def test_group_norm_is_recognised() -> None:
    lines = """
        flat = R.reshape(x, R.shape([2, 2, 27]))
        n = R.nn.instance_norm(flat, R.const([1.0, 1.0], "float32"), R.const([0.0, 0.0], "float32"), 1, [2], 1e-3)
        y = R.reshape(n, R.shape([2, 6, 3, 3]))
    """
    made = module(lines, "R.add(R.multiply(y, g), b)", x=(2, 6, 3, 3), g=(6, 1, 1), b=(1, 6, 1, 1))
    inputs = rows(2, 6, 3, 3), rows(6, 1, 1), rows(1, 6, 1, 1, seed=1)
    assert recognized(made, *inputs) == {"reshape": 2, "nn.group_norm": 1}
    made = module(lines.replace("[1.0, 1.0]", "[1.0, 2.0]"), "R.multiply(y, g)", x=(2, 6, 3, 3), g=(6, 1, 1))
    assert recognized(made, *inputs[:2])["nn.instance_norm"] == 1


# ---------------------------------------------------------------- attention

QKV = {"q": (2, 3, 5, 4), "k": (2, 3, 7, 4), "v": (2, 3, 7, 6)}
TURNED = "kt = R.permute_dims(k, axes=[0, 1, 3, 2])"
LOW = 'R.const(float("-inf"), "float32")'


def arrays(shapes: Any = None, dtype: str = "float32") -> list[np.ndarray]:
    return [rows(*shape, dtype=dtype, seed=i) for i, shape in enumerate((shapes or QKV).values())]


def find_attention(
    scores: str, more: Any = None, inputs: Any = (), lines: str = TURNED, shapes: Any = None
) -> Counter[str]:
    made = module(
        f"{lines}\ns = {scores}\np = R.nn.softmax(s, axis=-1)", "R.matmul(p, v)", **(shapes or QKV), **(more or {})
    )
    return recognized(made, *arrays(shapes), *inputs)


@pytest.mark.parametrize(
    "scores",
    [
        "R.matmul(q, kt)",
        f"R.divide(R.matmul(q, kt), {const(2.0)})",
        f"R.multiply({const(0.3)}, R.matmul(q, kt))",
        f"R.matmul(R.multiply(q, {const(0.25)}), kt)",
        f"R.matmul(R.multiply(q, {const(0.7)}), R.multiply(kt, {const(0.7)}))",
        f"R.matmul(q, R.permute_dims(R.multiply(k, {const(0.5)}), axes=[0, 1, 3, 2]))",
    ],
)
def test_attention_is_recognised(scores: str) -> None:
    found = find_attention(scores)
    assert found["nn.attention"] == 1 and not found.keys() & {"nn.softmax", "matmul", "multiply", "divide"}


def test_scores_that_are_divided_by_the_root_of_the_width_need_no_scale() -> None:
    made = module(
        f"{TURNED}\np = R.nn.softmax(R.divide(R.matmul(q, kt), {const(2.0)}), axis=3)", "R.matmul(p, v)", **QKV
    )
    assert "scale=None" in mlcc.script(mlcc.run_passes(made, PASSES))


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (2, 1, 1, 7), (5, 7), (7,), (2, 3, 5, 1)])
def test_biases_of_scores_are_recognised(shape: tuple[int, ...]) -> None:
    bias = rows(*shape, seed=9)
    found = find_attention(f"R.add(R.divide(R.matmul(q, kt), {const(2.0)}), m)", {"m": shape}, [bias])
    assert found["nn.attention_bias"] == 1
    found = find_attention(f"R.divide(R.add(m, R.matmul(q, kt)), {const(2.0)})", {"m": shape}, [bias])
    assert found["nn.attention_bias"] == 1


@pytest.mark.parametrize("low", [LOW, const(-3.4028234663852886e38)])
def test_scores_that_are_hidden(low: str) -> None:
    seen = np.random.default_rng(1).random((2, 1, 5, 7)) < 0.7
    seen[..., 0] = True
    if "inf" not in low:
        seen[1, 0, 2] = False  # all are equal there
    mask = {"m": ((2, 1, 5, 7), "bool")}
    assert find_attention(f"R.where(m, R.matmul(q, kt), {low})", mask, [seen])["nn.attention_bias"] == 1
    assert find_attention(f"R.where(R.logical_not(m), {low}, R.matmul(q, kt))", mask, [seen])["nn.attention_bias"] == 1
    both = f"R.add(R.where(m, R.matmul(q, kt), {low}), b)"
    assert find_attention(both, {**mask, "b": (2, 1, 1, 7)}, [seen, rows(2, 1, 1, 7)])["nn.attention_bias"] == 1


def test_rows_that_see_nothing_are_0_where_the_graph_says_so() -> None:
    seen = np.ones((2, 1, 5, 7), bool)
    seen[1, 0, 2] = False
    lines = f"{TURNED}\ns = R.where(m, R.matmul(q, kt), {LOW})\nw = R.nn.softmax(s, axis=-1)"
    made = module(
        f"{lines}\np = R.where(R.isnan(w), {const(0.0)}, w)", "R.matmul(p, v)", **QKV, m=((2, 1, 5, 7), "bool")
    )
    found = recognized(made, *arrays(), seen)
    assert found["nn.attention_bias"] == 1 and "nn.softmax" not in found


COUNTED = 'R.arange(0, {}, 1, "int64")'
CAUSAL = [
    'R.tril(R.ones(R.shape([5, 7]), "bool"))',
    f"R.less_equal(R.reshape({COUNTED.format(7)}, R.shape([1, 7])), R.expand_dims({COUNTED.format(5)}, 1))",
    'R.logical_not(R.triu(R.ones(R.shape([5, 7]), "bool"), 1))',
    f'R.not_equal(R.tril(R.full(R.shape([5, 7]), {ONE}, "float32")), {const(0.0)})',
]


@pytest.mark.parametrize("mask", CAUSAL)
def test_causal_masks_are_recognised(mask: str) -> None:
    for scores in (
        f"R.where({mask}, R.matmul(q, kt), {LOW})",
        f"R.add(R.matmul(q, kt), R.where({mask}, {const(0.0)}, {LOW}))",
    ):
        assert find_attention(scores)["nn.attention"] == 1


@pytest.mark.parametrize(("ahead", "corner"), [(0, "TopLeft"), (2, "BottomRight"), (1, None)])
def test_causal_masks_as_data_are_recognised(ahead: int, corner: str | None) -> None:
    seen = np.tri(5, 7, ahead, dtype=bool)
    numbers = np.where(seen, np.float32(0), np.float32(-np.inf))
    made = module(f"{TURNED}\np = R.nn.softmax(R.add(R.matmul(q, kt), m), axis=-1)", "R.matmul(p, v)", **QKV, m=(5, 7))
    with_mask = made.copy()
    with_mask.functions["main"] = bind(made["main"], {"m": numbers}, "main", made)  # type: ignore[arg-type]
    bound = mlcc.run_passes(with_mask, PASSES)
    text = mlcc.script(bound)
    assert (f'causal_mask="{corner}"' in text) if corner else ("attention_bias" in text)
    expected = run_function(made, "main", [*arrays(), numbers])
    np.testing.assert_allclose(run_function(bound, "main", arrays()), expected, rtol=2e-6, atol=2e-6)


def test_heads_behind_the_length_need_no_transposes() -> None:
    shapes = {"q": (2, 5, 3, 4), "k": (2, 7, 3, 4), "v": (2, 7, 3, 6)}
    made = module(
        """
        a = R.permute_dims(q, axes=[0, 2, 1, 3])
        b = R.permute_dims(R.permute_dims(k, axes=[0, 2, 1, 3]), axes=[0, 1, 3, 2])
        c = R.permute_dims(v, axes=[0, 2, 1, 3])
        o = R.matmul(R.nn.softmax(R.matmul(a, b), axis=-1), c)
        """,
        "R.permute_dims(o, axes=[0, 2, 1, 3])", **shapes,
    )  # fmt: skip
    assert recognized(made, *arrays(shapes)) == {"nn.attention": 1}


def test_keys_that_are_turned_as_one_batch() -> None:
    lines = """
        flat = R.permute_dims(R.reshape(k, R.shape([6, 7, 4])), axes=[0, 2, 1])
        kt = R.reshape(flat, R.shape([2, 3, 4, 7]))
    """
    found = find_attention("R.matmul(q, kt)", lines=lines)
    assert found["nn.attention"] == 1 and "reshape" not in found


def test_batches_of_matrices_and_matrices() -> None:
    three = {"q": (6, 5, 4), "k": (6, 7, 4), "v": (6, 7, 6)}
    turned = "kt = R.permute_dims(k, axes=[0, 2, 1])"
    found = find_attention("R.add(R.matmul(q, kt), m)", {"m": (6, 5, 7)}, [rows(6, 5, 7)], turned, three)
    assert found["nn.attention_bias"] == 1
    two = {"q": (5, 4), "k": (7, 4), "v": (7, 6)}
    turned = "kt = R.permute_dims(k, axes=[1, 0])"
    assert (
        find_attention("R.add(R.matmul(q, kt), m)", {"m": (5, 7)}, [rows(5, 7)], turned, two)["nn.attention_bias"] == 1
    )


def test_keys_that_heads_share() -> None:
    shared = {"q": (2, 6, 5, 4), "k": (2, 1, 7, 4), "v": (2, 1, 7, 6)}
    assert find_attention("R.matmul(q, kt)", shapes=shared)["nn.attention"] == 1


@pytest.mark.parametrize(
    "scores",
    [
        f"R.multiply(R.tanh(R.matmul(q, kt)), {const(30.0)})",
        "R.multiply(R.matmul(q, kt), m)",
        f"R.where(R.greater(m, {const(0.0)}), R.matmul(q, kt), {const(-1e4)})",
        f"R.maximum(R.matmul(q, kt), {const(-1.0)})",
        "R.subtract(m, R.matmul(q, kt))",
        f"R.multiply(R.matmul(q, kt), {const(-1.0)})",
    ],
)
def test_what_is_no_attention_stays(scores: str) -> None:
    found = find_attention(scores, {"m": (2, 3, 5, 7)}, [rows(2, 3, 5, 7)])
    assert found["nn.softmax"] == 1 and found["matmul"] == 2


def test_scores_and_weights_that_something_else_needs_stay() -> None:
    lines = f"{TURNED}\ns = R.matmul(q, kt)\np = R.nn.softmax(s, axis=-1)\no = R.matmul(p, v)"
    for other in ("s", "p"):
        made = module(
            lines, f"R.add(R.sum(o, axis=[-1], keepdims=True), R.sum({other}, axis=[-1], keepdims=True))", **QKV
        )
        assert recognized(made, *arrays())["nn.softmax"] == 1


def test_softmax_along_another_axis_stays() -> None:
    made = module(f"{TURNED}\np = R.nn.softmax(R.matmul(q, kt), axis=2)", "R.matmul(p, v)", **QKV)
    assert recognized(made, *arrays())["nn.softmax"] == 1


def test_scores_of_16_bits_and_a_softmax_of_32() -> None:
    lines = f"""
        {TURNED}
        s = R.astype(R.matmul(R.multiply(q, {const(0.5, "float16")}), kt), "float32")
        p = R.astype(R.nn.softmax(s, axis=-1), "float16")
    """
    found = recognized(module(lines, "R.matmul(p, v)", "float16", **QKV), *arrays(dtype="float16"), rtol=4e-3)
    assert found["nn.attention"] == 1 and not found.keys() & {"astype", "multiply"}
    wide = QKV | {"v": (QKV["v"], "float32")}
    made = module(lines.replace(', "float16")\n', ', "float32")\n'), "R.matmul(p, v)", "float16", **wide)
    inputs = [*arrays(dtype="float16")[:2], arrays()[2]]
    assert recognized(made, *inputs, rtol=4e-3)["nn.attention"] == 1


def test_sizes_that_are_symbolic() -> None:
    text = """
        @I.ir_module
        class Module:
            @R.function
            def main(q: R.Tensor(("b", 3, "n", 4)), k: R.Tensor(("b", 3, "m", 4)), v: R.Tensor(("b", 3, "m", 4))):
                with R.dataflow():
                    s = R.matmul(q, R.permute_dims(k, axes=[0, 1, 3, 2]))
                    out = R.matmul(R.nn.softmax(s, axis=-1), v)
                    R.output(out)
                return out
    """.replace("4))", '4), dtype="float32")')
    made = mlcc.parse("\n".join(line.removeprefix("        ") for line in text.splitlines()))
    assert recognized(made, rows(2, 3, 5, 4), rows(2, 3, 7, 4), rows(2, 3, 7, 4))["nn.attention"] == 1
    assert recognized(made, rows(2, 3, 0, 4), rows(2, 3, 1, 4), rows(2, 3, 1, 4))["nn.attention"] == 1


def test_queries_keys_and_values_that_are_parts_of_one_product() -> None:
    lines = """
        t = R.permute_dims(x, axes=[2, 0, 3, 1, 4])
        q = R.squeeze(R.strided_slice(t, axes=[0], begin=[0], end=[1]), axis=[0])
        k = R.squeeze(R.strided_slice(t, axes=[0], begin=[1], end=[2]), axis=[0])
        v = R.squeeze(R.strided_slice(t, axes=[0], begin=[2], end=[3]), axis=[0])
        p = R.nn.softmax(R.matmul(q, R.permute_dims(k, axes=[0, 1, 3, 2])), axis=-1)
        o = R.matmul(p, v)
    """
    made = module(lines, "R.permute_dims(o, axes=[0, 2, 1, 3])", x=(2, 5, 3, 4, 6))
    found = recognized(made, rows(2, 5, 3, 4, 6))
    assert found == {"strided_slice": 3, "squeeze": 3, "nn.attention": 1}


@pytest.mark.parametrize("turn", ["R.permute_dims(w, axes=[0, 1, 3, 2])", "one batch"])
def test_keys_and_values_that_are_repeated_for_heads(turn: str) -> None:
    shapes = {"q": (2, 6, 5, 4), "k": (2, 3, 7, 4), "v": (2, 3, 7, 8)}
    turned = f"kt = {turn}"
    if turn == "one batch":
        turned = """
            flat = R.reshape(R.broadcast_to(R.expand_dims(k, 2), R.shape([2, 3, 2, 7, 4])), R.shape([12, 7, 4]))
            kt = R.reshape(R.permute_dims(flat, axes=[0, 2, 1]), R.shape([2, 6, 4, 7]))
        """
    lines = f"""
        w = R.reshape(R.broadcast_to(R.expand_dims(k, 2), R.shape([2, 3, 2, 7, 4])), R.shape([2, 6, 7, 4]))
        {turned}
        u = R.reshape(R.broadcast_to(R.expand_dims(v, 2), R.shape([2, 3, 2, 7, 8])), R.shape([2, 6, 7, 8]))
        p = R.nn.softmax(R.matmul(q, kt), axis=-1)
    """
    found = recognized(module(lines, "R.matmul(p, u)", **shapes), *arrays(shapes))
    assert found["nn.attention"] == 1 and "broadcast_to" not in found
    lines = lines.replace("R.expand_dims(v, 2)", "R.expand_dims(v, 1)").replace("[2, 3, 2, 7, 8]", "[2, 2, 3, 7, 8]")
    found = recognized(module(lines, "R.matmul(p, u)", **shapes), *arrays(shapes))  # whole sets of heads are repeated
    assert found["nn.attention"] == 1 and found["broadcast_to"] == 2


def test_scores_hidden_in_a_wider_dtype_stay_equal_where_nothing_is_seen() -> None:
    lines = f"""
        {TURNED}
        s = R.where(m, R.astype(R.matmul(q, kt), "float32"), {const(-3.4028234663852886e38)})
        p = R.astype(R.nn.softmax(s, axis=-1), "float16")
    """
    seen = np.ones((2, 1, 5, 7), bool)
    seen[1, 0, 2] = False
    made = module(lines, "R.matmul(p, v)", "float16", **QKV, m=((2, 1, 5, 7), "bool"))
    assert recognized(made, *arrays(dtype="float16"), seen, rtol=4e-3)["nn.attention_bias"] == 1


def test_values_of_another_block_are_not_looked_into() -> None:
    text = f"""
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), g: R.Tensor((8,), "float32")):
            with R.dataflow():
                y = R.add(x, x)
                s = R.multiply(y, y)
                v = R.mean(s, axis=[-1], keepdims=True)
                R.output(v, s)
            z = R.add(x, g)
            with R.dataflow():
                r = R.rsqrt(R.add(v, {EPSILON}))
                a = R.multiply(z, r)
                b = R.multiply(R.sqrt(s), r)
                out = R.add(a, b)
                R.output(out)
            return out
    """
    made = mlcc.parse("\n".join(line.removeprefix("    ") for line in text.splitlines()))
    found = recognized(made, rows(4, 8), rows(8))
    assert "nn.rms_norm" not in found


def test_scores_hidden_by_the_least_float16() -> None:
    half = arrays(dtype="float16")
    for mask, operator in ((CAUSAL[0], "nn.attention"), ("m", "nn.softmax")):
        lines = f"""
            {TURNED}
            s = R.where({mask}, R.matmul(q, kt), {const(-65504.0, "float16")})
            p = R.nn.softmax(s, axis=-1)
            o = R.matmul(p, v)
        """
        zero = f"R.where(m, {const(0.0, 'float16')}, {const(0.0, 'float16')})"
        made = module(lines, f"R.add(o, R.sum({zero}))", "float16", **QKV, m=((2, 1, 5, 7), "bool"))
        assert recognized(made, *half, np.ones((2, 1, 5, 7), bool), rtol=4e-3)[operator] == 1

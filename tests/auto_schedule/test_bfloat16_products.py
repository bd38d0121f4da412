"""Products of bfloat16 summed in float32, in pairs where the CPU has an instruction for them; judged in float64.

Of a sum of n products the error is at most (n + 1) 2**-24 times the sum of the products' magnitudes, and half a unit in
the last place where the result is bfloat16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.lang.passes import bind_params
from mlcc.machine import host
from tests.auto_schedule.kernels import NATIVE, chosen, graph, lowered
from tests.auto_schedule.test_conv import LAYOUTS
from tests.targets.build import from_bfloat16, to_bfloat16

PAIRED = "llvm{triple=x86_64-linux-gnu cpu=znver4}"
CONVERTED = "llvm{cpu=native features=-avx512bf16}" if host.triple().startswith("x86_64") else NATIVE
FORMS = {"kn": "w", "nk": "R.permute_dims(w)"}
Array = np.ndarray


def module(m: int | str, k: int, n: int, form: str = "kn", out: str = "float32", tail: bool = False) -> mlcc.IRModule:
    rows = f'"{m}"' if isinstance(m, str) else m
    shape = (k, n) if form == "kn" else (n, k)
    params = f'x: R.Tensor(({rows}, {k}), "bfloat16"), w: R.Tensor({shape}, "bfloat16")'
    lines = [f'y = R.matmul(x, {FORMS[form]}, out_dtype="{out}")', *["z = R.nn.relu(y)"] * tail]
    return mlcc.parse(graph(params, *lines, result="z" if tail else "y"))


def draw(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    """Numbers of many magnitudes, as bits."""
    rng = np.random.default_rng(seed)
    return [to_bfloat16(rng.standard_normal(s) * 2.0 ** rng.integers(-6, 6, s)) for s in shapes]


def assert_exact_enough(found: Array, x: Array, w: Array, terms: int, out: str = "float32") -> None:
    """Compare a product of the matrices `x` and `w`, as bits, with that in float64."""
    a, b = from_bfloat16(x).astype("float64"), from_bfloat16(w).astype("float64")
    expected, size = a @ b, np.abs(a) @ np.abs(b)
    bound = (terms + 1) * 2.0**-24 * size
    values = from_bfloat16(found) if out == "bfloat16" else found
    if out == "bfloat16":
        bound += 2.0**-8 * np.abs(expected)
    assert values.shape == expected.shape
    assert (np.abs(values - expected) <= bound).all()


def run(mod: mlcc.IRModule, target: str, *arrays: Array) -> Array:
    return np.array(mlcc.load(mlcc.build(mod, target))["main"](*arrays))


SIZES = st.sampled_from((0, 1, 2, 3, 7, 16, 17, 31, 48, 65, 129))


@settings(max_examples=25, deadline=None)
@given(SIZES, SIZES, SIZES, st.sampled_from(sorted(FORMS)), st.sampled_from(("float32", "bfloat16")), st.booleans())
@example(37, 257, 101, "kn", "float32", False)
@example(64, 129, 64, "nk", "bfloat16", True)
@example(2, 1025, 33, "nk", "float32", False)
@example(17, 1, 40, "kn", "float32", True)
@example(16, 0, 16, "nk", "float32", False)
def test_products_of_any_size(m: int, k: int, n: int, form: str, out: str, constant: bool) -> None:
    x, w = draw(m * 31 + n, (m, k), (k, n) if form == "kn" else (n, k))
    mod = module(m, k, n, form, out)
    arguments = [x] if constant else [x, w]
    if constant:
        mod = bind_params("main", {"w": w})(mod)
    assert_exact_enough(run(mod, NATIVE, *arguments), x, w if form == "kn" else w.T, k, out)


@pytest.mark.parametrize("target", [NATIVE, CONVERTED])
def test_long_sums_and_unknown_rows(target: str) -> None:
    """10,001 products for each result, of constant weights and of others; the tails of tiles have fewer rows."""
    for number, (form, constant) in enumerate((("kn", True), ("nk", False))):
        mod = module("m", 10_001, 36, form)
        x, w = draw(number, (23, 10_001), (10_001, 36) if form == "kn" else (36, 10_001))
        w = w if constant else w & np.uint16(0x807F) | np.uint16(0x3F80)  # between 1 and 2, and of either sign
        if constant:
            mod = bind_params("main", {"w": w})(mod)
        main = mlcc.load(mlcc.build(mod, target))["main"]
        for rows in (0, 1, 2, 23):
            arguments = [x[:rows]] if constant else [x[:rows], w]
            assert_exact_enough(np.array(main(*arguments)), x[:rows], w if form == "kn" else w.T, 10_001)


def test_ranges_of_rows_pack_where_that_pays() -> None:
    """Weights that are not constant: converted, or multiplied in place, for few rows, and packed in pairs for more."""
    for form, bound in (("kn", 16), ("nk", 24)):
        made = mlcc.script(mlcc.run_passes(module("m", 130, 100, form), "O2", target=PAIRED))
        assert f"elif m < T.int64({bound}):" in made
        one, few, many = made.split('with T.block("size_')[1:]
        assert ['"reassociate": 1' in part for part in (one, few, many)] == [form == "nk", form == "nk", True]
        panels = 'T.alloc_buffer((T.int64(2), T.int64(65), T.int64(64), T.int64(2)), "bfloat16")'
        assert panels in many and panels not in one + few
        main = mlcc.load(mlcc.build(module("m", 130, 100, form), NATIVE))["main"]
        x, w = draw(7, (41, 130), (130, 100) if form == "kn" else (100, 130))
        for rows in (0, 1, 2, 15, 16, 23, 24, 41):
            assert_exact_enough(np.array(main(x[:rows], w)), x[:rows], w if form == "kn" else w.T, 130)


@pytest.mark.parametrize("form", sorted(FORMS))
def test_pairs_reach_the_machine_code(form: str) -> None:
    """At the default level: pairs of rows side by side in panels, or neighbours in place where rows are few."""
    for rows in (96, "m", *[2] * (form == "nk")):
        mod = module(rows, 130, 192, form, "bfloat16", tail=True)
        assert 'T.unroll(T.int64(2), annotations={"reassociate": 1})' in mlcc.script(
            mlcc.run_passes(mod, "O2", target=PAIRED)
        )
        for cpu in ("znver4", "sapphirerapids", "cascadelake"):
            asm = mlcc.build(mod, f"llvm{{triple=x86_64-linux-gnu cpu={cpu}}}").emit("asm").decode()
            assert ("vdpbf16ps" in asm) == (cpu != "cascadelake")


def test_the_interpreter_agrees() -> None:
    """On every CPU, with the schedule for one that has the instruction."""
    for number, (m, k, n, form) in enumerate(((19, 33, 45, "kn"), (20, 64, 31, "nk"), (2, 131, 5, "nk"))):
        x, w = draw(number, (m, k), (k, n) if form == "kn" else (n, k))
        mod = mlcc.run_passes(module(m, k, n, form), "O2", target=PAIRED)
        (kernel,) = (f for f in mod.functions.values() if isinstance(f, tir.PrimFunc))
        assert '"reassociate": 1' in mlcc.script(kernel)
        out = np.zeros((m, n), "float32")
        run_prim_func(kernel, [x, w, out])
        assert_exact_enough(out, x, w if form == "kn" else w.T, k)


def test_infinities_and_nans_stay_where_they_are() -> None:
    """Padding of odd sums multiplies zeros by zeros."""
    x, w = draw(3, (20, 33), (33, 40))
    x[3, 32], x[7, 0], w[5, 11] = 0x7F80, 0x7FC0, 0xFF80
    with np.errstate(invalid="ignore"):
        expected = from_bfloat16(x).astype("float64") @ from_bfloat16(w).astype("float64")
    found = run(module(20, 33, 40), NATIVE, x, w)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(found[np.isinf(expected)], expected[np.isinf(expected)])
    assert np.isfinite(found[np.isfinite(expected)]).all()


def conv_module(layout: str, channels: tuple[int, int], window: int, stride: int, pad: int, more: str = "") -> Any:
    kernel = LAYOUTS[2][layout]
    data = {"N": 2, "C": channels[0], "H": 9, "W": 18}
    weights = {"O": channels[1], "I": channels[0], "H": window, "W": window}
    shapes = [tuple(t[a] for a in order) for t, order in ((data, layout), (weights, kernel))]
    line = (
        f'y = R.nn.conv2d(x, w, strides={stride}, padding={pad}, data_layout="{layout}", kernel_layout="{kernel}", '
        f'out_dtype="float32"{more})'
    )
    params = ", ".join(f'{n}: R.Tensor({s}, "bfloat16")' for n, s in zip("xw", shapes, strict=True))
    return graph(params, line, result="y"), shapes, kernel


@pytest.mark.parametrize(
    ("layout", "channels", "window", "stride", "pad", "more"),
    [
        ("NCHW", (5, 19), 3, 1, 1, ""), ("NHWC", (16, 32), 3, 1, 1, ""), ("NHWC", (3, 24), 7, 2, 3, ""),
        ("NCHW", (3, 24), 7, 2, 3, ', out_layout="NHWC"'), ("NCHW", (8, 16), 2, 1, 0, ', out_layout="NHWC"'),
        ("NCHW", (8, 17), 1, 2, 0, ""), ("NHWC", (1, 16), 5, 1, 2, ""),
    ],
)  # fmt: skip
def test_convolutions_match_pytorch(
    layout: str, channels: tuple[int, int], window: int, stride: int, pad: int, more: str
) -> None:
    """In both layouts and between them, with odd channels and windows; scheduled as convolutions, not left plain."""
    torch = pytest.importorskip("torch")
    text, shapes, kernel = conv_module(layout, channels, window, stride, pad, more)
    (found,) = (f for f in chosen(lowered(text, accurate=True), PAIRED).values() if "conv" in f.name)
    assert found.rule == "conv"
    assert ("sums of 2 products" in "".join(found.choices)) == (channels[0] > 1)
    x, w = draw(window, *shapes)
    x[0, 0, 0, 0] = 0x7F80  # an infinity, in windows of the first rows only
    got = run(mlcc.parse(text), NATIVE, x, w)
    data, weights = (
        torch.from_numpy(from_bfloat16(a).astype("float64")).permute(*(order.index(x) for x in letters))
        for a, order, letters in ((x, layout, "NCHW"), (w, kernel, "OIHW"))
    )
    expected, size = (
        torch.nn.functional.conv2d(a, b, stride=stride, padding=pad).numpy()
        for a, b in ((data, weights), (data.abs(), weights.abs()))
    )
    if layout == "NHWC" or more:
        expected, size = (a.transpose(0, 2, 3, 1) for a in (expected, size))
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.isfinite(got), finite)
    terms = channels[0] * window * window
    assert (np.abs(got[finite] - expected[finite]) <= (terms + 1) * 2.0**-24 * size[finite]).all()


def test_a_network_of_bfloat16_matches_pytorch() -> None:
    """Rounded where PyTorch rounds, between operators: within two units in the last place of the largest values."""
    torch = pytest.importorskip("torch")
    x, w, v = draw(11, (33, 65), (65, 48), (48, 31))
    params = ", ".join(f'{n}: R.Tensor({a.shape}, "bfloat16")' for n, a in (("x", x), ("w", w), ("v", v)))
    text = graph(params, "y = R.nn.relu(R.matmul(x, w))", "z = R.matmul(y, v)", result="z")
    found = from_bfloat16(run(mlcc.parse(text), NATIVE, x, w, v))
    a, b, c = (torch.from_numpy(from_bfloat16(t)).bfloat16() for t in (x, w, v))
    expected = (torch.relu(a @ b) @ c).float().numpy()
    np.testing.assert_allclose(found, expected, rtol=2.0**-7, atol=2.0**-7 * np.abs(expected).max())

"""Operators of the nn, image, vision and quantize families: compiled, over generated shapes, and refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_function
from mlcc.ir import tir
from tests.ops import numbers, numbers_nn
from tests.ops.cases import Case, Mine, S, T
from tests.ops.test_lowering import check

SMALL = st.sampled_from([1, 2, 3, 5])
COMPILED = [c for c in numbers_nn.CASES if "cubic" not in str(c)][::5]


@pytest.mark.parametrize("case", COMPILED, ids=str)
def test_compiled_calls_match_the_interpreter(case: Case) -> None:
    side = Mine()
    module = side.module(case)
    inputs = numbers.arrays(case, side.params)
    wanted = run_function(module, "main", inputs)
    got = mlcc.load(mlcc.build(module))["main"](*inputs)
    exact = not np.issubdtype(wanted.dtype, np.floating)
    tolerance = 0 if exact else 4e-3 if wanted.dtype == np.float16 else 3e-5
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("case", "sizes"),
    [
        (Case("nn.conv2d_transpose", (T((1, 2, "n", 3)), T((2, 3, 3, 2))), {"strides": 2}), (0, 1, 5)),
        (Case("nn.pad", (T((2, "n")), (0, 1, 3, 2)), {"pad_mode": "reflect"}), (0, 1, 2, 7)),
        (Case("nn.pad", (T((2, "n")), (0, 1, 3, 2)), {"pad_mode": "circular"}), (0, 1, 2, 7)),
        (Case("nn.attention", (T((1, "n", 2, 3)), T((1, "n", 2, 3)), T((1, "n", 2, 4))), {"causal_mask": "TopLeft"}),
         (1, 2, 7)),
        (Case("image.resize2d", (T((1, 2, "n", 3)), (S("n"), 5))), (1, 3, 7)),
        (Case("nn.nll_loss", (T(("n", 3)), T(("n",), "int64"))), (1, 3, 7)),
        (Case("nn.pixel_shuffle", (T((4, "n", 3)), 2)), (0, 1, 3)),
        (Case("dequantize", (T(("n", 3), "int8"), T((3,)), T((3,), "int8"))), (0, 1, 5)),
    ],
    ids=str,
)  # fmt: skip
def test_symbolic_calls_match_the_interpreter(case: Case, sizes: tuple[int, ...]) -> None:
    side = Mine()
    module = side.module(case)
    exe = mlcc.load(mlcc.build(module))
    rng = np.random.default_rng(1)
    for size in sizes:
        inputs = []
        for param in side.params:
            info = param.struct_info
            shape = [size if (n := tir.const_int(d)) is None else n for d in info.dims]  # type: ignore[union-attr]
            dtype = str(info.dtype)  # type: ignore[union-attr]
            inputs.append((rng.integers(0, 3, shape) if "int" in dtype else rng.normal(size=shape)).astype(dtype))
        np.testing.assert_allclose(exe["main"](*inputs), run_function(module, "main", inputs), rtol=3e-5, atol=3e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.data())
def test_transposed_convolutions_match_numpy(ndim: int, data: st.DataObject) -> None:
    groups, inputs, outputs = (data.draw(st.sampled_from([1, 2])) for _ in range(3))
    strides = data.draw(st.lists(st.integers(1, 3), min_size=ndim, max_size=ndim))
    kernel = data.draw(st.lists(st.integers(1, 3), min_size=ndim, max_size=ndim))
    space = data.draw(st.lists(st.integers(2, 4), min_size=ndim, max_size=ndim))
    options = {
        "strides": strides, "groups": groups, "dilation": data.draw(st.integers(1, 2)),
        "output_padding": [data.draw(st.integers(0, s - 1)) for s in strides],
        "padding": [data.draw(st.integers(0, min(k - 1, 1))) for k in kernel] * 2,
    }  # fmt: skip
    shapes = (1, groups * inputs, *space), (groups * inputs, outputs, *kernel)
    check(Case(f"nn.conv{ndim}d_transpose", tuple(map(T, shapes)), options))


@settings(max_examples=25, deadline=None)
@given(SMALL, SMALL, st.lists(st.integers(0, 6), min_size=4, max_size=4), st.sampled_from(["float32", "int32"]),
       st.sampled_from(["reflect", "replicate", "circular", "constant"]))  # fmt: skip
def test_pads_match_numpy(rows: int, columns: int, widths: list[int], dtype: str, mode: str) -> None:
    check(Case("nn.pad", (T((rows, columns), dtype), widths), {"pad_mode": mode}))


@settings(max_examples=25, deadline=None)
@given(SMALL, SMALL, st.sampled_from([(1, 1), (2, 1), (4, 2), (3, 3)]), SMALL, st.data())
def test_attention_matches_numpy(
    queries: int, keys: int, heads: tuple[int, int], width: int, data: st.DataObject
) -> None:
    shapes = (1, queries, heads[0], width), (1, keys, heads[1], width), (1, keys, heads[1], 2)
    mask = data.draw(st.sampled_from([None, "TopLeft", "BottomRight"]))
    options = {"causal_mask": mask, "window_size": data.draw(st.none() | st.integers(1, 4)) if mask else None}
    check(Case("nn.attention", tuple(map(T, shapes)), options))


@settings(max_examples=25, deadline=None)
@given(
    SMALL, SMALL, SMALL, SMALL, st.sampled_from(["nearest_neighbor", "linear"]),
    st.sampled_from(["half_pixel", "align_corners", "asymmetric"]), st.sampled_from(["NCHW", "NHWC", "CNWH"]),
)  # fmt: skip
def test_resize_matches_numpy(h: int, w: int, th: int, tw: int, method: str, mode: str, layout: str) -> None:
    extents = {"N": 1, "C": 2, "H": h, "W": w}
    options = {"method": method, "coordinate_transformation_mode": mode, "layout": layout}
    check(Case("image.resize2d", (T(tuple(extents[c] for c in layout)), (th, tw)), options))


def test_masked_scores_do_not_underflow() -> None:
    """Scores far below those that are masked."""
    module = Mine().module(Case("nn.attention", (T((1, 2, 1, 1)),) * 3, {"causal_mask": "TopLeft", "scale": 1.0}))
    q, k, v = (np.array([[[[a]], [[b]]]], "float32") for a, b in ((-300, -300), (1, 0), (2, 4)))
    got = mlcc.load(mlcc.build(module))["main"](q, k, v)
    np.testing.assert_allclose(got, run_function(module, "main", [q, k, v]))
    assert np.isfinite(got).all()


@pytest.mark.parametrize(
    ("case", "code", "says"),
    [
        (Case("nn.pad", (T((2,)), (1, 1)), {"pad_mode": "edge"}), "E0442", 'pad_mode="edge"'),
        (Case("nn.pad", (T((0,)), (1, 1)), {"pad_mode": "reflect"}), "E0445", "no elements to pad with"),
        (Case("nn.attention", (T((1, 2, 3, 4)),) * 3, {"causal_mask": "Left"}), "E0442", 'causal_mask="Left"'),
        (Case("nn.attention", (T((1, 2, 3, 4)), T((1, 2, 2, 4)), T((1, 2, 2, 4)))), "E0445", "3 heads of queries"),
        (Case("nn.conv2d_transpose", (T((1, 2, 3, 3)), T((2, 1, 3, 3))), {"output_padding": 1}), "E0442",
         "must be less than the strides"),
        (Case("image.resize2d", (T((1, 2, 3, 3)), (2, 2)), {"method": "area"}), "E0442", 'method="area"'),
        (Case("image.resize2d", (T((1, 2, 0, 3)), (2, 2))), "E0445", "has no pixels"),
        (Case("image.grid_sample", (T((1, 2, 3, 3)), T((1, 3, 2, 2)))), "E0445", "must have 2 coordinates"),
        (Case("vision.roi_align", (T((1, 2, 3, 3)), T((1, 4)), 2, 1.0)), "E0445", "a region is 5 numbers"),
        (Case("quantize", (T((2, 3)), T((2,)), T((), "int8"))), "E0445", "does not fit dimension 1"),
        (Case("nn.pixel_shuffle", (T((6, 2, 2)), 2)), "E0445", "6 channels cannot be divided by 2 x 2"),
        (Case("nn.nll_loss", (T((2, 3)), T((3,), "int64"))), "E0445", "need targets (2,)"),
        (Case("grad.max_pool2d_backward", (T((1, 1, 9, 9)), T((1, 1, 4, 4)), 2, 2)), "E0445", "the result of the pool"),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_calls_are_refused(case: Case, code: str, says: str) -> None:
    with pytest.raises(CompileError) as caught:
        Mine().call(case)
    assert caught.value.diagnostics[0].code == code and says in str(caught.value)

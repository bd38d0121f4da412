"""Layouts that split axes, such as NCHW4c: struct info, and the numbers of the plain layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function
from mlcc.ops.split_layouts import parse_layout

BLOCKED = """\
@R.function
def main(x: R.Tensor((2, 3, 9, 9, 4), "float32"), w: R.Tensor((2, 3, 3, 12, 4), "float32")):
    with R.dataflow():
        a = R.nn.conv2d(x, w, data_layout="NCHW4c", kernel_layout="OHWI4o", out_layout="N2cHWC", padding=[1, 1])
        b = R.nn.max_pool2d(a, pool_size=[2, 2], layout="N2cHWC", out_layout="N2cHWC")
        c = R.nn.adaptive_avg_pool2d(b, output_size=[2, 2], layout="N2cHWC")
        d = R.nn.avg_pool2d(x, pool_size=[3, 3], strides=[2, 2], layout="NCHW4c")
        R.output(a, b, c, d)
    return (a, b, c, d)
"""
PLAIN = """\
@R.function
def main(x: R.Tensor((2, 12, 9, 9), "float32"), w: R.Tensor((8, 12, 3, 3), "float32")):
    with R.dataflow():
        a = R.nn.conv2d(x, w, padding=[1, 1])
        b = R.nn.max_pool2d(a, pool_size=[2, 2])
        c = R.nn.adaptive_avg_pool2d(b, output_size=[2, 2])
        d = R.nn.avg_pool2d(x, pool_size=[3, 3], strides=[2, 2])
        R.output(a, b, c, d)
    return (a, b, c, d)
"""


def joined(x: np.ndarray) -> np.ndarray:
    """N C H W c as N C H W."""
    n, c, h, w, inner = x.shape
    return x.transpose(0, 1, 4, 2, 3).reshape(n, c * inner, h, w)


def from_n2chwc(x: np.ndarray) -> np.ndarray:
    n, inner, h, w, c = x.shape
    return x.transpose(0, 4, 1, 2, 3).reshape(n, c * inner, h, w)


def inputs() -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((2, 3, 9, 9, 4)).astype("float32")
    w = rng.standard_normal((2, 3, 3, 12, 4)).astype("float32")
    return [x, w], [joined(x), w.transpose(0, 4, 3, 1, 2).reshape(8, 12, 3, 3)]


@pytest.mark.parametrize("level", [None, 0, 1, 2])
def test_numbers_match_the_plain_layout(level: int | None) -> None:
    """Interpreted, and compiled at every level."""
    given, plain = inputs()
    want = run_function(mlcc.parse(PLAIN), "main", plain)
    module = mlcc.parse(BLOCKED)
    if level is None:
        made: Any = run_function(module, "main", given)
    else:
        made = mlcc.load(mlcc.build(module, "llvm", opt_level=level))["main"](*given)
    for have, expected, turn in zip(made, want, (from_n2chwc,) * 3 + (joined,), strict=True):
        np.testing.assert_allclose(turn(have), expected, rtol=1e-4, atol=1e-4)


def test_blocked_layouts_read_back() -> None:
    module = mlcc.parse(BLOCKED)
    shapes = [i.dims for i in module["main"].ret_struct_info.fields]
    assert [tuple(d.value for d in dims) for dims in shapes] == [
        (2, 2, 9, 9, 4), (2, 2, 8, 8, 4), (2, 2, 2, 2, 4), (2, 3, 4, 4, 4),
    ]  # fmt: skip
    for dialect in ("mlcc", "tvm"):
        assert mlcc.structural_equal(mlcc.parse(mlcc.script(module, dialect=dialect)), module)


def test_symbolic_channels_are_inferred() -> None:
    text = """\
@R.function
def main(x: R.Tensor((1, "c", 8, 8, 4), "float32"), w: R.Tensor(("k", "4 * c", 3, 3, 2), "float32")):
    return R.nn.conv2d(x, w, data_layout="NCHW4c", kernel_layout="OIHW2o", out_layout="NCHW2c")
"""
    assert 'R.Tensor((1, k, 6, 6, 2), dtype="float32")' in str(mlcc.parse(text))


def test_layouts_are_split_into_axes() -> None:
    assert parse_layout("NCHW4c") == (("N", None), ("C", None), ("H", None), ("W", None), ("C", 4))
    for wrong in ("NCHW4", "NCHWc", "NCHW0c", "NNHW", "NCHW4c2c", "NHW4c", "NCH W", "4NCHW", "nchw"):
        assert parse_layout(wrong) is None, wrong


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('data_layout="NCHW4c"', 'data_layout="NCHW4"'), "must be a layout such as NCHW4c"),
        (('data_layout="NCHW4c"', 'data_layout="NCHW8c"'), "the inner part of C is 8"),
        (('data_layout="NCHW4c"', 'data_layout="NCHW"'), "the layout has 4 dimensions, argument 1 has 5"),
        (('data_layout="NCHW4c"', 'data_layout="NC2hHW4c"'), "has 6 dimensions"),
        (('data_layout="NCHW4c"', 'data_layout="NCDW4c"'), "must be a permutation of NCHW"),
        (('out_layout="N2cHWC", padding', 'out_layout="N3cHWC", padding'), "8 of C is not a multiple of 3"),
    ],
)  # fmt: skip
def test_wrong_layouts_are_refused(change: tuple[str, str], message: str) -> None:
    assert change[0] in BLOCKED
    with pytest.raises(mlcc.CompileError) as found:
        mlcc.parse(BLOCKED.replace(*change, 1))
    assert message in str(found.value)

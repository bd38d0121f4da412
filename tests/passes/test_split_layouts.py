"""`convert-layout` with layouts that split axes: the numbers stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function
from mlcc.verify import check

TEXT = """\
@R.function
def main(
    x: R.Tensor((2, 8, 9, 9), "float32"), w: R.Tensor((12, 8, 3, 3), "float32"), s: R.Tensor((2, 1, 7, 7), "float32"),
    g: R.Tensor((12,), "float32"), h: R.Tensor((7, 7), "float32"), m: R.Tensor((2, 6, 7, 7), "float32"),
    m2: R.Tensor((2, 12, 7, 7), "float32"),
):
    with R.dataflow():
        c = R.nn.relu(R.nn.conv2d(x, w))
        a = R.multiply(c, s)
        b = R.nn.group_norm(c, g, g, num_groups=3, channel_axis=1, axes=[2, 3])
        d = R.nn.layer_norm(c, h, h, axes=[2, 3])
        e = R.concat([c, m], axis=1)
        f = R.match_cast(c, R.Tensor((2, 12, 7, 7), "float32"))
        i = R.nn.max_pool2d(R.add(f, c), pool_size=[3, 3], strides=[2, 2])
        j = R.sum(R.sum(c, axis=[1], keepdims=True), axis=[0])
        k = R.std(c)
        n = R.ewise_fma(c, m2, c)
        o = R.nn.batch_norm(c, g, g, g, R.abs(g), axis=1)[0]
        R.output(a, b, d, e, i, j, k, n, o)
    return (a, b, d, e, i, j, k, n, o)
"""


@pytest.mark.parametrize("layouts", [["NCHW4c", "OIHW4o"], ["N2cHWC", "O2oHWI"], ["NHWC4c", "OHWI2i4o", "NHWC2c"]])
def test_results_do_not_change(layouts: list[str]) -> None:
    module = mlcc.parse(TEXT)
    rng = np.random.default_rng(1)
    dims = [tuple(d.value for d in p.struct_info.dims) for p in module["main"].params]
    given = [rng.standard_normal(shape).astype("float32") for shape in dims]
    names = ", ".join(f'"{name}"' for name in layouts)
    made = mlcc.run_passes(module, f'convert-layout{{layouts={{"nn.conv2d": [{names}]}}}}')
    check(made)
    assert layouts[0] in str(made) and "layout_transform" in str(made)
    want = run_function(module, "main", given)
    compiled: Any = [mlcc.load(mlcc.build(made, "llvm", level))["main"](*given) for level in (1, 3)]
    for have in (run_function(made, "main", given), *compiled):
        for a, b in zip(have, want, strict=True):
            np.testing.assert_allclose(a, b, 2e-3, 2e-3)


def test_extents_that_cannot_be_split() -> None:
    """A convolution of 3 channels stays as it is, and so does one whose channels are not known."""
    for channels in ("3", '"c"'):
        text = f"""\
@R.function
def main(x: R.Tensor((1, {channels}, 8, 8), "float32"), w: R.Tensor((8, {channels}, 3, 3), "float32")):
    with R.dataflow():
        y = R.nn.conv2d(x, w)
        R.output(y)
    return y
"""
        module = mlcc.parse(text)
        made = mlcc.run_passes(module, 'convert-layout{layouts={"nn.conv2d": ["NCHW4c", "OIHW4o"]}}')
        assert mlcc.structural_equal(made, module)


@pytest.mark.parametrize("wrong", ["NCHW4", "NCHW4d", "NCHW4c2c", "NCHW0c", "NCW4c"])
def test_wrong_layouts_are_refused(wrong: str) -> None:
    with pytest.raises(mlcc.CompileError) as found:
        mlcc.run_passes(mlcc.parse(TEXT), f'convert-layout{{layouts={{"nn.conv2d": ["{wrong}", "OIHW"]}}}}')
    assert "is not a valid `data_layout`" in str(found.value) and "as in NCHW4c" in str(found.value)

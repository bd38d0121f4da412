"""The rule `conv`: convolutions in both layouts, at sizes that tiles do not divide."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import find
from tests.auto_schedule.kernels import assert_same_results, chosen, graph, lowered

LAYOUTS = {
    1: {"NCW": "OIW", "NWC": "WIO"},
    2: {"NCHW": "OIHW", "NHWC": "OHWI"},
    3: {"NCDHW": "OIDHW", "NDHWC": "DHWIO"},
}


def convolution(
    layout: str, sizes: list[int | str], channels: tuple[int, int], window: list[int], stride: int = 1,
    dilation: int = 1, padding: int = 0, batch: int | str = 1, dtype: str = "float32", tail: bool = True,
) -> IRModule:  # fmt: skip
    """A convolution with a bias and relu, lowered; `sizes` of the data, `window` of the weights."""
    axes = len(sizes)
    kernel = LAYOUTS[axes][layout]
    spatial = layout.replace("N", "").replace("C", "")
    extents = {"N": batch, "C": channels[0], **dict(zip(spatial, sizes, strict=True))}
    weights = {"O": channels[1], "I": channels[0], **dict(zip(spatial, window, strict=True))}
    bias = ", ".join(str(channels[1]) if a == "C" else "1" for a in layout)
    shapes = [
        ", ".join(f'"{n}"' if isinstance(n, str) else str(n) for n in (table[a] for a in order))
        for table, order in ((extents, layout), (weights, kernel))
    ]
    params = f'x: R.Tensor(({shapes[0]}), "{dtype}"), w: R.Tensor(({shapes[1]}), "{dtype}")'
    line = (
        f"y = R.nn.conv{axes}d(x, w, strides={[stride] * axes}, padding={[padding] * axes}, "
        f'dilation={[dilation] * axes}, data_layout="{layout}", kernel_layout="{kernel}")'
    )
    if not tail:
        return lowered(graph(params, line, result="y"))
    params += f', b: R.Tensor(({bias}), "{dtype}")'
    return lowered(graph(params, line, "z = R.add(y, b)", "u = R.nn.relu(z)", result="u"))


def rule(mod: IRModule) -> str | None:
    (found,) = chosen(mod).values()
    return found.rule


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("sizes", "channels", "window", "more"),
    [
        ([14, 14], (8, 32), [3, 3], {"padding": 1}),
        ([9, 23], (5, 19), [3, 2], {"padding": 1, "batch": 2}),
        ([16, 16], (6, 24), [3, 3], {"stride": 2, "padding": 1}),
        ([15, 17], (3, 20), [5, 4], {"stride": 3, "dilation": 2}),
        ([12, 12], (16, 33), [1, 1], {}),
        ([12, 12], (16, 33), [1, 1], {"stride": 2, "tail": False}),
    ],
)
def test_layouts_strides_and_padding_keep_results(
    layout: str, sizes: list, channels: tuple, window: list, more: dict
) -> None:
    mod = convolution(layout, sizes, channels, window, **more)
    assert rule(mod) == "conv"
    printed = mlcc.script(assert_same_results(mod))
    assert "_local" in printed
    assert "T.vectorized" in printed


@pytest.mark.parametrize("size", [20, 21, 22, 23])
def test_columns_that_are_far_apart_are_copied_in_vectors(size: int) -> None:
    mod = convolution("NCHW", [7, size], (40, 17), [3, 3], stride=3, padding=1)
    (found,) = chosen(mod).values()
    assert any("`pad_temp" in choice and "vectors" in choice for choice in found.choices)
    assert_same_results(mod)


@pytest.mark.parametrize(("channels", "size", "unrolled"), [(13, 31, 2), (1, 31, 2), (2, 73, 2), (3, 603, 0)])
def test_where_phases_of_copied_rows_end_is_known_at_compile_time(channels: int, size: int, unrolled: int) -> None:
    """Even and odd columns of a padded row end at different vectors, whose conditions are constants if written out."""
    mod = convolution("NCHW", [7, size], (channels, 13), [5, 5], stride=2, tail=False)
    printed = mlcc.script(assert_same_results(mod, target="llvm{cpu=x86-64-v4}"))
    lines = printed[: printed.index('T.block("x_pad")')].splitlines()[-5:]
    assert sum("in T.unroll(" in line for line in lines) == unrolled


TWO = "llvm{cpu=x86-64-v4 num-cores=2}"


@pytest.mark.parametrize(
    ("layout", "sizes", "channels", "window", "more"),
    [
        ("NCHW", [67, 67], (13, 11), [5, 5], {"stride": 3, "padding": 2}),  # 23 rows: the last strip has fewer
        ("NCHW", [31, 31], (13, 13), [5, 5], {"stride": 2}),
        ("NCHW", [53, 53], (67, 17), [3, 3], {"stride": 3, "padding": 1}),
        ("NCHW", [29, 31], (13, 16), [3, 3], {"stride": 2, "batch": 3, "padding": 1}),
        ("NHWC", [53, 41], (8, 40), [3, 3], {"padding": 1}),
        ("NHWC", [37, 41], (8, 40), [3, 5], {"stride": 2, "padding": 2, "batch": 2, "dilation": 2}),
        ("NHWC", [29, 29], (8, 40), [3, 3], {"padding": 1, "dtype": "float64"}),
    ],
)
def test_each_task_copies_the_data_of_its_rows(
    layout: str, sizes: list, channels: tuple, window: list, more: dict
) -> None:
    """The copy is the task's own: allocated and written inside the parallel loop, and of a part of the rows."""
    mod = convolution(layout, sizes, channels, window, **more)
    (found,) = chosen(mod, TWO).values()
    assert any("by each task" in choice for choice in found.choices)
    made = assert_same_results(mod, target=TWO)
    steps = (
        "init-empty-reductions,simplify-arg-updates,realize-blocks,simplify-divisions,serialize-threads,reuse-outputs"
    )
    lowered_code = mlcc.run_passes(made, f"{steps},compact-buffers", target=TWO)
    (func,) = (f for f in lowered_code.functions.values() if isinstance(f, tir.PrimFunc))
    parallel = [loop for loop in find(func.body, tir.For) if loop.kind is tir.ForKind.PARALLEL]
    copied = [a.buffer for loop in parallel for a in find(loop.body, tir.AllocBuffer) if "pad" in a.buffer.name]
    whole = channels[0] * np.prod(sizes) * more.get("batch", 1)
    assert [b for b in copied if b.scope == "global" and np.prod([tir.const_int(n) for n in b.shape]) < whole]


@pytest.mark.parametrize("target", ["llvm{cpu=x86-64-v4 num-cores=1}", "llvm{cpu=x86-64-v4 num-cores=2 l2=4096}"])
def test_data_are_copied_at_once_for_one_core_and_for_weights_that_exceed_the_cache(target: str) -> None:
    (found,) = chosen(convolution("NCHW", [67, 67], (13, 11), [5, 5], 3, padding=2), target).values()
    assert not any("by each task" in choice for choice in found.choices)


@pytest.mark.parametrize("size", [21, 56])
def test_windows_of_one_column_read_the_data_in_place(size: int) -> None:
    mod = convolution("NCHW", [5, size], (8, 12), [1, 1])
    printed = mlcc.script(assert_same_results(mod))
    assert "x_pad" not in printed and "_local" in printed


@pytest.mark.parametrize(("l2", "outer"), [(1 << 20, "ff"), (1 << 13, "yy")])
def test_what_the_second_cache_does_not_hold_is_gone_through_once(l2: int, outer: str) -> None:
    """20 KiB of data: they stay where they are, or go by once, and the 2 KiB of weights for each row of them."""
    target = f"llvm{{cpu=native vector-width=256 num-cores=1 l2={l2}}}"
    mod = convolution("NCHW", [10, 32], (16, 32), [1, 1], tail=False)
    text = mlcc.script(assert_same_results(mod, target=target))
    first = next(line for line in text.splitlines() if "for " in line and ("ff_0" in line or "yy" in line))
    assert ("yy" in first) == (outer == "yy")


@pytest.mark.parametrize("layout", ["NCW", "NWC", "NCDHW", "NDHWC"])
def test_one_and_three_dimensions_keep_results(layout: str) -> None:
    axes = len(layout) - 2
    mod = convolution(layout, [6, 5, 18][-axes:], (4, 17), [2, 3, 3][-axes:], padding=1)
    assert rule(mod) == "conv"
    assert_same_results(mod)


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_symbolic_batches_keep_results(batch: int) -> None:
    mod = convolution("NHWC", [8, 8], (4, 32), [3, 3], padding=1, batch="n")
    assert rule(mod) == "conv"
    assert_same_results(mod, {"n": batch})


@pytest.mark.parametrize("size", [3, 8, 19])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_symbolic_columns_keep_results(layout: str, size: int) -> None:
    mod = convolution(layout, [6, "n"], (4, 16), [3, 3], padding=1, tail=False)
    assert_same_results(mod, {"n": size})


@settings(max_examples=8, deadline=None)
@example("NCHW", [1, 1], (1, 1), [3, 3], 2, 1, "int32")
@given(
    st.sampled_from(["NCHW", "NHWC"]),
    st.lists(st.sampled_from([1, 2, 7, 13, 16]), min_size=2, max_size=2),
    st.tuples(st.sampled_from([1, 3, 16]), st.sampled_from([1, 5, 16, 35])),
    st.lists(st.sampled_from([1, 2, 3]), min_size=2, max_size=2),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from(["float32", "float64", "int32"]),
)
def test_convolutions_of_any_shape_keep_results(
    layout: str, sizes: list, channels: tuple, window: list, stride: int, dilation: int, dtype: str
) -> None:
    assert_same_results(convolution(layout, sizes, channels, window, stride, dilation, 2, dtype=dtype))


@pytest.mark.parametrize("pad", [(0, 1), (1, 0), (0, 3), (1, 1)])
@pytest.mark.parametrize("size", [8, 13])
@pytest.mark.parametrize("first", ["R.nn.conv2d(x, w)", 'R.matmul(R.reshape(x, (8, "n", "n")), v)'])
def test_results_padded_afterwards_do_not_change(pad: tuple[int, int], size: int, first: str) -> None:
    before, after = pad
    rank = 4 if "conv2d" in first else 3
    width = [0] * (2 * (rank - 1)) + [before, after]
    text = f"""@R.function
def main(x: R.Tensor((1, 8, {size}, {size}), "float32"), w: R.Tensor((16, 8, 1, 1), "float32"),
         v: R.Tensor(({size}, {size}), "float32")):
    with R.dataflow():
        y = {first.replace('"n"', str(size))}
        z = R.nn.pad(y, pad_width={width})
        R.output(z)
    return z
"""
    random = np.random.default_rng(0)
    shapes = (1, 8, size, size), (16, 8, 1, 1), (size, size)
    given = [random.standard_normal(shape).astype("float32") for shape in shapes]
    plain, tuned = (
        mlcc.load(mlcc.build(mlcc.parse(text), target="llvm{cpu=native}", opt_level=level))["main"](*given)
        for level in (0, 2)
    )
    np.testing.assert_allclose(tuned, plain, rtol=1e-4, atol=1e-5)


PAD = "R.nn.pad(y, pad_width=[0, 0, 0, 0, 0, 0, 0, 1])"


def test_padding_behind_a_convolution_is_a_kernel_of_its_own() -> None:
    """At the same indices, but of a larger result: that is not element-wise."""
    text = """@R.function
def main(x: R.Tensor((1, 8, 8, "w"), "float32"), k: R.Tensor((16, 8, 1, 1), "float32")):
    with R.dataflow():
        y = R.nn.conv2d(x, k)
        z = R.nn.pad(y, pad_width=[0, 0, 0, 0, 0, 0, 0, 1])
        R.output(z)
    return z
"""
    passes = "normalize,lower-to-tir,annotate-op-pattern,fuse,fuse-tir"
    assert "fused_conv2d_pad" not in mlcc.run_passes(mlcc.parse(text), passes).functions
    assert "fused_conv2d_relu" in mlcc.run_passes(mlcc.parse(text.replace(PAD, "R.nn.relu(y)")), passes).functions

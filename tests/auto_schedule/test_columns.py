"""The rule `columns`: windows, and reductions over other axes than the last."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.ir.module import IRModule
from tests.auto_schedule.kernels import assert_same_results, chosen, graph, lowered, scheduled

POOLS = ("max", "avg")
COLUMNS = {
    "sum": "y = R.sum(x, axis=[1])",
    "max": "y = R.max(x, axis=[1])",
    "mean": "y = R.mean(x, axis=[0, 1])",
    "variance": "y = R.variance(x, axis=[1])",
    "softmax": "y = R.nn.softmax(x, axis=1)",
    "log_softmax": "y = R.nn.log_softmax(x, axis=1)",
}


def tensor(name: str, shape: list[int | str], dtype: str = "float32") -> str:
    dims = ", ".join(f'"{n}"' if isinstance(n, str) else str(n) for n in shape)
    return f'{name}: R.Tensor(({dims},), "{dtype}")'


def grouped(
    layout: str, sizes: list[int | str], groups: int, channels: tuple[int, int], window: int, stride: int, dilation: int
) -> IRModule:
    """A convolution in groups with a bias and relu; `channels` in and out of each group."""
    into, out = channels[0] * groups, channels[1] * groups
    x = [1, into, *sizes] if layout == "NCHW" else [1, *sizes, into]
    w = [out, channels[0], window, window] if layout == "NCHW" else [window, window, channels[0], out]
    b = [out, 1, 1] if layout == "NCHW" else [out]
    kernel = "OIHW" if layout == "NCHW" else "HWIO"
    line = (
        f"y = R.nn.conv2d(x, w, strides=[{stride}, {stride}], padding=[1, 1], dilation=[{dilation}, {dilation}], "
        f'groups={groups}, data_layout="{layout}", kernel_layout="{kernel}")'
    )
    params = ", ".join((tensor("x", x), tensor("w", w), tensor("b", b)))
    return lowered(graph(params, line, "z = R.add(y, b)", "u = R.nn.relu(z)", result="u"))


def pool(kind: str, layout: str, sizes: list[int | str], channels: int, window: int, stride: int, pad: int) -> IRModule:
    x = [2, channels, *sizes] if layout == "NCHW" else [2, *sizes, channels]
    line = (
        f"y = R.nn.{kind}_pool2d(x, pool_size=[{window}, {window}], strides=[{stride}, {stride}], "
        f'padding=[{pad}, {pad}], layout="{layout}")'
    )
    return lowered(graph(tensor("x", x), line, result="y"))


def rules(mod: IRModule) -> set[str | None]:
    return {a.rule for a in chosen(mod).values()}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("sizes", "groups", "channels", "window", "stride", "dilation"),
    [
        ([6, 20], 16, (1, 1), 3, 1, 1),
        ([9, 35], 19, (1, 1), 3, 2, 2),
        ([5, 16], 4, (8, 32), 3, 1, 1),
    ],
)
def test_grouped_convolutions_are_vectorized(
    layout: str, sizes: list, groups: int, channels: tuple, window: int, stride: int, dilation: int
) -> None:
    mod = grouped(layout, sizes, groups, channels, window, stride, dilation)
    assert rules(mod) == {"columns"}
    printed = mlcc.script(assert_same_results(mod))
    assert "_local" in printed and "T.vectorized" in printed


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize(("window", "stride", "pad"), [(3, 2, 1), (2, 2, 0), (3, 1, 1)])
def test_pools_are_scheduled_by_the_rule(kind: str, layout: str, window: int, stride: int, pad: int) -> None:
    mod = pool(kind, layout, [17, 36], 20, window, stride, pad)
    assert rules(mod) == {"columns"}
    assert_same_results(mod)


@pytest.mark.parametrize("name", COLUMNS)
def test_adjacent_results_are_kept_in_locals(name: str) -> None:
    mod = lowered(graph(tensor("x", [5, 9, 4, 50]), COLUMNS[name], result="y"))
    assert "columns" in rules(mod)
    assert "_local" in mlcc.script(assert_same_results(mod))


@settings(max_examples=6, deadline=None)
@example("sum", [0, 3], 17, "float32")
@example("max", [3, 1], 1, "float64")
@given(
    st.sampled_from(sorted(COLUMNS)),
    st.lists(st.sampled_from([1, 2, 7]), min_size=2, max_size=2),
    st.sampled_from([1, 2, 15, 16, 17, 67, 131]),
    st.sampled_from(["float32", "float64"]),
)
def test_columns_of_any_number_keep_results(name: str, outer: list[int], length: int, dtype: str) -> None:
    assert_same_results(lowered(graph(tensor("x", [*outer, length], dtype), COLUMNS[name], result="y")))


@settings(max_examples=6, deadline=None)
@given(
    st.sampled_from(["max", "avg", "depthwise", "grouped"]),
    st.sampled_from(["NCHW", "NHWC"]),
    st.lists(st.sampled_from([3, 7, 13, 16, 33]), min_size=2, max_size=2),
    st.sampled_from([1, 5, 16, 35]),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_windows_of_any_size_keep_results(
    kind: str, layout: str, sizes: list, channels: int, window: int, stride: int
) -> None:
    if kind in POOLS:
        assert_same_results(pool(kind, layout, sizes, channels, window, stride, window // 2))
    else:
        assert_same_results(
            grouped(layout, sizes, channels, (1, 1) if kind == "depthwise" else (2, 3), window, stride, 1)
        )


@pytest.mark.parametrize("size", [6, 7, 13])
@pytest.mark.parametrize(("window", "stride"), [(3, 1), (3, 2), (5, 1), (5, 3)])
def test_padding_above_and_below_takes_no_copies_of_a_tile(size: int, window: int, stride: int) -> None:
    """The loop over the rows of a window divides by itself, whichever rows of it lie outside the data."""
    for mod in (
        grouped("NHWC", [size, 2 * size], 33, (1, 1), window, stride, 1),
        pool("max", "NHWC", [size, 2 * size], 33, window, stride, window // 2),
        pool("avg", "NHWC", [size, 2 * size], 33, window, stride, 1),
    ):
        made = mlcc.script(assert_same_results(mod))
        assert '"mlcc.partition": 1' in made


@pytest.mark.parametrize("stride", [2, 3, 4, 5])
def test_every_second_third_and_fourth_element(stride: int) -> None:
    """Strided vectors are picked from a few loads; the last one ends where the data end."""
    length = 16 * stride * 2 - stride + 1
    for dtype in ("float32", "int8"):
        line = f"y = R.strided_slice(x, axes=[1], begin=[0], end=[{length}], strides=[{stride}])"
        assert_same_results(lowered(graph(tensor("x", [3, length], dtype), line, result="y")))


@pytest.mark.parametrize(("kind", "size"), [("max", 3), ("max", 40), ("softmax", 8), ("depthwise", 3)])
def test_symbolic_columns_keep_results(kind: str, size: int) -> None:
    if kind == "max":
        mod = pool("max", "NCHW", [6, "n"], 3, 3, 1, 1)
    elif kind == "softmax":
        mod = lowered(graph(tensor("x", [2, "n", "n"]), COLUMNS["softmax"], result="y"))
    else:
        mod = grouped("NHWC", ["n", 9], 16, (1, 1), 3, 1, 1)
    assert_same_results(mod, {"n": size})


@pytest.mark.parametrize(("width", "aligned"), [(51, True), (33, True), (64, False)])
def test_rows_of_a_tile_do_not_overlap(width: int, aligned: bool) -> None:
    """Where lanes of a row's last vector are off, the next row begins at a whole vector, and both stay in registers."""
    mod = lowered(graph(tensor("x", [12, 40, width]), "y = R.sum(x, axis=[1])", result="y"))
    assert_same_results(mod)
    made = scheduled(mod, "llvm{triple=x86_64-linux-gnu cpu=x86-64-v4 num-cores=2}")
    assert ("buffer_dim_align" in mlcc.script(made)) is aligned

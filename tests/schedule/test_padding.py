"""pad_einsum and decompose_padding."""

from __future__ import annotations

import pytest

import mlcc
from tests.schedule.tools import CHAIN, MATMUL, assert_same_results, refused, schedule

PAD = """
@T.prim_func
def main(x: T.Buffer((12, 10), "float32"), y: T.Buffer((16, 14), "float32")):
    for i, j in T.grid(16, 14):
        with T.block("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.if_then_else(
                vi >= 2 and vi < 14 and vj >= 1 and vj < 11, x[vi - 2, vj - 1] * T.float32(2), T.float32(3)
            )
"""


@pytest.mark.parametrize("padding", [[5, 7, 9], [1, 3, 1], [1, 1, 5], [8, 8, 8], [64, 64, 64]])
def test_padded_matmul_is_built(padding: list[int]) -> None:
    sch = schedule(MATMUL)
    block = sch.get_block("C")
    sch.pad_einsum(block, padding)
    sizes = [axis.dom.extent.value for axis in sch.get(block).iter_vars]
    assert all(s % p == 0 and 0 <= s - n < p for s, p, n in zip(sizes, padding, (32, 16, 24), strict=True))
    assert_same_results(mlcc.parse(MATMUL), sch.mod)
    mlcc.build(sch.mod)


@pytest.mark.parametrize(
    ("change", "padding", "code", "words"),
    [
        (("", ""), [1, 2], "E0673", r"3 axes \(`vi`, `vj`, `vk`\)"),
        (("", ""), [1, 2, 0], "E0673", "positive"),
        (("", ""), [1, 1 << 40, 1], "E0673", "`vj` of block `C` is of int32, which 1099511627776 does not fit"),
        (("A[vi, vk]", "A[vi, 23 - vk]"), [1, 1, 5], "E0674", "neither an axis nor a constant"),
        (("A[vi, vk] *", "T.exp(A[vi, vk]) *"), [1, 1, 5], None, ""),
        (("A[vi, vk] * B[vk, vj]", "T.exp(A[vi, vk])"), [1, 1, 5], "E0675", "not a product"),
        (("C[vi, vj] + A[vi, vk] * B[vk, vj]", "T.max(C[vi, vj], A[vi, vk] * B[vk, vj])"), [1, 1, 5], "E06", ""),
        (("C[vi, vj] + A[vi, vk] * B[vk, vj]", "T.max(C[vi, vj], A[vi, vk] * B[vk, vj])"), [5, 7, 1], None, ""),
        (("T.grid(32, 16, 24)", "T.grid(32, 16, 20)"), [1, 1, 3], "E0675", "run over all of"),
    ],
)
def test_what_padding_would_show(change: tuple[str, str], padding: list[int], code: str | None, words: str) -> None:
    text = MATMUL.replace(*change) if change[0] else MATMUL
    sch = schedule(text)
    if code is None:
        sch.pad_einsum("C", padding)
        assert_same_results(mlcc.parse(text), sch.mod)
    else:
        with refused(code, words):
            sch.pad_einsum("C", padding)


def test_iterations_that_would_write_the_output_again_are_not_added() -> None:
    """A unit axis of a factor alone, as a layout of weights has it."""
    text = MATMUL.replace('16), "float32"), C', '16, 1), "float32"), C').replace("B[vk, vj]", "B[vk, vj, vu]")
    text = text.replace("i, j, k in T.grid(32, 16, 24)", "i, j, u, k in T.grid(32, 16, 1, 24)")
    text = text.replace(
        'vi, vj, vk = T.axis.remap("SSR", [i, j, k])', 'vi, vj, vu, vk = T.axis.remap("SSSR", [i, j, u, k])'
    )
    sch = schedule(text)
    with refused("E0675", "more iterations of `vu` would write `C` again"):
        sch.pad_einsum("C", [1, 1, 4, 1])
    sch.pad_einsum("C", [1, 5, 1, 5])
    assert_same_results(mlcc.parse(text), sch.mod)


def test_loops_that_do_not_drive_one_axis_each() -> None:
    sch = schedule(MATMUL)
    sch.split(sch.get_loops("C")[0], [None, 4])
    with refused("E0674", "driven by `i_0 \\* 4 \\+ i_1`"):
        sch.pad_einsum("C", [5, 1, 1])
    sch = schedule(MATMUL)
    sch.decompose_reduction("C", sch.get_loops("C")[2])
    with refused("E06"):
        sch.pad_einsum("C_update", [5, 1, 1])


@pytest.mark.parametrize("at", [0, 1, 2])
def test_padding_blocks_are_decomposed(at: int) -> None:
    sch = schedule(PAD)
    sch.split(sch.get_loops("y")[0], [None, 5])
    block = sch.get_block("y")
    filled = sch.decompose_padding(block, sch.get_loops(block)[at])
    assert (sch.get(filled).name, sch.get(block).name) == ("y_pad_const", "y")
    assert_same_results(mlcc.parse(PAD), sch.mod)
    assert "if_then_else" not in sch.mod.script()


def test_blocks_that_are_no_padding() -> None:
    sch = schedule(CHAIN)
    assert sch.can_decompose_padding("B", sch.get_loops("B")[0]) is False
    steps = len(sch.trace)
    with refused("E0676", "it stores"):
        sch.decompose_padding("B", sch.get_loops(sch.get_block("B"))[0])
    with refused("E0661"):
        sch.decompose_padding("B", sch.get_loops(sch.get_block("C"))[0])
    assert len(sch.trace) == steps + 4
    sch = schedule(PAD.replace("vi >= 2 and vi < 14 and vj >= 1 and vj < 11", "vi + vj >= 2 and vi >= 2 and vj >= 1"))
    with refused("E0676", "does not bound each axis"):
        sch.decompose_padding("y", sch.get_loops("y")[0])
    sch = schedule(PAD.replace("T.float32(3)\n", "x[0, 0]\n"))
    with refused("E0676", "which is not a constant"):
        sch.decompose_padding("y", sch.get_loops("y")[0])
    sch = schedule(PAD)
    assert sch.can_decompose_padding("y", sch.get_loops("y")[1]) is True
    assert "pad_const" not in sch.mod.script()


CONV = """
@T.prim_func
def main(x: T.Buffer((9, 13, 3), "float32"), w: T.Buffer((3, 2, 3, 5), "float32"), y: T.Buffer((4, 11, 5), "float32")):
    for i, j, f, r, s, c in T.grid(4, 11, 5, 3, 2, 3):
        with T.block("y"):
            vi, vj, vf, vr, vs, vc = T.axis.remap("SSSRRR", [i, j, f, r, s, c])
            with T.init():
                y[vi, vj, vf] = T.float32(0)
            y[vi, vj, vf] = y[vi, vj, vf] + x[vi * 2 + vr, vj + vs, vc] * w[vr, vs, vc, vf]
"""


@pytest.mark.parametrize("padding", [[1, 4, 1, 1, 1, 1], [3, 16, 8, 1, 1, 4], [1, 1, 16, 1, 1, 1]])
def test_windows_of_a_convolution_are_padded(padding: list[int]) -> None:
    sch = schedule(CONV)
    sch.pad_einsum("y", padding)
    assert_same_results(mlcc.parse(CONV), sch.mod)
    shape = [d.value for d in next(b for b in sch.mod["main"].root.alloc_buffers if b.name == "y_pad").shape]
    assert shape == [-(-n // p) * p for n, p in zip((4, 11, 5), padding, strict=False)]


def test_a_padded_window_would_show() -> None:
    sch = schedule(CONV)
    with refused("E0675", "the element that a padded `vs` reads at `vj \\+ vs` of `x` is not zero"):
        sch.pad_einsum("y", [1, 1, 1, 1, 4, 1])
    with refused("E0674", "neither an axis nor a constant"):
        schedule(CONV.replace("vi * 2 + vr", "8 - vi * 2 - vr")).pad_einsum("y", [3, 1, 1, 1, 1, 1])


@pytest.mark.parametrize("padding", [[1, 1, 1, 1, 4, 1], [3, 4, 16, 4, 4, 4]])
def test_windows_of_integers_are_padded_along_the_reduction(padding: list[int]) -> None:
    """What a padded step reads is no zero, but it is multiplied by one."""
    sch = schedule(text := CONV.replace("float32", "int32"))
    sch.pad_einsum("y", padding)
    assert_same_results(mlcc.parse(text), sch.mod)


@pytest.mark.parametrize("index", ["8 - vi * 2 - vr", "vi // 2 * 3 + vr"])
def test_axes_that_are_not_padded_index_as_they_like(index: str) -> None:
    text = CONV.replace("vi * 2 + vr", index)
    sch = schedule(text)
    sch.pad_einsum("y", [1, 4, 1, 1, 1, 1])
    assert_same_results(mlcc.parse(text), sch.mod)


WINDOW = """
@T.prim_func
def main(x: T.Buffer((14,), "float32"), w: T.Buffer((8,), "float32"), y: T.Buffer(({rows}, 6), "float32")):
    for i, j, k in T.grid(2, 6, 4):
        with T.block("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            vk = T.axis.reduce((4, 8), k + 4)
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + x[vi + vj + vk] * w[vk]
"""


def test_windows_of_axes_that_start_elsewhere() -> None:
    sch = schedule(text := WINDOW.format(rows=2))
    sch.pad_einsum("y", [1, 16, 1])
    assert_same_results(mlcc.parse(text), sch.mod)


def test_rows_of_another_block_are_not_copied_back() -> None:
    with refused("E0675", "`vi` does not run over all of a dimension of `y` \\(3\\)"):
        schedule(WINDOW.format(rows=3)).pad_einsum("y", [1, 16, 1])

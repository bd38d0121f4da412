"""Tensor intrinsics and tensorize."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.passes.schedule.tensor_intrin import register
from tests.schedule.tools import MATMUL, assert_same_results, refused, schedule

HEAD = """
@T.prim_func
def mma_{role}(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (8, 8), "float32", offset_factor=8{scope})
    B = T.match_buffer(b, (8, 8), "float32", offset_factor=8)
    C = T.match_buffer(c, (8, 8), "float32", offset_factor=8)
    with T.block("root"):
        T.reads(C[0:8, 0:8], A[0:8, 0:8], B[0:8, 0:8])
        T.writes(C[0:8, 0:8])
"""

DESC = (
    HEAD.format(role="desc", scope="")
    + """
        for i, j, k in T.grid(8, 8, 8):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
)

# rows by vectors, with strides of its own
IMPL = """
@T.prim_func
def mma_impl(a: T.handle, b: T.handle, c: T.handle):
    sa = T.int32()
    sb = T.int32()
    sc = T.int32()
    A = T.match_buffer(a, (8, 8), "float32", offset_factor=8, strides=[sa, 1])
    B = T.match_buffer(b, (8, 8), "float32", offset_factor=8, strides=[sb, 1])
    C = T.match_buffer(c, (8, 8), "float32", offset_factor=8, strides=[sc, 1])
    with T.block("root"):
        T.reads(C[0:8, 0:8], A[0:8, 0:8], B[0:8, 0:8])
        T.writes(C[0:8, 0:8])
        T.block_attr({"by": "mma"})
        for k, i in T.grid(8, 8):
            for j in T.vectorized(8):
                with T.block("row"):
                    vk, vi, vj = T.axis.remap("RSS", [k, i, j])
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def tiled(text: str = MATMUL, desc: str = DESC, impl: str = IMPL, size: int = 8) -> mlcc.Schedule:
    """The matmul in tiles, its tile a block, its init apart; the intrinsic is known as `mma`."""
    sch = schedule(text)
    register(sch, "mma", desc, impl)
    outer, inner = zip(*(sch.split(loop, [None, size]) for loop in sch.get_loops("C")), strict=True)
    sch.reorder(*outer, *inner)
    sch.decompose_reduction(sch.blockize(inner[0]), outer[2])
    return sch


def compiled(sch: mlcc.Schedule) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random((32, 24), np.float32), rng.random((24, 16), np.float32)
    c = np.zeros((32, 16), np.float32)
    mlcc.load(mlcc.build(sch.mod))["main"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_the_block_that_comes_out() -> None:
    sch = tiled()
    block = sch.get_block("C_o_update")
    sch.tensorize(block, "mma")
    made = sch.get(block)
    assert made.name == "C_o_update" and made.annotations["by"] == "mma"
    views = {m.buffer.name: m for m in made.match_buffers}
    assert list(views) == ["A", "B", "C"]
    assert [str(s.min) for s in views["A"].source.region] == ["vi_o * 8", "vk_o * 8"]
    assert [tir.const_int(s.extent) for s in views["A"].source.region] == [8, 8]
    assert isinstance(views["A"].buffer.strides[0], tir.Var) and views["A"].buffer.offset_factor == 8
    assert_same_results(mlcc.parse(MATMUL), sch.mod)
    compiled(sch)


def test_a_loop_is_made_a_block_before() -> None:
    sch = tiled()
    other = tiled()
    sch.tensorize("C_o_update", "mma")
    other.tensorize(other.get_loops(other.get_child_blocks("C_o_update")[0])[0], "mma")
    assert other.get(other.get_child_blocks("C_o_update")[0]).name == "C_o"
    for made in (sch, other):
        assert_same_results(mlcc.parse(MATMUL), made.mod)
        compiled(made)


def test_one_intrinsic_twice_has_variables_of_its_own() -> None:
    sch = tiled()
    sch.tensorize("C_o_update", "mma")
    two = tiled()
    two.tensorize("C_o_update", "mma")
    views = [s.get(s.get_block("C_o_update")).match_buffers[0].buffer for s in (sch, two)]
    assert views[0] is not views[1] and views[0].strides[0] is not views[1].strides[0]


@pytest.mark.parametrize("wide", ["program", "intrinsic"])
def test_integers_of_other_widths_match(wide: str) -> None:
    def long(text: str) -> str:
        for n in ("8", "16", "24", "32"):
            for end in (",", ")", "]", ":"):
                for start in ("(", " ", ":"):
                    text = text.replace(f"{start}{n}{end}", f"{start}T.int64({n}){end}")
        return text.replace("T.int32()", "T.int64()").replace("offset_factor=T.int64(8)", "offset_factor=8")

    sch = tiled(long(MATMUL)) if wide == "program" else tiled(MATMUL, long(DESC), long(IMPL))
    sch.tensorize("C_o_update", "mma")
    view = sch.get(sch.get_block("C_o_update")).match_buffers[0]
    assert str(view.buffer.strides[0].dtype) == str(view.source.region[0].min.dtype)
    assert str(view.buffer.strides[0].dtype) == ("int64" if wide == "program" else "int32")
    compiled(sch)


def test_factors_in_the_other_order() -> None:
    turned = MATMUL.replace("A[vi, vk] * B[vk, vj]", "B[vk, vj] * A[vi, vk]")
    assert turned != MATMUL
    sch = tiled(turned)
    sch.tensorize(sch.get_block("C_o_update"), "mma")
    compiled(sch)


def test_leading_dimensions_of_one_are_allowed() -> None:
    text = MATMUL.replace("(32, 24)", "(3, 32, 24)").replace("A[vi", "A[1, vi")
    sch = tiled(text)
    sch.tensorize("C_o_update", "mma")
    view = sch.get(sch.get_block("C_o_update")).match_buffers[0]
    assert [tir.const_int(s.extent) for s in view.source.region] == [1, 8, 8]
    assert_same_results(mlcc.parse(text), sch.mod)


MISMATCHES = {
    "dtype": (MATMUL.replace('(32, 24), "float32"', '(32, 24), "float16"').replace("A[vi", 'T.Cast("float32", A[vi')
              .replace("vk] *", "vk]) *"), DESC, "`A` has another dtype; here `float16`, described `float32`"),
    "scope": (MATMUL, DESC.replace('(8, 8), "float32", offset_factor=8)', '(8, 8), "float32", scope="local")', 1),
              "`A` is in another storage scope; here `global`, described `local`.*cache_read"),
    "operator": (MATMUL.replace(" * ", " - "), DESC, "another expression; here `C.* - B.*`, described `C.* \\* B"),
    "index": (MATMUL.replace("B[vk, vj]", "B[vk, 15 - vj]"), DESC, "index of `B`|region of `B`"),
    "extent": (MATMUL, DESC.replace("8", "4"), "extent"),
    "kind of axis": (MATMUL, DESC.replace("SSR", "SSS"), "axis `vk_i` of block `C` is of another kind; here `R`"),
    "kind of loop": (MATMUL, DESC.replace("for i, j, k in T.grid(8, 8, 8):", (
        "for i in T.unroll(8):\n         for j, k in T.grid(8, 8):"
    )), "loop `i_1` is of another kind; here `serial`, described `unroll`"),
    "order of regions": (MATMUL, DESC.replace("C[0:8, 0:8], A[0:8, 0:8], B", "C[0:8, 0:8], B[0:8, 0:8], A").replace(
        "A[vi, vk] * B", "A[vi, vk] * B"), "another dtype|`B` stands|two buffers|index|`A`|`B`"),
    "more statements": (MATMUL, DESC.replace("B[vk, vj]\n", "B[vk, vj]\n                C[vi, vj] = C[vi, vj]\n"),
                        "1 statements instead of 2"),
    "another constant": (MATMUL.replace("A[vi, vk]", "A[vi, vk] * T.float32(2)"),
                         DESC.replace("A[vi, vk]", "A[vi, vk] * T.float32(3)"), r"T.float32\(2.*T.float32\(3"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISMATCHES)
def test_mismatches_are_refused(name: str) -> None:
    text, desc, words = MISMATCHES[name]
    impl = IMPL.replace("8", "4") if name == "extent" else IMPL
    if name == "scope":
        impl = impl.replace('(8, 8), "float32", offset_factor=8, strides=[sa, 1])', '(8, 8), "float32", scope="local")')
    sch = tiled(text, desc, impl)
    before = sch.mod
    with refused("E0689", f"`C_o_update` does not match `mma`.*{words}"):
        sch.tensorize("C_o_update", "mma")
    mlcc.assert_structural_equal(before, sch.mod)


def test_help_for_a_reduction_with_its_init() -> None:
    sch = schedule(MATMUL)
    register(sch, "mma", DESC, IMPL)
    outer, inner = zip(*(sch.split(loop, [None, 8]) for loop in sch.get_loops("C")), strict=True)
    sch.reorder(*outer, *inner)
    with refused("E0689", "reads 2 regions instead of 3.*decompose_reduction"):
        sch.tensorize(inner[0], "mma")
    sch.split(inner[0], [3, None])
    with refused("E0689", "only under a condition; here `i_1_0 \\* 3 \\+ i_1_1 < 8`"):
        sch.tensorize(inner[1], "mma")
    with refused("E0655", "the root block"):
        sch.tensorize("root", "mma")


def test_an_init_inside_must_be_described() -> None:
    """A description without the init of an inner block would lose it."""
    text = """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    for o in range(1):
        with T.block("all"):
            vo = T.axis.spatial(1, o)
            T.reads(C[0:8, 0:8], A[0:8, 0:8], B[0:8, 0:8])
            T.writes(C[0:8, 0:8])
            for i, j, k in T.grid(8, 8, 8):
                with T.block("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    T.reads(C[vi, vj], A[vi, vk], B[vk, vj])
                    T.writes(C[vi, vj])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
    sch = schedule(text)
    register(sch, "mma", DESC, IMPL)
    with refused("E0689", "it has an init and its description has none"):
        sch.tensorize("all", "mma")


# ---------------------------------------------------------------- registration


def test_unknown_intrinsics_are_refused() -> None:
    sch = tiled()
    with refused("E0687", "no tensor intrinsic `mna` is registered.*`mma`"):
        sch.tensorize("C_o_update", "mna")
    with refused("E0687", r"register_tensor_intrin\(.wmma_load"):
        schedule(MATMUL).tensorize("C", "wmma_load")


def test_a_schedule_keeps_its_own() -> None:
    sch = tiled()
    copy = sch.copy()
    copy.tensorize("C_o_update", "mma")
    with refused("E0687", "mma"):
        schedule(MATMUL).tensorize("C", "mma")


def test_the_table_of_the_process() -> None:
    name = "test_tensorize.mma"
    mlcc.register_tensor_intrin(name, DESC, IMPL)
    with pytest.raises(mlcc.CompileError, match="E0688.*name is taken"):
        mlcc.register_tensor_intrin(name, DESC, IMPL)
    module = mlcc.parse(DESC + IMPL)
    mlcc.register_tensor_intrin(name, module["mma_desc"], module["mma_impl"], override=True)
    mlcc.register_tensor_intrin(name, DESC + IMPL, override=True)
    mlcc.register_tensor_intrin(name, module, override=True)
    sch = tiled()
    sch.tensorize("C_o_update", name)
    compiled(sch)


def test_intrinsics_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mma.mlc").write_text(DESC + IMPL)
    sch = tiled()
    register(sch, "x", file="mma.mlc", folder=str(tmp_path))
    register(sch, "y", file=tmp_path / "mma.mlc")
    sch.tensorize("C_o_update", "x")
    with pytest.raises(mlcc.CompileError, match="E0510.*outside the folder"):
        register(sch, "x", file="../mma.mlc", folder=str(tmp_path))
    with pytest.raises(mlcc.CompileError, match="E0001.*none.mlc"):
        register(sch, "x", file="none.mlc", folder=str(tmp_path))
    with pytest.raises(mlcc.CompileError, match="E0688.*either a file"):
        register(sch, "x", DESC, file="mma.mlc", folder=str(tmp_path))


def test_which_function_is_which() -> None:
    sch = tiled()
    two = DESC.replace("mma_desc", "what") + IMPL.replace("mma_impl", "how")
    register(sch, "m", two)
    more = DESC + IMPL + DESC.replace("mma_desc", "m_desc") + IMPL.replace("mma_impl", "m_impl")
    register(sch, "m", more)
    with pytest.raises(
        mlcc.CompileError, match="(?s)E0688.*does not identify the two functions.*`x_desc` and `x_impl`"
    ):
        register(sch, "x", more)


WRONG = {
    "not one block": (DESC.replace('    with T.block("root"):\n', "    if True:\n").replace("T.reads", "# T.reads")
                      .replace("T.writes", "# T.writes"), IMPL, "E0688"),
    "parameters": (DESC, IMPL.replace(", c: T.handle", "").replace("C = T.match_buffer(c,", "C = T.alloc_buffer(")
                   .replace(', offset_factor=8, strides=[sc, 1])', ")"), "E0688|E03"),
    "a scalar": (DESC.replace("c: T.handle", "c: T.handle, n: T.int32"), IMPL,
                 "`n` of the description is not a buffer"),
    "no regions": (DESC, IMPL.replace("T.reads(C[0:8, 0:8], A[0:8, 0:8], B", "T.reads(C[0:8, 0:8], B").replace(
        ", B[0:8, 0:8], B[0:8, 0:8]", ", B[0:8, 0:8]").replace("A[vi, vk] * ", ""),
        "neither reads nor writes its buffer `A`"),
    "dtype": (DESC, IMPL.replace('(a, (8, 8), "float32"', '(a, (8, 8), "float64"').replace("A[vi, vk]", (
        'T.Cast("float32", A[vi, vk])')), "`A` is float64.*described as float32"),
    "shape": (DESC, IMPL.replace("(a, (8, 8)", "(a, (16, 8)"), r"\(16, 8\).*described as float32 \(8, 8\)"),
    "dimensions": (DESC, IMPL.replace("(a, (8, 8)", "(a, (1, 8, 8)").replace("[sa, 1]", "[8, sa, 1]").replace(
        "A[0:8", "A[0, 0:8").replace("A[vi", "A[0, vi"), "described as"),
    "no text": ("def", IMPL, "E01"),
    "two functions": (DESC + IMPL, IMPL, "one PrimFunc, not mma_desc, mma_impl"),
    "no function": ("", IMPL, "E0207"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_intrinsics_are_refused(name: str) -> None:
    desc, impl, words = WRONG[name]
    with pytest.raises(mlcc.CompileError, match=f"(?s){words}"):
        register(schedule(MATMUL), "mma", desc, impl)

"""Copies that a schedule asks the copy engine for: tiles, slots of pipelines and zeros at edges, judged by NumPy under
emulation with all checks; what cannot be such a copy is refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.visit import rewrite_bottom_up
from mlcc.passes.gpu import DeviceProgram
from mlcc.passes.gpu.tensor_map import TensorMap, is_tensor_map
from mlcc.targets.cuda.ptx import emit_ptx
from mlcc.targets.cuda.ptxas import assemble, find_ptxas
from mlcc.targets.emulate import run_program
from tests.lower import lower_gpu

TWICE = """
@T.prim_func
def f(a: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m), "{dtype}")
    B = T.match_buffer(b, (n, m), "{dtype}")
    for i, j in T.grid(n, m):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + A[vi, vj]
"""
# tiles of 8 x 64, a thread for each column
SCRIPT = """
def main(sch):
    b = sch.get_block("B", "f")
    i, j = sch.get_loops(b)
    i0, i1 = sch.split(i, [None, 8])
    j0, j1 = sch.split(j, [None, 64])
    sch.reorder(i0, j0, i1, j1)
    s = sch.cache_read(b, 0, "shared")
    sch.compute_at(s, j0)
    sch.annotate(s, "mlcc.bulk_copy", True)
    sch.bind(i0, "blockIdx.x")
    sch.bind(j1, "threadIdx.x")
"""
PIPELINE = """
    sch.annotate(j0, "software_pipeline_stage", [0, {stage}])
    sch.annotate(j0, "software_pipeline_order", {order})
    sch.annotate(j0, "software_pipeline_async_stages", [0])
"""


def lowered(text: str, script: str) -> DeviceProgram:
    func = mlcc.apply_schedule(mlcc.parse(text), script)["f"]
    assert isinstance(func, tir.PrimFunc)
    return lower_gpu("f", func)


def doubling_program(script: str = SCRIPT, dtype: str = "float32") -> DeviceProgram:
    return lowered(TWICE.format(dtype=dtype), script)


def check_twice(made: DeviceProgram, *shapes: tuple[int, int], dtype: str = "float32") -> None:
    for shape in shapes:
        given = np.random.default_rng(0).random(shape).astype(dtype)
        got = np.zeros(shape, dtype)
        run_program(made, given, got)
        np.testing.assert_array_equal(got, given + given)


VARIANTS = {
    "by itself": "",
    "the next tile": PIPELINE.format(stage=1, order=[0, 1]),
    "two tiles ahead": PIPELINE.format(stage=2, order=[1, 0]),
    "a stage that is not asynchronous": PIPELINE.format(stage=1, order=[0, 1]).replace("_async_stages", "_x"),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_tiles_of_any_tensor_are_copied(name: str) -> None:
    made = doubling_program(SCRIPT + VARIANTS[name])
    check_twice(made, (20, 200), (1, 4), (0, 4), (3, 0), (9, 384))
    slots = {"by itself": 1, "the next tile": 2, "two tiles ahead": 3}.get(name, 2)
    text = emit_ptx(made.kernels, "cuda{arch=sm_90}").text
    assert text.count("mbarrier.init") == (1 if "not" in name else slots)
    assert ".shared .align 128 .b8 f_kernel_A_shared" in text and "cp.async.bulk.tensor.2d" in text
    assert text.count("bar.sync") == 2  # for the barriers in memory, and before a slot is filled again
    if find_ptxas() is not None:
        (found,) = assemble(text, "sm_90").values()
        assert (found.stack, found.spill_stores) == (0, 0)


def test_rows_that_change_places() -> None:
    script = SCRIPT.replace("True)\n", 'True)\n    sch.annotate(s, "permuted_layout", 128)\n')
    made = doubling_program(script, "float16")
    check_twice(made, (8, 64), (21, 136), dtype="float16")
    (known,) = made.kernels[0].maps.values()
    assert (known.box, known.swizzle) == ((64, 8), 128)


def test_large_tiles_are_copied_in_pieces() -> None:
    """Boxes have up to 256 elements along a dimension; rows of shared memory may be parts of a tile's rows."""
    long = SCRIPT.replace("[None, 8]", "[None, 512]").replace("[None, 64]", "[None, 16]")
    made = doubling_program(long)
    check_twice(made, (600, 20))
    assert [m.box for m in made.kernels[0].maps.values()] == [(16, 256)]
    wide = SCRIPT.replace("[None, 64]", "[None, 128]").replace(
        "    sch.bind(i0",
        '    sch.transform_layout(s, ("write", 0), lambda i, j: (j // 32, i, j % 32))\n    sch.bind(i0',
    )
    text = re.sub(r"    [nm] = .*\n", "", TWICE.format(dtype="float32")).replace("(n, m)", "(16, 128)")
    made = lowered(text, wide)
    check_twice(made, (16, 128))
    assert [m.box for m in made.kernels[0].maps.values()] == [(32, 8)]
    assert emit_ptx(made.kernels, "cuda{arch=sm_90}").text.count("cp.async.bulk.tensor.2d") == 4


def without(made: DeviceProgram, drop: Callable[[tir.Call], bool], keep: int) -> DeviceProgram:
    """The program without calls but for the first few."""
    seen = 0

    def rewrite(node: Any) -> Any:
        nonlocal seen
        if isinstance(node, tir.Evaluate) and isinstance(node.value, tir.Call) and drop(node.value):
            seen += 1
            return node if seen <= keep else tir.Evaluate(tir.IntImm(node.value.dtype, 0))
        return node

    (kernel,) = made.kernels
    body = tuple(rewrite_bottom_up(s, rewrite) for s in kernel.body)
    assert seen > keep
    return replace(made, kernels=(replace(kernel, body=body),))


@pytest.mark.parametrize(("name", "keep"), [("tvm_storage_sync", 1), ("ptx_wait_barrier", 0)])
def test_checks_find_what_is_missing(name: str, keep: int) -> None:
    """Without barriers of the block a slot is filled while it is read; without waits it is read too early."""
    made = without(
        doubling_program(SCRIPT + VARIANTS["the next tile"]), lambda call: call.op == tir.Op(f"tir.{name}"), keep
    )
    with pytest.raises(CallError, match="E0742"):
        check_twice(made, (8, 512))


# a product whose operands are padded while they are copied; the sums run around it more than once
MATMUL = """
@T.prim_func
def f(A: T.Buffer(({g}, {m}, {k}), "float32"), B: T.Buffer(({g}, {k}, {n}), "float32"),
      C: T.Buffer(({g}, {m}, {n}), "float32")):
    for g, i, j, k in T.grid({g}, {m}, {n}, {k}):
        with T.block("C"):
            vg, vi, vj, vk = T.axis.remap("SSSR", [g, i, j, k])
            with T.init():
                C[vg, vi, vj] = T.float32(0)
            C[vg, vi, vj] = C[vg, vi, vj] + A[vg, vi, vk] * B[vg, vk, vj]
"""
PADDED = """
def main(sch):
    block = sch.get_block("C", "f")
    sch.pad_einsum(block, [1, 16, 32, 8])
    g, i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 16])
    j0, j1 = sch.split(j, [None, 32])
    k0, k1 = sch.split(k, [None, 8])
    sch.reorder(i0, j0, g, k0, i1, j1, k1)
    sch.bind(i0, "blockIdx.y")
    sch.bind(j0, "blockIdx.x")
    sums = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(sums, g)
    sch.reverse_compute_inline(sch.get_block("C_pad"))
    for name, index in [("A_pad", 0), ("B_pad", 1)]:
        copy = sch.cache_read(block, index, "shared")
        sch.compute_at(copy, k0)
        sch.compute_inline(name)
        sch.annotate(copy, "mlcc.bulk_copy", True)
    sch.bind(i1, "threadIdx.y")
    sch.bind(j1, "threadIdx.x")
    _, row, column = sch.get_loops(sums)[-3:]
    sch.bind(row, "threadIdx.y")
    sch.bind(column, "threadIdx.x")
    sch.decompose_reduction(block, k0)
    sch.annotate(k0, "software_pipeline_stage", [0, 0, 1])
    sch.annotate(k0, "software_pipeline_order", [0, 1, 2])
    sch.annotate(k0, "software_pipeline_async_stages", [0])
"""


@pytest.mark.parametrize("sizes", [(3, 20, 40, 28), (2, 1, 4, 4)])
def test_zeros_of_padding_come_by_themselves(sizes: tuple[int, int, int, int]) -> None:
    g, m, n, k = sizes
    made = lowered(MATMUL.format(g=g, m=m, n=n, k=k), PADDED)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((g, m, k), (g, k, n)))
    got = np.zeros((g, m, n), np.float32)
    run_program(made, a, b, got)
    np.testing.assert_array_equal(got, a @ b)
    assert {known.box for known in made.kernels[0].maps.values()} == {(8, 16, 1), (32, 8, 1)}


COPY = """
@T.prim_func
def f(A: T.Buffer({shape}, "{dtype}"), B: T.Buffer(({rows}, {columns}), "{dtype}")):
    for b in T.thread_binding(1, thread="blockIdx.x"):
        S = T.alloc_buffer({target}, "{kind}", scope="shared")
        for {loops}:
            with T.block("copy"):
                {axes}
                T.block_attr({{"mlcc.bulk_copy": True{more}}})
                S[{to}] = {value}
        for t in T.thread_binding(32, thread="threadIdx.x"):
            for i, j in T.grid({rows}, {columns} // 32):
                with T.block("use"):
                    vi = T.axis.spatial({rows}, i)
                    vj = T.axis.spatial({columns}, j * 32 + t)
                    B[vi, vj] = T.Cast("{dtype}", S[{back}])
"""
USUAL = {
    "shape": "(16, 64)", "dtype": "float32", "kind": "float32", "rows": "16", "columns": "64", "target": "(16, 64)",
    "loops": "i, j in T.grid(16, 64)", "axes": 'vi, vj = T.axis.remap("SS", [i, j])', "more": "", "to": "vi, vj",
    "value": "A[vi, vj]", "back": "vi, vj",
}  # fmt: skip
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "more than a copy": ({"value": "A[vi, vj] + T.float32(1)"}, "does more than copy"),
    "a conversion": ({"dtype": "float16", "value": "T.Cast('float32', A[vi, vj])"}, "does more than copy"),
    "other dimensions first": ({"value": "A[vj, vi]", "shape": "(64, 16)"}, "does not run along a dimension"),
    "rows apart": ({"target": "(16, 72)", "back": "vi, vj"}, "fills 64 of 72 elements"),
    "every second column": ({"value": "A[vi, vj * 2]", "shape": "(16, 128)"}, "does not run along a dimension"),
    "strides": ({"shape": "(16, 66)"}, "a stride is 264 bytes"),
    "rows of a box": ({"shape": "(16, 64)", "columns": "32", "loops": "i, j in T.grid(16, 2)", "target": "(16, 2)",
                       "axes": 'vi = T.axis.spatial(16, i)\n                vj = T.axis.spatial(2, j)',
                       "back": "vi, vj % 2"}, "a row of the box has 8 bytes"),
    "a swizzle of wider rows": ({"more": ', "permuted_layout": 128'}, "a swizzle of 128 bytes, and rows of 256"),
    "six dimensions": ({"shape": "(1, 1, 1, 1, 16, 64)", "value": "A[0, 0, 0, 0, vi, vj]"}, "up to 5 are copied"),
    "another condition": ({"value": "T.if_then_else(vi % 2 == 0, A[vi, vj], T.float32(0))"}, "none on the extents"),
    "a condition on the inside": ({"value": "T.if_then_else(vi < vj, A[vi, vj], T.float32(0))"}, "none on the extents"),
}  # fmt: skip


def copy_of(**changes: str) -> DeviceProgram:
    func = mlcc.parse(COPY.format(**{**USUAL, **changes}))["f"]
    assert isinstance(func, tir.PrimFunc)
    return lower_gpu("f", func)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_box_is_refused(name: str) -> None:
    changes, message = REFUSED[name]
    with pytest.raises(mlcc.CompileError, match=f"E0778.*{message}"):
        copy_of(**changes)


def test_conditions_on_extents_are_those_of_the_map() -> None:
    """Less of the tensor than there is, and elements before its first one."""
    made = copy_of(value="T.if_then_else(2 <= vi and vi < 12 and vj < 50, A[vi - 2, vj], T.float32(0))")
    given, got = np.random.default_rng(0).random((16, 64)).astype(np.float32), np.zeros((16, 64), np.float32)
    run_program(made, given, got)
    want = np.zeros((16, 64), np.float32)
    want[2:12, :50] = given[:10, :50]
    np.testing.assert_array_equal(got, want)
    nodes = (n for s in made.func.body for n in walk(s))
    (known,) = (TensorMap.of(n) for n in nodes if isinstance(n, tir.Call) and is_tensor_map(n))
    assert [tir.const_int(d) for d in known.dims] == [50, 10]


def test_a_condition_that_leaves_nothing() -> None:
    text = COPY.format(**{**USUAL, "shape": "(n, 64)"}).replace("def f(A: T", "def f(a: T.handle, n: T.int32, A: T")
    text = text.replace('def f(a: T.handle, n: T.int32, A: T.Buffer((n, 64), "float32"), ', "def f(a: T.handle, ")
    text = text.replace(
        "    for b in T", '    n = T.int32()\n    A = T.match_buffer(a, (n, 64), "float32")\n    for b in T', 1
    )
    text = text.replace("= A[vi, vj]", "= T.if_then_else(vi < n - 20, A[vi, vj], T.float32(0))")
    func = mlcc.parse(text)["f"]
    assert isinstance(func, tir.PrimFunc)
    made = lower_gpu("f", func)
    for n in (4, 20, 27):
        given, got = np.ones((n, 64), np.float32), np.zeros((16, 64), np.float32)
        run_program(made, given, got)
        assert got.sum() == 64 * max(n - 20, 0)


def test_memory_that_threads_write_too_is_refused() -> None:
    text = COPY.format(**USUAL).replace('B[vi, vj] = T.Cast("float32", S[vi, vj])', "A[vi, vj] = S[vi, vj]")
    func = mlcc.parse(text)["f"]
    assert isinstance(func, tir.PrimFunc)
    with pytest.raises(mlcc.CompileError, match="E0778.*also writes `A`"):
        lower_gpu("f", func)
    bound = SCRIPT.replace("    sch.bind(i0", '    sch.bind(sch.get_loops(s)[-1], "threadIdx.x")\n    sch.bind(i0')
    with pytest.raises(mlcc.CompileError, match="E0778.*depends on the thread"):
        doubling_program(bound)
    apart = COPY.format(**USUAL).replace(
        "        for i, j in T.grid(16, 64):\n",
        """\
        for t in T.thread_binding(16, thread="threadIdx.x"):
          for i, j in T.grid(16, 64):
""",
        1,
    )
    func = mlcc.parse(apart)["f"]
    assert isinstance(func, tir.PrimFunc)
    with pytest.raises(mlcc.CompileError, match="E0778.*not all threads reach it"):
        lower_gpu("f", func)
    virtual = SCRIPT.replace("[None, 64]", "[None, 2, 32]").replace("j0, j1 =", "j0, v, j1 =").replace(
        "reorder(i0, j0, i1, j1)", "reorder(i0, j0, v, i1, j1)").replace("compute_at(s, j0)", "compute_at(s, v)"
    )  # fmt: skip
    with pytest.raises(mlcc.CompileError, match="E0778.*depends on the thread"):
        doubling_program(virtual + '    sch.bind(v, "vthread.x")\n')


def test_an_older_architecture_is_told_of() -> None:
    with pytest.raises(mlcc.CompileError, match="E0730.*on sm_89"):
        emit_ptx(doubling_program().kernels, "cuda{arch=sm_89}")


def test_a_cpu_copies_as_ever() -> None:
    mod = mlcc.apply_schedule(mlcc.parse(TWICE.format(dtype="float32")), SCRIPT.split("    sch.bind")[0])
    given = np.random.default_rng(0).random((9, 70)).astype(np.float32)
    got = np.zeros_like(given)
    mlcc.load(mlcc.build(mod, "llvm", opt_level=0))["f"](given, got)
    np.testing.assert_array_equal(got, given + given)


SAMPLE = Path(__file__).parents[2] / "samples" / "tensor-cores"


def sample(m: int, n: int, k: int, changes: dict[str, str], name: str = "bulk-copies.mls") -> DeviceProgram:
    script = (SAMPLE / name).read_text()
    for old, new in changes.items():
        assert old in script
        script = script.replace(old, new)
    text = (SAMPLE / "matmul.mlc").read_text()
    for name, sizes in (("A", (m, k)), ("B", (k, n)), ("C", (m, n))):
        text = text.replace(f"{name}: T.Buffer((1024, 1024)", f"{name}: T.Buffer({sizes}")
    text = text.replace("(1024, 1024, 1024)", f"({m}, {n}, {k})")
    assert "1024" not in text or 1024 in (m, n, k)
    func = mlcc.apply_schedule(mlcc.parse(text), script)["matmul"]
    assert isinstance(func, tir.PrimFunc)
    return lower_gpu("matmul", func)


def check_product(made: DeviceProgram, m: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((m, 256), (256, 64)))
    got = np.zeros((m, 64), np.float32)
    run_program(made, *((x.view(np.uint32) >> 16).astype(np.uint16) for x in (a, b)), got)
    np.testing.assert_array_equal(got, a @ b)


def test_products_of_warpgroups_overlap_with_copies(all_cases: bool) -> None:
    """Products go on while the next tiles are asked for; a slot is filled again when they are done."""
    small = {
        "n=256": "n=64", "64x256": "64x64", "lambda k, j: (j // 64, k, j % 64)": "lambda k, j: (k, j)",
        '"software_pipeline_stage", [0, 0, 3]': '"software_pipeline_stage", [0, 0, 1]',
    }  # fmt: skip
    made = sample(128, 64, 256, small, name="wgmma-bulk.mls")
    check_product(made, 128)
    drop = without(made, lambda call: call.op == tir.Op("tir.ptx_wait_barrier"), 0)
    with pytest.raises(CallError, match="E0742"):
        check_product(drop, 128)
    if find_ptxas() is not None:
        sizes, changes = ((1024, 1024, 1024), {}) if all_cases else ((128, 64, 256), small)
        whole = sample(*sizes, changes, name="wgmma-bulk.mls")
        (found,) = assemble(emit_ptx(whole.kernels, "cuda{arch=sm_90a}").text, "sm_90a").values()
        assert found.spill_stores == found.spill_loads == 0 and not found.serialized


def test_the_sample_with_two_warps() -> None:
    small = {"[None, 2, 4, 16]": "[None, 1, 2, 16]", "[None, 4, 2, 16]": "[None, 2, 2, 16]"}
    made = sample(64, 64, 256, small)
    check_product(made, 64)
    assert {(x.box, x.swizzle) for x in made.kernels[0].maps.values()} == {((64, 32), 128), ((64, 64), 128)}


def test_the_sample_is_assembled_without_spills(all_cases: bool) -> None:
    if find_ptxas() is None:
        return
    text = sample(1024, 1024, 1024, {}).kernels
    for arch in ("sm_90", "sm_100", "sm_120") if all_cases else ("sm_90",):
        made = emit_ptx(text, f"cuda{{arch={arch}}}").text
        (found,) = assemble(made, arch).values()
        assert found.spill_stores == found.spill_loads == 0 and found.registers <= 128

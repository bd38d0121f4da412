"""Schedules with products of warpgroups: the sample, and what orders products in pipelines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.gpu import DeviceProgram
from mlcc.passes.schedule.intrins.tensor_cores import module_of
from mlcc.passes.schedule.tensor_intrin import make_intrin
from mlcc.targets.cuda.ptx import emit_ptx
from mlcc.targets.cuda.ptxas import assemble, find_ptxas, version
from mlcc.targets.emulate import run_program
from tests.lower import lower_gpu

SAMPLE = Path(__file__).parents[2] / "samples" / "tensor-cores"
# the schedule of the sample, and one whose warpgroups make 64 x 64 sums
SMALL = {
    "n=256": "n=64", "64x256": "64x64", "lambda k, j: (j // 64, k, j % 64)": "lambda k, j: (k, j)",
    '"software_pipeline_stage", [0, 0, 3]': '"software_pipeline_stage", [0, 0, 2]',
}  # fmt: skip


def scheduled(size: int, changes: dict[str, str]) -> tir.PrimFunc:
    script = (SAMPLE / "wgmma.mls").read_text()
    for old, new in changes.items():
        assert old in script
        script = script.replace(old, new)
    mod = mlcc.parse((SAMPLE / "matmul.mlc").read_text().replace("1024", str(size)))
    func = mlcc.apply_schedule(mod, script)["matmul"]
    assert isinstance(func, tir.PrimFunc)
    return func


def order(made: DeviceProgram) -> str:
    """What orders products in the rounds of a pipeline: `w` and `c` wait for copies and close a group of them, `b` is
    a barrier, `f` a fence, `P` products, `g` closes their group, and 0 or 1 waits for it."""
    letters = {"ptx_wait_group": "w", "ptx_commit_group": "c", "tvm_storage_sync": "b", "ptx_wgmma_fence": "f",
               "ptx_wgmma_ss": "P", "ptx_wgmma_commit_group": "g", "ptx_fence_proxy_async": "p"}  # fmt: skip
    found = []
    for s in made.kernels[0].body:
        for n in walk(s):
            if isinstance(n, tir.Call) and isinstance(n.op, tir.Op):
                name = n.op.name.removeprefix("tir.")
                if name == "ptx_wgmma_wait_group":
                    found.append(str(tir.const_int(n.args[0])))
                found.append(letters.get(name, ""))
    return "".join(found)


def test_the_pipeline_of_the_sample_is_ordered() -> None:
    func = scheduled(256, SMALL)
    made = lower_gpu("matmul", func)
    # two rounds copy; in the loop products go on while the next tile is asked for; two rounds are left to do
    assert order(made) == "cc" + "wpbfPg1pbc" + "wpbfPg1c" * 2 + "0"
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (256, 256)).astype(np.float32) for _ in range(2))
    got = np.zeros((256, 256), np.float32)
    words = ((x.view(np.uint32) >> 16).astype(np.uint16) for x in (a, b))
    run_program(made, *words, got)
    np.testing.assert_array_equal(got, a @ b)


def test_sums_of_the_sample_stay_in_registers(all_cases: bool) -> None:
    """At its own size: sums in registers, and no product waits for another."""
    changes = {} if all_cases else {"n=256": "n=128", "64x256": "64x128"}
    text = emit_ptx(lower_gpu("matmul", scheduled(512, changes)).kernels, "cuda{arch=sm_90a}").text
    assert text.count("wgmma.mma_async") >= 4 * 4
    ptxas = find_ptxas()
    if ptxas is None or version(ptxas) < (12, 8):
        return
    (found,) = assemble(text, "sm_90a").values()
    assert (found.stack, found.spill_stores, found.spill_loads, found.serialized) == (0, 0, 0, "")


def test_operands_along_the_sum() -> None:
    """B by columns, both matrices with the sum's elements side by side; float16; one warpgroup, no pipeline."""
    text = (SAMPLE / "matmul.mlc").read_text().replace("1024", "64").replace("bfloat16", "float16")
    mod = mlcc.parse(text.replace("B[vk, vj]", "B[vj, vk]"))
    script = (SAMPLE / "wgmma.mls").read_text()
    for old, new in {
        **SMALL, "lambda k, j: (j // 64, k, j % 64)": "lambda j, k: (j, k)", "[None, 2, 64]": "[None, 1, 64]",
        "[None, 2, 128, 8]": "[None, 1, 128, 8]", "x16_bf16bf16f32_dyn": "x16_f16f16f32_trans_b_dyn",
        '    sch.annotate(k0, "software_pipeline_async_stages", [0])\n': "",
        '    sch.annotate(k0, "software_pipeline_stage", [0, 0, 3])\n': "",
        '    sch.annotate(k0, "software_pipeline_order", [1, 2, 0])\n': "",
    }.items():  # fmt: skip
        script = script.replace(old, new)
    func = mlcc.apply_schedule(mod, script)["matmul"]
    assert isinstance(func, tir.PrimFunc)
    made = lower_gpu("matmul", func)
    assert order(made) == "pbfPg0"
    a, b = np.random.default_rng(0).integers(-3, 4, (2, 64, 64)).astype(np.float16)
    got = np.zeros((64, 64), np.float32)
    run_program(made, a, b, got)
    np.testing.assert_array_equal(got, a.astype(np.float32) @ b.astype(np.float32).T)


def test_sums_that_others_touch_are_waited_for() -> None:
    """Copies that stand before the products, and overwrite what those of the round before read."""
    changes = {**SMALL, '"software_pipeline_order", [1, 2, 0]': '"software_pipeline_order", [0, 1, 2]'}
    made = lower_gpu("matmul", scheduled(256, changes))
    assert "1" not in order(made) and "0" in order(made)


NAMES = {
    "wgmma_fill_64x8_f16": True, "wgmma_store_64x256_s32_shared_dyn": True,
    "wgmma_sync_64x200x16_f16f16f16_trans_b": True,
    "wgmma_sync_64x96x16_bf16bf16f32_trans_a": True, "wgmma_sync_64x64x8_tf32tf32f32_trans_b_dyn": True,
    "wgmma_sync_64x32x32_e4m3e4m3f32_trans_b": True, "wgmma_sync_64x48x32_s8s8s32_trans_b": True,
    "wgmma_fill_64x260_f32": False, "wgmma_sync_64x200x16_bf16bf16f32": False, "wgmma_sync_64x64x8_tf32tf32f32": False,
    "wgmma_sync_64x64x8_bf16bf16f32": False, "wgmma_sync_64x40x32_s8s8s32_trans_b": False,
    "wgmma_sync_64x64x16_bf16bf16f16": False, "wgmma_load_64x64": False,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_say_what_there_is(name: str) -> None:
    found = module_of(name)
    assert (found is not None) == NAMES[name]
    if found is not None:
        made = make_intrin(name, found, None)
        assert [b.dtype for b in made.desc.buffers if b] == [b.dtype for b in made.impl.buffers if b]


HELD = """
@T.prim_func
def f(A: T.Buffer(({threads}, 2), "float32"), B: T.Buffer(({threads}, 2), "float32")):
    for t in T.thread_binding({threads}, thread="threadIdx.x"):
        with T.block("b"):
            vt = T.axis.spatial({threads}, t)
            T.reads(A[vt, 0:2])
            T.writes(B[vt, 0:2])
            W = T.alloc_buffer((128, 2), "float32", scope="warpgroup")
            for i in range(2):
                W[vt % 128, i] = A[vt, i]
            for i in range(2):
                B[vt, i] = W[(vt + {by}) % 128, i]
"""


def test_memory_of_a_warpgroup_is_private() -> None:
    func = mlcc.parse(HELD.format(threads=256, by=0))["f"]
    assert isinstance(func, tir.PrimFunc)
    given = np.arange(512, dtype=np.float32).reshape(256, 2)
    got = np.zeros_like(given)
    run_program(lower_gpu("f", func), given, got)
    np.testing.assert_array_equal(got, given)
    for threads, by, message in ((256, 1, "reads an element that another one holds"), (64, 0, "to make warpgroups")):
        func = mlcc.parse(HELD.format(threads=threads, by=by))["f"]
        assert isinstance(func, tir.PrimFunc)
        with pytest.raises(mlcc.CompileError, match=f"E0772.*{message}"):
            lower_gpu("f", func)

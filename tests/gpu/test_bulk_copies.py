"""Bulk copies written by hand: boxes of tensors against NumPy under emulation, planted faults, instructions, and what
the launch plan says of their maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError
from mlcc.targets.cuda.ptx import emit_ptx
from mlcc.targets.cuda.ptxas import assemble, find_ptxas
from mlcc.targets.emulate import run_program
from mlcc.targets.source import emit_source
from tests.emulate.kernels import program

# adds 1 to boxes of 16 x 64 that are loaded and stored by copies; the arrays have any sizes whose rows can be copied
MAP = 'T.tensor_map(T.type_annotation("float16"), {}.data, 2, 0, m, n, m * 2, 64, 16, 1, 1)'
TEXT = f"""
@T.prim_func
def f(a: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m), "float16")
    B = T.match_buffer(b, (n, m), "float16")
    bx = T.launch_thread("blockIdx.x", (n + 15) // 16)
    tx = T.launch_thread("threadIdx.x", 64)
    S = T.alloc_buffer((1024,), "float16", scope="shared.dyn", align=128)
    T.create_barriers(1)
    if tx == 0:
        T.ptx_init_barrier_thread_count(0, 1)
        T.ptx_fence_barrier_init()
    T.tvm_storage_sync("shared")
    for k in range((m + 63) // 64):
        if tx == 0:
            T.ptx_arrive_barrier_expect_tx(0, 2048)
            T.ptx_cp_async_bulk_tensor("float16", S.data, 0, {MAP.format("A")}, 0, k * 64, bx * 16)
        T.ptx_wait_barrier(0, k % 2)
        for i in range(16):
            S[i * 64 + tx] = S[i * 64 + tx] + T.float16(1)
        T.ptx_fence_proxy_async()
        T.tvm_storage_sync("shared")
        if tx == 0:
            T.ptx_cp_async_bulk_tensor_store("float16", S.data, 0, {MAP.format("B")}, k * 64, bx * 16)
            T.ptx_cp_async_bulk_commit_group()
            T.ptx_cp_async_bulk_wait_group(0, 1)
        T.tvm_storage_sync("shared")
"""


def halves(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape).astype(np.float16)


@pytest.mark.parametrize("shape", [(16, 64), (33, 72), (1, 8), (0, 8), (3, 0)])
def test_boxes_that_reach_beyond_the_tensor(shape: tuple[int, int]) -> None:
    given, got = halves(*shape), np.zeros(shape, np.float16)
    run_program(program(TEXT), given, got)
    np.testing.assert_array_equal(got, given + np.float16(1))


def test_a_launch_plan_has_the_maps() -> None:
    made = mlcc.build(mlcc.parse(TEXT), "cuda{arch=sm_90}", opt_level=0)
    assert made.plan["kernels"]["f_kernel"]["params"] == ["ptr", "ptr", "bytes128", "bytes128", "int64", "int64"]
    (launch,) = made.plan["programs"]["f"]["steps"]
    assert launch["args"][2] == {
        "map": {
            "base": "A", "name": "A", "dtype": "float16", "dims": ["m", "n"], "strides": [["*", "m", 2]],
            "box": [64, 16], "steps": [1, 1], "swizzle": 0, "interleave": "none", "fill": "zeros",
        }
    }  # fmt: skip
    call = mlcc.load(made, emulate=True)["f"]
    given, got = halves(5, 80), np.zeros((5, 80), np.float16)
    call(given, got)
    np.testing.assert_array_equal(got, given + np.float16(1))
    with pytest.raises(CallError, match="E0879.*row stride of 14 bytes"):
        call(halves(4, 7), np.zeros((4, 7), np.float16))


FAULTS = {
    "no wait": ("        T.ptx_wait_barrier(0, k % 2)\n", "", "E0742"),
    "too few bytes are expected": ("expect_tx(0, 2048)", "expect_tx(0, 1024)", "E0746"),
    "too many": ("expect_tx(0, 2048)", "expect_tx(0, 4096)", "E0746"),
    "shared memory is too small": ("(1024,)", "(512,)", "E0744"),
    "the box is filled again too early": ('1)\n        T.tvm_storage_sync("shared")\n', "1)\n", "E0742"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name: str) -> None:
    old, new, code = FAULTS[name]
    text = TEXT.replace(old, new, 1)
    if code == "E0742" and "filled" in name:  # nothing but reads of all threads between the copies
        at = text.index("        T.ptx_fence_proxy_async()")
        text = text[:at].replace("S[i * 64 + tx] = S[", "B[bx * 16 + i, k * 64 + tx] = S[")
    else:
        assert text != TEXT
    with pytest.raises(CallError) as caught:
        run_program(program(text), halves(16, 128), np.zeros((16, 128), np.float16))
    assert code in {d.code for d in caught.value.diagnostics}


def test_reads_before_the_copy_arrives_are_reported() -> None:
    with pytest.raises(CallError) as caught:
        run_program(program(TEXT.replace(*FAULTS["no wait"][:2])), halves(16, 64), np.zeros((16, 64), np.float16))
    (found, *_) = [d for d in caught.value.diagnostics if d.code == "E0742"]
    assert "a copy issued by thread 0 of block 0 writes it here" in {r.text for r in found.related}
    assert "T.ptx_wait_barrier" in (found.help or "")


# a box of a tensor with `rank` dimensions to shared memory, and from there as it lies to B
BOX = """
@T.prim_func
def f(A: T.Buffer({shape}, "{dtype}"), B: T.Buffer(({count},), "{dtype}")):
    tx = T.launch_thread("threadIdx.x", 32)
    S = T.alloc_buffer(({count},), "{dtype}", scope="shared", align=1024)
    bars = T.alloc_buffer((1,), "uint64", scope="shared")
    if tx == 0:
        T.ptx_init_barrier_thread_count(T.address_of(bars[0]), 1)
        T.ptx_fence_barrier_init()
    T.tvm_storage_sync("shared")
    if tx == 0:
        T.ptx_arrive_barrier_expect_tx(T.address_of(bars[0]), {bytes})
        T.ptx_cp_async_bulk_tensor("{dtype}", S.data, 0, T.tensor_map({map}), T.address_of(bars[0]), {corner})
    T.ptx_wait_barrier(T.address_of(bars[0]))
    for i in range(({count} + 31) // 32):
        if i * 32 + tx < {count}:
            B[i * 32 + tx] = S[i * 32 + tx]
"""
BOXES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...], int]] = {
    "1": ("uint8", (100,), (32,), (90,), 0),
    "2": ("float32", (5, 12), (3, 8), (3, -4), 0),
    "3": ("bfloat16", (3, 4, 8), (2, 2, 8), (-1, 3, 0), 0),
    "5": ("int32", (2, 2, 3, 3, 4), (2, 1, 2, 2, 4), (1, 0, 1, 1, 0), 0),
    "128 bytes": ("float16", (20, 64), (16, 64), (2, 0), 128),
    "64 bytes": ("float32", (20, 16), (16, 16), (4, 0), 64),
    "32 bytes": ("int8", (20, 32), (20, 32), (0, 0), 32),
}


def box_text(name: str) -> str:
    dtype, shape, box, corner, swizzle = BOXES[name]
    size = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    strides = [size * int(np.prod(shape[d:])) for d in range(1, len(shape))]
    numbers = (len(shape), swizzle, *shape[::-1], *strides[::-1], *box[::-1], *[1] * len(shape))
    at = ", ".join(map(str, corner[::-1]))
    return BOX.format(
        shape=shape, dtype=dtype, count=np.prod(box), bytes=size * np.prod(box), corner=at,
        map=f'T.type_annotation("{dtype}"), A.data, ' + ", ".join(map(str, numbers)),
    )  # fmt: skip


@pytest.mark.parametrize("name", BOXES)
def test_boxes_match_numpy(name: str) -> None:
    dtype, shape, box, corner, swizzle = BOXES[name]
    dtype = "uint16" if dtype == "bfloat16" else dtype
    given = np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(dtype)
    want = np.zeros(box, dtype)
    for at in np.ndindex(*box):
        place = tuple(a + b for a, b in zip(at, corner, strict=True))
        if all(0 <= p < n for p, n in zip(place, shape, strict=True)):
            want[at] = given[place]
    lies = want.ravel().copy()
    if swizzle:  # pieces of 16 bytes of each row change places, by the number of the row of 128 bytes
        piece = 16 // want.itemsize
        for number, values in enumerate(want.reshape(-1, piece)):
            moved = number ^ (number * 16 // 128 % (swizzle // 16))
            lies[moved * piece : (moved + 1) * piece] = values
    made = program(box_text(name))
    got = np.zeros(want.size, dtype)
    run_program(made, given, got)
    np.testing.assert_array_equal(got, lies)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
def test_ptxas_takes_the_copies(arch: str) -> None:
    for text in (TEXT, box_text("1"), box_text("5")):
        made = emit_ptx(program(text).kernels, f"cuda{{arch={arch}}}").text
        assert "cp.async.bulk.tensor." in made and ".param .align 64 .b8" in made
        if find_ptxas() is not None:
            (found,) = assemble(made, arch).values()
            assert found.spill_stores == 0 and found.stack <= (8 if arch == "sm_120" else 0)  # a word that ptxas adds


def test_the_source_takes_maps_by_value() -> None:
    text = emit_source(program(TEXT).kernels, "cuda-c")
    assert "const __grid_constant__ CUtensorMap A_map" in text and "extern __shared__ __align__(128)" in text
    with pytest.raises(mlcc.CompileError, match="E0780"):
        emit_source(program(TEXT).kernels, "metal")


ROW = """
@T.prim_func
def f(A: T.Buffer((256,), "float32"), B: T.Buffer((256,), "float32")):
    tx = T.launch_thread("threadIdx.x", 64)
    S = T.alloc_buffer((128,), "float32", scope="shared")
    T.create_barriers(1)
    if tx == 0:
        T.ptx_init_barrier_thread_count(0, 1)
        T.ptx_fence_barrier_init()
    T.tvm_storage_sync("shared")
    for k in range(2):
        if tx == 0:
            T.ptx_arrive_barrier_expect_tx(0, 512)
            T.ptx_cp_async_bulk("float32", S.data, 0, A.data, k * 128, 512, 0)
        T.ptx_wait_barrier(0, k)
        for i in range(2):
            B[k * 128 + i * 64 + tx] = S[127 - (i * 64 + tx)]
        T.tvm_storage_sync("shared")
"""


def test_rows_are_copied_in_bulk() -> None:
    given, got = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    made = program(ROW)
    run_program(made, given, got)
    np.testing.assert_array_equal(got.reshape(2, 128), given.reshape(2, 128)[:, ::-1])
    text = emit_ptx(made.kernels, "cuda{arch=sm_90}").text
    assert "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" in text
    if find_ptxas() is not None:
        assert assemble(text, "sm_90")["f_kernel"].spill_stores == 0
    with pytest.raises(CallError, match="E0744"):
        run_program(program(ROW.replace("k * 128, 512", "k * 129, 512")), given, got)


WRONG: dict[str, tuple[str, str, str]] = {
    "a box that is too long": ("64, 16, 1, 1)", "64, 512, 1, 1)", "it needs 1 to 256"),
    "rows of a box": ("64, 16, 1, 1)", "63, 16, 1, 1)", "multiple of 16"),
    "strides": ("m * 2, 64", "14, 64", "a stride is 14 bytes"),
    "swizzle": ('2, 0, m, n, m * 2, 64', "2, 64, m, n, m * 2, 64", "does not fit a swizzle"),
    "dimensions": ("k * 64, bx * 16)", "k * 64)", "coordinates"),
    "a place": ("2, 0, m, n", "2, 0, m, bx", "before the kernel starts"),
    "inside": ("2, 0, m, n", "2, 0, m, k", "before the kernel starts"),
    "a list": ("64, 16, 1, 1)", "64, 16, 1)", "r extents"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_maps_that_cannot_be(name: str) -> None:
    old, new, message = WRONG[name]
    assert old in TEXT
    with pytest.raises(mlcc.CompileError, match=f"E0777.*{message}"):
        program(TEXT.replace(old, new, 1))


def test_older_architectures_have_none() -> None:
    for arch in ("sm_80", "sm_89"):
        with pytest.raises(mlcc.CompileError, match="compile for sm_90 or later"):
            emit_ptx(program(TEXT).kernels, f"cuda{{arch={arch}}}")


def test_a_cpu_has_none() -> None:
    with pytest.raises(mlcc.CompileError, match="E0707"):
        mlcc.build(mlcc.parse(TEXT), "llvm", opt_level=0)


def test_damaged_maps_in_a_plan() -> None:
    made: Any = mlcc.build(mlcc.parse(TEXT), "cuda{arch=sm_90}", opt_level=0)
    (launch,) = made.plan["programs"]["f"]["steps"]
    stated = launch["args"][2]["map"]
    for key, value in (
        ("box", [64]),
        ("dtype", "float24"),
        ("swizzle", 48),
        ("fill", "nan"),
        ("dims", []),
        ("base", 3.5),
    ):
        kept, stated[key] = stated[key], value
        with pytest.raises(mlcc.errors.LoadError, match="E0869"):
            mlcc.load(made, emulate=True)
        stated[key] = kept
    launch["args"][2] = "A"
    with pytest.raises(mlcc.errors.LoadError, match="E0869"):
        mlcc.load(made, emulate=True)

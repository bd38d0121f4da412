"""Shared memory whose rows have their pieces of 16 bytes exchanged: the same numbers, and no two rows in one bank."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.node import walk
from mlcc.passes.gpu import DeviceProgram
from mlcc.passes.gpu.swizzle import Permutation
from mlcc.targets.cuda.ptx import emit_ptx
from mlcc.targets.emulate import run_program
from tests.lower import lower_gpu

SAMPLE = Path(__file__).parents[2] / "samples" / "tensor-cores"

# a tile filled by rows, in vectors, and read by columns, then from the second element of each row on, in vectors too
TEXT = """
@T.prim_func
def f(A: T.Buffer((16, {length}), "{dtype}"), B: T.Buffer(({length}, 16), "{dtype}"),
      C: T.Buffer((16, {length}), "{dtype}")):
    for t in T.thread_binding(16, thread="threadIdx.x"):
        with T.block("tile"):
            vt = T.axis.spatial(16, t)
            T.reads(A[0:16, 0:{length}])
            T.writes(B[0:{length}, 0:16], C[0:16, 0:{length}])
            S = T.alloc_buffer((16, {length}), "{dtype}", scope="{scope}")
            for i in range({length} // {lanes}):
                for l in T.vectorized({lanes}):
                    with T.block("fill"):
                        vi = T.axis.spatial({length}, i * {lanes} + l)
                        T.block_attr({{"permuted_layout": {value}}})
                        S[vt, vi] = A[vt, vi]
            T.tvm_storage_sync("shared")
            for i in range({length}):
                B[i, vt] = S[(vt + 1) % 16, i]
            for l in T.vectorized({lanes}):
                C[vt, l] = S[vt, l + 1]
"""


def program(text: str) -> DeviceProgram:
    func = mlcc.parse(text)["f"]
    assert isinstance(func, tir.PrimFunc)
    return lower_gpu("f", func)


@pytest.mark.parametrize(
    ("dtype", "length", "value", "width"),
    [("float16", 64, 1, 128), ("float32", 16, '"g2s_A"', 64), ("int8", 32, 1, 32), ("float32", 64, 1, 128),
     ("float32", 24, 32, 32), ("float32", 24, 0, 0), ("float64", 16, 128, 128)],
)  # fmt: skip
def test_what_is_written_is_read(dtype: str, length: int, value: object, width: int) -> None:
    lanes = 16 // np.dtype(dtype).itemsize
    scope = "shared.dyn" if length == 64 else "shared"
    text = TEXT.format(dtype=dtype, length=length, lanes=lanes, value=value, scope=scope)
    made = program(text)
    (kernel,) = made.kernels
    calls = [n.op for s in kernel.body for n in walk(s) if isinstance(n, tir.Call)]
    (buffer,) = (n.buffer for s in kernel.body for n in walk(s) if isinstance(n, tir.AllocBuffer))
    assert (tir.Op("tir.bitwise_xor") in calls, buffer.alignment) == ((True, 1024) if width else (False, 64))
    a = np.arange(16 * length).reshape(16, length).astype(dtype)
    b, last = np.zeros((length, 16), dtype), np.zeros((16, length), dtype)
    run_program(made, a, b, last)
    np.testing.assert_array_equal(b, np.roll(a, -1, axis=0).T)
    np.testing.assert_array_equal(last[:, :lanes], a[:, 1 : lanes + 1])
    ptx = emit_ptx(made.kernels, "cuda{arch=sm_80}").text
    assert f".align {1024 if width else 16} .b8" in ptx
    assert re.search(r"st\.shared\.v[24]\.", ptx)  # pieces stay whole


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("width", [128, 64, 32])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_order_is_that_of_the_ptx_isa(size: int, width: int, rows: int) -> None:
    """Bits 4 to 6 of an address (4 to 5, bit 4) go with bits 7 to 9 (7 to 8, bit 7), where a row is one width."""
    order = Permutation(width, width * rows, size)
    flat = tir.Var("i", INT32)
    analyzer = Analyzer()
    analyzer.bind(flat, tir.Range(c.const(0), c.const(1 << 12)))
    for byte in range(0, 4096, 3 * size):
        piece, row = byte // 16, byte // (width * rows)
        pieces = width // 16
        want = piece ^ (row // (128 // width) % pieces)
        (found,) = (tir.const_int(order.apply(c.const(byte // size), analyzer)),)
        assert found is not None and found * size == want * 16 + byte % 16
        if rows == 1:
            assert found * size == byte ^ (byte >> 3 & (width - 16))
    # what is a multiple of the period is added afterwards, which leaves constants to addresses
    moved = order.apply(c.add(flat, 5 * order.period), analyzer)
    assert isinstance(moved, tir.Add) and 5 * order.period in (tir.const_int(moved.lhs), tir.const_int(moved.rhs))


def matmul(size: int, changes: dict[str, str]) -> DeviceProgram:
    script = (SAMPLE / "mma-sync.mls").read_text()
    for old, new in changes.items():
        assert old in script
        script = script.replace(old, new)
    func = mlcc.apply_schedule(mlcc.parse((SAMPLE / "matmul.mlc").read_text().replace("1024", str(size))), script)
    made = func["matmul"]
    assert isinstance(made, tir.PrimFunc)
    return lower_gpu("matmul", made)


def test_products_by_ldmatrix_and_asynchronous_copies() -> None:
    changes = {
        "[None, 2, 4, 16]": "[None, 1, 2, 16]", "[None, 4, 2, 16]": "[None, 2, 1, 16]",
        "[None, 2, 4, 32, 8]": "[None, 1, 2, 32, 8]",
        "sch.storage_align(copy, 0, axis=-2, factor=32, offset=8)": 'sch.annotate(copy, "permuted_layout", 1)',
    }  # fmt: skip
    made = matmul(64, changes)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (64, 64)).astype(np.float32) for _ in range(2))
    got = np.zeros((64, 64), np.float32)
    run_program(made, *((x.view(np.uint32) >> 16).astype(np.uint16) for x in (a, b)), got)
    np.testing.assert_array_equal(got, a @ b)
    text = emit_ptx(made.kernels, "cuda{arch=sm_80}").text
    assert "cp.async.cg.shared.global" in text and "ldmatrix.sync.aligned.m8n8.x4" in text


def refused(text: str) -> str:
    with pytest.raises(mlcc.CompileError, match="E0774") as caught:
        program(text)
    (found,) = caught.value.diagnostics
    assert found.primary.span is not None
    return found.message


def test_what_cannot_be_exchanged_is_refused() -> None:
    values = {"dtype": "float32", "length": 32, "lanes": 4, "value": 1, "scope": "shared"}
    assert "rows of 144 bytes are not a multiple of 32" in refused(TEXT.format(**values | {"length": 36}))
    assert "rows of 192 bytes are not a multiple of 128" in refused(
        TEXT.format(**values | {"length": 48, "value": 128})
    )
    assert "48 is not a width" in refused(TEXT.format(**values | {"value": 48}))
    attrs = '"permuted_layout": 1, "buffer_dim_align": [[0, 0, 32, 8]]'
    apart = TEXT.format(**values).replace('"permuted_layout": 1', attrs)
    assert "its rows are padded" in refused(apart)
    address = TEXT.format(**values).replace("B[i, vt] = S[(vt + 1) % 16, i]", 'T.call_extern("int32", "g", S.data)')
    assert "its address is taken" in refused(address)

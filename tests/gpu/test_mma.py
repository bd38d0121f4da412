"""Products of tensor cores: fragments as the PTX ISA places them, judged by NumPy under emulation, and by ptxas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.passes.gpu import DeviceProgram
from mlcc.targets.cuda.ptx import emit_ptx
from mlcc.targets.cuda.ptxas import assemble, find_ptxas, version
from mlcc.targets.emulate import run_program
from tests.lower import lower_gpu

PTXAS = find_ptxas()
needs_ptxas = pytest.mark.skipif(PTXAS is None or version(PTXAS) < (12, 8), reason="no ptxas of CUDA 12.8 or later")

Place = tuple[str, str]


def program(text: str) -> DeviceProgram:
    func = mlcc.parse(text)["f"]
    assert isinstance(func, tir.PrimFunc)
    return lower_gpu("f", func)


# The fragments of the PTX ISA: row and column of element i of a lane with group g and thread t in the group.
PLACES: dict[str, Callable[[int], Place]] = {
    "F16_A8": lambda i: (f"g + {8 * (i // 2)}", f"t * 2 + {i % 2}"),
    "F16_B8": lambda i: (f"t * 2 + {i}", "g"),
    "F16_A16": lambda i: (
        f"g + {0 if i in (0, 1, 4, 5) else 8}",
        f"t * 2 + {i % 2 + (8 if i >= 4 else 0)}",
    ),
    "F16_B16": lambda i: (f"t * 2 + {i % 2 + (8 if i >= 2 else 0)}", "g"),
    "TF32_A8": lambda i: (f"g + {8 * (i % 2)}", f"t + {4 * (i // 2)}"),
    "TF32_B8": lambda i: (f"t + {4 * i}", "g"),
    "S8_A16": lambda i: (f"g + {8 * (i // 4)}", f"t * 4 + {i % 4}"),
    "S8_B16": lambda i: (f"t * 4 + {i}", "g"),
    "S8_A32": lambda i: (f"g + {8 * (i // 4 % 2)}", f"t * 4 + {i % 4 + 16 * (i // 8)}"),
    "S8_B32": lambda i: (f"t * 4 + {i % 4 + 16 * (i // 4)}", "g"),
    "ACC": lambda i: (f"g + {8 * (i // 2)}", f"t * 2 + {i % 2}"),
    "M8_A16": lambda i: ("g", f"t * 4 + {i}"),
    "M8_A4": lambda i: ("g", "t"),
    "M8_B4": lambda i: ("t", "g"),
    "TF32_A4": lambda i: (f"g + {8 * i}", "t"),
    "TF32_B4": lambda i: ("t", "g"),
}

# name, k, dtypes of A and C, names of types, places of A and B, lowest architecture
CASES = {
    "f16_k8": (8, "float16", "float32", "fp16", "fp32", "F16_A8", "F16_B8", "sm_80"),
    "f16_k16": (16, "float16", "float32", "fp16", "fp32", "F16_A16", "F16_B16", "sm_80"),
    "f16_f16": (16, "float16", "float16", "fp16", "fp16", "F16_A16", "F16_B16", "sm_80"),
    "bf16_k8": (8, "bfloat16", "float32", "bf16", "fp32", "F16_A8", "F16_B8", "sm_80"),
    "bf16_k16": (16, "bfloat16", "float32", "bf16", "fp32", "F16_A16", "F16_B16", "sm_80"),
    "tf32_k4": (4, "float32", "float32", "tf32", "fp32", "TF32_A4", "TF32_B4", "sm_80"),
    "tf32_k8": (8, "float32", "float32", "tf32", "fp32", "TF32_A8", "TF32_B8", "sm_80"),
    "s8_k16": (16, "int8", "int32", "int8", "int32", "S8_A16", "S8_B16", "sm_80"),
    "s8_k32": (32, "int8", "int32", "int8", "int32", "S8_A32", "S8_B32", "sm_80"),
    "m8_s8": (16, "int8", "int32", "int8", "int32", "M8_A16", "S8_B16", "sm_80"),
    "m8_f64": (4, "float64", "float64", "fp64", "fp64", "M8_A4", "M8_B4", "sm_80"),
    "u8_k32": (32, "uint8", "int32", "uint8", "int32", "S8_A32", "S8_B32", "sm_80"),
}  # fmt: skip


def kernel(k: int, a: str, c: str, a_name: str, c_name: str, place_a: str, place_b: str) -> str:
    m = 8 if place_a.startswith("M8") else 16
    lines = [
        "@T.prim_func",
        f'def f(A: T.Buffer(({m}, {k}), "{a}"), B: T.Buffer(({k}, 8), "{a}"), C: T.Buffer(({m}, 8), "{c}")):',
        '    tx = T.launch_thread("threadIdx.x", 32)',
        f'    FA = T.alloc_buffer(({m * k // 32},), "{a}", scope="local")',
        f'    FB = T.alloc_buffer(({k // 4},), "{a}", scope="local")',
        f'    FC = T.alloc_buffer(({m // 4},), "{c}", scope="local")',
        "    g: T.int32 = tx // 4",
        "    t: T.int32 = tx % 4",
    ]
    for name, source, count, place in (
        ("FA", "A", m * k // 32, place_a),
        ("FB", "B", k // 4, place_b),
        ("FC", "C", m // 4, "ACC"),
    ):
        for i in range(count):
            row, column = PLACES[place](i)
            lines.append(f"    {name}[{i}] = {source}[{row}, {column}]")
    lines.append(
        f'    T.ptx_mma("{c}", "m{m}n8k{k}", "row", "col", "{a_name}", "{a_name}", "{c_name}", '
        "FA.data, 0, FB.data, 0, FC.data, 0, T.bool(False))"
    )
    for i in range(m // 4):
        row, column = PLACES["ACC"](i)
        lines.append(f"    C[{row}, {column}] = FC[{i}]")
    return "\n".join(lines) + "\n"


def operands(dtype: str, shape: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Small whole numbers, which every type has and sums keep, as arguments and as float64."""
    values = np.random.default_rng(seed).integers(0 if dtype.startswith("u") else -8, 8, shape).astype(np.float64)
    if dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), values
    return values.astype(dtype), values


@pytest.mark.parametrize("name", CASES)
def test_products_of_a_warp_match_numpy(name: str) -> None:
    k, a, c, *_ = CASES[name]
    made = program(kernel(*CASES[name][:-1]))
    m = 8 if name.startswith("m8") else 16
    (left, left_value), (right, right_value) = operands(a, (m, k), 0), operands(a, (k, 8), 1)
    start = np.random.default_rng(2).integers(-8, 8, (m, 8))
    got = start.astype(c)
    run_program(made, left, right, got)
    np.testing.assert_array_equal(got.astype(np.float64), left_value @ right_value + start)


@needs_ptxas
@pytest.mark.parametrize("name", CASES)
def test_ptxas_takes_products_without_local_memory(name: str) -> None:
    arch = CASES[name][-1]
    text = emit_ptx(program(kernel(*CASES[name][:-1])).kernels, f"cuda{{arch={arch}}}").text
    (found,) = assemble(text, arch).values()
    assert text.count("mma.sync") == 1
    assert (found.stack, found.spill_stores, found.spill_loads) == (0, 0, 0)


def test_operands_are_rounded_to_tf32() -> None:
    """To ten bits of fraction, to nearest, halfway cases away from zero; NaN of every payload stays NaN."""
    made = program(kernel(*CASES["tf32_k8"][:-1]))
    given = np.array([1 + 2.0**-11, -1 - 2.0**-11, 1 + 2.0**-11 - 2.0**-20, 1 + 3 * 2.0**-11, np.inf], np.float32)
    want = np.array([1 + 2.0**-10, -1 - 2.0**-10, 1, 1 + 2 * 2.0**-10, np.inf], np.float32)
    nans = np.array([0x7F800001, 0x7FFFFFFF, 0xFFC00000], np.uint32).view(np.float32)
    a = np.zeros((16, 8), np.float32)
    a[:8, 0] = [*given, *nans]
    b = np.zeros((8, 8), np.float32)
    b[0] = 1
    got = np.zeros((16, 8), np.float32)
    run_program(made, a, b, got)
    np.testing.assert_array_equal(got[:5], np.repeat(want[:, None], 8, 1))
    assert np.isnan(got[5:8]).all()


def test_what_an_architecture_has_not_is_refused() -> None:
    made = program(kernel(*CASES["bf16_k16"][:-1]))
    with pytest.raises(mlcc.CompileError, match="compile for sm_80 or later"):
        emit_ptx(made.kernels, "cuda{arch=sm_75}")
    text = kernel(*CASES["bf16_k16"][:-1]).replace("m16n8k16", "m16n8k64")
    with pytest.raises(mlcc.CompileError, match="m16n8k64"):
        emit_ptx(program(text).kernels, "cuda{arch=sm_90}")


LDMATRIX = """
@T.prim_func
def f(A: T.Buffer(({rows}, 8), "float16"), C: T.Buffer((32, {count}, 2), "float16")):
    tx = T.launch_thread("threadIdx.x", 32)
    S = T.alloc_buffer(({rows}, 8), "float16", scope="shared")
    F = T.alloc_buffer(({elements},), "float16", scope="local")
    for r in range({count} * 2):
        S[(r * 32 + tx) // 8, tx % 8] = A[(r * 32 + tx) // 8, tx % 8]
    T.tvm_storage_sync("shared")
    T.ptx_ldmatrix("float16", T.bool({trans}), {count}, ".b16", F.data, 0, S.data, tx % {rows} * 8)
    for m, j in T.grid({count}, 2):
        C[tx, m, j] = F[m * 2 + j]
"""


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_gives_rows_or_columns_of_matrices(count: int, trans: bool) -> None:
    made = program(LDMATRIX.format(rows=8 * count, count=count, elements=2 * count, trans=trans))
    a = np.arange(64 * count, dtype=np.float16).reshape(count, 8, 8)
    got = np.zeros((32, count, 2), np.float16)
    run_program(made, a.reshape(-1, 8), got)
    each = a.transpose(0, 2, 1) if trans else a
    np.testing.assert_array_equal(got, each.reshape(count, 32, 2).transpose(1, 0, 2))
    if PTXAS is not None:
        text = emit_ptx(made.kernels, "cuda{arch=sm_80}").text
        assert f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16" in text
        (found,) = assemble(text, "sm_80").values()
        assert found.stack == found.spill_stores == 0

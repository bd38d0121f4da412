"""Products of warpgroups: matrices in shared memory as the PTX ISA lays them out, judged by NumPy and by ptxas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
ARCH = "cuda{arch=sm_90a}"


@dataclass(frozen=True)
class Matrix:
    """How a matrix of so many rows, each of the `k` elements of a sum, lies in shared memory. `turned`: with rows side
    by side. `width` is that of the swizzle, 0 for none; `start` the first element of a sum within longer rows."""

    rows: int
    k: int
    size: int
    turned: bool = False
    width: int = 128
    start: int = 0

    @property
    def wide(self) -> int:
        """Elements that lie side by side."""
        return (self.width or 16) // self.size

    @property
    def shape(self) -> tuple[int, ...]:
        if self.turned:
            return (self.rows // self.wide, self.k, self.wide) if self.width else (
                self.k // 8, self.rows // self.wide, 8, self.wide)  # fmt: skip
        return (self.rows, self.wide) if self.width else (self.rows // 8, self.k // self.wide, 8, self.wide)

    def place(self, row: str, k: str) -> str:
        w = self.wide
        if self.turned:
            if self.width:
                return f"({row}) // {w}, {k}, ({row}) % {w}"
            return f"({k}) // 8, ({row}) // {w}, ({k}) % 8, ({row}) % {w}"
        if self.width:
            return f"{row}, {k} + {self.start}"
        return f"({row}) // 8, ({k}) // {w}, ({row}) % 8, ({k}) % {w}"

    @property
    def distances(self) -> tuple[int, int]:
        """Leading and stride, in bytes (PTX ISA, "Strides")."""
        if self.turned:
            return (self.k * self.width, 8 * self.width) if self.width else (self.rows // self.wide * 128, 128)
        return (16, 8 * self.width) if self.width else (128, self.k // self.wide * 128)

    def descriptor(self, name: str, dtype: str, width: int | None = None) -> str:
        lead, stride = self.distances
        pointer = f'T.tvm_access_ptr(T.type_annotation("{dtype}"), {name}.data, {self.start}, {self.rows * self.k}, 1)'
        return f"T.ptx_wgmma_descriptor({pointer}, {lead}, {stride}, {self.width if width is None else width})"


def load(name: str, source: str, m: Matrix, dtype: str) -> str:
    note = f'T.block_attr({{"permuted_layout": {m.width}}})'
    return f"""
            for i in range({-(-m.rows * m.k // 128)}):
                with T.block("{name}"):
                    vr = T.axis.spatial({m.rows}, (i * 128 + t) // {m.k})
                    vk = T.axis.spatial({m.k}, (i * 128 + t) % {m.k})
                    T.where(i * 128 + t < {m.rows * m.k})
                    {note}
                    {name}[{m.place("vr", "vk")}] = {source}[vr, vk]"""


def kernel(
    kind: str, dtype: str, out: str, out_kind: str, a: Matrix, b: Matrix, scale: str = "T.bool(True)", by: int = 1,
    registers: bool = False, calls: tuple[str, str] = ("", ""), width: int | None = None,
) -> str:  # fmt: skip
    n, k = b.rows, a.k
    head = f'"m64n{n}k{k}", "{kind}", "{kind}", "{out_kind}"'
    tail = f"S.data, 0, {scale}, {by}, 1)"
    if registers:
        count = a.rows * k // 128
        pack = 4 // a.size
        lines = [
            f"            F[{e}] = A[t // 32 * 16 + t % 32 // 4 + {e // pack % 2 * 8}, "
            f"t % 4 * {pack} + {e % pack + e // (2 * pack) * 4 * pack}]"
            for e in range(count)
        ]
        fill_a = f'            F = T.alloc_buffer(({count},), "{dtype}", scope="local")\n' + "\n".join(lines)
        product = f'T.ptx_wgmma_rs("{out}", {head}, F.data, 0, {int(b.turned)}, {b.descriptor("SB", dtype)}, {tail}'
    else:
        fill_a = f'            SA = T.alloc_buffer({a.shape}, "{dtype}", scope="shared")' + load("SA", "A", a, dtype)
        product = (
            f'T.ptx_wgmma_ss("{out}", {head}, {int(a.turned)}, {int(b.turned)}, '
            f"{a.descriptor('SA', dtype, width)}, {b.descriptor('SB', dtype, width)}, {tail}"
        )
    return f"""
@T.prim_func
def f(A: T.Buffer((64, {k}), "{dtype}"), B: T.Buffer(({n}, {k}), "{dtype}"), C: T.Buffer((64, {n}), "{out}")):
    for t in T.thread_binding(128, thread="threadIdx.x"):
        with T.block("all"):
            vt = T.axis.spatial(128, t)
            T.reads(A[0:64, 0:{k}], B[0:{n}, 0:{k}])
            T.writes(C[0:64, 0:{n}])
            SB = T.alloc_buffer({b.shape}, "{dtype}", scope="shared")
            S = T.alloc_buffer(({n // 2},), "{out}", scope="local")
{fill_a}{load("SB", "B", b, dtype)}
            for e in T.unroll({n // 2}):
                S[e] = C[vt // 32 * 16 + e % 4 // 2 * 8 + vt % 32 // 4, e // 4 * 8 + vt % 4 * 2 + e % 2]
            {calls[0]}
            {product}
            {calls[1]}
            for e in T.unroll({n // 2}):
                C[vt // 32 * 16 + e % 4 // 2 * 8 + vt % 32 // 4, e // 4 * 8 + vt % 4 * 2 + e % 2] = S[e]
"""


def program(text: str) -> DeviceProgram:
    func = mlcc.parse(text)["f"]
    assert isinstance(func, tir.PrimFunc)
    return lower_gpu("f", func)


def assembled(text: str) -> None:
    """ptxas takes it, with sums in registers and without waits of its own."""
    if PTXAS is None or version(PTXAS) < (12, 8):
        return
    ptx = emit_ptx(program(text).kernels, ARCH).text
    assert ptx.count("wgmma.mma_async.sync.aligned") == 1
    (found,) = assemble(ptx, "sm_90a").values()
    assert (found.stack, found.spill_stores, found.serialized) == (0, 0, "")


def values(dtype: str, shape: tuple[int, int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Small whole numbers, which every type has, as arguments and as float64."""
    made = np.random.default_rng(seed).integers(0 if dtype.startswith("u") else -4, 4, shape).astype(np.float64)
    if dtype == "bfloat16":
        return (made.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), made
    return made.astype(dtype), made


def check(made: DeviceProgram, dtype: str, out: str, n: int, k: int, by: int = 1, added: bool = True) -> None:
    (a, a_value), (b, b_value) = values(dtype, (64, k), 0), values(dtype, (n, k), 1)
    start = np.random.default_rng(2).integers(-8, 8, (64, n))
    got = start.astype(out)
    run_program(made, a, b, got)
    np.testing.assert_array_equal(got.astype(np.float64), by * (a_value @ b_value.T) + added * start)


# kind, dtype, dtype and kind of the sums, A, B
CASES = {
    "bf16": ("bf16", "bfloat16", "float32", "fp32", Matrix(64, 16, 2, start=16), Matrix(24, 16, 2, start=48)),
    "f16_64": ("fp16", "float16", "float16", "fp16", Matrix(64, 16, 2, width=64, start=16), Matrix(8, 16, 2, width=32)),
    "turned": ("bf16", "bfloat16", "float32", "fp32", Matrix(64, 16, 2, True), Matrix(64, 16, 2, True)),
    "narrow": ("fp16", "float16", "float32", "fp32", Matrix(64, 16, 2, True, 64), Matrix(48, 16, 2, True, 32)),
    "plain": ("fp16", "float16", "float32", "fp32", Matrix(64, 16, 2, width=0), Matrix(32, 16, 2, True, 0)),
    "other": ("fp16", "float16", "float32", "fp32", Matrix(64, 16, 2, True, 0), Matrix(16, 16, 2, width=0)),
    "tf32": ("tf32", "float32", "float32", "fp32", Matrix(64, 8, 4, start=8), Matrix(8, 8, 4, width=64)),
    "s8": ("int8", "int8", "int32", "int32", Matrix(64, 32, 1, start=64), Matrix(16, 32, 1, width=32)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_products_of_a_warpgroup_match_numpy(name: str) -> None:
    kind, dtype, out, _, a, b = CASES[name]
    text = kernel(*CASES[name])
    check(program(text), dtype, out, b.rows, a.k)
    assembled(text)


@pytest.mark.parametrize(("kind", "dtype"), [("uint8", "uint8"), ("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2")])
def test_ptxas_takes_other_types(kind: str, dtype: str) -> None:
    out = ("int32", "int32") if kind == "uint8" else ("float32", "fp32")
    assembled(kernel(kind, dtype, *out, Matrix(64, 32, 1), Matrix(64, 32, 1)))


@pytest.mark.parametrize("name", ["bf16", "tf32", "s8"])
def test_first_operand_may_be_in_registers(name: str) -> None:
    kind, dtype, out, _, a, b = CASES[name]
    text = kernel(*CASES[name], registers=True)
    check(program(text), dtype, out, b.rows, a.k)
    assembled(text)


def test_signs_and_sums_that_begin_anew() -> None:
    kind, dtype, out, _, a, b = CASES["bf16"]
    made = program(kernel(*CASES["bf16"], scale="T.bool(False)", by=-1))
    check(made, dtype, out, b.rows, a.k, by=-1, added=False)


FENCE, COMMIT, WAIT = "T.ptx_wgmma_fence()", "T.ptx_wgmma_commit_group()", "T.ptx_wgmma_wait_group(0)"


@pytest.mark.parametrize(
    ("before", "after", "right"),
    [(FENCE, f"{COMMIT}; {WAIT}", True), ("", f"{COMMIT}; {WAIT}", False), (FENCE, COMMIT, False),
     (FENCE, f"{WAIT}; {COMMIT}", False), (FENCE, f"{COMMIT}; T.ptx_wgmma_wait_group(1)", False)],
)  # fmt: skip
def test_what_is_not_waited_for_does_not_show(before: str, after: str, right: bool) -> None:
    lines = after.replace("; ", "\n            ")
    made = program(kernel(*CASES["bf16"], calls=(before, lines)))
    if right:
        return check(made, "bfloat16", "float32", 24, 16)
    with pytest.raises(AssertionError, match="not equal"):
        check(made, "bfloat16", "float32", 24, 16)


@pytest.mark.parametrize(("old", "new"), [("16, 1024, 128)", "16, 512, 128)"), ("16, 1024, 128)", "16, 1024, 64)")])
def test_a_wrong_descriptor_gives_wrong_numbers(old: str, new: str) -> None:
    text = kernel(*CASES["bf16"])
    assert old in text
    with pytest.raises((AssertionError, mlcc.CallError), match="not equal|E0743"):
        check(program(text.replace(old, new, 1)), "bfloat16", "float32", 24, 16)


def test_the_order_of_a_buffer_goes_into_descriptors() -> None:
    """-1 stands for it; the bits are those that other compilers make, for rows along a sum: a 128 byte swizzle, 1024
    bytes to the next 8 rows."""
    made = program(kernel(*CASES["bf16"], width=-1))
    check(made, "bfloat16", "float32", 24, 16)
    text = "".join(map(str, made.kernels[0].body))
    assert f"T.uint64({1 << 62 | 1024 >> 4 << 32 | 1 << 16})" in text


def test_illegal_products_are_refused() -> None:
    made = program(kernel(*CASES["bf16"]))
    with pytest.raises(mlcc.CompileError, match="only sm_90a has it") as caught:
        emit_ptx(made.kernels, "cuda{arch=sm_90}")
    assert "ptx_mma" in (caught.value.diagnostics[0].help or "")
    text = kernel(*CASES["bf16"])
    with pytest.raises(mlcc.CompileError, match="m64n25k16"):
        emit_ptx(program(text.replace('"m64n24k16"', '"m64n25k16"')).kernels, ARCH)
    with pytest.raises(mlcc.CompileError, match="E0749"):
        run_program(program(text.replace('"m64n24k16"', '"m64n25k16"')), *(np.zeros(1, np.uint16),) * 3)
    turned = Matrix(64, 8, 4, True), Matrix(8, 8, 4)
    with pytest.raises(mlcc.CompileError, match="contiguous along the reduction axis"):
        emit_ptx(program(kernel("tf32", "float32", "float32", "fp32", *turned)).kernels, ARCH)
    with pytest.raises(mlcc.CompileError, match="E0773.*a distance is 100 bytes"):
        program(text.replace("16, 1024, 128)", "16, 100, 128)"))
    with pytest.raises(mlcc.CompileError, match="E0774.*needs a swizzled layout"):
        program(kernel(*CASES["bf16"], width=-1).replace('"permuted_layout": 128', '"permuted_layout": 0'))
    with pytest.raises(mlcc.CompileError, match="E0774.*rows of 128 bytes; `wgmma` reads rows of 64"):
        program(kernel(*CASES["bf16"], width=-1).replace('"permuted_layout": 128', '"permuted_layout": 64'))


WRITE, SYNC = "SA[t % 64, t // 64 + 20] = A[0, 0]", "T.tvm_storage_sync('shared')"


@pytest.mark.parametrize(
    ("lines", "code"),
    [(f"{WRITE}; {WAIT}", "E0742"), (f"{SYNC}; {WRITE}; {SYNC}; {WAIT}", "not equal"),
     (f"{SYNC}; {WAIT}; {WRITE}", "E0742"), (f"{WAIT}; {SYNC}; {WRITE}", "")],
)  # fmt: skip
def test_what_products_read_stays_until_the_wait(lines: str, code: str) -> None:
    after = f"{COMMIT}; {lines}".replace("; ", "\n            ")
    text = kernel(*CASES["bf16"], calls=(f"{SYNC}\n            {FENCE}", after))
    first = "    for t in T.thread_binding"
    made = program(text.replace(first, '    T.func_attr({"mlcc.manual_barriers": True})\n' + first, 1))
    if not code:
        return check(made, "bfloat16", "float32", 24, 16)
    with pytest.raises((AssertionError, mlcc.CallError), match=code):
        check(made, "bfloat16", "float32", 24, 16)


def test_what_products_read_is_no_request_of_threads() -> None:
    from mlcc.targets.emulate.analysis import accesses
    from mlcc.targets.emulate.compiled import Mode, load_kernels
    from mlcc.targets.emulate.program import run_host

    made = program(kernel(*CASES["f16_64"]))
    kernels = load_kernels(made.kernels, Mode(True, trace=1 << 16))
    seen: list[str] = []

    def launched(of: Any, done: Any, grid: Any, block: Any) -> None:
        seen.extend(f"{a.what} {a.buffer}" for a in accesses(done.trace, of.checks))

    (a, _), (b, _) = values("float16", (64, 16), 0), values("float16", (8, 16), 1)
    run_host(made, kernels, (a, b, np.zeros((64, 8), np.float16)), launched)
    assert any("write" in s and "SA" in s for s in seen) and not any("read" in s and "SA" in s for s in seen)

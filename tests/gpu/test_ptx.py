"""PTX from kernels: what it says, what ptxas makes of it, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import mlcc
from mlcc import CompileError
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.machine.gpu import DRIVERS, ISA, Arch
from mlcc.passes.gpu import DeviceKernel
from mlcc.targets.cuda.ptx import PtxModule, emit_ptx
from mlcc.targets.cuda.ptxas import KernelResources, assemble, find_ptxas, version
from tests.gpu.on_cpu import Kernels
from tests.lower import lower_gpu

ARCHS = ("sm_75", "sm_80", "sm_90a", "sm_100", "sm_120")
PTXAS = find_ptxas()
needs_ptxas = pytest.mark.skipif(PTXAS is None or version(PTXAS) < (12, 8), reason="no ptxas of CUDA 12.8 or later")


def ptx(text: str, arch: str = "sm_80", name: str = "f", extra: str = "") -> PtxModule:
    """The PTX of the kernels of a function, which ptxas takes where it knows the architecture."""
    func = mlcc.parse(text)[name]
    assert isinstance(func, tir.PrimFunc)
    made = emit_ptx(lower_gpu(name, func).kernels, f"cuda{{arch={arch} {extra}}}")
    if PTXAS is not None and version(PTXAS) >= tuple(map(int, made.arch.driver[0].split("."))):
        assert assemble(made.text, arch).keys() == {facts.symbol for facts in made.kernels.values()}
    return made


def assembled(text: str, arch: str = "sm_80") -> KernelResources:
    """What the only kernel needs on an architecture."""
    (found,) = assemble(ptx(text, arch).text, arch).values()
    return found


def refused(text: str) -> tuple[str, str]:
    """Code and message of what is wrong with the function."""
    with pytest.raises(CompileError) as caught:
        ptx(text)
    (found,) = caught.value.diagnostics
    return found.code, found.message


REVERSE = """
@T.prim_func
def f(A: T.Buffer((1024,), "float32"), B: T.Buffer((1024,), "float32")):
    bx = T.launch_thread("blockIdx.x", 8)
    tx = T.launch_thread("threadIdx.x", 128)
    S = T.alloc_buffer((128,), "float32", scope="shared")
    S[tx] = A[bx * 128 + tx]
    T.tvm_storage_sync("shared")
    B[bx * 128 + tx] = S[127 - tx]
"""


def test_a_kernel_has_an_entry_its_block_and_a_barrier() -> None:
    made = ptx(REVERSE)
    text = made.text
    assert ".visible .entry f_kernel(" in text
    assert ".reqntid 128, 1, 1" in text
    for instruction in ("ld.global", "st.shared", "bar.sync", "ld.shared", "st.global"):
        assert text.count(instruction) == 1, instruction
    assert text.index("st.shared") < text.index("bar.sync") < text.index("ld.shared")
    facts = made.kernels["f_kernel"]
    assert (facts.symbol, facts.static_shared, facts.block) == ("f_kernel", 512, (128, 1, 1))


@needs_ptxas
@pytest.mark.parametrize("arch", ARCHS)
def test_ptxas_takes_it(arch: str) -> None:
    made = assembled(REVERSE, arch)
    assert made.shared == 512
    assert 0 < made.registers <= 32
    assert (made.stack, made.spill_stores, made.spill_loads) == (0, 0, 0)


def test_sixteen_bytes_at_once() -> None:
    text = """
@T.prim_func
def f(a: T.handle, b: T.handle):
    T.func_attr({"tir.noalias": True})
    A = T.match_buffer(a, (4096,), "float32")
    B = T.match_buffer(b, (4096,), "float32")
    bx = T.launch_thread("blockIdx.x", 8)
    tx = T.launch_thread("threadIdx.x", 128)
    for v in T.vectorized(4):
        B[bx * 512 + tx * 4 + v] = A[bx * 512 + tx * 4 + v] * T.float32(2) + T.float32(1)
"""
    made = ptx(text).text
    assert made.count("ld.global.nc.v4") == 1
    assert made.count("st.global.v4") == 1
    assert made.count("fma.rn.f32") == 4


def test_vectors_are_known_to_be_aligned() -> None:
    """LLVM gives up on sums of many terms, and would store each half by itself."""
    text = """
@T.prim_func
def f(A: T.Buffer((65536, 4096), "float16"), B: T.Buffer((65536, 4096), "float16")):
    for b in T.thread_binding(16384, thread="blockIdx.x"):
        for z in T.thread_binding(2, thread="threadIdx.z"):
            for y in T.thread_binding(4, thread="threadIdx.y"):
                for x in T.thread_binding(32, thread="threadIdx.x"):
                    for r in T.unroll(8):
                        for v in T.vectorized(2):
                            with T.block("copy"):
                                i = T.axis.spatial(65536, b // 32 * 128 + z * 64 + r * 8 + x // 4)
                                j = T.axis.spatial(4096, b % 32 * 128 + y * 32 + x % 4 * 2 + v)
                                B[i, j] = A[i, j] + T.float16(1)
"""
    made = ptx(text).text
    assert len(re.findall(r"st\.global\.[buf]32", made)) == 8 and not re.search(r"st\.global\.[buf]16", made)


def test_local_buffers_are_registers() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((1024,), "float32"), B: T.Buffer((1024,), "float32")):
    tx = T.launch_thread("threadIdx.x", 128)
    L = T.alloc_buffer((8,), "float32", scope="local")
    for i in range(8):
        L[i] = A[i * 128 + tx]
    for i in range(8):
        B[i * 128 + tx] = L[7 - i]
"""
    made = ptx(text).text
    assert ".local" not in made
    assert made.count("ld.global") == made.count("st.global") == 8


@pytest.mark.parametrize(("rows", "is_unrolled"), [(8, True), (60, False)])
def test_what_cannot_be_registers_is_not_unrolled_for_it(rows: int, is_unrolled: bool) -> None:
    text = f"""
@T.prim_func
def f(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
    tx = T.launch_thread("threadIdx.x", 128)
    L = T.alloc_buffer(({rows * 16},), "float32", scope="local")
    for i, j in T.grid({rows}, 16):
        L[i * 16 + j] = A[tx] + T.Cast("float32", i * j)
    for i, j in T.grid({rows}, 16):
        if A[i] > T.float32(0):
            B[tx] = B[tx] + L[i * 16 + j]
"""
    assert ("llvm.loop.unroll.full" in ptx(text).llvm_ir) == is_unrolled


def test_dynamic_shared_memory_has_one_start_and_offsets() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
    tx = T.launch_thread("threadIdx.x", 128)
    P = T.alloc_buffer((130,), "int8", scope="shared.dyn")
    S = T.alloc_buffer((128,), "float32", scope="shared.dyn")
    P[tx] = T.int8(1)
    P[tx + 2] = T.int8(1)
    S[tx] = A[tx]
    T.tvm_storage_sync("shared")
    B[tx] = S[127 - tx] + T.Cast("float32", P[tx])
"""
    made = ptx(text).text
    assert len(re.findall(r"\.extern \.shared \.align 16 \.b8 mlcc_shared\[\]", made)) == 1
    assert re.search(r"st\.shared\.b32 \t\[%rd\d+\+144\]", made), made


@pytest.mark.parametrize("arch", sorted(ISA))
def test_every_architecture_has_its_isa_and_driver(arch: str) -> None:
    made = Arch.of(arch)
    assert made.isa in DRIVERS
    assert f".version {made.isa[0]}.{made.isa[1]}\n.target {arch}\n" in ptx(REVERSE, arch).text
    assert made.fits(made.capability)
    assert made.fits((made.capability[0], 9)) is (made.variant != "a" and made.capability[1] <= 9)
    assert made.fits((99, 0)) is (made.variant == "")


def test_an_unknown_architecture_gets_the_list_and_the_nearest() -> None:
    for name, near in (("sm_91", "sm_90"), ("sm_70", "sm_75"), ("sm_200", "sm_121"), ("sm_90f", "sm_90")):
        with pytest.raises(CompileError) as caught:
            Arch.of(name)
        (found,) = caught.value.diagnostics
        assert found.code == "E0731"
        assert found.help is not None and found.help.startswith(f"did you mean `{near}`?")
        assert all(known in found.help for known in ISA)


def test_what_a_kernel_cannot_do_is_refused() -> None:
    body = """
@T.prim_func
def f(A: T.Buffer((128,), "float32")):
    tx = T.launch_thread("threadIdx.x", 128)
    {}
"""
    code, message = refused(body.format('T.evaluate(T.call_packed("env.f", A.data))'))
    assert code == "E0730" and "packed function" in message
    code, message = refused(body.format("A[tx] = T.q_multiply_shift_per_axis(1, 1, 1, 1, 1, T.bool(1), T.bool(1))"))
    assert code == "E0730"
    apart = REVERSE.replace("(128,)", "(16384,)")
    assert ".extern .shared" in ptx(apart).text, "too much for a fixed place"
    code, message = refused(REVERSE.replace('"threadIdx.x", 128', '"threadIdx.x", 2048'))
    assert code == "E0732" and "2048 threads" in message


def test_bytes_of_vectors_are_reversed_lane_by_lane() -> None:
    """LLVM recognises it, and cannot select it for vectors from sm_100 on: that ended the process."""
    text = """
@T.prim_func
def f(A: T.Buffer((1024,), "uint32"), B: T.Buffer((1024,), "uint32")):
    tx = T.launch_thread("threadIdx.x", 128)
    for v in T.vectorized(2):
        B[tx * 2 + v] = (
            (A[tx * 2 + v] << T.uint32(24))
            | ((A[tx * 2 + v] << T.uint32(8)) & T.uint32(0xFF0000))
            | ((A[tx * 2 + v] >> T.uint32(8)) & T.uint32(0xFF00))
            | (A[tx * 2 + v] >> T.uint32(24))
        )
"""
    assert ptx(text, "sm_120").text.count("prmt.b32") == 2


@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
def test_lanes_that_are_known_to_be_off_load_nothing(arch: str) -> None:
    """LLVM has masked loads where it knows the mask, and cannot select all of them: that ended the process."""
    text = """
@T.prim_func
def f(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    tx = T.launch_thread("threadIdx.x", 2)
    for j in T.unroll(4):
        for v in T.vectorized(3):
            if tx < 1 and j * 3 + v < 8:
                B[j * 3 + v] = T.Select((j * 3 + v) % 5 < 2, A[j * 3 + v], 2) * 2
"""
    assert ptx(text, arch).text.count("ld.global") <= 8


TILES = """
@T.prim_func
def f(a: T.handle, b: T.handle, c: T.handle):
    T.func_attr({"tir.noalias": True})
    A = T.match_buffer(a, (1048576,), "float32")
    B = T.match_buffer(b, (1048576,), "float32")
    C = T.match_buffer(c, (1048576,), "float32")
    by = T.launch_thread("blockIdx.y", 16)
    bx = T.launch_thread("blockIdx.x", 16)
    tx = T.launch_thread("threadIdx.x", 64)
    L = T.alloc_buffer((64,), "float32", scope="local")
    P = T.alloc_buffer((512,), "float32", scope="shared")
    Q = T.alloc_buffer((512,), "float32", scope="shared")
    for i, j in T.grid(8, 8):
        L[i * 8 + j] = T.float32(0)
    for k in range(128):
        T.tvm_storage_sync("shared")
        for s in range(2):
            for v in T.vectorized(4):
                P[s * 256 + tx * 4 + v] = A[(by * 64 + s * 32 + tx // 2) * 1024 + (k * 8 + tx % 2 * 4) + v]
        for s in range(2):
            for v in T.vectorized(4):
                Q[s * 256 + tx * 4 + v] = B[(k * 8 + s * 4 + tx // 16) * 1024 + (bx * 64 + tx % 16 * 4) + v]
        T.tvm_storage_sync("shared")
        for m, i, j in T.grid(8, 8, 8):
            L[i * 8 + j] = L[i * 8 + j] + P[(tx // 8 * 8 + i) * 8 + m] * Q[m * 64 + (tx % 8 * 8 + j)]
    for i, j in T.grid(8, 8):
        C[(by * 64 + tx // 8 * 8 + i) * 1024 + (bx * 64 + tx % 8 * 8 + j)] = L[i * 8 + j]
"""


def test_a_product_with_tiles_in_registers_and_shared_memory() -> None:
    """As nvcc 13.0 makes of the same loops in C: 512 fused operations in the inner loop, and not more registers; it
    loads shared memory 4 bytes at once."""
    text = ptx(TILES).text
    assert text.count("fma.rn.f32") == 512
    assert text.count("ld.shared.v4") == 512 * 2 * 8 // 64 // 4
    assert not re.search(r"ld\.shared\.b|ld\.shared\.f|\.local", text)
    assert text.count("ld.global.nc.v4") == text.count("st.shared.v4") == 4
    assert text.count("bar.sync") == 2
    inner = text[text.index("bar.sync") : text.rindex("bra")].count("\n")
    assert inner < 512 + 32 + 60


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_that_product_has_registers_for_two_tiles_and_spills_none(arch: str) -> None:
    made = assembled(TILES, arch)
    assert made.registers <= 144
    assert (made.shared, made.stack, made.spill_stores) == (4096, 0, 0)


def test_arguments_are_bounded() -> None:
    def many(count: int) -> DeviceKernel:
        buffers = tuple(c.make_buffer(f"A{n}", (128,)) for n in range(count))
        return replace(kernel, params=tuple(b.data for b in buffers), buffers=buffers, body=())

    func = mlcc.parse(REVERSE)["f"]
    assert isinstance(func, tir.PrimFunc)
    (kernel,) = lower_gpu("f", func).kernels
    assert emit_ptx([many(512)], "cuda{arch=sm_90}").kernels
    assert emit_ptx([many(513)], "cuda{arch=sm_100}").kernels
    with pytest.raises(CompileError, match="4104 bytes of arguments"):
        emit_ptx([many(513)], "cuda{arch=sm_90}")


def test_symbols_are_kept_apart() -> None:
    func = mlcc.parse(REVERSE)["f"]
    assert isinstance(func, tir.PrimFunc)
    (kernel,) = lower_gpu("f", func).kernels
    names = ("f_kernel", "f_kernel_S", "f.kernel", "mlcc_shared")
    made = emit_ptx([replace(kernel, name=name) for name in names], "cuda{arch=sm_80}")
    symbols = [facts.symbol for facts in made.kernels.values()]
    assert len(set(symbols)) == 4 and all(f".entry {s}(" in made.text for s in symbols)


def kernel_ptx(expression: str, result: str = "float32", extra: str = "") -> str:
    """The PTX of a kernel that stores an expression of `x`, a float32."""
    text = f"""
@T.prim_func
def f(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "{result}")):
    tx = T.launch_thread("threadIdx.x", 128)
    x: T.float32 = A[tx]
    B[tx] = {expression}
"""
    return ptx(text, extra=extra).text


def test_arithmetic_is_ieee_unless_told_otherwise() -> None:
    assert "div.rn.f32" in kernel_ptx("x / (x + T.float32(1))") and "sqrt.rn.f32" in kernel_ptx("T.sqrt(x)")
    assert "fma.rn.f32" in kernel_ptx("x * x + x")
    assert "div.approx" in kernel_ptx("x / (x + T.float32(1))", extra="fast-math=true")
    for name, instruction in {"log": "lg2", "sqrt": "sqrt", "sigmoid": "rcp", "tanh": "rcp"}.items():
        assert f"{instruction}.approx" not in kernel_ptx(f"T.{name}(x)")
        assert f"{instruction}.approx" in kernel_ptx(f"T.{name}(x)", extra="fast-math=true")
    assert "rsqrt.approx.f32" in kernel_ptx("T.rsqrt(x)")
    assert len(re.findall("fma.rn|mul", kernel_ptx("T.exp(x)"))) > len(
        re.findall("fma.rn|mul", kernel_ptx("T.exp(x)", extra="fast-math=true"))
    )


def test_conversions_to_integers_saturate_by_themselves() -> None:
    """The instruction does, and gives 0 for NaN."""
    for dtype, instruction in {
        "int32": "cvt.rzi.s32.f32",
        "uint32": "cvt.rzi.u32.f32",
        "int8": "cvt.rzi.s32.f32",
    }.items():
        text = kernel_ptx(f'T.Cast("{dtype}", x)', dtype)
        assert text.count(instruction) == 1 and "setp" not in text
        assert ("min.s32" in text and "max.s32" in text) is (dtype == "int8")


def test_narrow_floats_round_as_on_a_cpu() -> None:
    """One rounding per operation; arithmetic of the type itself where that is the same."""
    text = """
@T.prim_func
def f(A: T.Buffer((128,), "float16"), B: T.Buffer((128,), "float16")):
    tx = T.launch_thread("threadIdx.x", 128)
    B[tx] = A[tx] * A[tx] + A[tx]
"""
    made = ptx(text).text
    assert "mul.rn.f16" in made and "add.rn.f16" in made and "fma" not in made
    bfloat = ptx(text.replace("float16", "bfloat16"), "sm_80").text
    assert bfloat.count("cvt.rn.bf16.f32") + bfloat.count("fma.rn.bf16") == 2


def test_angles_of_float32_need_no_doubles_nearby() -> None:
    text = kernel_ptx("T.sin(x)")
    main = text[text.index(".visible .entry") :]
    assert "f64" not in main.replace("cvt.f64.f32", "").replace("cvt.rn.f32.f64", "").replace("param.f64", "")


def test_an_old_llvm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import llvmlite.binding

    monkeypatch.setattr(llvmlite.binding, "llvm_version_info", (20, 1, 8))
    with pytest.raises(CompileError, match="PTX needs LLVM 22.*has 20.1.8"):
        ptx(REVERSE)


def test_an_assertion_leaves_its_number_and_ends_the_thread() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((128,), "int32"), B: T.Buffer((128,), "int32")):
    tx = T.launch_thread("threadIdx.x", 128)
    assert A[tx] >= 0, "not negative"
    assert A[tx] < 100, "below a hundred"
    B[tx] = A[tx]
"""
    func = mlcc.parse(text)["f"]
    assert isinstance(func, tir.PrimFunc)
    (kernel,) = lower_gpu("f", func).kernels
    assert [message for _, message in kernel.asserts] == ["not negative", "below a hundred"]
    a, b, word = np.arange(-14, 114, dtype="int32"), np.zeros(128, "int32"), np.zeros(1, "int32")
    kernels = Kernels([kernel])
    for threads, number in ((1, 1), (128, 2)):  # one after the other: the last one's number stays
        kernels.run("f_kernel", (1,), (threads,), a, b, word)
        assert word[0] == number
    np.testing.assert_array_equal(b, np.where((a >= 0) & (a < 100), a, 0))


@pytest.mark.parametrize("kinds", ["s8.s8", "u8.u8", "u8.s8"])
def test_products_of_four_bytes_are_one_instruction(kinds: str) -> None:
    left, right = ({"s8": "int8", "u8": "uint8"}[k] for k in kinds.split("."))
    text = f"""
@T.prim_func
def f(A: T.Buffer((512,), "{left}"), B: T.Buffer((512,), "{right}"), C: T.Buffer((128,), "int32")):
    tx = T.launch_thread("threadIdx.x", 128)
    C[tx] = T.dp4a(A[T.Ramp(tx * 4, 1, 4)], B[T.Ramp(tx * 4, 1, 4)], C[tx])
"""
    made = ptx(text).text
    instruction = "dp4a." + kinds.replace("s8", "s32").replace("u8", "u32")
    assert made.count(instruction) == 1
    assert made.count("ld.global") == 3


EXTREMA = """
@T.prim_func
def f(a: T.handle, b: T.handle, c: T.handle, d: T.handle):
    A = T.match_buffer(a, (64,), "float32")
    B = T.match_buffer(b, (64,), "float32")
    C = T.match_buffer(c, (64,), "float32")
    D = T.match_buffer(d, (64,), "float32")
    tx = T.launch_thread("threadIdx.x", 64)
    C[tx] = T.max(A[tx], {operand})
    D[tx] = T.min({operand}, A[tx])
"""


def test_extrema_of_numbers_are_one_instruction() -> None:
    """From sm_80 on, where either of two zeros will do: the instruction orders them. A NaN stays one."""
    number = EXTREMA.format(operand="T.assume_number(B[tx])")
    text = ptx(number).text
    assert text.count("max.NaN.f32") == text.count("min.NaN.f32") == 1 and "selp" not in text
    for other in (ptx(EXTREMA.format(operand="B[tx]")).text, ptx(number, "sm_75").text):
        assert ".NaN" not in other and "selp.f32" in other
    values = np.array([0.0, -0.0, 1.5, -2.25, np.inf, -np.inf, np.nan, 1e-45], "float32")
    a, b = (x.ravel().copy() for x in np.meshgrid(values, values))
    made, want = [np.zeros(64, "float32") for _ in range(2)], [np.maximum(a, b), np.minimum(b, a)]
    func = mlcc.parse(number)["f"]
    assert isinstance(func, tir.PrimFunc)
    Kernels(lower_gpu("f", func).kernels, "cuda{arch=sm_80}").run("f_kernel", [1], [64], a, b, *made)
    for have, expected in zip(made, want, strict=True):
        np.testing.assert_array_equal(have, expected)

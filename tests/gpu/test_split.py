"""Kernels are functions of the module: what the text of one says, how host code launches it, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc import backends
from mlcc.errors import CompileError
from mlcc.interp import run_function
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from tests.cli.test_cli import Tool
from tests.gpu.test_kernels import WINDOW
from tests.lower import lower_gpu

SCALED = """
@T.prim_func
def f(a: T.handle, b: T.handle, s: T.float32):
    n = T.int64()
    A = T.match_buffer(a, (n, 32), "float32")
    B = T.match_buffer(b, (n, 32), "float32")
    for i in T.thread_binding(n, thread="blockIdx.x"):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            B[i, t] = A[i, t] * s
"""


def lowered(text: str, target: str = "cuda") -> IRModule:
    return mlcc.run_passes(mlcc.parse(text), "lower", target=target)


def test_kernels_print_and_read_back() -> None:
    text = mlcc.script(lowered(WINDOW))
    assert 'T.launch_thread("blockIdx.x", 8)' in text and 'T.launch_thread("threadIdx.x", 128)' in text
    assert "def f_kernel(" in text and "Module.f_kernel(A.data" in text
    assert text.count("tvm_storage_sync") == 1
    assert mlcc.script(mlcc.parse(text)) == text


def test_the_interpreter_runs_kernels() -> None:
    """Also of sizes that only the launch knows."""
    module = mlcc.parse(mlcc.script(lowered(SCALED)))
    a, b = np.random.default_rng(0).random((5, 32), np.float32), np.zeros((5, 32), np.float32)
    run_function(module, "f", [a, b, 2.0])
    np.testing.assert_array_equal(b, a * 2)


def test_roles_are_those_of_the_kernels() -> None:
    made = mlcc.build(mlcc.parse(SCALED), "cuda").manifest["functions"]["f"]["params"]
    assert [p.get("role") for p in made] == ["in", "out", None]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("B.data, s, n)", "B.data, s)", "takes 4 arguments, but 3 were given"),
        ("B.data, s, n)", "B.data, n, n)", "argument 2 of the kernel `f_kernel` is int64, its parameter `s` float32"),
        ("(A.data, B", "(s, B", "argument 0 of the kernel `f_kernel` is float32, its parameter `var_A` handle"),
    ],
)
def test_launches_are_verified(old: str, new: str, said: str) -> None:
    text = mlcc.script(lowered(SCALED))
    assert old in text
    with pytest.raises(CompileError, match=f"E0354.*{said}"):
        mlcc.build(mlcc.parse(text.replace(old, new)), "cuda")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "        threadIdx_x = T.launch",
            "        B[0] = T.float32(0)\n        threadIdx_x = T.launch",
            "must enclose all",
        ),
        (
            'T.launch_thread("threadIdx.x", 32)',
            'T.launch_thread("blockIdx.x", T.Cast("int32", n))',
            "two launch scopes",
        ),
        (", n: T.int64):", "):\n        n = T.int64()", "`n` is not one of its parameters"),
    ],
)
def test_texts_that_are_no_kernels(old: str, new: str, said: str) -> None:
    text = mlcc.script(lowered(SCALED)).replace("s, n)", "s)" if "n = T" in new else "s, n)")
    head, mark, kernel = text.partition("def f_kernel")
    assert old in kernel
    kernel = kernel.replace("(n * T.int64(32),)", "(n,)")
    with pytest.raises(CompileError, match=f"(?s)E0730.*`f_kernel` is not a valid kernel.*{said}"):
        mlcc.build(mlcc.parse(head + mark + kernel.replace(old, new)), "cuda")


@pytest.mark.parametrize(
    "around", ['for i in T.thread_binding(4, thread="blockIdx.x"):', 'with T.launch_thread("blockIdx.x", 4):']
)
def test_threads_around_a_launch_are_refused(around: str) -> None:
    text = mlcc.script(lowered(WINDOW))
    launch = next(line for line in text.splitlines() if "Module.f_kernel(" in line)
    wrong = text.replace(launch, f"        {around}\n    {launch}")
    with pytest.raises(CompileError, match="E0729.*host code has no threads"):
        mlcc.build(mlcc.parse(wrong), "cuda")


def test_kernels_that_are_called_without_host_code() -> None:
    text = mlcc.script(lowered(WINDOW))
    public = text.replace("@T.prim_func(private=True)", "@T.prim_func")
    with pytest.raises(CompileError, match="E0729.*`f_kernel` is a kernel, which cannot be called but only launched"):
        mlcc.build(mlcc.parse(public), "cuda")


def test_a_kernel_that_is_launched_twice() -> None:
    text = mlcc.script(lowered(SCALED))
    launch = next(line for line in text.splitlines() if "Module.f_kernel(" in line)
    twice = launch.replace("A.data", "B.data")
    made = mlcc.build(mlcc.parse(text.replace(launch, f"{launch}\n{twice}")), "cuda")
    a, b = np.ones((3, 32), np.float32), np.zeros((3, 32), np.float32)
    mlcc.load(made, emulate=True)["f"](a, b, 3.0)
    assert (b == 9).all()


ASSERTING = SCALED.replace("            B[i", '            assert A[i, t] < T.float32(5), "too great"\n            B[i')


def test_assertions_hold_after_reading_back() -> None:
    made = mlcc.build(mlcc.parse(mlcc.script(lowered(ASSERTING))), "cuda")
    run = mlcc.load(made, emulate=True)["f"]
    a, b = np.ones((3, 32), np.float32), np.zeros((3, 32), np.float32)
    run(a, b, 3.0)
    assert (b == 3).all()
    a[1, 1] = 7
    with pytest.raises(mlcc.CallError, match="too great"):
        run(a, b, 3.0)


def test_names_that_are_taken() -> None:
    """By PrimFuncs, and by functions of the graph."""
    other = SCALED.replace("def f(", "def f_kernel(").strip().replace("\n", "\n    ")
    text = f"""
@I.ir_module
class Module:
    {SCALED.strip().replace(chr(10), chr(10) + "    ")}

    {other}

    @R.function
    def f_kernel_1(x: R.Tensor((4, 32), "float32"), s: R.Prim("float32")) -> R.Tensor((4, 32), "float32"):
        return x
"""
    module = lowered(text.replace(', s: R.Prim("float32")', ""))
    assert [*module.functions] == ["f", "f_kernel_2", "f_kernel", "f_kernel_kernel", "f_kernel_1"]
    a, b = np.ones((4, 32), np.float32), np.zeros((4, 32), np.float32)
    mlcc.load(mlcc.build(module, "cuda"), emulate=True)["f"](a, b, 3.0)
    assert (b == 3).all()


@pytest.mark.parametrize(
    ("params", "declared"),
    [
        ('p: T.handle("float32")', "data=p"),
        ('A: T.Buffer((64,), "float32")', "data=A.data"),
        ('A: T.Buffer((64,), "float32")', "data=q"),
    ],
)
def test_views_of_the_host_are_declared_in_the_kernel(params: str, declared: str) -> None:
    """Buffers over its pointers are declared again where a kernel uses them."""
    text = f"""
@T.prim_func
def f({params}, B: T.Buffer((64,), "float32")):
    {'q: T.handle("float32") = A.data' if declared == "data=q" else ""}
    V = T.decl_buffer((64,), "float32", {declared})
    for t in T.thread_binding(64, thread="threadIdx.x"):
        B[t] = V[63 - t]
"""
    module = mlcc.parse(mlcc.script(lowered(text)))
    artifact = mlcc.build(module, "cuda")
    a, b = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    mlcc.load(artifact, emulate=True)["f"](a, b)
    np.testing.assert_array_equal(b, a[::-1])


def test_sizes_of_what_only_a_pointer_reaches() -> None:
    text = """
@T.prim_func
def f(a: T.handle, B: T.Buffer((128,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (n, 128), "float32")
    for t in T.thread_binding(32, thread="threadIdx.x"):
        S = T.alloc_buffer((128,), "float32", scope="shared")
        T.ptx_cp_async("float32", S.data, t * 4, A.data, t * 4, 16)
        T.ptx_commit_group()
        T.ptx_wait_group(0)
        B[t * 4] = S[t * 4]
"""
    made = mlcc.build(mlcc.parse(mlcc.script(lowered(text))), "cuda")
    a, b = np.random.default_rng(0).random((2, 128), np.float32), np.zeros(128, np.float32)
    mlcc.load(made, emulate=True)["f"](a, b)
    np.testing.assert_array_equal(b[::4], a[0, ::4])


DYNAMIC = """
@T.prim_func
def f(A: T.Buffer(({n},), "float32"), B: T.Buffer(({n},), "float32")):
    tx = T.launch_thread("threadIdx.x", 128)
    S = T.alloc_buffer(({n},), "float32", scope="shared")
    for i in range({n} // 128):
        S[i * 128 + tx] = A[i * 128 + tx]
    for i in range({n} // 128):
        B[i * 128 + tx] = S[{n} - 1 - i * 128 - tx]
"""


def test_what_is_too_large_for_a_fixed_place_is_dynamic() -> None:
    for n, dynamic in ((12288, 0), (12416, 49664)):
        func = mlcc.parse(DYNAMIC.format(n=n))["f"]
        assert isinstance(func, tir.PrimFunc)
        (kernel,) = lower_gpu("f", func).kernels
        assert tir.const_int(kernel.dynamic_shared) == dynamic


def test_shared_memory_of_an_unrolled_loop_is_the_same_in_all_turns() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((4, 64), "float32"), B: T.Buffer((4, 64), "float32")):
    for t in T.thread_binding(64, thread="threadIdx.x"):
        for k in T.unroll(4):
            with T.block("row"):
                vk = T.axis.spatial(4, k)
                S = T.alloc_buffer((64,), "float32", scope="shared")
                vt = T.axis.spatial(64, t)
                S[vt] = A[vk, vt]
                B[vk, vt] = S[63 - vt]
"""
    artifact = mlcc.build(mlcc.parse(text), "cuda{arch=sm_80}", pipeline="")
    ptx = artifact.emit("ptx").decode()
    assert artifact.manifest["kernels"]["f_kernel"]["shared"] == 256
    assert len(re.findall(r"\.shared .*\[256\];", ptx)) == 1 and ptx.count("st.shared") == 4
    a, b = np.random.default_rng(0).random((4, 64), np.float32), np.zeros((4, 64), np.float32)
    mlcc.load(artifact, emulate=True)["f"](a, b)
    np.testing.assert_array_equal(b, a[:, ::-1])


def test_a_tensor_map_of_another_form() -> None:
    path = Path(__file__).parents[1] / "lowering" / "steps" / "gpu-bulk.mlc"
    text = mlcc.script(lowered(path.read_text(), "cuda{arch=sm_90a}"))
    (stated,) = re.findall(r'"mlcc.tensor_maps": \{"(\w+)": \{"box": \[\d+', text)
    again = mlcc.build(mlcc.parse(text), "cuda{arch=sm_90a}")
    assert stated.endswith("_map") and again.emit("ptx")
    for old, new, said in (
        (r'"box": \[\d+', '"box": [8', "tensor map differs from the form"),
        (r'"box": \[\d+', '"box": [1', "multiple of 16"),
        (r'"swizzle": \d+', '"swizzle": 48', "the swizzle is 48"),
        (r'"swizzle": \d+', '"swirl": 0', "dtype, swizzle, box and steps"),
        (rf'\{{"{stated}"', '{"other"', "names `other`, which is not a parameter of type handle"),
    ):
        wrong = re.sub(old, new, text, count=1)
        assert wrong != text
        with pytest.raises(CompileError, match=f"E0777.*{said}"):
            mlcc.build(mlcc.parse(wrong), "cuda{arch=sm_90a}")


@pytest.fixture
def tool(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    return Tool(tmp_path, capfd)


def test_command_line_goes_on_after_each_step(tool: Tool) -> None:
    """`mlcc passes -p FIRST -o x.mlc`, then `mlcc compile x.mlc`, after each step with which kernels stand apart."""

    def code(name: str) -> list[str]:
        lines = (tool.folder / name).read_text().splitlines()
        return [line for line in lines if not line.startswith("// mlcc")]

    tool.file("f.mlc", SCALED)
    tool("compile", "f.mlc", "-t", "cuda", "-p", "", "-o", "whole.ptx", "--prefix", "p")
    steps = backends.get("cuda").lowering_pipeline.split(",")
    for last in ("select-unrolled-loops", "split-host-device", "narrow-kernels", "plan-dynamic-shared"):
        at = steps.index(last) + 1
        tool("passes", "f.mlc", "-t", "cuda", "-p", ",".join(steps[:at]), "-o", "part.mlc")
        rest = ",".join(steps[at:])
        tool("compile", "part.mlc", "-t", "cuda", "-p", rest, "-o", "part.ptx", "--prefix", "p")
        assert code("part.ptx") == code("whole.ptx"), last

"""Freestanding objects: what they leave undefined, which entry points they have, what they refuse."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from mlcc.driver import build, parse_file
from mlcc.errors import CompileError
from mlcc.grammar.parser import parse
from mlcc.machine.target import Target
from mlcc.targets.llvm.artifact import ObjectArtifact
from mlcc.targets.llvm.codegen.libm import LIBM
from tests.generate.functions import Options, prim_func
from tests.targets.c_programs import CC

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
MEMORY = {"memcpy", "memmove", "memset", "memcmp", "bcmp"}
TARGETS = [
    "llvm{freestanding=true}", "llvm{freestanding=true cpu=x86-64-v3}", "llvm{triple=x86_64-none-elf}",
    "llvm{triple=aarch64-none-elf}", "llvm{triple=riscv64-unknown-elf}",
    "llvm{triple=riscv64-linux-musl freestanding=true features=+v}",
]  # fmt: skip
LARGE = """
@R.function
def main(x: R.Tensor(("n", 300), "float32"), w: R.Tensor((300, 300), "float32")):
    with R.dataflow():
        a = R.nn.softmax(R.matmul(x, w))
        b = R.sin(R.matmul(a, w))
        R.output(b)
    return b
"""


def made_for(target: str, text: str = LARGE) -> ObjectArtifact:
    artifact = build(parse(text), Target.parse(target))
    assert isinstance(artifact, ObjectArtifact)
    return artifact


def undefined(path: Path) -> set[str]:
    listed = subprocess.run(["nm", "-u", path], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in listed.splitlines()}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sample", ["", "lenet/lenet.mlc", "transformer/encoder.mlc", "decoder/decoder.mlc"])
def test_only_memory_functions_are_left_undefined(tmp_path: Path, target: str, sample: str) -> None:
    module = parse_file(str(SAMPLES / sample)) if sample else parse(LARGE)
    made = build(module, Target.parse(target))
    made.save(tmp_path / "m.o")
    own_fma = {"fma"} if target in (TARGETS[0], TARGETS[2]) else set()  # without the instruction
    assert undefined(tmp_path / "m.o") <= MEMORY | own_fma


@pytest.mark.parametrize("target", TARGETS[2:5])
def test_generated_functions_leave_only_libm_undefined(tmp_path: Path, target: str) -> None:
    """What the generator calls by name (`call_extern`) stays libm's."""
    from mlcc.ir.module import IRModule

    module = IRModule(
        {f"f{seed}": prim_func(seed, Options(dtypes=("float32", "float64", "int32"))) for seed in range(20)}
    )
    build(module, Target.parse(target)).save(tmp_path / "m.o")
    assert undefined(tmp_path / "m.o") <= MEMORY | set(LIBM)


def test_hosted_objects_allocate_and_use_threads(tmp_path: Path) -> None:
    made_for("llvm").save(tmp_path / "m.o")
    assert undefined(tmp_path / "m.o") >= {"malloc", "free", "secure_getenv"}


def test_there_is_no_entry_that_would_allocate(tmp_path: Path) -> None:
    made = made_for("llvm{freestanding=true}")
    function = made.manifest["functions"]["main"]
    assert function["workspace_from"] == "caller" and made.manifest["target"]["freestanding"]
    header = made.header("m.o")
    assert "m_main_ws(" in header and not re.search(r"\bm_main\(", header.replace("`m_main`", ""))
    made.save(tmp_path / "m.o")
    (tmp_path / "m.h").write_text(header)
    defined = subprocess.run(["nm", "--defined-only", tmp_path / "m.o"], capture_output=True, text=True, check=True)
    assert " T m_main_ws\n" in defined.stdout and " T m_main\n" not in defined.stdout
    (tmp_path / "a.c").write_text('#include "m.h"\n')
    subprocess.run([*CC, "-c", "a.c"], cwd=tmp_path, check=True)


def test_a_small_workspace_stays_on_the_stack() -> None:
    text = '@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    return R.add(x, x)\n'
    made = made_for("llvm{freestanding=true}", text)
    assert made.manifest["functions"]["main"]["workspace_from"] == "stack"
    assert "m_main(" in made.header("m.o")
    assert made_for("llvm").manifest["functions"]["main"]["workspace_from"] == "heap"


def test_memory_of_sizes_in_the_data_is_refused() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(8):
        C = T.alloc_buffer_stmt((A[i],), "int32")
        for j in range(A[i]):
            C[j] = j
        for k in range(A[i]):
            B[i] = B[i] + C[k]
"""
    with pytest.raises(CompileError) as caught:
        made_for("llvm{freestanding=true}", text)
    found = caught.value.diagnostics[0]
    assert found.code == "E0712" and found.primary is not None and "bound" in (found.help or "")
    made_for("llvm", text)


def test_parallel_loops_run_serially() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((512, 4096), "float32"), B: T.Buffer((512, 4096), "float32")):
    for i in T.parallel(512):
        for j in range(4096):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.exp(A[vi, vj])
"""
    assert made_for("llvm", text).manifest["pool"]
    assert not made_for("llvm{freestanding=true}", text).manifest["pool"]


def test_versions_take_an_environment() -> None:
    with pytest.raises(CompileError, match="one version"):
        Target.parse('llvm{triple=x86_64-none-elf versions=["x86-64-v3"]}')
    with pytest.raises(CompileError, match="not on riscv64"):
        Target.parse('llvm{triple=riscv64-linux-gnu versions=["sifive-x280"]}')


def test_bare_metal_x86_leaves_the_red_zone_alone() -> None:
    """Interrupts overwrite what is below the stack pointer: every access is above it."""
    made = made_for("llvm{triple=x86_64-none-elf}")
    assert not re.search(r"-\d+\(%rsp", made.emit("asm").decode())


def test_no_global_offset_table_on_bare_metal(tmp_path: Path) -> None:
    """Linker scripts for bare metal need no section for one."""
    for target in TARGETS[2:5]:
        made_for(target).save(tmp_path / "m.o")
        listed = subprocess.run(["readelf", "-rW", tmp_path / "m.o"], capture_output=True, text=True, check=True).stdout
        assert not re.search(r"R_\w*GOT", listed), target


def test_no_shared_library_for_bare_metal() -> None:
    with pytest.raises(CompileError, match="no system that loads shared libraries"):
        made_for("llvm{triple=aarch64-none-elf}").emit("shared")

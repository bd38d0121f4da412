"""Debug lines: code says which line of the text it comes from, and is otherwise the code without them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import mlcc

CPU = "llvm{triple=x86_64-unknown-linux-gnu cpu=x86-64-v3}"
KERNEL = """
@T.prim_func
def main(A: T.Buffer((1000,), "float32"), B: T.Buffer((1000,), "float32"), C: T.Buffer((1000,), "float32")):
    for i in range(1000):
        with T.block("sum"):
            v = T.axis.spatial(1000, i)
            B[v] = A[v] + T.float32(3)
    for i in range(1000):
        with T.block("product"):
            v = T.axis.spatial(1000, i)
            C[v] = A[v] * T.float32(5)
"""
NETWORK = """
@R.function
def main(x: R.Tensor(("n", 33), "float32"), w: R.Tensor((33, 47), "float32")):
    with R.dataflow():
        a = R.nn.softmax(R.matmul(x, w), axis=-1)
        b = R.sum(R.exp(a), axis=[0])
        R.output(b)
    return b
"""
SUM, PRODUCT = (next(n for n, line in enumerate(KERNEL.splitlines(), 1) if text in line) for text in ("+ T.f", "* T.f"))
EMITTED = {CPU: "asm", "c": "c", "cuda{arch=sm_80}": "ptx"}
_DEBUG = re.compile(
    r"\s*\.(loc|file)\s|#line |\$L__(tmp|func_begin|func_end)\d+:|\.L(tmp|func_begin|func_end)[\d.u]+:"
    r"|\s*\.(size|section|cfi_\w+|ident)\b|(//|#|/\*) ?mlcc|// begin"
)


def emit(text: str, target: str, debug_lines: bool) -> str:
    artifact = mlcc.build(mlcc.parse(text, name="model.mlc"), target, debug_lines=debug_lines)
    return artifact.emit(EMITTED[target]).decode()


def code(text: str) -> list[str]:
    lines = [line.split(" #")[0].rstrip() for line in text.splitlines() if not _DEBUG.match(line)]
    return [re.sub(r"L(BB|CPI|JTI)[\d_]+", "L", line) for line in lines if line.strip()]


@pytest.mark.parametrize("target", EMITTED)
@pytest.mark.parametrize("text", [KERNEL, NETWORK], ids=["kernel", "network"])
def test_code_is_the_same(target: str, text: str) -> None:
    plain, located = emit(text, target, False), emit(text, target, True)
    assert code(plain) == code(located)
    assert not re.search(r"\.loc\s|#line", plain)


@pytest.mark.parametrize("target", EMITTED)
def test_instructions_have_the_lines_of_their_statements(target: str) -> None:
    text = emit(KERNEL, target, True)
    operations = {"c": (r"\+ 3", r"\* 5"), "cuda{arch=sm_80}": (r"add(\.rn)?\.f32", r"mul(\.rn)?\.f32")}
    sum_, product = operations.get(target, (r"vaddps", r"vmulps"))
    line, found = 0, []
    for shown in text.splitlines():
        match = re.match(r"\s*\.loc\s+\d+\s+(\d+)|#line (\d+) \"model.mlc\"", shown)
        if match is not None:
            line = int(match[1] or match[2])
        found += [(name, line) for name, wanted in (("sum", sum_), ("product", product)) if re.search(wanted, shown)]
    assert {("sum", SUM), ("product", PRODUCT)} == {*found}


def test_objects_run_and_keep_their_lines() -> None:
    artifact = mlcc.build(mlcc.parse(KERNEL, name="model.mlc"), "llvm{cpu=native}", debug_lines=True)
    assert b"model.mlc" in artifact.emit("obj")
    a = np.arange(1000, dtype=np.float32)
    b, c = np.empty_like(a), np.empty_like(a)
    mlcc.load(artifact)["main"](a, b, c)
    np.testing.assert_array_equal(b, a + 3)
    np.testing.assert_array_equal(c, a * 5)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("suffix", [".s", ".c"])
def test_compilers_take_the_directives(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"net{suffix}"
    artifact = mlcc.build(
        mlcc.parse(NETWORK, name='a "strange\\ name'), CPU if suffix == ".s" else "c", debug_lines=True
    )
    artifact.save(path)
    subprocess.run(["cc", "-c", "-Werror", str(path), "-o", str(tmp_path / "net.o")], check=True, timeout=120)


def test_sources_share_their_numbers() -> None:
    """Objects of several units are one assembly text, in which a number must name one file."""
    from mlcc.targets.llvm.object.assembly import join_assembly

    units = [
        '\t.file\t1 "a.mlc"\n\t.loc\t1 7 3\n\tnop\n',
        '\t.file\t1 "b.mlc"\n\t.file\t2 "a.mlc"\n\t.loc\t1 8 3\n\tnop\n\t.loc\t2 9 1 is_stmt 0\n',
    ]
    assert join_assembly(units) == (
        '\t.file\t1 "a.mlc"\n\t.loc\t1 7 3\n\tnop\n\t.file\t2 "b.mlc"\n\t.loc\t2 8 3\n\tnop\n\t.loc\t1 9 1 is_stmt 0\n'
    )

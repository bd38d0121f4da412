"""`mlcc inspect`: the sizes of code, constants and workspaces, against what binutils and the loaded artifact say."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_cli import Tool, f32

NET = """
@R.function
def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 96), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)
        b = R.nn.softmax(a)
        c = R.sum(b, axis=0)
        R.output(b, c)
    return (b, c)
"""


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    tool = Tool(tmp_path, capfd)
    tool.file("net.mlc", NET)
    np.savez("w.npz", w=f32(64, 96))
    tool("passes", "net.mlc", "-p", "bind-params{params=w.npz}", "-o", "bound.mlc")
    return tool


def functions_by_nm(path: str) -> dict[str, int]:
    """The size of each function of an object, from binutils."""
    listed = subprocess.run(["nm", "-S", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    fields = [line.split() for line in listed.splitlines()]
    return {words[3]: int(words[1], 16) for words in fields if len(words) == 4 and words[2] in "tTwW"}


@pytest.mark.parametrize("target", ["llvm", "llvm{cpu=x86-64-v3}", "llvm{triple=aarch64-linux-gnu}"])
@pytest.mark.parametrize("suffix", ["o", "so"])
def test_code_sizes_are_those_of_nm(mlcc: Tool, target: str, suffix: str) -> None:
    if suffix == "so" and "aarch64" in target:
        return  # needs a linker for that machine
    path = f"net.{suffix}"
    mlcc("compile", "net.mlc", "-t", target, "-o", path)
    code = json.loads(mlcc("inspect", path, "--json"))["code"]
    functions = functions_by_nm(path)
    assert set(code["kernels"]) == {"matmul", "softmax", "sum"}
    for kernel, size in code["kernels"].items():
        mine = re.compile(rf"(parallel\.)?(kernel|grid)\.{kernel}(_\w+)?(\.least)?(\.\d+)*(\.piece)?")
        assert size == sum(n for name, n in functions.items() if mine.fullmatch(name)) > 0
    assert code["bytes"] == sum(code["kernels"].values()) + code["other_bytes"]
    assert code["bytes"] >= sum(functions.values())


def test_totals_are_those_of_size(mlcc: Tool) -> None:
    mlcc("compile", "bound.mlc", "-o", "net.o")
    listed = subprocess.run(["size", "-A", "net.o"], capture_output=True, text=True, check=True).stdout
    sections = {
        words[0]: int(words[1])
        for line in listed.splitlines()
        if len(words := line.split()) == 3 and words[1].isdigit()
    }
    found = json.loads(mlcc("inspect", "net.o", "--json"))
    text = sum(n for name, n in sections.items() if name.startswith(".text"))
    assert found["code"]["bytes"] == text
    rodata = sum(n for name, n in sections.items() if name.startswith(".rodata"))
    assert found["constants"]["bytes"] >= 4 * 64 * 96
    assert found["code"]["read_only_data_bytes"] == rodata - found["constants"]["bytes"]
    assert found["code"]["bss_bytes"] == sections.get(".bss", 0) > 0
    assert found["code"]["data_bytes"] == sections.get(".data", 0)
    assert found["code"]["writable_data_bytes"] == sections.get(".bss", 0) + sections.get(".data", 0)


@pytest.mark.parametrize("target", ["llvm", "llvm{freestanding=true}", "llvm{triple=riscv64-unknown-elf}"])
def test_imports_are_those_of_nm(mlcc: Tool, target: str) -> None:
    mlcc("compile", "bound.mlc", "-t", target, "-o", "net.o")
    listed = subprocess.run(["nm", "-u", "net.o"], capture_output=True, text=True, check=True).stdout
    needed = sorted(line.split()[-1] for line in listed.splitlines())
    assert json.loads(mlcc("inspect", "net.o", "--json"))["code"]["imports"] == needed
    assert f"needs from outside: {', '.join(needed)}" in mlcc("inspect", "net.o")


def test_sizes_as_text(mlcc: Tool) -> None:
    mlcc("compile", "bound.mlc", "-t", "llvm{cpu=native}", "-o", "net.o")
    facts = json.loads(mlcc("inspect", "net.o", "--json"))
    lines = mlcc("inspect", "net.o").splitlines()
    kernels = [line.split(":")[0].split()[1] for line in lines if line.startswith("    kernel ")]
    assert kernels == sorted(facts["code"]["kernels"], key=lambda name: -facts["code"]["kernels"][name])
    assert any(line.startswith(f"code: {facts['code']['bytes']} bytes (") for line in lines)
    count, size = facts["constants"]["count"], facts["constants"]["bytes"]
    assert any(re.fullmatch(rf"constants: {count} tensors?, {size} bytes", line) for line in lines)
    assert any(line.startswith("    C symbol net_main, relax function, ") and "workspace" in line for line in lines)
    assert mlcc("inspect", "-", code=1) == ""  # an empty standard input is no artifact


def test_a_stripped_library_has_no_kernels(mlcc: Tool) -> None:
    mlcc("compile", "net.mlc", "-o", "net.so")
    subprocess.run(["strip", "--strip-all", "-o", "less.so", "net.so"], check=True)
    from mlcc.runtime.code_size import code_size

    size = code_size(Path("less.so").read_bytes())
    assert size.kernels is None and size.code == code_size(Path("net.so").read_bytes()).code


def test_workspace_in_words() -> None:
    from mlcc.cli.cmd_inspect import format_workspace

    assert format_workspace(0, "m_f") == "no workspace"
    assert format_workspace(4096, "m_f") == "4096 bytes of workspace"
    assert format_workspace(["*", "n", 64], "m_f") == "n * 64 bytes of workspace"
    assert format_workspace(None, "m_f") == "workspace of m_f_ws_size(...) bytes"

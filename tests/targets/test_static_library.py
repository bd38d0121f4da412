"""Static libraries: what binutils read in them, what programs linked with them need, and mlcc's own tools."""

from __future__ import annotations

import contextlib
import mmap
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mlcc.errors import CompileError, LoadError
from mlcc.grammar.parser import parse
from mlcc.machine.target import Target
from mlcc.runtime.loader import load, read_manifest
from mlcc.runtime.static_library import members
from mlcc.targets.llvm.object.static_library import Member, static_library
from tests.cli.test_cli import Tool
from tests.targets.c_programs import CC
from tests.targets.cross import PLATFORMS, Platform
from tests.targets.texts import RELU, artifact, module

TEXT = """
@R.function
def main(x: R.Tensor(("n", 300), "float32")):
    with R.dataflow():
        a = R.nn.softmax(R.exp(x))
        b = R.matmul(R.permute_dims(a), a)
        R.output(b)
    return b
"""
PROGRAM = """
#include "model.h"
static float in[2 * 300], out[300 * 300];
static unsigned char memory[1 << 20] __attribute__((aligned(64)));
int main(void) {
    int64_t shape[2] = {2, 300}, out_shape[2] = {300, 300};
    DLTensor x = {in, {1, 0}, 2, {2, 32, 1}, shape, 0, 0}, y = {out, {1, 0}, 2, {2, 32, 1}, out_shape, 0, 0};
    (void)memory;
    if (CALL != 0) return 1;
    float expected = 2.0f / 300 / 300;
    return !(out[5] > 0.999f * expected && out[5] < 1.001f * expected);
}
"""


def run(*command: str, folder: Path) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    tool = Tool(tmp_path, capfd)
    tool.file("model.mlc", TEXT)
    return tool


def test_binutils_read_it(mlcc: Tool, tmp_path: Path) -> None:
    mlcc("compile", "model.mlc", "-o", "libmodel.a", "--header", "model.h")
    assert run("ar", "t", "libmodel.a", folder=tmp_path).split() == ["model.o", "model_alloc.o"]
    index = run("nm", "-s", "libmodel.a", folder=tmp_path)
    assert "model_main in model_alloc.o" in index and "model_main_ws in model.o" in index
    before = (tmp_path / "libmodel.a").read_bytes()
    mlcc("compile", "model.mlc", "-o", "libmodel.a")
    assert (tmp_path / "libmodel.a").read_bytes() == before
    run("ranlib", "libmodel.a", folder=tmp_path)
    assert run("nm", "-s", "libmodel.a", folder=tmp_path) == index


@pytest.mark.parametrize("call", ["model_main(&x, &y)", "model_main_ws(memory, sizeof memory, &x, &y)"])
def test_programs_link_what_they_call(mlcc: Tool, tmp_path: Path, call: str) -> None:
    mlcc("compile", "model.mlc", "-t", "llvm{cpu=x86-64 num-cores=1}", "-o", "libmodel.a", "--header", "model.h")
    (tmp_path / "app.c").write_text(PROGRAM)
    run(*CC, f"-DCALL={call}", "app.c", "-L.", "-lmodel", "-lm", "-o", "app", folder=tmp_path)
    run("./app", folder=tmp_path)
    needed = {line.split()[-1].partition("@")[0] for line in run("nm", "-u", "app", folder=tmp_path).splitlines()}
    assert ("malloc" in needed) == ("_ws" not in call)


@pytest.mark.parametrize("name", ["x86_64-bare", "aarch64-bare", "riscv64-bare"])
def test_a_program_without_libc(mlcc: Tool, tmp_path: Path, name: str) -> None:
    """The library of a hosted target, too: nothing of the member that allocates is linked."""
    platform = PLATFORMS[name]
    platform.require()
    triple = platform.target.partition("triple=")[2].partition("-")[0] + "-linux-gnu"
    for target in (platform.target, f"llvm{{triple={triple} num-cores=1 vector-width=128}}"):
        _link_bare(mlcc, tmp_path, platform, target)


def _link_bare(mlcc: Tool, folder: Path, platform: Platform, target: str) -> None:
    mlcc("compile", "model.mlc", "-t", target, "-o", "libmodel.a", "--header", "model.h")
    (folder / "app.c").write_text(PROGRAM)
    shim = str(Path(__file__).parent / "bare_metal.c")
    call = "-DCALL=model_main_ws(memory, sizeof memory, &x, &y)"
    run(*platform.compiler, "-O1", call, "app.c", shim, "libmodel.a", "-lgcc", "-o", "app", folder=folder)
    run(*platform.runner, "./app", folder=folder)


def test_tools_read_it(mlcc: Tool, tmp_path: Path) -> None:
    mlcc("compile", "model.mlc", "-o", "libmodel.a")
    assert "C symbol model_main, relax function" in mlcc("inspect", "libmodel.a")
    x = np.random.default_rng(0).normal(size=(3, 300)).astype(np.float32)
    np.savez("x.npz", x=x)
    mlcc("run", "libmodel.a", "--in", "x.npz", "--out", "y.npz")
    a = np.exp(np.exp(x) - np.exp(x).max(axis=1, keepdims=True))
    a /= a.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.load("y.npz")["out"], a.T @ a, rtol=1e-4)
    np.testing.assert_allclose(load((tmp_path / "libmodel.a").read_bytes())["main"](x), a.T @ a, rtol=1e-4)


def test_several_models_in_one_library(mlcc: Tool, tmp_path: Path) -> None:
    for name in ("one", "two"):
        mlcc("compile", "model.mlc", "-o", f"lib{name}.a")
    script = "create liball.a\naddlib libone.a\naddlib libtwo.a\nsave\nend\n"
    subprocess.run(["ar", "-M"], input=script, text=True, cwd=tmp_path, check=True)
    listed = run("nm", "-s", "liball.a", folder=tmp_path)
    assert "one_main in one_alloc.o" in listed and "two_main_ws in two.o" in listed
    with pytest.raises(LoadError, match=r"several artifacts: (one\.o, two\.o|two\.o, one\.o)"):
        load(tmp_path / "liball.a")


def test_long_and_odd_names() -> None:
    made = [Member(name, [content], (f"s{i}",)) for i, (name, content) in enumerate(
        [("a.o", b"x"), ("a_name_that_is_far_too_long.o", b"yy"), ("größe.o", b""), ("fifteen_chars.o", b"zzz")]
    )]  # fmt: skip
    library = b"".join(static_library(made))
    assert list(members(library)) == [(m.name, bytes(m.pieces[0])) for m in made]


def test_an_object_beyond_4_gib_is_refused() -> None:
    with mmap.mmap(-1, (1 << 32) + 1) as large, memoryview(large) as content:  # nothing of it is touched
        static_library([Member("a", [b"x"], ("f",)), Member("b", [content], ("g",))])
        with pytest.raises(CompileError, match="begin within 4 GiB"):
            static_library([Member("a", [content], ("f",)), Member("b", [b"x"], ("g",))])


def test_damaged_libraries_are_refused() -> None:
    good = b"".join(artifact(module(RELU.replace("(private=True)", "")), opt_level=0)._pieces("static", "m"))
    assert read_manifest(good)["prefix"] == "m"
    rng = random.Random(1)
    for _ in range(60):
        bad = bytearray(good)
        if rng.random() < 0.5:
            del bad[rng.randrange(len(bad)) :]
        else:
            bad[rng.randrange(8, 200)] ^= 1 << rng.randrange(8)
        with contextlib.suppress(LoadError):  # what is damaged may mean nothing: the time of a member
            load(bytes(bad))
    with pytest.raises(LoadError, match="no member"):
        load(b"!<arch>\n")


def test_native_kernels_and_small_modules_have_one_member() -> None:
    from mlcc.driver import build

    text = '@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    return R.add(x, x)\n'
    made = build(parse(text), Target.parse("llvm"))
    assert [name for name, _ in members(made.emit("static", prefix="tiny"))] == ["tiny.o"]

"""Programs and commands whose outputs are known: what is killed, starved and repeated."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from tests.fuzz.commands import judged

MODEL = """# mlcc.data-file w.npz
@R.function
def main(x: R.Tensor(("n", 48), "float32")):
    w = R.data("w", R.Tensor((48, 32), "float32"))
    b = R.data("b", R.Tensor((32,), "float32"))
    with R.dataflow():
        y = R.nn.relu(R.add(R.matmul(x, w), b))
        R.output(y)
    return y
"""
KERNEL = """@T.prim_func
def main(A: T.Buffer((32, 24), "float32"), B: T.Buffer((24, 16), "float32"), C: T.Buffer((32, 16), "float32")):
    # a comment that stays
    for i, j, k in T.grid(32, 16, 24):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
MESSY = KERNEL.replace(", ", ",").replace(" = ", "  =  ")
FILES = ("model.mlc", "kernel.mlc", "w.npz")  # that are inputs of several commands
CPU = "llvm{cpu=x86-64-v2}"  # one version of each kernel, which compiles faster than several
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("compile", "model.mlc", "-t", CPU, "-o", "model.o", "--header", "model.h"),
    ("compile", "model.mlc", "-O0", "-o", "plain.so"),
    ("compile", "kernel.mlc", "-t", CPU, "-O3", "-o", "kernel.o"),
    ("compile", "kernel.mlc", "-t", "cuda{arch=sm_80}", "-o", "kernel.mlca"),
    ("compile", "model.mlc", "--emit", "c", "-o", "model.c"),
    ("passes", "model.mlc", "-p", "fuse,lower-to-tir,fuse-tir", "-o", "fused.mlc"),
    ("schedule", "kernel.mlc", "--auto", "-o", "auto.mls"),
    ("fmt", "-i", "shaped.mlc"),
)
OUTPUTS = {
    COMMANDS[0]: ("model.o", "model.h"), COMMANDS[1]: ("plain.so",), COMMANDS[2]: ("kernel.o",),
    COMMANDS[3]: ("kernel.mlca",), COMMANDS[4]: ("model.c",), COMMANDS[5]: ("fused.mlc", "fused.npz"),
    COMMANDS[6]: ("auto.mls",), COMMANDS[7]: ("shaped.mlc",),
}  # fmt: skip


def write_sources(folder: Path) -> None:
    """Write the sources into the current folder and the given one, and the outputs of each command into the latter."""
    rng = np.random.default_rng(3)
    (folder / "model.mlc").write_text(MODEL)
    (folder / "kernel.mlc").write_text(KERNEL)
    np.savez(folder / "w.npz", w=rng.standard_normal((48, 32)).astype("float32"), b=np.ones(32, "float32"))
    run_all(folder)


def run_all(folder: Path) -> None:
    """Run every command in a folder."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        for words in COMMANDS:
            set_up(words)
            problem, said = judged(words, (0,))
            assert problem is None, (words, problem, said)
    finally:
        os.chdir(before)


def set_up(words: tuple[str, ...], old: bytes | None = None) -> dict[str, bytes]:
    """Remove the outputs of a command from the current folder, or replace them by `old`. Return what is there now.

    A text that is formatted in place is there always.
    """
    for name in OUTPUTS[words]:
        if words[0] == "fmt":
            Path(name).write_text(MESSY)
        elif old is not None and not name.endswith(".npz"):  # which is only replaced if mlcc wrote it
            Path(name).write_bytes(old)
        else:
            Path(name).unlink(missing_ok=True)
    return read_outputs(words)


def read_outputs(words: tuple[str, ...], folder: Path = Path()) -> dict[str, bytes]:
    """The outputs of a command that exist, by name."""
    return {name: (folder / name).read_bytes() for name in OUTPUTS[words] if (folder / name).exists()}

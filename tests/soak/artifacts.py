"""Corrupted artifacts are diagnosed, or compute what sound ones do; no file ends the process or gives other numbers."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from pathlib import Path

import numpy as np

import mlcc
from mlcc.errors import LoadError
from tests.fuzz.commands import judged
from tests.fuzz.mutate import mutate_bytes

TEXT = """# mlcc.data-file w.npz
@I.ir_module
class Module:
    @T.prim_func
    def scale(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(64):
            with T.block("B"):
                vi = T.axis.spatial(64, i)
                B[vi] = A[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor((64,), "float32"), y: R.Tensor(("n", 64), "float32")):
        cls = Module
        w = R.data("w", R.Tensor((64,), "float32"))
        with R.dataflow():
            a = R.call_tir(cls.scale, (x,), out_sinfo=R.Tensor((64,), "float32"))
            z = R.add(a, w)
            s = R.tanh(R.sum(R.multiply(y, z), axis=[1]))
            R.output(s)
        return s
"""
SEEDS = ("m.o", "m.so", "libm.a", "k.ptx", "k.mlca")
DOCUMENTED = (0, 1, 6)
UNCHECKED = 0.25  # of the cases link a mutated object as if its checksum were right, into a buffer


def prepare(folder: Path) -> None:
    """Compile the artifacts that are corrupted, and compute what they give."""
    rng = np.random.default_rng(1)
    (folder / "m.mlc").write_text(TEXT)
    np.savez(folder / "w.npz", w=rng.standard_normal(64).astype("float32"))
    np.savez(
        folder / "x.npz", x=rng.standard_normal(64).astype("float32"), y=rng.standard_normal((3, 64)).astype("float32")
    )
    for name in SEEDS:
        target = "cuda{arch=sm_80}" if name.startswith("k") else "llvm"
        code = judged(["compile", str(folder / "m.mlc"), "-t", target, "-o", str(folder / name)], (0,))
        assert code[0] is None, code
    problem, said = judged(["run", str(folder / "m.o"), "--in", str(folder / "x.npz"), "--out", "y.npy"], (0,))
    assert problem is None, said
    shutil.move("y.npy", folder / "y.npy")


def case(folder: Path, seed: str, number: int) -> str:
    rng = random.Random(f"artifacts/{seed}/{number}")
    if rng.random() < UNCHECKED:
        return _linked(folder, rng)
    name = rng.choice(SEEDS)
    shutil.copy(folder / name, name)
    if name == "k.ptx":
        shutil.copy(folder / "k.npz", "k.npz")
    changed = "k.npz" if name == "k.ptx" and rng.random() < 0.3 else name
    Path(changed).write_bytes(corrupted(Path(changed).read_bytes(), rng))
    with contextlib.suppress(FileNotFoundError):
        os.unlink("y.npy")
    flags = ["--emulate"] if name.startswith("k") else []
    for argv in (["inspect", name], ["run", name, *flags, "--in", str(folder / "x.npz"), "--out", "y.npy"]):
        problem, said = judged(argv, DOCUMENTED)
        if problem:
            Path("mutated").write_text(changed)
            Path("argv").write_text("\n".join(argv))
            return f"{problem}: mlcc {' '.join(argv)} with {changed} corrupted: {said.strip()[-400:]}"
    if os.path.exists("y.npy"):
        want, have = np.load(folder / "y.npy"), np.load("y.npy")
        if have.shape != want.shape or not np.allclose(have, want, 1e-4, 1e-5):
            return f"{name} computes other numbers with {changed} corrupted"
    return ""


def corrupted(data: bytes, rng: random.Random) -> bytes:
    """Bytes changed anywhere, or in the manifest."""
    start = data.find(b'{"') if rng.random() < 0.4 else -1
    if start < 0:
        return mutate_bytes(data, rng)
    end = min(len(data), start + 4096)
    return data[:start] + mutate_bytes(data[start:end], rng) + data[end:]


def _linked(folder: Path, rng: random.Random) -> str:
    from tests.runtime.test_elf import mutations, parse_and_link

    data = mutations((folder / "m.o").read_bytes(), rng)
    Path("case.o").write_bytes(data)
    with contextlib.suppress(LoadError):
        parse_and_link(data)
    with contextlib.suppress(LoadError, mlcc.MachineError):
        mlcc.load(data)
    return ""

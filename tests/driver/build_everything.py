"""Writes an artifact of every kind into the current folder: python build_everything.py [MACHINE] [SECONDS]

MACHINE `other` is one with another CPU, other caches and more cores. SECONDS are added to the clock.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = """# mlcc.data-file w.npz
@R.function
def main(x: R.Tensor(("n", 40), "float32"), image: R.Tensor((1, 3, 12, 12), "float32")):
    w = R.data("w", R.Tensor((40, 32), "float32"))
    k = R.data("k", R.Tensor((8, 3, 3, 3), "float32"))
    with R.dataflow():
        a = R.nn.softmax(R.nn.gelu(R.matmul(x, w)))
        b = R.nn.relu(R.nn.conv2d(image, k, padding=1))
        c = R.nn.layer_norm(a, R.zeros((32,), "float32"), R.ones((32,), "float32"), axes=[-1])
        d = R.mean(b, axis=[2, 3])
        R.output(c, d)
    return c, d
"""
CPU = "llvm{triple=x86_64-unknown-linux-gnu cpu=x86-64-v3}"
COMMANDS = (
    ("compile", "m.mlc", "-t", "llvm{triple=x86_64-unknown-linux-gnu}", "-o", "m.o", "--header", "m.h"),
    ("compile", "m.mlc", "-t", CPU, "-O3", "-o", "fast.o"),
    ("compile", "m.mlc", "-t", CPU, "-O1", "-o", "m.so"),
    ("compile", "m.mlc", "-t", CPU, "-O1", "-o", "libm1.a"),
    ("compile", "m.mlc", "-t", CPU, "--emit", "asm", "-o", "m.s"),
    ("compile", "m.mlc", "-t", "llvm{triple=aarch64-linux-gnu}", "-o", "arm.o"),
    ("compile", "m.mlc", "--emit", "c", "-o", "m.c"),
    ("compile", "m.mlc", "-t", "cuda{arch=sm_90}", "-o", "m.ptx"),
    ("compile", "m.mlc", "-t", "cuda{arch=sm_90}", "-o", "m.mlca"),
    ("passes", "m.mlc", "-p", "fuse,lower-to-tir,fuse-tir", "-o", "fused.mlc"),
    ("schedule", "fused.mlc", "--auto", "-t", CPU, "-o", "fused.mls"),
)


def other_machine() -> None:
    """Facts about another machine, before anything asks for them."""
    from mlcc.runtime import cores

    cores.num_cores = lambda: 48
    cores.cgroup_quota = lambda: None
    from mlcc.machine import host

    host.cpu_name = lambda: "haswell"
    host.cpu_features = lambda: ("+avx", "+avx2", "+fma", "+sse4.2")
    host.num_cores = lambda: 48
    host.caches = lambda: host.Caches(48 << 10, 2 << 20, 96 << 20)


def main(machine: str = "this", seconds: str = "0") -> int:
    sys.path.insert(0, str(ROOT))
    now = time.time
    time.time = lambda: now() + float(seconds)
    if machine == "other":
        other_machine()
    import numpy as np

    from mlcc.cli.main import run

    rng = np.random.default_rng(1)
    if not Path("w.npz").exists():
        shapes = {"w": (40, 32), "k": (8, 3, 3, 3)}
        np.savez("w.npz", **{name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()})
    Path("m.mlc").write_text(TEXT)
    return max(run([*words, "--force"] if words[0] != "schedule" else list(words)) for words in COMMANDS)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

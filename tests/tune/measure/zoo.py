"""Machine code that misbehaves: kernels in C, which do what no kernel of ours can."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mlcc.tune.measure.kernel import BUFFER, Argument, Entry, Kernel

# words: X of 64 floats, Y of 64 floats, the workspace
_PROGRAM = """
typedef float *Words;
static long raw(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
static int kernel(float *x, float *y, char *workspace) { BODY }
int mlcc_measure_main(Words *words, long stride, long sets, long count) {
    int code = 0;
    for (long i = 0; i < count && !code; i++) code = kernel(words[0], words[1], (char *)words[2]);
    return code;
}
"""
DOUBLED = "for (int i = 0; i < 64; i++) y[i] = 2 * x[i];"
ARGUMENTS = (Argument("X", "float32", (64,)), Argument("Y", "float32", (64,), read=False, written=True))


def machine_code(body: str, folder: Path, workspace: int = 0) -> Kernel:
    """A kernel of Y = 2 X, or of what its body in C does instead."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source, made = folder / "kernel.c", folder / "kernel.o"
    source.write_text(_PROGRAM.replace("BODY", f"{body} return 0;"))
    flags = ["-O1", "-fPIC", "-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fcf-protection=none", "-w"]
    subprocess.run([compiler, *flags, "-c", str(source), "-o", str(made)], check=True)
    entry = Entry("mlcc_measure_main", ((BUFFER, 0), (BUFFER, 1)), workspace)
    return Kernel(f"{hash((body, workspace)):x}", made.read_bytes(), entry)

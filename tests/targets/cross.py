"""Run artifacts for other machines: linked by cross compilers, run by QEMU's user mode, arrays in and out."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mlcc.runtime.machine import arch
from mlcc.targets.llvm.artifact import ObjectArtifact

HERE = Path(__file__).parent
CFLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1"]
Argument = np.ndarray | int | float


@dataclass(frozen=True)
class Platform:
    """A target, the compiler that links for it, and the command that its programs are run by."""

    target: str
    compiler: tuple[str, ...]
    runner: tuple[str, ...] = ()

    @property
    def is_bare_metal(self) -> bool:
        return "-elf" in self.target

    def require(self) -> None:
        """Skip the test where the tools are missing."""
        for tool in (self.compiler[0], *self.runner[:1]):
            if shutil.which(tool) is None:
                pytest.skip(f"needs {tool}")


def _platform(target: str, compiler: str, *qemu: str) -> Platform:
    machine = target.partition("triple=")[2].partition("-")[0]
    runner = () if machine == arch() else (f"qemu-{machine}", *qemu)
    return Platform(f"llvm{{{target}}}", tuple(compiler.split()), runner)


_BARE = " -ffreestanding -nostdlib -static -fno-stack-protector"
PLATFORMS = {
    "x86_64-musl": _platform("triple=x86_64-linux-musl", "musl-gcc -static"),
    "aarch64-gnu": _platform("triple=aarch64-linux-gnu", "aarch64-linux-gnu-gcc -static"),
    "riscv64-gnu": _platform("triple=riscv64-linux-gnu", "riscv64-linux-gnu-gcc -static"),
    "riscv64-gnu-v": _platform(
        "triple=riscv64-linux-gnu features=+v", "riscv64-linux-gnu-gcc -static",
        "-cpu", "rv64,v=true,vext_spec=v1.0,vlen=128",
    ),
    "riscv64-gnu-v256": _platform(
        "triple=riscv64-linux-gnu features=[\"+v\",\"+zvl256b\",\"+zba\",\"+zbb\"]", "riscv64-linux-gnu-gcc -static",
        "-cpu", "rv64,v=true,vext_spec=v1.0,vlen=256",
    ),
    "x86_64-bare": _platform("triple=x86_64-none-elf", "x86_64-linux-gnu-gcc -no-pie" + _BARE),
    "aarch64-bare": _platform("triple=aarch64-none-elf", "aarch64-linux-gnu-gcc" + _BARE),
    "riscv64-bare": _platform("triple=riscv64-unknown-elf", "riscv64-linux-gnu-gcc" + _BARE),
}  # fmt: skip
HOSTED = [name for name, platform in PLATFORMS.items() if not platform.is_bare_metal]
BARE_METAL = [name for name, platform in PLATFORMS.items() if platform.is_bare_metal]


@dataclass(frozen=True)
class Call:
    """A call of a public function: its arguments in order, and which of them it writes."""

    function: str
    arguments: Sequence[Argument]
    written: Sequence[int]


def run(
    folder: Path, platform: Platform, made: ObjectArtifact, calls: Sequence[Call], workspace: int = 1 << 20
) -> list[list[np.ndarray] | int]:
    """Run calls on a platform; return for each what it has written, or its error code."""
    made.save(folder / "model.o")
    (folder / "model.h").write_text(made.header("model.o"))
    (folder / "app.c").write_text(_program(folder, platform, calls, workspace))
    shim = [str(HERE / "bare_metal.c")] if platform.is_bare_metal else []
    libraries = ["-lgcc"] if platform.is_bare_metal else ["-lm"]
    command = [*platform.compiler, *CFLAGS, "app.c", *shim, "model.o", "-o", "app", *libraries]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run([*platform.runner, "./app"], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr.decode())
    return _results(done.stdout, calls)


def _results(output: bytes, calls: Sequence[Call]) -> list[list[np.ndarray] | int]:
    results: list[list[np.ndarray] | int] = []
    at = 0
    for call in calls:
        code = int.from_bytes(output[at : at + 4], "little")
        at += 4
        arrays = []
        for index in call.written:
            like = call.arguments[index]
            assert isinstance(like, np.ndarray)
            arrays.append(np.frombuffer(output[at : at + like.nbytes], like.dtype).reshape(like.shape))
            at += like.nbytes
        results.append(code if code else arrays)
    assert at == len(output)
    return results


_DTYPES = {"i": 0, "u": 1, "f": 2, "b": 6}
_HEAD = """
#include "model.h"
static void put(const void *data, uint64_t size);
#ifdef BARE_METAL
void bare_metal_write(const void *data, uint64_t size);
static void put(const void *data, uint64_t size) { bare_metal_write(data, size); }
#else
#include <stdio.h>
static void put(const void *data, uint64_t size) { fwrite(data, 1, size, stdout); }
#endif
"""


def _program(folder: Path, platform: Platform, calls: Sequence[Call], workspace: int) -> str:
    lines = ["#define BARE_METAL"] if platform.is_bare_metal else []
    lines += [_HEAD, f"static unsigned char memory[{workspace}] __attribute__((aligned(64), unused));"]
    body = []
    for number, call in enumerate(calls):
        names = []
        for index, argument in enumerate(call.arguments):
            if not isinstance(argument, np.ndarray):
                names.append(f"{int(argument)}LL" if isinstance(argument, int) else _double(argument))
                continue
            name = f"t{number}_{index}"
            names.append(f"&{name}")
            (folder / f"{name}.bin").write_bytes(np.ascontiguousarray(argument).tobytes())
            lines.append(
                f'__asm__(".pushsection .data\\n.balign 64\\n.globl {name}_data\\n{name}_data:\\n"\n'
                f'".incbin \\"{name}.bin\\"\\n.space 8\\n.popsection");\n'
                f"extern unsigned char {name}_data[];"
            )
            shape = ", ".join(map(str, argument.shape)) or "0"
            lines.append(f"static int64_t {name}_shape[] = {{{shape}}};")
            dtype = f"{{{_DTYPES[argument.dtype.kind]}, {argument.dtype.itemsize * 8}, 1}}"
            lines.append(
                f"static DLTensor {name} = {{{name}_data, {{1, 0}}, {argument.ndim}, {dtype}, {name}_shape, 0, 0}};"
            )
        own = f"memory, {workspace}, " if platform.is_bare_metal else ""
        suffix = "_ws" if platform.is_bare_metal else ""
        body.append(f"    code = model_{call.function}{suffix}({own}{', '.join(names)});")
        body.append("    put(&code, 4);")
        for index in call.written:
            like = call.arguments[index]
            assert isinstance(like, np.ndarray)
            body.append(f"    put(t{number}_{index}_data, {like.nbytes});")
    return "\n".join([*lines, "int main(void) {", "    int32_t code;", *body, "    return 0;", "}", ""])


def _double(value: float) -> str:
    if math.isnan(value):
        return '__builtin_nan("")'
    return f"{'-' * (value < 0)}__builtin_inf()" if math.isinf(value) else float(value).hex()

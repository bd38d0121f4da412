"""Link shared libraries with the system's C compiler, since LLVM's linker is not available."""

from __future__ import annotations

import os

from mlcc.errors import CompileError, error
from mlcc.machine.triples import MUSL, find_triple
from mlcc.runtime.machine import arch
from mlcc.runtime.manifest import with_checksum
from mlcc.targets.llvm.object.objfile import Buffer


def shared_library(pieces: list[Buffer], triple: str) -> bytes:
    """Link an object into a shared library, with a checksum of its own.

    Raises CompileError if there is no suitable C compiler, or it fails, or if the machine has no operating system.
    """
    import shlex
    import subprocess
    import tempfile

    known = find_triple(triple)
    if known is not None and known.is_bare_metal:
        message = f"`{triple}` has no system that loads shared libraries"
        raise CompileError(error("E0755", message, help="write an object (.o), and link it into the program"))
    compiler = os.environ.get("CC") or _compiler(triple)
    with tempfile.TemporaryDirectory(prefix="mlcc-link-") as folder:
        source, target = os.path.join(folder, "m.o"), os.path.join(folder, "m.so")
        with open(source, "wb") as file:
            file.writelines(pieces)
        # nodelete: pool threads may run its code until the process ends
        linker = ["--build-id=none", "--hash-style=gnu", "-z,noexecstack", "-z,defs", "-z,nodelete"]
        # nostartfiles: what compilers add runs when a library is loaded, which `mlcc.load` refuses
        flags = ["-shared", "-nostartfiles", *(f"-Wl,{flag}" for flag in linker), "-o", target, source, "-lm"]
        try:
            process = subprocess.run([*shlex.split(compiler), *flags], capture_output=True, text=True, check=False)
        except OSError as exc:
            raise CompileError(
                error(
                    "E0755", f"cannot link a shared library: no C compiler `{compiler}` ({exc.strerror})",
                    help="install gcc or clang, name one in CC, or write an object (.o), which needs none",
                )
            ) from None  # fmt: skip
        if process.returncode != 0:
            lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
            raise CompileError(error("E0755", f"`{compiler}` cannot link the shared library: {lines[0]}"))
        with open(target, "rb") as file:
            return with_checksum(file.read())


def _compiler(triple: str) -> str:
    """Return the C compiler for a triple: `cc` for this machine, else the usual cross compiler."""
    known = find_triple(triple)
    assert known is not None
    if known.arch != arch():
        return f"{known.short}-gcc"
    return "musl-gcc" if known.system == MUSL else "cc"

"""Shared libraries: verified as a whole before the system's loader runs anything of them."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.errors import LoadError, MlccError
from mlcc.runtime import elf, externs, manifest, shared_library
from mlcc.runtime.loader import load, read_manifest

CC = shutil.which("cc")
pytestmark = pytest.mark.skipif(CC is None or sys.platform != "linux", reason="needs Linux and a C compiler")
ROOT = Path(__file__).resolve().parents[2]
ALLOWED = externs.ALLOWED | externs.POOL
TEXT = """
@I.ir_module
class Module:
    @T.prim_func
    def main(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8, 16), "float32")):
        for i in T.parallel(8):
            for j in range(16):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = T.exp(A[vi, vj]) + T.float32(1)
"""
A = np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16)


@pytest.fixture(scope="module")
def artifact() -> mlcc.runtime.Executable:
    return mlcc.build(mlcc.parse(TEXT), opt_level=0)


@pytest.fixture(scope="module")
def good(artifact: mlcc.runtime.Executable) -> bytes:
    made: bytes = artifact.emit("shared")
    return made


def linked(folder: Path, artifact: mlcc.runtime.Executable, source: str = "", *flags: str) -> bytes:
    """A library of the object and more C code, sealed as if mlcc had written it."""
    (folder / "m.o").write_bytes(b"".join(artifact._object("mlcc", for_runtime=True)))
    (folder / "more.c").write_text(source or "void start(void) { __builtin_trap(); }\n")
    command = ["cc", "-shared", "-fPIC", "more.c", "m.o", "-o", "m.so", "-Wl,--hash-style=gnu", *flags, "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return manifest.with_checksum((folder / "m.so").read_bytes())


def test_what_mlcc_writes_is_loaded(good: bytes, tmp_path: Path) -> None:
    shared_library.verify(good, ALLOWED)
    (tmp_path / "m.so").write_bytes(good)
    for where in (tmp_path / "m.so", good, tmp_path / "m.so"):
        exe = mlcc.load(where)
        np.testing.assert_allclose(exe["main"](A), np.exp(A) + 1, rtol=1e-6)
    assert read_manifest(str(tmp_path / "m.so"))["prefix"]


def test_two_libraries_are_two(artifact: mlcc.runtime.Executable) -> None:
    """Loaded one after the other, from descriptors of the same number."""
    other = mlcc.build(mlcc.parse(TEXT.replace("T.float32(1)", "T.float32(2)")), opt_level=0)
    exes = [load(a.emit("shared")) for a in (artifact, other, artifact)]
    for exe, added in zip(exes, (1, 2, 1), strict=True):
        np.testing.assert_allclose(exe["main"](A), np.exp(A) + added, rtol=1e-6)


def test_any_flipped_bit_is_noticed(good: bytes, tmp_path: Path) -> None:
    """Whichever bit of the file is another: the file is refused, and nothing of it is run."""
    rng = random.Random(3)
    for _ in range(4000):
        data = bytearray(good)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with pytest.raises(LoadError):
            load(bytes(data))
    for end in range(0, len(good), 97):
        with pytest.raises(LoadError):
            load(good[:end])


def test_inspect_sees_damage(good: bytes, tmp_path: Path) -> None:
    data = bytearray(good)
    data[len(data) // 3] ^= 1
    (tmp_path / "m.so").write_bytes(data)
    with pytest.raises(LoadError, match="checksum"):
        read_manifest(str(tmp_path / "m.so"))


INDIRECT = """
static int one(void) { return 1; }
static int (*pick(void))(void) { __builtin_trap(); return one; }
ATTRIBUTEint f(void) __attribute__((ifunc("pick")));
int g(void) { return f(); }
"""
CONSTRUCTORS = {
    "constructor": '#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }',
    "destructor": '#include <stdlib.h>\n__attribute__((destructor)) static void f(void) { abort(); }',
    "ifunc": INDIRECT.replace("ATTRIBUTE", ""),
    "hidden ifunc": INDIRECT.replace("ATTRIBUTE", '__attribute__((visibility("hidden"))) '),
    "thread-local": "__thread int x = 3; int g(void) { return x; }",
    "system": "#include <stdlib.h>\nint g(void) { return system(\"true\"); }",
}  # fmt: skip
FLAGS = {
    "start files": (), "init": ("-nostartfiles", "-Wl,-init=start"), "fini": ("-nostartfiles", "-Wl,-fini=start"),
    "rpath": ("-nostartfiles", "-Wl,--enable-new-dtags,-rpath,/tmp"), "old rpath": (
        "-nostartfiles", "-Wl,--disable-new-dtags,-rpath,/tmp"),
    "filter": ("-nostartfiles", "-Wl,-F,libevil.so"), "auxiliary": ("-nostartfiles", "-Wl,-f,libevil.so"),
    "audit": ("-nostartfiles", "-Wl,--audit,evil.so"), "executable stack": ("-nostartfiles", "-Wl,-z,execstack"),
    "library": ("-nostartfiles", "-Wl,--no-as-needed", "-ldl", "-lutil", "-lresolv"),
    "interposer": ("-nostartfiles", "-Wl,-z,interpose"), "init first": ("-nostartfiles", "-Wl,-z,initfirst"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_code_that_runs_on_its_own(artifact: mlcc.runtime.Executable, tmp_path: Path, name: str) -> None:
    """Refused before the system's loader runs it: it would end this process."""
    data = linked(tmp_path, artifact, CONSTRUCTORS[name] + "\n", "-nostartfiles")
    with pytest.raises(LoadError, match="E0851|E0855"):
        load(data)


@pytest.mark.parametrize("name", FLAGS)
def test_what_else_the_loader_is_told(artifact: mlcc.runtime.Executable, tmp_path: Path, name: str) -> None:
    data = linked(tmp_path, artifact, "", *FLAGS[name])
    with pytest.raises(LoadError, match="E0851"):
        load(data)


def test_plain_code_of_others_is_loaded(artifact: mlcc.runtime.Executable, tmp_path: Path) -> None:
    """What is refused is not every library that somebody linked."""
    for flags in (("-Wl,-z,now",), ("-Wl,--hash-style=both",), ("-Wl,--hash-style=sysv",), ("-Wl,-z,separate-code",),
                  ("-Wl,-z,pack-relative-relocs",), ("-Wl,-z,noseparate-code",), ("-s",)):  # fmt: skip
        data = linked(tmp_path, artifact, "", "-nostartfiles", *flags)
        np.testing.assert_allclose(load(data)["main"](A), np.exp(A) + 1, rtol=1e-6)


LOADS = """
import sys
from pathlib import Path
from mlcc.errors import MlccError
from mlcc.runtime import loader
for path in sorted(Path(sys.argv[1]).iterdir()):
    print(path.name, flush=True)
    try:
        loader.load(path)
    except MlccError:
        pass
"""


def test_mutations_with_a_right_checksum(good: bytes, tmp_path: Path) -> None:
    """What the system's loader reads is judged, not only summed: whoever changes it and seals it again ends no
    process. Code and data are the author's own affair: they stay."""
    rng = random.Random(int(os.environ.get("MLCC_FUZZ_SEED", "9")))
    tables = metadata(good)
    for number in range(1500):
        data = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            start, size = rng.choice(tables)
            at = start + rng.randrange(size)
            if rng.random() < 0.5:
                data[at] = rng.choice((0, 1, 0xFF, 0x7F, rng.randrange(256)))
            else:
                at -= at % 8
                struct.pack_into(
                    "<Q", data, at, rng.choice((0, 1, len(data), 1 << 40, (1 << 64) - 1, rng.randrange(9999)))
                )
        try:
            (tmp_path / f"{number:04}.so").write_bytes(manifest.with_checksum(bytes(data)))
        except LoadError:
            continue
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", LOADS, str(tmp_path)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"after {done.stdout.splitlines()[-1:]}: {done.stderr[-2000:]}"


def metadata(data: bytes) -> list[tuple[int, int]]:
    """Where the headers, the dynamic section and its tables lie."""
    wanted = (".dynamic", ".dynsym", ".dynstr", ".gnu.hash", ".rela.dyn", ".rela.plt", ".gnu.version", ".gnu.version_r")
    fields = elf.read_header(data)[2]
    found = [(s.offset, s.size) for s in elf.read_sections(data) if s.name in wanted and s.size]
    return [(0, 64), (fields[5], fields[9] * fields[10]), *found]


def test_what_is_verified_is_what_is_opened(
    good: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, artifact: mlcc.runtime.Executable
) -> None:
    """Who exchanges the file while it is looked at changes nothing."""
    path = tmp_path / "m.so"
    path.write_bytes(good)
    evil = linked(tmp_path, artifact, CONSTRUCTORS["constructor"] + "\n", "-nostartfiles")
    path.write_bytes(good)
    judge = shared_library.verify

    def verify(data: bytes, allowed: frozenset[str]) -> None:
        judge(data, allowed)
        path.write_bytes(evil)

    monkeypatch.setattr(shared_library, "verify", verify)
    np.testing.assert_allclose(mlcc.load(path)["main"](A), np.exp(A) + 1, rtol=1e-6)


def test_messages_of_the_system_in_any_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcc.runtime.env import load_env

    path = os.fsencode(tmp_path) + b"/env-\xff\xe9.so"
    Path(os.fsdecode(path)).write_bytes(b"no library")
    with pytest.raises(MlccError, match="E0816"):
        load_env(os.fsdecode(path))

"""Modules in units: compiled side by side, linked into one object, and each kept in the cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.cache.folder import PLACE, SWITCH
from mlcc.progress import Listener, Work, listening
from mlcc.runtime import elf
from mlcc.targets.llvm.artifact import ObjectArtifact
from mlcc.targets.llvm.codegen.ir_text import ModuleText, integer
from mlcc.targets.llvm.object import units
from mlcc.targets.llvm.object.compile import Machine, compile_text
from mlcc.targets.llvm.object.merge import merge_objects
from mlcc.targets.llvm.object.passes import Code
from mlcc.targets.llvm.object.units import Unit, UnitCompiler

CC = shutil.which("cc")
ARM = Machine("aarch64-unknown-linux-gnu", "generic")
ONE = """
@table = private constant [3 x i32] [i32 3, i32 4, i32 5]
@count = hidden global i32 0
declare hidden i32 @two(i32)
declare float @llvm.fabs.f32(float)
define i32 @one(i32 %n) {
  %p = getelementptr i32, ptr @table, i32 %n
  %v = load i32, ptr %p
  %r = call i32 @two(i32 %v)
  ret i32 %r
}
define weak i32 @shared() { ret i32 1 }
define hidden float @half(float %x) {
  %y = fmul float %x, 0x3FD5555560000000
  ret float %y
}
"""
TWO = """
@table = private constant [2 x i32] [i32 10, i32 20]
@count = external hidden global i32
declare hidden float @half(float)
define weak i32 @shared() { ret i32 2 }
define hidden i32 @two(i32 %n) {
  %old = load i32, ptr @count
  %new = add i32 %old, %n
  store i32 %new, ptr @count
  %f = sitofp i32 %new to float
  %g = call float @half(float %f)
  %h = fmul float %g, 0x4000CCCCC0000000
  %i = fptosi float %h to i32
  %p = getelementptr i32, ptr @table, i32 1
  %v = load i32, ptr %p
  %s = call i32 @shared()
  %t = add i32 %v, %i
  %u = add i32 %t, %s
  ret i32 %u
}
"""
PROGRAM = "int one(int); int main(void) { one(1); return one(2); }\n"


@pytest.mark.skipif(CC is None, reason="no C compiler")
@pytest.mark.parametrize("flags", [["-pie"], ["-no-pie"], ["-shared", "-fPIC"]], ids=" ".join)
def test_a_linked_object_does_what_its_parts_did(flags: list[str], tmp_path: Path) -> None:
    assert CC is not None
    (tmp_path / "m.c").write_text(PROGRAM)
    parts = [compile_text(text, Machine(), 0).obj for text in (ONE, TWO)]
    codes = []
    for name, objects in (("parts", parts), ("merged", [merge_objects(parts)])):
        files = []
        for number, obj in enumerate(objects):
            files.append(str(tmp_path / f"{name}{number}.o"))
            Path(files[-1]).write_bytes(obj)
        out = str(tmp_path / name)
        subprocess.run([CC, *flags, "-o", out, str(tmp_path / "m.c"), *files, "-Wl,--fatal-warnings"], check=True)
        if "-shared" not in flags:
            codes.append(subprocess.run([out]).returncode)
    assert len(set(codes)) <= 1 and all(codes)


@pytest.mark.parametrize("machine", [Machine(), ARM], ids=lambda m: m.triple.partition("-")[0])
def test_hidden_symbols_become_local(machine: Machine) -> None:
    parts = [compile_text(text, machine, 1).obj for text in (ONE, TWO)]
    obj = merge_objects(parts)
    assert merge_objects(parts) == obj
    symbols = {s.name: s for s in elf.read_object(obj).symbols}
    assert {n: symbols[n].bind for n in ("one", "two", "half", "count", "shared")} == {
        "one": elf.GLOBAL, "two": elf.LOCAL, "half": elf.LOCAL, "count": elf.LOCAL, "shared": elf.WEAK
    }  # fmt: skip
    assert all(s.section != elf.UNDEFINED for n, s in symbols.items() if n)
    sections = [s.name for s in elf.read_sections(obj)]
    assert len(set(sections)) == len(sections) and ".note.GNU-stack" in sections


def test_a_symbol_defined_twice_is_refused() -> None:
    obj = compile_text("define i32 @f() { ret i32 0 }", Machine(), 0).obj
    with pytest.raises(ValueError, match="`f` is defined twice"):
        merge_objects([obj, obj])


# ---------------------------------------------------------------- units of a module

MODEL = """
@R.function
def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")) -> R.Tensor(("n", 64), "float32"):
    n = T.int64()
    with R.dataflow():
        a = R.matmul(x, w)
        b = R.nn.softmax({body}, axis=-1)
        c = R.matmul(R.sort(b, axis=-1), w)
        d = R.cumsum(c, axis=1)
        R.output(d)
    return d
"""


def built(body: str = "R.exp(a)", level: int = 3) -> ObjectArtifact:
    made = mlcc.build(mlcc.parse(MODEL.format(body=body)), opt_level=level)
    assert isinstance(made, ObjectArtifact)
    return made


def test_bytes_do_not_depend_on_the_number_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    found = set()
    for count in ("1", "2", "5"):
        monkeypatch.setenv(units.JOBS, count)
        monkeypatch.setattr(units, "num_cores", lambda: 8)
        found.add(built().emit())
    assert len(found) == 1


def test_texts_are_of_the_same_code() -> None:
    made = built()
    text = made.emit("llvm-ir").decode()
    assert text.count("define ") == len({line.split("@")[1] for line in text.splitlines() if line.startswith("define")})
    assert "kernel.softmax" in made.emit("asm").decode()


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("target", ["llvm", "llvm{cpu=x86-64-v3}"])
def test_assembly_is_that_of_the_object(
    level: int, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assembled, it gives the same functions of the same sizes in the same places."""
    monkeypatch.setattr("mlcc.targets.llvm.kernel_units._MIN_UNIT_SIZE", 0)  # one unit for each kernel
    made = mlcc.build(mlcc.parse(MODEL.format(body="R.exp(a)")), target, opt_level=level)
    text, obj = tmp_path / "m.s", tmp_path / "m.o"
    text.write_bytes(made.emit("asm"))
    assert CC is not None
    subprocess.run([CC, "-c", "-o", obj, text], check=True)
    assert functions_in(obj.read_bytes()) == functions_in(made.emit("obj"))


def functions_in(obj: bytes) -> list[tuple[str, int, int]]:
    """The functions of an object, without the numbers that keep internal ones apart: names, places, sizes."""
    sections = elf.read_sections(obj)
    (table,) = (s for s in sections if s.type == elf.SYMTAB)
    names = elf.Strings(obj, sections[table.link].offset, sections[table.link].size)
    symbols = elf.SYMBOL.iter_unpack(obj[table.offset : table.offset + table.size])
    found = [(names.at(name), value, size) for name, info, _, _, value, size in symbols if info & 15 == 2]
    return sorted((re.sub(r"\.u\d+$", "", name), at, size) for name, at, size in found)


def test_another_kernel_is_all_that_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLACE, str(tmp_path))
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setattr("mlcc.targets.llvm.kernel_units._MIN_UNIT_SIZE", 0)
    first = built()
    assert not any(unit.known for unit in first.units)
    again = built()
    assert again.emit() == first.emit() and all(unit.known for unit in again.units)
    other = built("R.exp(R.negative(a))")
    new = [unit.kernels for unit in other.units if not unit.known]
    assert 1 <= len(new) < len(other.units) - 2


class CompileRecorder(Listener):
    """Adds up what is said of LLVM's work."""

    def __init__(self) -> None:
        self.kernels: set[str] = set()
        self.seconds = 0.0

    def done(self, work: Work, seconds: float) -> None:
        if work.stage == "LLVM":
            assert 0 <= work.at < work.count
            self.kernels.add(work.kernel)
            self.seconds += seconds


def test_units_report_what_they_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    heard = CompileRecorder()
    with listening(heard):
        made = built()
    assert heard.kernels == {", ".join(unit.kernels) for unit in made.units}
    assert heard.seconds == pytest.approx(sum(unit.compilation for unit in made.units))
    assert not any(unit.known for unit in made.units)
    assert all(unit.compilation > 0 for unit in made.units)
    assert all(bool(unit.kernels) == (unit.code is not Code.HOST) for unit in made.units)
    assert [unit.is_separate for unit in made.units if unit.code is Code.HOST] == [False, False, True]


def test_what_llvm_refuses_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(units.JOBS, "3")
    monkeypatch.setattr(units, "num_cores", lambda: 3)
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="parsing"), UnitCompiler(Machine(), 1) as compiler:
        for number in range(6):
            text = f"define i32 @f{number}() {{ ret i32 0 }}" if number != 2 else "define nonsense"
            compiler.add(Unit((), text, Code.VECTORS))
        compiler.objects()
    assert threading.active_count() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_limited_memory_compiles_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    wanted = built().emit()
    monkeypatch.setattr(units, "memory_is_limited", lambda: True)
    assert built().emit() == wanted


@pytest.mark.parametrize("level", range(4))
def test_numbers_are_those_of_the_interpreter(level: int) -> None:
    x = np.random.default_rng(0).random((3, 64), dtype=np.float32)
    w = np.random.default_rng(1).random((64, 64), dtype=np.float32) / 16
    a = np.exp(np.exp(x @ w - 1))
    b = np.sort(a / a.sum(-1, keepdims=True), axis=-1)
    got = mlcc.load(built('R.exp(R.subtract(a, R.const(1, "float32")))', level))["main"](x, w)
    np.testing.assert_allclose(got, np.cumsum(b @ w, axis=1), rtol=2e-4)


# ---------------------------------------------------------------- the text


def test_equal_instructions_are_written_once() -> None:
    """As far as the first one dominates; not those of another branch."""
    module = ModuleText()
    fn = module.function("i32", "f", [("i32", "x"), ("i1", "c")], linkage="")
    x, c = fn.params
    then, other, done = fn.label("then"), fn.label("else"), fn.label("done")
    one = fn.binary("add", x, x)
    fn.cond_br(c, then, other)
    fn.start(then)
    assert fn.binary("add", x, x) is one
    left = fn.binary("mul", x, x)
    fn.br(done)
    fn.start(other)
    right = fn.binary("mul", x, x)
    assert right != left
    fn.br(done)
    fn.start(done)
    total = fn.binary("mul", x, x)
    assert total not in (left, right) and fn.binary("add", x, x) is one
    fn.ret(total)
    assert compile_text(module.text(), Machine(), 0).obj


@pytest.mark.parametrize(("op", "a", "b", "made"), [
    ("add nsw", 2**31 - 1, 1, -(2**31)), ("sub", 3, 5, -2), ("mul", 1 << 20, 1 << 12, 0), ("mul", -3, 7, -21),
])  # fmt: skip
def test_integer_constants_are_folded(op: str, a: int, b: int, made: int) -> None:
    fn = ModuleText().function("i32", "f", [("i32", "x")])
    assert fn.binary(op, integer("i32", a), integer("i32", b)) == integer("i32", made)
    (x,) = fn.params
    assert fn.binary("add", x, integer("i32", 0)) is x is fn.binary("mul", x, integer("i32", 1))
    assert fn.convert("sext", integer("i8", -1), "i64") == integer("i64", -1)
    assert fn.convert("zext", integer("i8", -1), "i64") == integer("i64", 255)
    assert fn.convert("trunc", integer("i64", 257), "i8") == integer("i8", 1)


def test_symbols_that_llvm_escapes(tmp_path: Path) -> None:
    """An external function may have any name; units declare what they call."""
    text = '@T.prim_func\ndef main(A: T.Buffer((4,), "float32")):\n    A[0] = T.call_extern("float32", "größe", A[1])\n'
    made = mlcc.build(mlcc.parse(text), allow_extern=("größe",))
    assert "größe" in {symbol.name for symbol in elf.read_object(made.emit("obj")).symbols}

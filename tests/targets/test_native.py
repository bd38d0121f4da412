"""Native kernels: LLVM IR in a text, for `T.call_extern` to call."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.cli.main import run
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.runtime import elf
from mlcc.targets.llvm.object import native

ROOT = Path(__file__).resolve().parents[2]

CALL = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(4):
        T.evaluate(T.call_extern("int32", "twice", T.address_of(A[i * 16]), T.address_of(B[i * 16]), 16))
"""

TWICE = """
define i32 @twice(ptr %a, ptr %b, i32 %n) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr float, ptr %a, i32 %i
  %q = getelementptr float, ptr %b, i32 %i
  %x = load float, ptr %p, align 4
  %y = fadd float %x, %x
  store float %y, ptr %q, align 4
  %next = add nsw i32 %i, 1
  %done = icmp eq i32 %next, %n
  br i1 %done, label %exit, label %loop
exit:
  ret i32 0
}
"""

# as clang writes it: names in quotes, attributes, flags of the module, debug information
FROM_CLANG = """
; ModuleID = 'twice.c'
source_filename = "twice.c"
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

$helper = comdat any

@"two.0" = private unnamed_addr constant [2 x float] [float 2.000000e+00, float 0.000000e+00], align 4

define dso_local i32 @twice(ptr noundef %0, ptr noundef %1, i32 noundef %2) local_unnamed_addr #0 {
  br label %4
4:
  %5 = phi i32 [ 0, %3 ], [ %9, %4 ]
  %6 = getelementptr float, ptr %0, i32 %5
  %7 = getelementptr float, ptr %1, i32 %5
  %8 = call float @helper(ptr %6) #2
  store float %8, ptr %7, align 4, !tbaa !5
  %9 = add nsw i32 %5, 1
  %10 = icmp slt i32 %9, %2
  br i1 %10, label %4, label %11, !llvm.loop !8
11:
  ret i32 0
}

define linkonce_odr float @helper(ptr %0) #1 comdat {
  %2 = load float, ptr %0, align 4, !tbaa !5
  %3 = load float, ptr @"two.0", align 4
  %4 = call float @llvm.fmuladd.f32(float %2, float %3, float 0.0)
  %5 = call float @fabsf(float %4)
  %6 = call float @llvm.copysign.f32(float %5, float %4)
  ret float %6
}

declare float @llvm.fmuladd.f32(float, float, float)
declare float @llvm.copysign.f32(float, float)
declare float @fabsf(float)
declare i32 @never_called(ptr)

attributes #0 = { nounwind sspstrong uwtable memory(readwrite) "frame-pointer"="all" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cx8,+mmx" "tune-cpu"="generic" }
attributes #1 = { nounwind "probe-stack"="inline-asm" }
attributes #2 = { nounwind }

!llvm.module.flags = !{!0, !1, !2}
!llvm.ident = !{!3}

!0 = !{i32 1, !"wchar_size", i32 4}
!1 = !{i32 8, !"PIC Level", i32 2}
!2 = !{i32 7, !"uwtable", i32 2}
!3 = !{!"clang version 18.1.3"}
!5 = !{!6, !6, i64 0}
!6 = !{!"float", !7, i64 0}
!7 = !{!"omnipotent char"}
!8 = distinct !{!8, !9}
!9 = !{!"llvm.loop.mustprogress"}
"""  # noqa: E501


def program(*texts: str, source: str = CALL, key: str = "pragma_import_llvm") -> IRModule:
    """The program of `source` with LLVM IR on its outermost loop, and on copies of its function for further texts."""
    module = mlcc.parse(source)
    func = module["main"]
    (root,) = [n for n in func.body if isinstance(n, tir.For)] or [None]
    for number, text in enumerate(texts):
        assert isinstance(root, tir.For)
        made = replace(func, body=(replace(root, annotations=type(root.annotations)({key: text})),))
        if number:
            made = made.with_attr("global_symbol", f"more{number}")
        module.update_func(f"more{number}" if number else "main", made)
    return module


def refused(code: str, words: str, module: IRModule, **how: object) -> None:
    with pytest.raises(mlcc.CompileError, match=rf"(?s){code}.*{words}"):
        mlcc.build(module, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [TWICE, FROM_CLANG], ids=["plain", "clang"])
def test_a_kernel_runs(text: str) -> None:
    artifact = mlcc.build(program(text))
    exe = mlcc.load(artifact)
    a, b = np.linspace(-3, 3, 64, dtype=np.float32), np.zeros(64, np.float32)
    exe["main"](a, b)
    np.testing.assert_array_equal(b, a * 2)
    assert artifact.emit("obj") == mlcc.build(program(text)).emit("obj")


def test_what_it_defines_is_internal() -> None:
    obj = elf.read_object(mlcc.build(program(TWICE), opt_level=0).emit("obj", "p"))
    exported = {s.name for s in obj.symbols if s.bind != elf.LOCAL and s.section != elf.UNDEFINED}
    assert exported and not any("twice" in name for name in exported)
    assert not {s.name for s in obj.symbols if s.section == elf.UNDEFINED and "twice" in s.name}
    assert "define internal i32 @mlcc.native.twice" in mlcc.build(program(TWICE), opt_level=0).emit("llvm-ir").decode()


def test_one_text_in_several_places_and_several_texts() -> None:
    other = TWICE.replace("@twice", "@thrice")
    module = program(TWICE, TWICE, other)
    exe = mlcc.load(mlcc.build(module))
    a, b = np.ones(64, np.float32), np.zeros(64, np.float32)
    exe["more1"](a, b)
    assert (b == 2).all()


def test_a_text_may_use_another_one() -> None:
    outer = "declare i32 @half(i32)\ndefine i32 @twice(ptr %a, ptr %b, i32 %n) {\n  %r = call i32 @half(i32 %n)\n"
    outer += "  %x = sitofp i32 %r to float\n  store float %x, ptr %b, align 4\n  ret i32 0\n}"
    inner = "define i32 @half(i32 %n) {\n  %r = sdiv i32 %n, 2\n  ret i32 %r\n}"
    exe = mlcc.load(mlcc.build(program(outer, inner)))
    b = np.zeros(64, np.float32)
    exe["main"](np.ones(64, np.float32), b)
    np.testing.assert_array_equal(b[::16], [8, 8, 8, 8])


def test_a_value_that_a_kernel_returns() -> None:
    source = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = T.call_extern("float32", "f", A[vi], vi) + T.float32(1)
"""
    text = "define float @f(float %x, i32 %i) {\n  %y = sitofp i32 %i to float\n"
    text += "  %z = fmul float %x, %y\n  ret float %z\n}"
    module = mlcc.parse(source)
    sch = mlcc.Schedule(module)
    sch.annotate(sch.get_loops("B")[0], "pragma_import_llvm", text)
    exe = mlcc.load(mlcc.build(sch.mod))
    a, b = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    exe["main"](a, b)
    np.testing.assert_array_equal(b, a * a + 1)


BODY = "define i32 @twice(ptr %a, ptr %b, i32 %n) {\n"
WRONG = {
    "garbage": ("define nonsense", "does not accept it: .*line 1"),
    "empty": ("; define nothing", "it defines no function"),
    "typed pointers": (TWICE.replace("ptr", "float*"), "write `ptr`"),
    "does not verify": (BODY + "  %x = add i32 %y, 1\n  %y = add i32 %x, 1\n  ret i32 %y\n}", "does not accept it"),
    "cut off": (TWICE[: len(TWICE) // 2], "does not accept it"),
    "another machine": ('target triple = "riscv64-linux-gnu"\n' + TWICE, "for riscv64-linux-gnu"),
    "module asm": ('module asm "nop"\n' + TWICE, "assembly code"),
    "inline asm": (BODY + '  call void asm sideeffect "nop", ""()\n  ret i32 0\n}', "inline assembly"),
    "inline asm as a pointer": (
        BODY + '  %r = call i32 asm "mov $0, 1", "=r"()\n  ret i32 %r\n}', "inline assembly",
    ),
    "state": ("@count = internal global i32 0\n" + TWICE, "`@count` is not constant"),
    "quoted state": ('@"my constant" = internal global i32 0\n' + TWICE, "`@my constant` is not constant"),
    "state of threads": ("@count = internal thread_local constant i32 0\n" + TWICE, "is not constant"),
    "somebody else's state": ("@environ = external constant ptr\n" + TWICE, "`@environ` is not defined"),
    "start-up code": (
        "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] "
        "[{ i32, ptr, ptr } { i32 1, ptr @go, ptr null }]\n"
        "define internal void @go() {\n  ret void\n}\n" + TWICE, "start-up code",
    ),
    "kept symbols": ("@llvm.used = appending global [1 x ptr] [ptr @twice]\n" + TWICE, "kept symbols"),
    "alias": ("@again = alias i32, ptr @twice\n" + TWICE, "is an alias"),
    "ifunc": ("@again = ifunc i32 (), ptr @twice\n" + TWICE, "is an ifunc"),
    "section": (TWICE.replace("i32 %n) {", 'i32 %n) section ".init_array" {'), "a section of its own"),
    "section of data": ('@k = constant i32 1, section ".init_array"\n' + TWICE, "a section of its own"),
    "garbage collector": (TWICE.replace("i32 %n) {", 'i32 %n) gc "erlang" {'), "garbage collector"),
    "linkage": (TWICE.replace("define", "define available_externally"), "linkage available_externally"),
    "a libc function": (
        "declare i32 @system(ptr)\n" + BODY + "  %r = call i32 @system(ptr %a)\n  ret i32 %r\n}", "calls `system`",
    ),
    "in other words": (
        'declare i32 @"sys\\74em"(ptr)\n' + BODY + '  %r = call i32 @"sys\\74em"(ptr %a)\n  ret i32 %r\n}',
        "calls `system`",
    ),
    "only its address": (
        "declare i32 @system(ptr)\n" + BODY + "  store ptr @system, ptr %b\n  ret i32 0\n}", "calls `system`",
    ),
}  # fmt: skip


EACH = """
import gc, json, os, sys
from mlcc.targets.llvm.object import native_child
from mlcc.targets.llvm.object.compile import Machine
gc.disable()
found = {}
for name, text in json.load(sys.stdin).items():
    try:
        found[name] = str(native_child.check([text], Machine(), frozenset()))
    except native_child.Rejected as exc:
        found[name] = json.loads(str(exc))[1]
print(json.dumps(found), flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def findings() -> dict[str, str]:
    """What the checks say of all of WRONG; in one process, which need not be this one."""
    texts = json.dumps({name: text for name, (text, _) in WRONG.items()})
    done = subprocess.run([sys.executable, "-c", EACH], input=texts, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", WRONG)
def test_a_text_that_may_not_be_linked(name: str, findings: dict[str, str]) -> None:
    why = findings[name]
    assert re.search(WRONG[name][1], f"{why} {native._help(why)}", re.S), why


IN_THE_CHILD = {
    "garbage": WRONG["garbage"],
    "inline asm": WRONG["inline asm"],
    "empty": WRONG["empty"],
    "a fatal error of LLVM": (
        "declare void @llvm.aarch64.break(i32)\n" + BODY + "  call void @llvm.aarch64.break(i32 1)\n  ret i32 0\n}",
        "LLVM failed",
    ),
    "a helper that objects lack": (
        BODY + "  %p = load fp128, ptr %a\n  %q = fadd fp128 %p, %p\n  store fp128 %q, ptr %b\n  ret i32 0\n}",
        "needs the symbol `__addtf3`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_THE_CHILD)
def test_what_llvm_thinks_of_it_is_an_error(name: str) -> None:
    text, words = IN_THE_CHILD[name]
    refused("E0710", words, program(text))


def test_deep_nonsense_is_an_error() -> None:
    refused("E0710", "", program(BODY + "  ret i32 " + "add (i32 1, " * 200_000))
    refused("E0710", "files are not read", program("kernels/twice.ll"))


def test_a_compilation_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "SECONDS", 1)
    leaf = "define i32 @f0(ptr %p) alwaysinline {\n  %x = load volatile i32, ptr %p\n  ret i32 %x\n}\n"
    for n in range(1, 40):
        twice = f"  %x = call i32 @f{n - 1}(ptr %p)\n  %y = call i32 @f{n - 1}(ptr %p)\n  %z = add i32 %x, %y\n"
        leaf += f"define i32 @f{n}(ptr %p) alwaysinline {{\n{twice}  ret i32 %z\n}}\n"
    call = "define i32 @twice(ptr %a, ptr %b, i32 %n) {\n  %x = call i32 @f39(ptr %a)\n  ret i32 %x\n}\n"
    refused("E0710", "LLVM (did not finish within 1 seconds|failed)", program(leaf + call))


def test_symbols_that_clash() -> None:
    refused("E0711", "`twice`, and so does another kernel", program(TWICE, TWICE.replace("fadd", "fmul")))
    refused("E0711", "`expf`, which is a function of libm", program(TWICE.replace("twice", "expf")))
    refused("E0711", "`twice`, which is an allowed extern", program(TWICE), allow_extern=("twice",))
    refused("E0711", "`main`, which is a PrimFunc", program(TWICE.replace("twice", "main")))


def test_a_call_that_does_not_fit() -> None:
    refused(
        "E0708",
        r"`twice` is i32\(ptr, ptr, i64\).*called as int32\(ptr, ptr, i32\)",
        program(TWICE.replace("i32 %n", "i64 %n", 1).replace("eq i32 %next, %n", "eq i32 %next, 16")),
    )
    refused("E0708", r"i32\(ptr, \.\.\.\)", program("define i32 @twice(ptr %a, ...) {\n  ret i32 0\n}"))
    refused("E0708", "double", program("define double @twice(ptr %a, ptr %b, i32 %n) {\n  ret double 0.0\n}"))


def test_no_kernel_for_an_extern() -> None:
    refused("E0701", "`twice` is not allowed.*pragma_import_llvm", program())
    refused("E0701", "`twice` is not allowed", program(TWICE.replace("twice", "once")))


def test_allowed_externs_are_called() -> None:
    text = "declare i32 @abs(i32)\n" + BODY + "  %r = call i32 @abs(i32 -5)\n  %x = sitofp i32 %r to float\n"
    text += "  store float %x, ptr %b, align 4\n  ret i32 0\n}"
    refused("E0710", "calls `abs`.*--allow-extern", program(text))
    artifact = mlcc.build(program(text), allow_extern=("abs",), opt_level=0)
    assert artifact.manifest["externs"] == ["abs"]
    b = np.zeros(64, np.float32)
    mlcc.load(artifact, allow_extern=("abs",))["main"](b, b.copy())


def test_code_may_be_attached_to_loops_blocks_and_scopes() -> None:
    """On a loop, on a block, or in an annotated scope."""
    scope = CALL.replace("    for i in range(4):\n        ", (
        '    with T.attr(0, "pragma_import_llvm", KERNEL):\n        for i in range(4):\n            '
    )).replace("KERNEL", repr(TWICE))  # fmt: skip
    block = CALL.replace("    for i in range(4):\n        ", (
        '    with T.block("all"):\n        T.reads(A[0:64])\n        T.writes(B[0:64])\n'
        '        T.block_attr({"pragma_import_llvm": KERNEL})\n        for i in range(4):\n            '
    )).replace("KERNEL", repr(TWICE))  # fmt: skip
    for text in (scope, block):
        refused("E0709", "--allow-native", mlcc.parse(text), allow_native=False)
        a, b = np.ones(64, np.float32), np.zeros(64, np.float32)
        mlcc.load(mlcc.build(mlcc.parse(text)))["main"](a, b)
        assert (b == 2).all()


def test_c_is_not_compiled() -> None:
    refused("E0709", "C code.*clang", program("int twice;", key="pragma_import_c"))


def test_native_code_needs_permission(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The command line compiles what somebody wrote in LLVM IR only if it is told to; the exit codes are the usual."""
    refused("E0709", "--allow-native", program(TWICE), allow_native=False)
    source, bad, data = tmp_path / "k.mlc", tmp_path / "bad.mlc", tmp_path / "x.npz"
    source.write_text(mlcc.script(program(TWICE)))
    bad.write_text(mlcc.script(program(WRONG["inline asm"][0])))
    np.savez(data, A=np.ones(64, np.float32))
    for command in ("compile", "run"):
        rest = ["--in", str(data)] if command == "run" else []
        assert run([command, str(source), *rest]) == 1
        assert "E0709" in capfd.readouterr().err
        assert run([command, str(bad), "--allow-native", *rest]) == 1
        assert "E0710" in capfd.readouterr().err
        assert run([command, str(source), "--allow-native", *rest]) == 0
    assert "[2. 2. 2." in capfd.readouterr().out

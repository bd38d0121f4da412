"""Kernels in versions for several CPUs: what is made, what runs, and what is refused."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError, CompileError, LoadError, MachineError
from mlcc.ir import relax, tir
from mlcc.ir.equal import structural_equal
from mlcc.ir.module import IRModule
from mlcc.ir.versions import cpu_of, version_names
from mlcc.machine.target import LlvmTarget
from mlcc.passes.manage.manager import PassContext, Pipeline, run_pipeline
from mlcc.relax.queries import all_bindings
from mlcc.runtime import elf, machine
from mlcc.runtime.externs import ALLOWED, address_of
from mlcc.runtime.image import link_image
from mlcc.targets.llvm.codegen import cpu_features
from mlcc.targets.llvm.codegen.ir_text import ModuleText
from mlcc.targets.llvm.object.compile import Machine, compile_text
from mlcc.targets.llvm.object.machines import FEATURES

RNG = np.random.default_rng(7)
WEIGHTS = RNG.integers(-9, 9, (24, 40)).astype(np.float32) / 8
X = RNG.random((33, 24), np.float32)
EXPECTED = np.exp(-(X @ WEIGHTS))
LEVELS = ("x86-64", "x86-64-v3", "x86-64-v4")
X86 = pytest.mark.skipif(machine.arch() != "x86_64", reason="the versions are those of x86-64")


def dense(rows: int = 33, weights: np.ndarray = WEIGHTS) -> IRModule:
    """exp(-(x @ w)), of weights that are known."""
    depth, columns = weights.shape
    return mlcc.parse(
        f"""
@R.function
def main(x: R.Tensor(({rows}, {depth}), "float32")) -> R.Tensor(({rows}, {columns}), "float32"):
    with R.dataflow():
        h = R.matmul(x, R.const({weights.tolist()}, "float32"))
        y = R.exp(R.negative(h))
        R.output(y)
    return y
"""
    )


def run_level(module: IRModule, target: str, level: str = "O3") -> IRModule:
    where = LlvmTarget.parse(target)
    return run_pipeline(Pipeline.parse(level), module, PassContext(where))


def kernels(module: IRModule) -> dict[str, tir.PrimFunc]:
    return {name: f for name, f in module.functions.items() if isinstance(f, tir.PrimFunc)}


def runs_on_this_cpu(cpu: str, artifact: Any) -> bool:
    """Whether this machine runs a version."""
    (features,) = (v["features"] for v in artifact.manifest["target"]["versions"] if v["cpu"] == cpu)
    return {machine.cpuinfo_flag(f, "x86_64") for f in features} <= (machine.cpu_words() or set())


# ---------------------------------------------------------------- what is made


def test_versions_are_functions_of_the_text() -> None:
    made = run_level(dense(), "llvm{triple=x86_64-linux-gnu}")
    (name,) = (n for n, f in kernels(made).items() if version_names(f))
    others = [kernels(made)[v] for v in version_names(made[name])]
    assert [cpu_of(f) for f in others] == ["x86-64-v3", "x86-64-v4"]
    text = made.script()
    again = mlcc.parse(text)
    assert all(structural_equal(made[n], again[n]) for n in made) and again.script() == text


def test_versions_share_their_weights() -> None:
    made = run_level(dense(), "llvm{triple=x86_64-linux-gnu}")
    (call,) = (b.value for b, _ in all_bindings(made["main"].body) if isinstance(b.value, relax.Call))
    constants = [a for a in call.args[1].fields if isinstance(a, relax.Constant)]
    assert len(constants) == 1
    assert len({tuple(map(str, f.buffers[1].shape)) for f in kernels(made).values()}) == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("target", "cpus"),
    [
        ("llvm{triple=x86_64-linux-gnu}", LEVELS),
        ('llvm{triple=x86_64-linux-gnu versions=["x86-64-v2","haswell"]}', ("x86-64", "x86-64-v2", "haswell")),
        ("llvm{triple=x86_64-linux-gnu cpu=haswell versions=znver4}", ("haswell", "znver4")),
        ("llvm{triple=aarch64-linux-gnu}", ("generic", "neoverse-v1")),
        ("llvm{triple=x86_64-linux-gnu cpu=x86-64}", ()),
        ("llvm{triple=x86_64-linux-gnu features=+avx2}", ()),
        ("llvm{cpu=native}", ()),
    ],
)
def test_the_target_says_which(target: str, cpus: tuple[str, ...]) -> None:
    made = mlcc.build(dense(), target=target, opt_level=3)
    assert tuple(v["cpu"] for v in made.manifest["target"].get("versions", [])) == cpus
    assert str(LlvmTarget.parse(target)) == str(LlvmTarget.parse(str(LlvmTarget.parse(target))))


def test_a_version_is_a_cpu_of_the_architecture() -> None:
    with pytest.raises(CompileError, match="CPUs of x86_64 expected; `neoverse-v1` is not one"):
        LlvmTarget.parse("llvm{triple=x86_64-linux-gnu versions=neoverse-v1}")


@pytest.mark.parametrize(
    ("dtype", "out", "more"),
    [("int8", "int32", "cascadelake"), ("bfloat16", "float32", "cooperlake"), ("float16", "float32", None)],
)
def test_dot_products_have_one_version_more(dtype: str, out: str, more: str | None) -> None:
    text = f"""
@R.function
def main(x: R.Tensor((64, 64), "{dtype}"), w: R.Tensor((64, 64), "{dtype}")) -> R.Tensor((64, 64), "{out}"):
    return R.matmul(x, w, out_dtype="{out}")
"""
    made = run_level(mlcc.parse(text), "llvm{triple=x86_64-linux-gnu}")
    assert {cpu_of(f) for f in kernels(made).values()} == {None, "x86-64-v3", "x86-64-v4", more}


def test_what_takes_no_time_has_one() -> None:
    assert not any(
        version_names(f) for f in kernels(run_level(dense(1, WEIGHTS[:4]), "llvm{triple=x86_64-linux-gnu}")).values()
    )


def test_checked_code_has_one() -> None:
    made = mlcc.build(dense(), target="llvm", opt_level=3, sanitize=True)
    assert "versions" not in made.manifest["target"]


def test_a_text_that_names_a_version_that_is_not_there() -> None:
    made = run_level(dense(), "llvm{triple=x86_64-linux-gnu}")
    (name,) = (n for n, f in kernels(made).items() if version_names(f))
    made[name] = made[name].with_attr("mlcc.versions", ("missing",))
    with pytest.raises(CompileError, match="no version `missing`"):
        mlcc.build(made, target="llvm{triple=x86_64-linux-gnu}", pipeline="")


def test_equal_bytes_and_nothing_that_runs_when_it_is_loaded() -> None:
    target = "llvm{triple=x86_64-linux-gnu}"
    first, second = (mlcc.build(dense(), target=target, opt_level=3).emit() for _ in range(2))
    assert first == second
    assert not {s.name for s in elf.read_sections(first)} & {".init_array", ".ctors", ".init"}
    assert all(s.type != 10 for s in elf.read_object(first).symbols)  # no ifunc


def test_aarch64_asks_the_system() -> None:
    made = dense(weights=WEIGHTS[:, :37])
    text = mlcc.build(made, target="llvm{triple=aarch64-linux-gnu}", opt_level=3).emit("asm").decode()
    assert "bl\tgetauxval" in text and re.search(r"\bz\d+\.s\b|\bp\d+/[mz]", text) and "fmla\tv" in text


# ---------------------------------------------------------------- what runs


@X86
@pytest.mark.parametrize("cpu", [*LEVELS, ""])
def test_every_version_computes_the_same(cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = mlcc.build(dense(), target="llvm", opt_level=3)
    if cpu and not runs_on_this_cpu(cpu, made):
        pytest.skip(f"this machine does not run {cpu}")
    monkeypatch.setenv("MLCC_CPU", cpu)
    np.testing.assert_allclose(mlcc.load(made)["main"](X), EXPECTED, rtol=1e-5)


@X86
@pytest.mark.parametrize("columns", [1, 7, 16, 20, 65])
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_odd_sizes_match_numpy_on_every_cpu(rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = RNG.integers(-9, 9, (32, columns)).astype(np.float32) / 8
    x = RNG.random((rows, 32), np.float32)
    made = mlcc.build(dense(rows, weights), target="llvm", pipeline="O3", opt_level=1)
    for cpu in [v["cpu"] for v in made.manifest["target"].get("versions", [])]:
        if runs_on_this_cpu(cpu, made):
            monkeypatch.setenv("MLCC_CPU", cpu)
            np.testing.assert_allclose(mlcc.load(made)["main"](x), np.exp(-(x @ weights)), rtol=1e-5)


INNER = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def inner(A: T.Buffer((2048,), "float32")):
        for i in range(2048):
            with T.block("B"):
                vi = T.axis.spatial(2048, i)
                A[vi] = A[vi] * T.float32(3)
"""


@X86
def test_a_kernel_that_calls_another() -> None:
    """Both in versions: the one for a CPU calls the one for it."""
    text = (
        INNER
        + """
    @T.prim_func
    def outer(A: T.Buffer((2048,), "float32"), B: T.Buffer((2048,), "float32")):
        for i in range(2048):
            with T.block("C"):
                vi = T.axis.spatial(2048, i)
                B[vi] = A[vi] + T.float32(1)
        with T.block("call"):
            T.reads(A[0:2048])
            T.writes(B[0:2048])
            T.evaluate(Module.inner(B.data))
"""
    )
    made = mlcc.build(mlcc.parse(text), target="llvm", pipeline="version-kernels", opt_level=1)
    outer = made.text.partition("@kernel.outer_x86_64_v3(")[2].partition("\n}")[0]
    assert re.search(r"call i32 @kernel\.inner_x86_64_v3\(", outer)
    a, b = np.arange(2048, dtype=np.float32), np.zeros(2048, np.float32)
    mlcc.load(made)["outer"](a, b)
    np.testing.assert_array_equal(b, (a + 1) * 3)


@X86
def test_a_version_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = mlcc.build(dense(), target="llvm", opt_level=3)
    loaded = mlcc.load(made)
    monkeypatch.setenv("MLCC_CPU", "znver9")
    with pytest.raises(LoadError, match=r"MLCC_CPU is `znver9`, and the artifact has versions for x86-64, x86-64-v3"):
        mlcc.load(made)
    with pytest.raises(CallError, match="MLCC_CPU"):  # as C programs see it, which do not go through `mlcc.load`
        loaded["main"](X)
    monkeypatch.delenv("MLCC_CPU")
    np.testing.assert_allclose(loaded["main"](X), EXPECTED, rtol=1e-5)


@X86
def test_a_version_that_this_machine_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = "diamondrapids" if "avx512_vp2intersect" not in (machine.cpu_words() or ()) else "bdver1"
    made = mlcc.build(dense(), target=f'llvm{{versions=["{wanted}"] features=["+avx512fp16"]}}', opt_level=3)
    if runs_on_this_cpu(wanted, made):
        pytest.skip("this machine has it all")
    loaded = mlcc.load
    monkeypatch.setenv("MLCC_CPU", wanted)
    with pytest.raises(MachineError, match="needs the CPU feature"):
        loaded(made)


# ---------------------------------------------------------------- asking the CPU

ASK = "define i32 @ask() nounwind {\nentry:\n"
FAKE = """
@regs = global [24 x i32] zeroinitializer
@state = global i32 0
define internal { i32, i32, i32, i32 } @cpuid(i32 %leaf, i32 %part) noinline {
  switch i32 %leaf, label %none [ i32 0, label %l0 i32 1, label %l1 i32 7, label %l7 i32 -2147483648, label %x0
    i32 -2147483647, label %x1 ]
none:
  br label %go
l0:
  br label %go
l1:
  br label %go
l7:
  %more = add i32 %part, 2
  br label %go
x0:
  br label %go
x1:
  br label %go
go:
  %at = phi i32 [ 0, %none ], [ 0, %l0 ], [ 1, %l1 ], [ %more, %l7 ], [ 4, %x0 ], [ 5, %x1 ]
  %first = mul i32 %at, 4
  %p = getelementptr i32, ptr @regs, i32 %first
  %v = load <4 x i32>, ptr %p, align 4
  %a = extractelement <4 x i32> %v, i32 0
  %b = extractelement <4 x i32> %v, i32 1
  %c = extractelement <4 x i32> %v, i32 2
  %d = extractelement <4 x i32> %v, i32 3
  %r0 = insertvalue { i32, i32, i32, i32 } poison, i32 %a, 0
  %r1 = insertvalue { i32, i32, i32, i32 } %r0, i32 %b, 1
  %r2 = insertvalue { i32, i32, i32, i32 } %r1, i32 %c, 2
  %r3 = insertvalue { i32, i32, i32, i32 } %r2, i32 %d, 3
  ret { i32, i32, i32, i32 } %r3
}
define internal { i32, i32 } @xgetbv(i32 %n) noinline {
  %low = load i32, ptr @state
  %r0 = insertvalue { i32, i32 } { i32 0, i32 0 }, i32 %low, 0
  ret { i32, i32 } %r0
}
define void @set(i32 %at, i32 %value) {
  %p = getelementptr i32, ptr @regs, i32 %at
  store i32 %value, ptr %p
  ret void
}
define void @keep(i32 %value) {
  store i32 %value, ptr @state
  ret void
}
"""
PLACES = {"l1": 1, "l7": 2, "l71": 3, "x1": 5}


class FakeCpu:
    """The code that asks, with a CPU of our own in the place of the instructions."""

    def __init__(self, features: frozenset[str]) -> None:
        lines = [*cpu_features.words_text(ModuleText(), "x86_64"), *cpu_features.test_text("x86_64", features, "has")]
        body = "\n".join([*lines, "  %answer = zext i1 %has to i32", "  ret i32 %answer", "}"])
        body = re.sub(r'asm sideeffect "(cpuid|xgetbv)", "[^"]*"', r"@\1", body)
        obj = compile_text(FAKE + ASK + body, Machine(), 0).obj
        self.image = link_image(elf.read_object(obj), lambda name: address_of(name, ALLOWED))
        self.function("set", 0, 7)  # the last leaf
        self.function("set", 2 * 4, 1)  # the last part of leaf 7
        self.function("set", 4 * 4, -2147483647)
        for word, bits in self.bits(frozenset(FEATURES["x86_64"])).items():
            self.set(word, bits)

    @staticmethod
    def bits(features: frozenset[str]) -> dict[str, int]:
        words: dict[str, int] = {"l1.c": 1 << 27}  # the system keeps the state that xgetbv names
        for feature in features:
            word, bit = cpu_features._X86[feature]
            words[word] = words.get(word, 0) | 1 << bit
        return words

    def set(self, word: str, bits: int) -> None:
        leaf, _, register = word.partition(".")
        self.function("set", PLACES[leaf] * 4 + "abcd".index(register), ctypes.c_int32(bits).value)

    def function(self, name: str, *args: int) -> int:
        kind = ctypes.CFUNCTYPE(ctypes.c_int32, *(ctypes.c_int32 for _ in args))
        return int(kind(self.image.functions[name])(*args))

    def has(self, state: int) -> bool:
        self.function("keep", state)
        return bool(self.function("ask"))


@X86
@pytest.mark.parametrize(("cpu", "state"), [("x86-64-v2", 0), ("x86-64-v3", 0x6), ("x86-64-v4", 0xE6)])
def test_the_system_has_to_keep_the_registers(cpu: str, state: int) -> None:
    features = Machine("x86_64-unknown-linux-gnu", cpu).enabled
    fake = FakeCpu(features)
    assert fake.has(0xE7)
    for bit in (0x2, 0x4, 0x20, 0x40, 0x80):
        assert fake.has(0xE7 & ~bit) == (not state & bit)
    words = FakeCpu.bits(frozenset(FEATURES["x86_64"]))
    fake.set("l1.c", words["l1.c"] & ~(1 << 27))  # then xgetbv would be an illegal instruction
    assert fake.has(0xE7) == (not state)


@X86
def test_every_feature_is_asked_for() -> None:
    features = Machine("x86_64-unknown-linux-gnu", "graniterapids").enabled
    fake, words = FakeCpu(features), FakeCpu.bits(frozenset(FEATURES["x86_64"]))
    for feature in features:
        word, bit = cpu_features._X86[feature]
        fake.set(word, words[word] & ~(1 << bit))
        assert not fake.has(0xE7), feature
        fake.set(word, words[word])
    assert fake.has(0xE7)
    fake.function("set", 0, 6)  # an old CPU: leaf 7 gives what another leaf does
    assert not fake.has(0xE7)


def test_whatever_a_version_may_use_can_be_asked_for() -> None:
    assert set(FEATURES["x86_64"]) == set(cpu_features._X86)
    assert set(FEATURES["aarch64"]) - {"strict-align"} == set(cpu_features._ARM)  # which asks nothing of a CPU


# ---------------------------------------------------------------- in C

PROGRAM = """
#include <stdio.h>
#include "model.h"
int main(void) {
  float x[33 * 24], y[33 * 40];
  for (int i = 0; i < 33 * 24; ++i) x[i] = (float)(i % 7) / 8;
  int64_t in_shape[2] = {33, 24}, out_shape[2] = {33, 40};
  DLTensor in = {x, {1, 0}, 2, {2, 32, 1}, in_shape, NULL, 0}, out = {y, {1, 0}, 2, {2, 32, 1}, out_shape, NULL, 0};
  int code = model_main(&in, &out);
  if (code) { puts(model_main_error(code)); return 1; }
  double sum = 0;
  for (int i = 0; i < 33 * 40; ++i) sum += y[i];
  printf("%.6e\\n", sum);
  return 0;
}
"""


@X86
@pytest.mark.parametrize("how", ["pie", "static", "shared"])
def test_c_programs_choose_the_version(how: str, tmp_path: Path) -> None:
    made = mlcc.build(dense(), target="llvm", opt_level=3)
    (tmp_path / "app.c").write_text(PROGRAM)
    suffix = "so" if how == "shared" else "o"
    made.save(tmp_path / f"model.{suffix}")
    (tmp_path / "model.h").write_text(made.header(str(tmp_path / "model.o")))
    flags = {"pie": ["-fPIE", "-pie"], "static": ["-static"], "shared": ["-Wl,-rpath,."]}[how]
    command = ["cc", *flags, "-Wl,--fatal-warnings", "app.c", f"model.{suffix}", "-lm", "-o", "app"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    x = (np.arange(33 * 24) % 7).astype(np.float32).reshape(33, 24) / 8
    wanted = np.exp(-(x @ WEIGHTS)).astype(np.float64).sum()
    for cpu in [c for c in LEVELS if runs_on_this_cpu(c, made)]:
        done = subprocess.run(
            ["./app"], cwd=tmp_path, env={**os.environ, "MLCC_CPU": cpu}, capture_output=True, text=True
        )
        assert done.returncode == 0 and abs(float(done.stdout) - wanted) < 1e-4 * wanted
    done = subprocess.run(
        ["./app"], cwd=tmp_path, env={**os.environ, "MLCC_CPU": "none"}, capture_output=True, text=True
    )
    assert done.returncode == 1 and "MLCC_CPU" in done.stdout


@X86
def test_a_caller_of_few_steps_has_versions_too() -> None:
    """It would else call the one for the least CPU for ever."""
    text = (
        INNER
        + """
    @T.prim_func
    def outer(A: T.Buffer((2048,), "float32")):
        T.evaluate(Module.inner(A.data))
"""
    )
    made = mlcc.run_passes(mlcc.parse(text), "version-kernels")
    assert "outer_x86_64_v3" in made.functions
    a = np.arange(2048, dtype=np.float32)
    mlcc.load(mlcc.build(mlcc.parse(text)))["outer"](a)
    np.testing.assert_array_equal(a, np.arange(2048, dtype=np.float32) * 3)


@X86
def test_loops_below_a_condition_count() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((64, 64), "float32"), n: T.int32):
    if n > 0:
        for i, j in T.grid(64, 64):
            A[i, j] = A[i, j] + T.float32(1)
"""
    assert len(mlcc.run_passes(mlcc.parse(text), "version-kernels").functions) > 1


@pytest.mark.parametrize("options", [
    'versions=["x86-64-v4","x86-64-v3"]', 'versions=["haswell","haswell"]', 'versions=["x86-64"]',
    'cpu=skylake-avx512 versions=["x86-64-v3"]', 'versions=["neoverse-v1"]',
])  # fmt: skip
def test_versions_that_would_never_run_are_refused(options: str) -> None:
    with pytest.raises(mlcc.CompileError, match="E0793"):
        LlvmTarget.parse(f"llvm{{triple=x86_64-linux-gnu {options}}}")


@X86
def test_versions_of_a_text_that_do_no_more_than_the_target_are_left_out() -> None:
    text = mlcc.parse(SCALED)
    made = mlcc.run_passes(text, "version-kernels")
    assert len(made.functions) > 1
    manifest = mlcc.build(made, "llvm{cpu=x86-64-v3}").manifest
    assert [v["cpu"] for v in manifest["target"]["versions"]] == ["x86-64-v3", "x86-64-v4"]
    with pytest.raises(mlcc.CompileError, match="E0706.*x86-64-v3"):
        mlcc.build(made, "llvm{triple=aarch64-linux-gnu}")


SCALED = """
@T.prim_func
def main(A: T.Buffer((4096,), "float32"), B: T.Buffer((4096,), "float32")):
    for i in range(4096):
        with T.block("B"):
            vi = T.axis.spatial(4096, i)
            B[vi] = A[vi] * T.float32(3)
"""

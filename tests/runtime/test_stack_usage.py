"""Bounds of the stack: instructions as objdump reads them, and bounds against what calls really touch."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from mlcc.driver import build, parse_file
from mlcc.grammar.parser import parse
from mlcc.machine.target import Target
from mlcc.runtime import elf, stack_x86_64
from mlcc.runtime.machine import arch
from mlcc.runtime.stack_instructions import Kind
from mlcc.runtime.stack_usage import stack_bounds

pytestmark = pytest.mark.skipif(arch() != "x86_64", reason="this machine does not run code for x86-64")
SAMPLES = Path(__file__).resolve().parents[2] / "samples"
TEXT = """
@R.function
def main(x: R.Tensor(("n", 300), "float32")):
    with R.dataflow():
        a = R.nn.softmax(R.sin(x))
        b = R.matmul(R.permute_dims(a), a)
        R.output(b)
    return b
"""
SMALL = '@R.function\ndef main(x: R.Tensor((500,), "float32")):\n    return R.exp(R.sort(x))\n'


@pytest.mark.parametrize("target", ["llvm", "llvm{cpu=x86-64-v4 features=+avx512vnni}"])
def test_lengths_are_those_of_objdump(tmp_path: Path, target: str) -> None:
    for name, module in (("net", parse(TEXT)), ("lenet", parse_file(str(SAMPLES / "lenet/lenet.mlc")))):
        path = tmp_path / f"{name}.o"
        build(module, Target.parse(target)).save(path)
        data = path.read_bytes()
        listed = subprocess.run(
            ["objdump", "-d", "-w", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
        ).stdout
        obj = elf.read_object(data)
        count = 0
        for part in listed.split("Disassembly of section ")[1:]:
            section = next(s for s in obj.sections if s.name == part.split(":", 1)[0])
            starts = [int(at, 16) for at in re.findall(r"^\s*([0-9a-f]+):\t", part, re.M)]
            content = obj.bytes_of(section)
            for at, following in zip(starts, starts[1:], strict=False):
                assert at + stack_x86_64.read(content, at).size == following, (name, section.name, hex(at))
                count += 1
        assert count > 1000


def function(code: str, folder: Path, *compiler: str) -> dict[str, int | None]:
    """The bounds of functions in C."""
    (folder / "f.c").write_text(code)
    subprocess.run([*compiler, "-c", "f.c", "-o", "f.o"], cwd=folder, check=True)
    data = (folder / "f.o").read_bytes()
    names = re.findall(r"^\w[\w ]*?\b(\w+)\(.*\{", code, re.M)
    bounds = stack_bounds(data, names)
    assert bounds is not None
    return {name: bound.bytes for name, bound in bounds.items()}


CODE = """
void sink(void *);
void leaf(void) { }
void large(void) { char a[5000]; sink(a); }
void aligned(void) { char a[100] __attribute__((aligned(64))); sink(a); }
void both(int n) { if (n) large(); else aligned(); }
void variable(int n) { char a[n]; sink(a); }
void recursive(int n) { char a[9]; sink(a); if (n) recursive(n - 1); sink(a); }
void pointer(void (*f)(void)) { char a[9]; f(); sink(a); }
"""


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2"])
def test_functions_of_another_compiler(tmp_path: Path, level: str) -> None:
    flags = ["-fno-stack-protector", "-fno-inline", "-fno-stack-clash-protection", "-fno-pie", level]
    found = function(CODE, tmp_path, "cc", *flags)
    large, aligned = found["large"], found["aligned"]
    assert large is not None and aligned is not None
    assert (found["leaf"] or 0) <= 16 and 5000 <= large < 5100 and 100 <= aligned < 400
    assert found["both"] is not None and large <= found["both"] < large + 80
    assert found["variable"] is None and found["recursive"] is None and found["pointer"] is None


MEASURE = """
#define _GNU_SOURCE
#include "model.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define STACK (1 << 20)
static float in[SIZE], out[300 * 300];
static int64_t shape[2] = SHAPE, out_shape[2] = OUT_SHAPE;
static DLTensor x = {in, {1, 0}, NDIM, {2, 32, 1}, shape, 0, 0}, y = {out, {1, 0}, NDIM, {2, 32, 1}, out_shape, 0, 0};
static unsigned char memory[1 << 21] __attribute__((aligned(64)));
typedef int32_t call(void *, int64_t, const DLTensor *, DLTensor *);
static int32_t nothing(void *a, int64_t b, const DLTensor *c, DLTensor *d) { return !a && !b && !c && !d; }
static int32_t result;
static void *thread(void *f) { result = (*(call **)f)(memory, sizeof memory, &x, &y); return 0; }
static long touched(call *f) {
    pthread_attr_t how;
    pthread_t id;
    unsigned char *stack = aligned_alloc(4096, STACK);
    memset(stack, 0xA5, STACK);
    pthread_attr_init(&how);
    pthread_attr_setstack(&how, stack, STACK);
    pthread_create(&id, &how, thread, &f);
    pthread_join(id, 0);
    long at = 0;
    while (stack[at] == 0xA5) at++;
    return STACK - at;
}
int main(void) {
    long none = touched(nothing), used = touched(model_main_ws);
    printf("%ld %d", used - none, (int)result);
    return 0;
}
"""


@pytest.mark.parametrize("target", ["llvm{cpu=native num-cores=1}", "llvm{cpu=x86-64 num-cores=1}"])
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("text", [TEXT, SMALL], ids=["matmul", "sort"])
def test_calls_stay_within_their_bound(tmp_path: Path, target: str, level: int, text: str) -> None:
    made = build(parse(text), Target.parse(target), opt_level=level)
    made.save(tmp_path / "model.o")
    (tmp_path / "model.h").write_text(made.header("model.o"))
    (tmp_path / "app.c").write_text(MEASURE)
    rows = text is TEXT
    sizes = {"SIZE": "600", "SHAPE": "{2, 300}" if rows else "{500, 0}", "NDIM": "2" if rows else "1",
             "OUT_SHAPE": "{300, 300}" if rows else "{500, 0}"}  # fmt: skip
    defines = [f"-D{key}={value}" for key, value in sizes.items()]
    # static: what binds symbols at their first call takes kilobytes of stack
    command = ["cc", "-static", "-O1", *defines, "app.c", "model.o", "-o", "app", "-lm", "-lpthread"]
    subprocess.run(command, cwd=tmp_path, check=True)
    printed = subprocess.run(["./app"], cwd=tmp_path, capture_output=True, text=True, check=True)
    used, code = map(int, printed.stdout.split())
    bounds = stack_bounds((tmp_path / "model.o").read_bytes(), ["model_main_ws"])
    assert code == 0 and bounds is not None
    bound = bounds["model_main_ws"].bytes
    assert bound is not None
    outside = 1024 * bool(bounds["model_main_ws"].calls)  # of memset and its like
    assert used <= bound + outside
    assert bound <= 3 * used + 2048  # what an error's path would take is counted, too


def test_other_files_have_none() -> None:
    assert stack_bounds(build(parse(SMALL), Target.parse("llvm{triple=riscv64-linux-gnu}")).emit(), []) is None


def test_beyond_the_end() -> None:
    for code in (b"", b"\x48", b"\x48\x81", b"\x62\x01", b"\x0f"):
        assert stack_x86_64.read(memoryview(code), 0).kind is Kind.UNKNOWN

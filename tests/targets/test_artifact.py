"""Artifacts: C programs that use them, the same bytes for the same input, every form of output, big constants."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.driver import build
from mlcc.errors import CompileError, LoadError
from mlcc.ir import relax
from mlcc.ir.dtypes import FLOAT32, INT64
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs
from mlcc.ir.tensor_data import TensorData
from mlcc.ir.tir import IntImm
from mlcc.runtime import elf, image
from mlcc.runtime.loader import load, read_manifest
from tests.targets.c_programs import CC, run_c_program
from tests.targets.texts import ADD_ONE, RELU, artifact, module

ROOT = Path(__file__).resolve().parents[2]
F4 = np.float32

MODEL = module(
    ADD_ONE,
    RELU,
    """
    @R.function
    def main(x: R.Tensor(("n", 2), "float32"), k: R.Prim("int64"), flag: R.Prim("bool"), h: R.Prim("float64")):
        n = T.int64()
        cls = Module
        c = R.const([[-1.0, 2.0]], "float32")
        a = R.call_tir(cls.relu, (x,), out_sinfo=R.Tensor((n, 2), "float32"))
        b = R.call_tir(cls.relu, (a,), out_sinfo=R.Tensor((n, 2), "float32"))
        d = R.call_tir(cls.relu, (c,), out_sinfo=R.Tensor((1, 2), "float32"))
        return (b, d, R.shape([n * 2]), k)
""",
)
C_PROGRAM = r"""
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static DLTensor tensor(float *data, int64_t *shape) {
    DLTensor t = {0};
    t.data = data;
    t.device.device_type = 1;
    t.ndim = 2;
    t.dtype.code = 2;
    t.dtype.bits = 32;
    t.dtype.lanes = 1;
    t.shape = shape;
    return t;
}
#define EXPECT(condition) \
    do { \
        if (!(condition)) { printf("line %d: %s\n", __LINE__, #condition); return 1; } \
    } while (0)

int main(void) {
    float in[6] = {-1, 2, -3, 4, 5, -6}, b[6] = {0}, d[2] = {0};
    int64_t in_shape[2] = {3, 2}, d_shape[2] = {1, 2}, out_shape[1] = {0}, k = 0;
    DLTensor x = tensor(in, in_shape), tb = tensor(b, in_shape), td = tensor(d, d_shape);
    EXPECT(model_main(&x, 7, true, 0.5, &tb, &td, out_shape, &k) == 0);
    EXPECT(b[0] == 0 && b[1] == 2 && b[2] == 0 && b[5] == 0 && d[0] == 0 && d[1] == 2 && out_shape[0] == 6 && k == 7);

    int64_t size = model_main_ws_size(&x, 7, true, 0.5), shapes[2][2];
    EXPECT(size >= 24 && size < 4096);
    EXPECT(model_main_shape(&x, 7, true, 0.5, shapes[0], shapes[1], out_shape, &k) == 0);
    EXPECT(shapes[0][0] == 3 && shapes[0][1] == 2 && shapes[1][0] == 1);
    char *raw = malloc((size_t)size + 64), *ws = raw + (64 - (uintptr_t)raw % 64) % 64;
    memset(b, 0, sizeof b);
    EXPECT(model_main_ws(ws, size, &x, 7, true, 0.5, &tb, &td, out_shape, &k) == 0 && b[1] == 2);
    EXPECT((model_main_ws(ws, size - 1, &x, 7, true, 0.5, &tb, &td, out_shape, &k) & 255) == MLCC_WORKSPACE);
    EXPECT((model_main_ws(ws + 4, size, &x, 7, true, 0.5, &tb, &td, out_shape, &k) & 255) == MLCC_WORKSPACE);
    free(raw);

    int64_t wrong[2] = {3, 5}, strides[2] = {2, 1}, gaps[2] = {4, 1};
    DLTensor bad = x;
    int32_t code;
#define FAILS(kind) \
    (code = model_main(&bad, 7, true, 0.5, &tb, &td, out_shape, &k), (code & MLCC_ERROR_KIND_MASK) == (kind))
#define SAYS(text) strstr(model_main_error(code), text)
    bad.shape = wrong; EXPECT(FAILS(MLCC_SHAPE)); EXPECT(SAYS("dimension 1 of `x` must be 2"));
    EXPECT(model_main_ws_size(&bad, 7, true, 0.5) == -(int64_t)code);
    bad = x; bad.ndim = 1; EXPECT(FAILS(MLCC_NDIM));
    bad = x; bad.dtype.bits = 64; EXPECT(FAILS(MLCC_DTYPE)); EXPECT(SAYS("`x` must be float32"));
    bad = x; bad.device.device_type = 2; EXPECT(FAILS(MLCC_DEVICE));
    bad = x; bad.data = NULL; EXPECT(FAILS(MLCC_NULL));
    bad = x; bad.shape = NULL; EXPECT(FAILS(MLCC_NULL));
    bad = x; bad.data = (char *)in + 1; EXPECT(FAILS(MLCC_ALIGN));
    bad = x; bad.strides = strides; EXPECT(FAILS(MLCC_OK));
    bad = x; bad.strides = gaps; EXPECT(FAILS(MLCC_STRIDES)); EXPECT(SAYS("contiguous"));
    bad = x; bad.data = b; EXPECT(FAILS(MLCC_OVERLAP)); EXPECT(SAYS("shares memory"));
    bad = x; bad.data = (char *)in - 8; bad.byte_offset = 8; EXPECT(FAILS(MLCC_OK));
    EXPECT((model_main(NULL, 7, true, 0.5, &tb, &td, out_shape, &k) & 255) == MLCC_NULL);
    tb.shape = d_shape; bad = x; EXPECT(FAILS(MLCC_SYMBOL));
    EXPECT(SAYS("must be n, which dimension 0 of `x` gives"));
    EXPECT(strcmp(model_main_error(0), "no error") == 0 && strcmp(model_main_error(-1), "unknown error") == 0);
    EXPECT(strstr(model_main_error(MLCC_STRIDES | 9999 << 8), "not contiguous"));
    printf("fine\n");
    return 0;
}
"""


def test_a_c_program_calls_it(tmp_path: Path) -> None:
    assert run_c_program(tmp_path, artifact(MODEL), C_PROGRAM) == "fine\n"


def test_the_header_stands_alone(tmp_path: Path) -> None:
    """In C and C++, twice, and beside another artifact's header."""
    made = artifact(MODEL)
    for name in ("one", "two"):
        (tmp_path / f"{name}.h").write_text(made.header(f"{name}.o"))
    text = '#include "one.h"\n#include "two.h"\n#include "one.h"\n'
    text += (
        "const char *use(void);\nconst char *use(void) { return one_main_error(two_main_ws_size(0, 1, true, 2)); }\n"
    )
    (tmp_path / "a.c").write_text(text)
    subprocess.run([*CC, "-c", "a.c"], cwd=tmp_path, check=True)
    (tmp_path / "a.cc").write_text(text)
    if subprocess.run(["sh", "-c", "command -v c++"], capture_output=True, check=False).returncode == 0:
        subprocess.run(["c++", "-Wall", "-Wextra", "-Werror", "-c", "a.cc"], cwd=tmp_path, check=True)


def test_two_objects_link_into_one_program(tmp_path: Path) -> None:
    made = artifact(MODEL)
    made.save(tmp_path / "other.o")
    (tmp_path / "other.h").write_text(made.header("other.o"))
    source = C_PROGRAM.replace('#include "model.h"', '#include "model.h"\n#include "other.h"').replace(
        "EXPECT(strcmp(model_main_error(0)", "bad = x; tb.shape = in_shape;"
        "EXPECT(other_main(&x, 7, true, 0.5, &tb, &td, out_shape, &k) == 0); EXPECT(strcmp(model_main_error(0)"
    )  # fmt: skip
    assert run_c_program(tmp_path, made, source, "other.o") == "fine\n"


def test_only_documented_symbols_are_seen(tmp_path: Path) -> None:
    artifact(MODEL).save(tmp_path / "my-model 2.o")
    obj = elf.read_object((tmp_path / "my-model 2.o").read_bytes())
    defined = {s.name for s in obj.symbols if s.bind != elf.LOCAL and s.section}
    outside = {s.name for s in obj.symbols if s.bind != elf.LOCAL and not s.section and s.name}
    suffixes = ("", "_ws", "_ws_size", "_shape", "_error", "_query", "_run")
    assert defined == {f"my_model_2_main{s}" for s in suffixes} | {"my_model_2_time_run", "my_model_2_constants"}
    assert outside <= {"malloc", "free", "memcpy"}


PARALLEL = module("""
    @T.prim_func
    def f(A: T.Buffer((512, 4096), "float32"), B: T.Buffer((512, 4096), "float32")):
        for i in T.parallel(512):
            for j in range(4096):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = T.exp(A[vi, vj])
""")


@pytest.mark.parametrize("text, threads", [(MODEL, False), (PARALLEL, True)], ids=["plain", "parallel"])
def test_a_library_that_has_objects_exports_what_is_documented(tmp_path: Path, text: str, threads: bool) -> None:
    """Two objects in one shared library: the functions for C of both, and one thread pool."""
    for name in ("one", "two"):
        artifact(text).save(tmp_path / f"{name}.o")
    command = ["cc", "-shared", "-o", "both.so", "one.o", "two.o", "-Wl,-z,defs", "-lm", "-lc"]
    subprocess.run(command, cwd=tmp_path, check=True)
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", "both.so"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[-1] for line in listed.splitlines()}
    pool = {name for name in names if name.startswith("mlcc_pool_v1_")}
    assert bool(pool) == threads
    function = "f" if threads else "main"
    suffixes = ["", "_ws", "_ws_size", "_error", *(["_shape"] if not threads else [])]
    expected = {f"{prefix}_{function}{suffix}" for prefix in ("one", "two") for suffix in suffixes}
    if threads:
        expected |= {f"{p}_{s}" for p in ("one", "two") for s in ("set_num_threads", "set_parallel_for")}
    assert names - pool == expected
    load(tmp_path / "one.o")


def test_c_programs_supply_packed_functions(tmp_path: Path) -> None:
    made = artifact(
        module(
            """
    @R.function
    def main(x: R.Tensor((2, 1), "float32")):
        a = R.call_dps_packed("c.double", (x,), out_sinfo=R.Tensor((2, 1), "float32"))
        b = R.call_dps_packed("c.double", (a,), out_sinfo=R.Tensor((2, 1), "float32"))
        return b
"""
        )
    )
    main = r"""
static int32_t twice(void *context, DLTensor **args, int32_t count) {
    const float *x = args[0]->data;
    float *y = args[1]->data;
    if (count != 2 || args[1]->ndim != 2 || args[1]->shape[0] != 2) return 9;
    if (x[0] > 100) return 5;
    y[0] = 2 * x[0], y[1] = 2 * x[1];
    ++*(int *)context;
    return 0;
}
int main(void) {
    float in[2] = {1, 2}, out[2] = {0, 0};
    int64_t shape[2] = {2, 1};
    int calls = 0;
    DLTensor x = tensor(in, shape), y = tensor(out, shape);
    int32_t code = model_main(&x, &y);
    EXPECT((code & 255) == MLCC_PACKED_UNSET && strstr(model_main_error(code), "`c.double` is not set"));
    EXPECT(model_set_packed("c.doubl", twice, &calls) == MLCC_VALUE);
    EXPECT(model_set_packed("c.double", twice, &calls) == 0);
    EXPECT(model_main(&x, &y) == 0 && out[0] == 4 && out[1] == 8 && calls == 2);
    in[0] = 1000;
    code = model_main(&x, &y);
    EXPECT((code & 255) == MLCC_PACKED_FAILED && strstr(model_main_error(code), "`c.double` failed"));
    EXPECT(model_set_packed_slot(0, NULL, NULL) == 0 && model_set_packed_slot(1, NULL, NULL) == MLCC_VALUE);
    printf("fine\n");
    return 0;
}
"""
    assert run_c_program(tmp_path, made, C_PROGRAM.split("int main(void)")[0] + main) == "fine\n"


def test_strided_parameters_and_several_results_of_a_prim_func(tmp_path: Path) -> None:
    exe = load(
        artifact(
            """
@T.prim_func
def main(a: T.handle, B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "int64")):
    s0, s1 = T.int32(), T.int32()
    A = T.match_buffer(a, (4, 2), "float32", strides=(s0, s1))
    for i in range(4):
        B[i] = A[i, 0] + A[i, 1]
        C[i] = C[i] + T.int64(1)
"""
        )
    )
    x = np.arange(24, dtype=F4).reshape(4, 6)
    c = np.arange(4, dtype=np.int64)
    for view in (x[:, ::5], x[::-1, 1:3], np.asfortranarray(x[:, :2])):
        b = np.zeros(4, F4)
        exe["main"](view, b, c)
        np.testing.assert_array_equal(b, view.sum(axis=1))
    assert c.tolist() == [3, 4, 5, 6]
    params = exe.manifest["functions"]["main"]["params"]
    assert [p["role"] for p in params] == ["in", "out", "inout"] and params[0]["strides"] == ["s0", "s1"]
    wide = np.zeros(8, np.int64)
    exe["main"](x[:, :2], np.zeros(4, F4), wide[::2])
    assert wide.tolist() == [1, 0, 1, 0, 1, 0, 1, 0], "an argument that is read and written is copied both ways"


# ---------------------------------------------------------------- bytes and forms


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    script = tmp_path / "make.py"
    (tmp_path / "model.mlc").write_text(MODEL)
    script.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import mlcc\n"
        f"text = open({str(tmp_path / 'model.mlc')!r}).read()\n"
        "mlcc.build(mlcc.parse(text), pipeline='').save('model.o')\n"
    )
    made = []
    for seed, folder in (("1", "here"), ("77", "some/where/else")):
        (tmp_path / folder).mkdir(parents=True)
        env = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, str(script)], cwd=tmp_path / folder, env=env, check=True)
        made.append((tmp_path / folder / "model.o").read_bytes())
    assert made[0] == made[1]


def test_every_form_of_output_is_written(tmp_path: Path) -> None:
    made = artifact(MODEL, prefix="p")
    for suffix in (".o", ".so", ".s", ".ll"):
        made.save(tmp_path / f"m{suffix}")
    assert "@p_main" in (tmp_path / "m.ll").read_text() and "p_main:" in (tmp_path / "m.s").read_text()
    x = np.array([[-1, 2]], F4)
    for name in ("m.o", "m.so"):
        exe = mlcc.load(tmp_path / name)
        b, d, shape, k = exe["main"](x, 3, False, 1.5)
        assert b.tolist() == [[0, 2]] and d.tolist() == [[0, 2]] and shape == (2,) and k == 3
        assert read_manifest(str(tmp_path / name))["prefix"] == "p"
    assert mlcc.load((tmp_path / "m.so").read_bytes())["main"](x, 3, False, 1.5)[3] == 3
    assert mlcc.load(made)["main"](x, 3, False, 1.5)[3] == 3
    subprocess.run(["cc", "-c", "m.s", "-o", "from_s.o"], cwd=tmp_path, check=True)
    constants = [s for s in elf.read_object((tmp_path / "from_s.o").read_bytes()).symbols if s.name == "p_constants"]
    assert constants[0].section, "assembly carries the constants"
    with pytest.raises(CompileError, match="cannot write `exe`"):
        made.emit("exe")
    with pytest.raises(CompileError, match="cannot write"):
        made.save(tmp_path / "no" / "such" / "m.o")


def test_a_damaged_shared_library_is_refused(tmp_path: Path) -> None:
    artifact(MODEL).save(tmp_path / "m.so")
    good = (tmp_path / "m.so").read_bytes()
    for length in (100, len(good) // 2, len(good) - 64):
        with pytest.raises(LoadError):
            load(good[:length])


def test_no_compiler_for_a_shared_library(monkeypatch: pytest.MonkeyPatch) -> None:
    made = artifact(MODEL)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(CompileError, match="no C compiler `no-such-compiler`"):
        made.emit("shared")
    monkeypatch.setenv("CC", "false")
    with pytest.raises(CompileError, match="cannot link"):
        made.emit("shared")


def test_other_architectures_link() -> None:
    """The object for aarch64 goes through the loader's linker up to where it would run."""
    for opt_level in (0, 2):
        made = artifact(MODEL, "llvm{triple=aarch64-linux-gnu}", opt_level)
        obj = elf.read_object(made.emit("obj"))
        assert obj.machine == elf.AARCH64
        layout = image.plan_layout(obj)
        image.Linker(obj, layout, 0x7F0000000000, lambda name, weak: 0x7E0000000000).fill(
            memoryview(bytearray(layout.end))
        )
    assert made.manifest["target"]["arch"] == "aarch64"
    with pytest.raises(LoadError, match="is for aarch64"):
        load(made)


def test_the_manifest_says_what_the_machine_needs() -> None:
    assert artifact(MODEL).manifest["target"]["features"] == []
    assert "avx2" in artifact(MODEL, "llvm{cpu=haswell}").manifest["target"]["features"]
    without = artifact(MODEL, "llvm{cpu=haswell features=-avx2}").manifest["target"]["features"]
    assert "avx" in without and "avx2" not in without
    manifest = artifact(MODEL).manifest
    assert manifest["mlcc"] == {"abi": 1, "version": mlcc.__version__}
    assert len(manifest["source"]["sha256"]) == 64


def test_the_runtime_knows_every_feature() -> None:
    """What code may use, the loader can look for: each feature has a word of the kernel."""
    from mlcc.machine.cpu import CPUS
    from mlcc.runtime.machine import cpuinfo_flag
    from mlcc.targets.llvm.object.machines import FEATURES

    for arch, cpus in CPUS.items():
        used = {f for features in cpus.values() for f in features} | set(FEATURES[arch])
        unknown = {f for f in used if cpuinfo_flag(f, arch) is None}
        assert unknown <= {"crc32", "strict-align"}  # with sse4.2; asks for nothing


def test_code_for_this_cpu_loads_here() -> None:
    made = artifact(MODEL, "llvm{cpu=native}")
    assert mlcc.load(made)["main"](np.ones((1, 2), F4), 1, True, 1.0)[3] == 1


# ---------------------------------------------------------------- big constants


def constant_model(*arrays: np.ndarray) -> IRModule:
    """A module whose main returns constants."""
    fields = []
    for array in arrays:
        dims = tuple(IntImm(INT64, n) for n in array.shape)
        shape = relax.ShapeExpr(dims, relax.ShapeStructInfo(dims, len(dims)))
        info = relax.TensorStructInfo(shape, FLOAT32, array.ndim)
        fields.append(relax.Constant(TensorData.of(array), info))
    body = relax.SeqExpr((), relax.Tuple(tuple(fields)))
    return IRModule({"main": relax.Function((), body, attrs=Attrs({"global_symbol": "main"}))})


def test_equal_constants_are_kept_once(tmp_path: Path) -> None:
    a, b = np.arange(1000, dtype=F4), np.ones(3, F4)
    made = build(constant_model(a, b, a.copy(), np.zeros((0, 3), F4)))
    made.save(tmp_path / "m.o")
    assert made.manifest["constants"] == {"count": 3, "bytes": 4012}
    got = load(tmp_path / "m.o")["main"]()
    for value, want in zip(got, (a, b, a, np.zeros((0, 3), F4)), strict=True):
        np.testing.assert_array_equal(value, want)


def test_100_mb_of_weights_need_little_memory(tmp_path: Path) -> None:
    """Made, saved, linked by the C compiler and loaded, with little memory beside the weights themselves."""
    import resource

    big = np.random.default_rng(0).random(26_000_000, dtype=F4)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    build(constant_model(big)).save(tmp_path / "w.o")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < big.nbytes / 2, f"{grown >> 10} MiB beside {big.nbytes >> 20} MiB of weights"
    size = (tmp_path / "w.o").stat().st_size
    assert big.nbytes <= size < big.nbytes + 100_000
    np.testing.assert_array_equal(load(tmp_path / "w.o")["main"]()[0], big)
    build(constant_model(big)).save(tmp_path / "w.so")
    np.testing.assert_array_equal(load(tmp_path / "w.so")["main"]()[0][-5:], big[-5:])

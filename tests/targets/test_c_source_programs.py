"""C programs with C source in place of an object: the interface, memory, errors; address and undefined sanitizers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import mlcc
from tests.targets.c_source import FLAGS, load, source

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

ABI = Path(__file__).resolve().parents[2] / "docs" / "abi.md"
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def run(folder: Path, module: str, program: str, *flags: str, level: int = 2) -> str:
    """Compile a program with the C source of a module as model.c and its header; return what the program prints."""
    artifact = source(mlcc.parse(module), level)
    artifact.save(folder / "model.c")
    (folder / "model.h").write_text(artifact.header("model.c"))
    (folder / "app.c").write_text(program)
    subprocess.run(["cc", *FLAGS, *flags, "app.c", "model.c", "-o", "app", "-lm"], cwd=folder, check=True)
    done = subprocess.run(["./app"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_program_of_the_abi_page_takes_the_source(tmp_path: Path) -> None:
    page = ABI.read_text()
    module, program = (re.findall(rf"^```{kind}\n(.*?)^```", page, re.S | re.M)[0] for kind in ("mlc", "c"))
    printed = run(tmp_path, module, program, *SANITIZED, "-Wno-error")
    assert f"prints `{printed.strip()}`" in page


GATHER = """
@I.ir_module
class Model:
    @T.prim_func(private=True)
    def gather(x: T.handle, places: T.handle, y: T.handle):
        T.func_attr({"tir.noalias": True})
        n, m = T.int64(), T.int64()
        X = T.match_buffer(x, (n,), "float32")
        I = T.match_buffer(places, (m,), "int32")
        Y = T.match_buffer(y, (m,), "float32")
        for i in range(m):
            with T.block("Y"):
                vi = T.axis.spatial(m, i)
                Y[vi] = X[T.checked_index(I[vi], n, "gather", 0, True)]

    @R.function
    def main(x: R.Tensor(("n",), "float32"), places: R.Tensor(("m",), "int32")):
        m = T.int64()
        cls = Model
        picked = R.call_tir(cls.gather, (x, places), out_sinfo=R.Tensor((m,), "float32"))
        total = R.cumsum(R.exp(picked), axis=0)
        return R.add(total, R.flip(R.cumsum(picked, axis=0), axis=0))
"""
_HEAD = """
#include "model.h"
#include <stdio.h>
#include <stdlib.h>

static DLTensor vector(void *data, uint8_t code, int64_t *count) {
    DLTensor t = {data, {1, 0}, 1, {code, 32, 1}, count, NULL, 0};
    return t;
}
"""
ERRORS = (
    _HEAD
    + """
int main(void) {
    float x[3] = {0, 1, 2}, out[2];
    int32_t places[2] = {-1, 3};
    int64_t n = 3, m = 2, wrong = 5;
    DLTensor in = vector(x, 2, &n), at = vector(places, 0, &m), to = vector(out, 2, &m);
    int32_t first = model_main(&in, &at, &to);
    printf("%d %s\\n", first & MLCC_ERROR_KIND_MASK, model_main_error(first));
    places[1] = -7;
    printf("%s\\n", model_main_error(model_main(&in, &at, &to)));
    printf("%s\\n", model_main_error(first));
    printf("%s\\n", model_main_error(model_main(NULL, &at, &to)));
    at.dtype.bits = 64;
    printf("%s\\n", model_main_error(model_main(&in, &at, &to)));
    at.dtype.bits = 32;
    to.shape = &wrong;
    printf("%s\\n", model_main_error(model_main(&in, &at, &to)));
    to = in;
    to.shape = &m;
    printf("%s\\n", model_main_error(model_main(&in, &at, &to)));
    printf("%s\\n", model_main_error(12345));
    return 0;
}
"""
)


@pytest.mark.parametrize("std", ["-std=c99", "-std=c11"])
def test_errors_have_the_texts_of_the_object(tmp_path: Path, std: str) -> None:
    printed = run(tmp_path, GATHER, ERRORS, *SANITIZED, std)
    (tmp_path / "object.c").write_text(ERRORS)
    mlcc.build(mlcc.parse(GATHER), "llvm{num-cores=1}", prefix="model").save(tmp_path / "object.o")
    command = ["cc", "-std=c99", "object.c", "object.o", "-o", "object", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    expected = subprocess.run(["./object"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert printed == expected
    assert "17 " in printed and "index -7 is outside dimension 0, which has 3" in printed


WORKSPACE = (
    _HEAD
    + """
static unsigned char memory[1 << 16];

int main(void) {
    float x[4] = {0, 1, 2, 3}, out[4];
    int32_t places[4] = {3, -4, 1, 2};
    int64_t n = 4;
    DLTensor in = vector(x, 2, &n), at = vector(places, 0, &n), to = vector(out, 2, &n);
    int64_t need = model_main_ws_size(&in, &at), shape = 0;
    unsigned char *aligned = memory + (64 - (uintptr_t)memory % 64) % 64;
    if (need <= 0 || model_main_shape(&in, &at, &shape) != 0 || shape != 4) return 1;
    if ((model_main_ws(aligned, need - 1, &in, &at, &to) & MLCC_ERROR_KIND_MASK) != MLCC_WORKSPACE) return 2;
    if ((model_main_ws(aligned + 1, need, &in, &at, &to) & MLCC_ERROR_KIND_MASK) != MLCC_WORKSPACE) return 3;
    if ((model_main(&in, &at, &to) & MLCC_ERROR_KIND_MASK) != MLCC_MEMORY) return 4;
    if (model_main_ws(aligned, need, &in, &at, &to) != 0) return 5;
    for (int i = 0; i < 4; i++) printf("%.4f ", (double)out[i]);
    return 0;
}
"""
)


def test_without_malloc_the_caller_gives_the_workspace(tmp_path: Path) -> None:
    printed = run(tmp_path, GATHER, WORKSPACE, *SANITIZED, "-DMLCC_NO_MALLOC")
    assert printed.split() == ["26.0855", "25.0855", "26.8038", "34.1929"]
    subprocess.run(["cc", *FLAGS, "-DMLCC_NO_MALLOC", "-c", "model.c"], cwd=tmp_path, check=True)
    if shutil.which("nm"):
        names = subprocess.run(["nm", "-u", "model.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert "malloc" not in names and "free" not in names


def test_a_prefix_that_is_a_name_in_the_file_is_refused(tmp_path: Path) -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((2,), "float32")):
    A[0] = T.float32(1)

@T.prim_func
def model_f(A: T.Buffer((2,), "float32")):
    A[1] = T.float32(1)
"""
    artifact = source(mlcc.parse(text))
    artifact.save(tmp_path / "other.c")
    with pytest.raises(mlcc.CompileError, match="E0750"):
        artifact.save(tmp_path / "model.c")


def test_packed_functions_get_tensors_scalars_and_texts() -> None:
    module = mlcc.parse("""
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def kernel(A: T.Buffer((2, 3), "float32"), B: T.Buffer((2, 3), "float32")):
        for i, j in T.grid(2, 3):
            B[i, j] = A[i, j] + T.float32(1)
        T.call_packed("test.c_source.look", B, T.float32(2.5), T.int32(-3), "h\\u00e9llo")

    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        cls = Module
        y = R.call_tir(cls.kernel, (x,), out_sinfo=R.Tensor((2, 3), "float32"))
        return R.call_dps_packed("test.c_source.double", (y,), R.Tensor((2, 3), "float32"))
""")
    seen: list[object] = []
    mlcc.register_func("test.c_source.look", lambda *args: seen.extend(np.array(a) for a in args))

    @mlcc.register_func("test.c_source.double")
    def double(y: np.ndarray, out: np.ndarray) -> None:
        np.multiply(y, 2, out=out)

    x = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_array_equal(load(source(module))["main"](x), (x + 1) * 2)
    tensor, real, whole, text = seen
    np.testing.assert_array_equal(tensor, x + 1)
    assert real == 2.5 and whole == -3 and np.asarray(text).tobytes().decode() == "h\u00e9llo"

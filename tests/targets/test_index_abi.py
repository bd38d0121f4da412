"""Indices outside, as C programs and threads see them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError
from tests.runtime.guarded import guarded
from tests.targets.c_programs import run_c_program

TEXT = """
@R.function
def main(x: R.Tensor((7, 2), "float32"), i: R.Tensor((3,), "int64")):
    with R.dataflow():
        a = R.add(x, x)
        b = R.take(a, i, axis=0)
        c = R.nn.relu(b)
        R.output(c)
    return c
"""
C_PROGRAM = r"""
#include "model.h"
#include <stdio.h>
#include <string.h>

int main(void) {
    float in[14], out[10];
    int64_t indices[3] = {0, -7, 6}, x_shape[2] = {7, 2}, i_shape[1] = {3}, out_shape[2] = {3, 2};
    DLTensor x = {in, {1, 0}, 2, {2, 32, 1}, x_shape, NULL, 0}, i = {indices, {1, 0}, 1, {0, 64, 1}, i_shape, NULL, 0};
    DLTensor y = {out + 2, {1, 0}, 2, {2, 32, 1}, out_shape, NULL, 0};
    int32_t codes[3], good;
    const int64_t bad[3] = {7, -8, INT64_MIN};
    for (int k = 0; k < 14; k++) in[k] = (float)k;
    for (int k = 0; k < 10; k++) out[k] = -1;
    good = model_main(&x, &i, &y);
    if (good || out[2] != 0 || out[5] != 2 || out[7] != 26) return 1;
    for (int k = 0; k < 3; k++) {
        indices[1] = bad[k];
        codes[k] = model_main(&x, &i, &y);
    }
    for (int k = 0; k < 3; k++) {
        if ((codes[k] & MLCC_ERROR_KIND_MASK) != MLCC_INDEX || (codes[k] ^ codes[0]) & 0xffffff) return 2;
        printf("%s\n", model_main_error(codes[k]));
    }
    if (strcmp(model_main_error(MLCC_INDEX), "an index in the data lies outside")) return 3;
    return out[0] == -1 && out[1] == -1 && out[8] == -1 && out[9] == -1 ? 0 : 4;
}
"""


@pytest.mark.parametrize("level", range(4))
def test_c_programs_see_the_error(tmp_path: Path, level: int) -> None:
    said = run_c_program(tmp_path, mlcc.build(mlcc.parse(TEXT), opt_level=level), C_PROGRAM)  # type: ignore[arg-type]
    wanted = ("7", "-8", "-9223372036854775808")
    where = "`R.take` in line 6"
    assert said.splitlines() == [f"{where}: index {v} is outside dimension 0, which has 7" for v in wanted]


def test_without_checks_there_is_nothing_of_them() -> None:
    for target in ("llvm", "cuda{arch=sm_80}"):
        kind = "llvm-ir" if target == "llvm" else "ptx"
        plain = f"{target[:-1]} check-indices=false}}" if target.endswith("}") else f"{target}{{check-indices=false}}"
        texts = [mlcc.build(mlcc.parse(TEXT), target=t).emit(kind).decode() for t in (target, plain)]
        assert "R.take" in texts[0].replace("\\60", "`") and "is outside dimension" in texts[0]
        assert "is outside dimension" not in texts[1]


LARGE = """
@R.function
def main(x: R.Tensor((1000, 64), "float32"), i: R.Tensor((20000,), "int32")):
    with R.dataflow():
        a = R.take(x, i, axis=0)
        b = R.exp(a)
        R.output(b)
    return b
"""


def test_each_thread_sees_its_own_error() -> None:
    """Each call has the text of its own failure."""
    exe = mlcc.load(mlcc.build(mlcc.parse(LARGE), target="llvm{cpu=native}", opt_level=3))
    x = np.zeros((1000, 64), np.float32)

    def once(number: int) -> None:
        i = np.zeros(20000, np.int32)
        i[number * 17 % 20000] = 1000 + number
        with pytest.raises(CallError, match=f"index {1000 + number} is outside dimension 0, which has 1000"):
            exe["main"](x, i)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(once, range(40)))


PARALLEL = """
@T.prim_func
def main(A: T.Buffer((1000, 64), "float32"), I: T.Buffer((20000,), "int32"), B: T.Buffer((20000, 64), "float32")):
    T.func_attr({"tir.noalias": True})
    for i in T.parallel(20000):
        for j in T.vectorized(64):
            B[i, j] = T.exp(A[T.checked_index(I[i], 1000, "`R.take`", 0, True), j])
"""


def test_parallel_loops_report_the_first() -> None:
    exe = mlcc.load(mlcc.build(mlcc.parse(PARALLEL), target="llvm{cpu=native}", pipeline=""))
    rng = np.random.default_rng(0)
    for threads in (1, 2):
        mlcc.set_num_threads(threads)
        try:
            for _ in range(5):
                i = rng.integers(-1000, 1000, 20000).astype(np.int32)
                places = np.sort(rng.choice(20000, 5, replace=False))
                i[places] = 1000 + np.arange(5)
                out = guarded(np.zeros((20000, 64), np.float32))
                with pytest.raises(CallError, match="index 1000 is outside"):
                    exe["main"](np.zeros((1000, 64), np.float32), i, out.array)
                out.check()
        finally:
            mlcc.set_num_threads(None)


def test_pipelines_of_ones_own_check_too() -> None:
    """Code from bare `lower-to-tir` checks; what is printed is TVM's function."""
    module = mlcc.parse(TEXT)
    assert "checked_index" not in mlcc.run_passes(module, "lower-to-tir").script()
    x, i = np.zeros((7, 2), np.float32), np.array([0, 7, 1])
    for pipeline in ("lower-to-tir", "lower-to-tir,annotate-op-pattern,fuse,fuse-tir", "fuse,lower-to-tir,fuse-tir"):
        exe = mlcc.load(mlcc.build(module, pipeline=pipeline))
        with pytest.raises(CallError, match="`R.take` in line 6: index 7 is outside dimension 0, which has 7"):
            exe["main"](x, i)
    without = mlcc.build(module, pipeline="lower-to-tir{check-indices=false}").emit("llvm-ir").decode()
    assert "outside dimension" not in without

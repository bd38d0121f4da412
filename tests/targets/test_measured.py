"""Extents that the data decide: found by a first function, known to the steps after it, given back with the result."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError, CompileError
from mlcc.interp import run_function


def program(params: str, *lines: str) -> Any:
    body = "\n".join(f"    {line}" for line in lines)
    return mlcc.parse(f"@R.function\ndef main({params}):\n{body}\n    return gv\n")


def compiled(module: Any, opt_level: int = 2) -> Any:
    return mlcc.load(mlcc.build(module, opt_level=opt_level))["main"]


def flat(value: Any) -> list[np.ndarray]:
    return [a for v in value for a in flat(v)] if isinstance(value, tuple) else [np.asarray(value)]


def agree(module: Any, *inputs: np.ndarray, opt_level: int = 2) -> list[np.ndarray]:
    """What the interpreter gives, which the compiled object gives as well."""
    wanted = flat(run_function(module, "main", inputs))
    got = flat(compiled(module, opt_level)(*inputs))
    for have, want in zip(got, wanted, strict=True):
        assert have.shape == want.shape and have.dtype == want.dtype
        np.testing.assert_array_equal(have, want)
    return wanted


ROWS = np.array([[0, 1, 2], [3, 0, 0]], "float32")


@pytest.mark.parametrize("opt_level", [0, 2])
def test_nonzero_matches_numpy(opt_level: int) -> None:
    module = program('x: R.Tensor(("n", 3), "float32")', "gv = R.nonzero(x)")
    for data in (ROWS, np.zeros((4, 3), "float32"), np.zeros((0, 3), "float32"), np.full((2, 3), np.nan, "float32")):
        (found,) = agree(module, data, opt_level=opt_level)
        np.testing.assert_array_equal(found, np.stack(np.nonzero(data)))


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("ordered", [0, 1])
def test_unique_of_slices_and_places(ordered: int, axis: int | None) -> None:
    data = np.array([[1, np.nan, 1], [2, 1, np.nan], [1, np.nan, 1], [0, 0, 0]], "float32")
    numbers = ", ".join(f"R.prim_value({n})" for n in (ordered, 1, 1, 1, *([] if axis is None else [axis])))
    line = f"gv = R.unique(x, {numbers})"
    agree(program('x: R.Tensor(("n", "m"), "float32")', line), data if axis is None else np.nan_to_num(data))
    if axis is not None:
        agree(program('x: R.Tensor((3, 0), "float32")', line), np.zeros((3, 0), "float32"))


def test_what_follows_is_lowered_too() -> None:
    """A user of the result needs no match_cast, and may have one."""
    lines = ["v = R.nonzero(x)", "w = R.permute_dims(v)", "z = R.gather_nd(x, w)", "gv = (R.sum(v, axis=[1]), z)"]
    module = program('x: R.Tensor((2, 3), "float32")', *lines)
    assert agree(module, ROWS)[1].tolist() == [1, 2, 3]
    cast = ["k = T.int64()", "v = R.nonzero(x)", 'w = R.match_cast(v, R.Tensor((2, k), "int64"))',
            "gv = (R.add(w, w), R.shape_of(w))"]  # fmt: skip
    agree(program('x: R.Tensor((2, 3), "float32")', *cast), ROWS)


def test_measured_extents_in_a_branch_agree() -> None:
    text = """
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")):
    if c:
        v = R.nonzero(x)
        r = R.sum(v)
    else:
        u = R.unique(x)
        q = R.sum(u)
        r = R.astype(q, "int64")
    w = R.nonzero(x)
    return (r, w)
"""
    for choice in (True, False):
        agree(mlcc.parse(text), np.array(choice), np.array([0, 4, 4, 5], "float32"))


def test_dynamic_strided_slice_matches_numpy() -> None:
    vectors = ", ".join(f'{name}: R.Tensor((2,), "int64")' for name in ("b", "e", "s"))
    module = program(f'x: R.Tensor(("n", 3), "float32"), {vectors}', "gv = R.dynamic_strided_slice(x, b, e, s)")
    call, data = compiled(module), np.arange(24, dtype="float32").reshape(8, 3)
    for begin, end, step in (((1, 0), (7, 3), (2, 1)), ((-1, 2), (-9, -9), (-3, -1)), ((5, 0), (2, 9), (1, 2))):
        ends = [np.array(v) for v in (begin, end, step)]
        want = run_function(module, "main", (data, *ends))
        np.testing.assert_array_equal(call(data, *ends), want)


def test_a_bound_call_reads_anew() -> None:
    module = program('x: R.Tensor((2, 3), "float32")', "v = R.nonzero(x)", "gv = (v, R.sum(x))")
    data, out = ROWS.copy(), (np.empty((2, 6), "int64"), np.empty((), "float32"))
    call = compiled(module).bind(data, out=out)
    assert call()[0].shape == (2, 3)
    data[:] = 1
    assert call()[0].shape == (2, 6) and out[1] == 6
    data[:] = 0
    assert call()[0].shape == (2, 0) and out[1] == 0


SHAPED = ["n = T.int64()", "m = T.int64()", "s = R.tensor_to_shape(x)", "t = R.match_cast(s, R.Shape([n, m]))"]


def test_numbers_that_become_extents() -> None:
    module = program('x: R.Tensor((2,), "int64")', *SHAPED, 'gv = R.ones(R.shape([T.min(n, 5), m % 7]), "float32")')
    assert agree(module, np.array([2, 10]))[0].shape == (2, 3)
    assert agree(module, np.array([9, 7]))[0].shape == (5, 0)
    with pytest.raises(CallError, match="a data-dependent extent is negative"):
        compiled(module)(np.array([-1, 3]))


def test_an_extent_without_bound_is_refused() -> None:
    module = program('x: R.Tensor((2,), "int64")', *SHAPED, 'gv = R.ones(R.shape([n, m]), "float32")')
    with pytest.raises(CompileError) as caught:
        mlcc.build(module)
    assert {d.code for d in caught.value.diagnostics} == {"E0757"} and "has no upper bound" in str(caught.value)


def test_sizes_that_overflow_are_no_view() -> None:
    """A view whose extents multiply to its size only in 64 bits would reach outside."""
    lines = [*SHAPED, "gv = R.memory.view(y, t)"]
    module = program('x: R.Tensor((2,), "int64"), y: R.Tensor((6,), "float32")', *lines, "gv = R.shape_of(gv)")
    call, data = compiled(module), np.zeros(6, "float32")
    assert call(np.array([2, 3]), data) == (2, 3)
    for extents in ([2, 4], [1 << 62, (1 << 62) + 1], [1 << 33, 1 << 31]):
        with pytest.raises(CallError):
            call(np.array(extents), data)


C_PROGRAM = r"""
#include "m.h"
#include <stdio.h>

int main(void) {
    float data[6] = {0, 1, 2, 3, 0, 0};
    int64_t shape[2] = {2, 3}, most[2], places[12];
    DLTensor x = {0}, out = {0};
    x.data = data, x.device.device_type = 1, x.ndim = 2, x.shape = shape;
    x.dtype.code = 2, x.dtype.bits = 32, x.dtype.lanes = 1;
    if (m_main_shape(&x, most)) return 1;
    printf("%d %d\n", (int)most[0], (int)most[1]);
    out = x, out.data = places, out.shape = most, out.dtype.code = 0, out.dtype.bits = 64;
    if (m_main(&x, &out)) return 2;
    printf("%d %d:", (int)most[0], (int)most[1]);
    for (int i = 0; i < most[0] * most[1]; i++) printf(" %d", (int)places[i]);
    return 0;
}
"""


def test_c_programs_pass_the_greatest_extents(tmp_path: Path) -> None:
    """The caller passes the greatest extents; the real ones are in the shape afterwards."""
    artifact = mlcc.build(program('x: R.Tensor(("n", 3), "float32")', "gv = R.nonzero(x)"), prefix="m")
    artifact.save(str(tmp_path / "m.o"))
    (tmp_path / "m.h").write_text(artifact.header("m"))
    (tmp_path / "app.c").write_text(C_PROGRAM)
    subprocess.run(["cc", "-std=c99", "-Wall", "-Werror", "app.c", "m.o", "-lm", "-o", "app"], cwd=tmp_path, check=True)
    said = subprocess.run([str(tmp_path / "app")], capture_output=True, text=True, check=True).stdout
    assert said == "2 6\n2 3: 0 0 1 1 2 0"

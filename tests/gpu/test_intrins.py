"""Tensor intrinsics of tensor cores that every schedule knows: TVM's names, and TVM's programs."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.passes.schedule.intrins.tensor_cores import catalogue
from mlcc.passes.schedule.tensor_intrin import make_intrin
from mlcc.targets.emulate import run_program
from tests.lower import lower_gpu

# of the catalogue, those that lower to the same texts
NAMES = sorted(catalogue())


@pytest.mark.parametrize("name", NAMES[::16])
def test_texts_are_pairs_of_a_description_and_an_implementation(name: str) -> None:
    from mlcc.passes.schedule.intrins.tensor_cores import module_of

    made = make_intrin(name, module_of(name), None)
    assert [b.dtype for b in made.desc.buffers if b] == [b.dtype for b in made.impl.buffers if b]


def test_programs_are_tvms(all_cases: bool) -> None:
    if not all_cases:
        pytest.skip("TVM takes most of a minute to make its own")
    pytest.importorskip("tvm")
    import tvm.s_tir.tensor_intrin.cuda as theirs
    from tvm.s_tir import TensorIntrin

    with open(theirs.__file__) as file:
        listed = set(re.findall(r'"((?:wmma|mma)_[a-z0-9_]+)"', file.read(), re.IGNORECASE))
    compared = 0
    for name in sorted(listed & set(NAMES)):
        theirs_of, ours = TensorIntrin.get(name), make_intrin(name, mlcc.parse(_text(name)), None)
        for mine, script in ((ours.desc, theirs_of.desc.script()), (ours.impl, theirs_of.impl.script())):
            (func,) = mlcc.parse(script).functions.values()
            mlcc.assert_structural_equal(mine.without_attr("global_symbol"), func.without_attr("global_symbol"))
        compared += 1
    assert compared >= 70, sorted(listed - set(NAMES))


def _text(name: str) -> str:
    from mlcc.passes.schedule.intrins.tensor_cores import module_of

    module = module_of(name)
    assert module is not None
    return str(module.script())


TILE = """
@T.prim_func
def f(A: T.Buffer(({rows}, {columns}), "{dtype}"), O: T.Buffer((32, {local}), "{dtype}")):
    S = T.alloc_buffer(({rows}, {columns}), "{dtype}", scope="shared")
    W = T.alloc_buffer((32, {local}), "{dtype}", scope="warp")
    for b in T.thread_binding(1, thread="blockIdx.x"):
        for r in range({rows} * {columns} // 32):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("copy"):
                    v0 = T.axis.spatial({rows}, (r * 32 + t) // {columns})
                    v1 = T.axis.spatial({columns}, (r * 32 + t) % {columns})
                    S[v0, v1] = A[v0, v1]
        for i, j in T.grid({rows}, {columns}):
            with T.block("tile"):
                v0, v1 = T.axis.remap("SS", [i, j])
                T.reads(S[v0, v1])
                T.writes(W[{place}])
                W[{place}] = S[v0, v1]
        for t in T.thread_binding(32, thread="threadIdx.x"):
            for e in range({local}):
                with T.block("out"):
                    v0, v1 = T.axis.remap("SS", [t, e])
                    O[v0, v1] = W[v0, v1]
"""


@pytest.mark.parametrize(
    "name", ["f16_a_trans", "bf16_b", "f16_b_trans", "i8_a", "i8_b", "i8_b_trans", "tf32_a", "tf32_b_trans"]
)
def test_tiles_lie_in_registers_as_products_take_them(name: str) -> None:
    """What descriptions say of transposed tiles is only that the products' descriptions say the same."""
    _, values = catalogue()[f"mma_ldmatrix_{name}"]
    mod = mlcc.parse(TILE.format(**values))
    func = mlcc.apply_schedule(mod, f'sch.tensorize(sch.get_loops("tile")[-2], "mma_ldmatrix_{name}")')["f"]
    assert isinstance(func, tir.PrimFunc)
    rows, columns = int(str(values["rows"])), int(str(values["columns"]))
    dtype = {"int8": np.int8, "float32": np.float32, "bfloat16": np.uint16, "float16": np.float16}[str(values["dtype"])]
    given = np.arange(rows * columns).reshape(rows, columns).astype(dtype)
    got = np.zeros((32, int(str(values["local"]))), dtype)
    run_program(lower_gpu("f", func), given, got)
    want = np.zeros_like(got)
    for v0 in range(rows):
        for v1 in range(columns):
            row, k = (v0, v1) if ("_a" in name) != ("trans" in name) else (v1, v0)
            pack = 4 // got.itemsize
            lane, inner = 4 * (row % 8) + k % (4 * pack) // pack, k % pack
            if "_a" in name:
                want[lane, (row // 8 + k // (4 * pack) * 2) * pack + inner] = given[v0, v1]
            else:
                want[lane, (row // 8 * 2 + k // (4 * pack)) * pack + inner] = given[v0, v1]
    np.testing.assert_array_equal(got, want)

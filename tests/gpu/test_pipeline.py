"""Software pipelines compute what their loops do, in rounds that work on several iterations at once."""

from __future__ import annotations

import random

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.gpu.pipeline import pipeline_loops
from mlcc.passes.gpu.views import resolve_views
from mlcc.passes.lowering.flatten import flatten_buffers
from mlcc.passes.lowering.realize import realize_blocks


def pipelined(text: str) -> tir.PrimFunc:
    func = mlcc.parse(text)["f"]
    assert isinstance(func, tir.PrimFunc)
    return pipeline_loops(resolve_views(flatten_buffers(realize_blocks(func, kernels=True), {})))


def annotations(stage: list[int], order: list[int], asynchronous: list[int], rolled: int = 0) -> str:
    return (
        f'{{"software_pipeline_stage": {stage}, "software_pipeline_order": {order}, '
        f'"software_pipeline_async_stages": {asynchronous}, "mlcc.pipeline_rolled": {rolled}}}'
    )


def chain(length: int, extent: str, notes: str, width: int = 4) -> str:
    """Out[i] of In[i] over `length` statements, each of which hands its result to the next in a buffer."""
    lines = [
        "@T.prim_func",
        f'def f(In: T.Buffer(({extent}, {width}), "int32"), Out: T.Buffer(({extent}, {width}), "int32")):',
        f"    for i in T.serial({extent}, annotations={notes}):",
        '        with T.block("body"):',
        f"            vi = T.axis.spatial({extent}, i)",
        f"            T.reads(In[vi, 0:{width}])",
        f"            T.writes(Out[vi, 0:{width}])",
        *(f'            B{n} = T.alloc_buffer(({width},), "int32", scope="shared")' for n in range(length - 1)),
    ]
    if not extent.isdigit():
        lines.insert(1, "def f(In: T.handle, Out: T.handle):")
        lines[2] = f"    {extent} = T.int32()"
        lines.insert(3, f'    In_ = T.match_buffer(In, ({extent}, {width}), "int32")')
        lines.insert(4, f'    Out_ = T.match_buffer(Out, ({extent}, {width}), "int32")')
    for n in range(length):
        source = "In[vi, vt]" if n == 0 else f"B{n - 1}[vt]"
        target = "Out[vi, vt]" if n == length - 1 else f"B{n}[vt]"
        lines += [
            f"            for t in T.thread_binding({width}, thread=\"threadIdx.x\"):",
            f'                with T.block("part{n}"):',
            f"                    vt = T.axis.spatial({width}, t)",
            f"                    {target} = {source} * {n + 2} + {n}",
        ]  # fmt: skip
    text = "\n".join(lines) + "\n"
    if not extent.isdigit():
        text = text.replace("In[", "In_[").replace("Out[", "Out_[")
    return text


def expected(length: int, given: np.ndarray) -> np.ndarray:
    value = given
    for n in range(length):
        value = value * (n + 2) + n
    return value


def plans() -> list[tuple[list[int], list[int], list[int]]]:
    """Stages that never fall along a chain; places that keep the order within a stage."""
    rng = random.Random(1)
    found = []
    for _ in range(14):
        length = rng.randint(2, 5)
        stage = sorted(rng.randint(0, 3) for _ in range(length))
        stage = [s - stage[0] for s in stage]
        order = list(range(length))
        rng.shuffle(order)
        for s in set(stage):
            mine = [n for n in range(length) if stage[n] == s]
            for n, place in zip(mine, sorted(order[n] for n in mine), strict=True):
                order[n] = place
        asynchronous = [s for s in sorted(set(stage)) if rng.random() < 0.4]
        found.append((stage, order, asynchronous))
    return found


@pytest.mark.parametrize(("stage", "order", "asynchronous"), plans(), ids=str)
def test_generated_chains_compute_the_same(stage: list[int], order: list[int], asynchronous: list[int]) -> None:
    every = [annotations(stage, order, asynchronous, rolled) for rolled in (0, 1)]
    symbolic = [pipelined(chain(len(stage), "n", notes)) for notes in every]
    for extent in (1, 2, 3, 7):
        given = np.arange(extent * 4, dtype=np.int32).reshape(extent, 4)
        for func in (*(pipelined(chain(len(stage), str(extent), notes)) for notes in every), *symbolic):
            assert not [n for n in walk(func) if isinstance(n, tir.For) and "software_pipeline_stage" in n.annotations]
            got = np.full((extent, 4), -1, np.int32)
            run_prim_func(func, [given, got])
            np.testing.assert_array_equal(got, expected(len(stage), given))


def sizes(func: tir.PrimFunc) -> dict[str, int | None]:
    return {s.buffer.name: tir.const_int(s.buffer.shape[0]) for s in walk(func) if isinstance(s, tir.AllocBuffer)}


@pytest.mark.parametrize(
    ("stage", "order", "versions"),
    [([0, 0], [0, 1], 1), ([0, 1], [0, 1], 2), ([0, 1], [1, 0], 1), ([0, 2], [0, 1], 3), ([0, 3], [1, 0], 4)],
)
def test_buffers_exist_as_often_as_iterations_use_them(stage: list[int], order: list[int], versions: int) -> None:
    assert sizes(pipelined(chain(2, "8", annotations(stage, order, [])))) == {"B0": 4 * versions}


def calls(func: tir.PrimFunc, name: str) -> list[int | None]:
    found = [n for n in walk(func) if isinstance(n, tir.Call) and n.op == tir.Op(f"tir.{name}")]
    return [tir.const_int(n.args[0]) if n.args else None for n in found]


def test_asynchronous_stages_wait_for_the_copies_of_their_iteration() -> None:
    func = pipelined(chain(2, "16", annotations([0, 3], [0, 1], [0])))
    # 3 rounds before, the loop's, 3 after; in each, the copies of 3 later iterations may be on their way
    assert len(calls(func, "ptx_commit_group")) == 7
    assert set(calls(func, "ptx_wait_group")) == {3}
    func = pipelined(chain(2, "16", annotations([0, 3], [1, 0], [0])))
    assert set(calls(func, "ptx_wait_group")) == {2}
    bodies = [n.body for n in walk(func) if isinstance(n, tir.For) and n.thread is None]
    kinds = [type(s).__name__ for s in bodies[0]]
    assert kinds == ["Evaluate", "Evaluate", "For", "AttrStmt", "Evaluate"]  # wait, barrier, use, copy, commit


def test_a_rolled_loop_has_its_last_part_once() -> None:
    func = pipelined(chain(2, "16", annotations([0, 3], [1, 0], [0], 1)))
    (loop,) = [n for n in walk(func) if isinstance(n, tir.For) and n.thread is None]
    assert tir.const_int(loop.extent) == 16
    assert [type(s).__name__ for s in loop.body] == ["Evaluate", "Evaluate", "For", "IfThenElse", "Evaluate"]
    assert len(calls(func, "ptx_commit_group")) == 4 and calls(func, "ptx_wait_group") == [2]


NESTED = """
@T.prim_func
def f(A: T.Buffer((8, 16), "int32"), C: T.Buffer((8, 4), "int32")):
    for k in T.serial(
        8, annotations={"software_pipeline_stage": [0, 0, 1, 1], "software_pipeline_order": [0, 2, 1, 3]}
    ):
        with T.block("outer"):
            vk = T.axis.spatial(8, k)
            T.reads(A[vk, 0:16])
            T.writes(C[vk, 0:4])
            S = T.alloc_buffer((16,), "int32", scope="shared")
            for t in T.serial(16):
                with T.block("copy"):
                    vt = T.axis.spatial(16, t)
                    S[vt] = A[vk, vt]
            for j in T.serial(4, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
                with T.block("inner"):
                    vj = T.axis.spatial(4, j)
                    T.reads(S[vj * 4:vj * 4 + 4])
                    T.writes(C[vk, vj])
                    L = T.alloc_buffer((4,), "int32", scope="local")
                    for t in T.serial(4):
                        with T.block("load"):
                            vt = T.axis.spatial(4, t)
                            L[vt] = S[vj * 4 + vt]
                    with T.block("sum"):
                        T.reads(L[0:4])
                        T.writes(C[vk, vj])
                        C[vk, vj] = L[0] + L[1] * 2 + L[2] * 3 + L[3] * 4
"""


def test_the_phases_of_an_inner_pipeline_are_parts_of_the_outer_one() -> None:
    func = pipelined(NESTED)
    given = np.arange(128, dtype=np.int32).reshape(8, 16)
    got = np.zeros((8, 4), np.int32)
    run_prim_func(func, [given, got])
    np.testing.assert_array_equal(got, given.reshape(8, 4, 4) @ np.array([1, 2, 3, 4], np.int32))
    assert sizes(func) == {"S": 32, "L": 8}


IN_PLACE = """
@T.prim_func
def f(A: T.Buffer((40,), "int32"), B: T.Buffer((40,), "int32")):
    for i in T.serial(32, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
        with T.block("first"):
            v = T.axis.opaque(32, i)
            T.reads(B[v])
            T.writes(A[v + 1])
            A[v + 1] = B[v] + 1
        with T.block("second"):
            v = T.axis.opaque(32, i)
            T.reads(A[v + DISTANCE])
            T.writes(B[v])
            B[v] = A[v + DISTANCE] * 2
"""


def test_memory_outside_of_the_loop_bounds_how_far_a_part_runs_ahead() -> None:
    for distance in ("0", "1"):  # the second part reads what this or an earlier iteration wrote
        text = IN_PLACE.replace("DISTANCE", distance)
        func = mlcc.parse(text)["f"]
        assert isinstance(func, tir.PrimFunc)
        want = [np.arange(40, dtype=np.int32), np.arange(40, dtype=np.int32)[::-1].copy()]
        got = [a.copy() for a in want]
        run_prim_func(func, want)
        run_prim_func(pipelined(text), got)
        np.testing.assert_array_equal(got, want)
    with pytest.raises(mlcc.CompileError, match="E0771"):  # what the next iteration is to write
        pipelined(IN_PLACE.replace("DISTANCE", "2"))


@pytest.mark.parametrize(
    ("stage", "order", "code"),
    [([0, 0, 1], [0, 1, 2], "E0770"), ([0, 1], [0, 0], "E0770"), ([0, -1], [0, 1], "E0770"), ([1, 0], [0, 1], "E0771"),
     ([0, 0], [1, 0], "E0771")],
)  # fmt: skip
def test_wrong_plans_are_refused(stage: list[int], order: list[int], code: str) -> None:
    with pytest.raises(mlcc.CompileError, match=code):
        pipelined(chain(2, "8", annotations(stage, order, [])))


def test_double_buffers_exist_twice() -> None:
    text = chain(2, "8", annotations([0, 0], [0, 1], [])).replace(
        'with T.block("part0"):\n',
        'with T.block("part0"):\n                    T.block_attr({"double_buffer_scope": 0})\n',
    )
    assert sizes(pipelined(text)) == {"B0": 8}

"""Reductions over symbolic axes that turn out to be empty give the identity, interpreted and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.arith.empty_reduction import insert_empty_reduction_inits
from mlcc.interp import run_function
from mlcc.ir import tir
from mlcc.ir.node import walk
from tests.ops.cases import Case, Mine, T

REDUCTIONS = [
    Case("sum", (T(("m", "n")), 1)),
    Case("sum", (T(("m", "n"), "int64"), 0), {"keepdims": True}),
    Case("sum", (T(("m", "n"), "bool"), 1)),
    Case("prod", (T(("m", "n")), None)),
    Case("max", (T(("m", "n")), -1)),
    Case("min", (T(("m", "n"), "int32"), 1)),
    Case("mean", (T(("m", "n")), 1)),
    Case("argmax", (T(("m", "n")), 1)),
    Case("matmul", (T(("m", "n")), T(("n", 3)))),
    Case("matmul", (T((2, 5, "n")), T(("n",)))),
    Case("nn.conv1d", (T((1, "n", 5)), T((2, "n", 3)))),
    Case("nn.softmax", (T(("m", "n")), 1)),
]


def arrays(case: Case, sizes: dict[str, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    made = []
    for arg in case.args:
        if isinstance(arg, T):
            shape = tuple(sizes.get(d, d) for d in arg.shape or ())
            made.append(rng.integers(-4, 5, shape).astype(arg.dtype))
    return made


@pytest.mark.parametrize("case", REDUCTIONS, ids=str)
def test_empty_axes_give_the_identity(case: Case) -> None:
    module = Mine().module(case)
    lowered = mlcc.run_passes(module, "lower-to-tir{accurate=true}")  # by itself it gives TVM's identities
    executable = mlcc.load(mlcc.build(module))
    for sizes in ({"m": 3, "n": 0}, {"m": 0, "n": 0}, {"m": 0, "n": 2}, {"m": 3, "n": 4}):
        inputs = arrays(case, sizes)
        wanted = run_function(module, "main", inputs)
        for got in (run_function(lowered, "main", inputs), executable["main"](*inputs)):
            assert got.shape == wanted.shape and got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


SCHEDULES = [
    "    i, j, k = sch.get_loops(b)\n    sch.split(k, factors=[None, 4])",
    "    i, j, k = sch.get_loops(b)\n    ko, ki = sch.split(k, factors=[None, 4])\n    sch.reorder(ko, i, j, ki)",
    "    i, j, k = sch.get_loops(b)\n    sch.fuse(i, j)",
    "    i, j, k = sch.get_loops(b)\n    f = sch.fuse(j, k)\n    sch.split(f, factors=[None, 8])",
    "    i, j, k = sch.get_loops(b)\n    sch.parallel(i)",
    "    i, j, k = sch.get_loops(b)\n    sch.decompose_reduction(b, k)",
    "    i, j, k = sch.get_loops(b)\n    jo, ji = sch.split(j, factors=[None, 4])\n    sch.vectorize(ji)",
]


@pytest.mark.parametrize("steps", SCHEDULES)
def test_empty_axes_give_the_identity_however_scheduled(steps: str) -> None:
    text = """
@T.prim_func
def main(a: T.handle, b: T.handle, c: T.handle):
    m, n = T.int64(), T.int64()
    A = T.match_buffer(a, (m, n), "float32")
    B = T.match_buffer(b, (n, 5), "float32")
    C = T.match_buffer(c, (m, 5), "float32")
    for i, j, k in T.grid(m, 5, n):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
    script = f'def main(sch):\n    b = sch.get_block("C", func_name="main")\n{steps}\n'
    module = mlcc.apply_schedule(mlcc.parse(text), script)
    executable = mlcc.load(mlcc.build(module))
    for m, n in ((3, 0), (0, 0), (3, 4), (2, 7)):
        a, b = (np.arange(r * c, dtype="float32").reshape(r, c) for r, c in ((m, n), (n, 5)))
        for run in (lambda *x: run_function(module, "main", x), executable["main"]):
            c: Any = np.full((m, 5), 7, "float32")
            run(a, b, c)
            np.testing.assert_array_equal(c, a @ b)


def test_a_block_under_a_condition_stays() -> None:
    """Only some places are reduced: the others are not touched, be the axis empty or not."""
    text = """
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (8, n), "float32")
    C = T.match_buffer(c, (8,), "float32")
    for i, k in T.grid(8, n):
        with T.block("C"):
            T.where(i < 3)
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
"""
    module = mlcc.parse(text)
    executable = mlcc.load(mlcc.build(module))
    for run in (lambda *x: run_function(module, "main", x), executable["main"]):
        c = np.full(8, 7, "float32")
        run(np.zeros((8, 0), "float32"), c)
        np.testing.assert_array_equal(c, np.full(8, 7))


def test_what_cannot_be_empty_stays_as_it_is() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((3, 5), "float32"), C: T.Buffer((3,), "float32")):
    for i, k in T.grid(3, 5):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
"""
    func = mlcc.parse(text)["main"]
    assert insert_empty_reduction_inits(func) is func


def test_init_of_a_block_in_a_block() -> None:
    """The outer block's axis stands in the range of the inner one: some rows are empty, others are not."""
    text = """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), ends: T.Buffer((4,), "int64"), C: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("row"):
            vi = T.axis.spatial(4, i)
            T.reads(A[vi, 0:8], ends[vi])
            T.writes(C[vi])
            for k in range(ends[vi]):
                with T.block("C"):
                    vj = T.axis.spatial(T.Range(vi, vi + 1), vi)
                    vk = T.axis.reduce(ends[vi], k)
                    with T.init():
                        C[vj] = T.float32(0)
                    C[vj] = C[vj] + A[vj, vk]
"""
    module = mlcc.parse(text)
    executable = mlcc.load(mlcc.build(module))
    a, ends = np.ones((4, 8), "float32"), np.array([2, 0, 8, 0], "int64")
    for run in (lambda *x: run_function(module, "main", x), executable["main"]):
        c = np.full(4, 7, "float32")
        run(a, ends, c)
        np.testing.assert_array_equal(c, ends)


def test_a_range_that_the_loop_itself_makes() -> None:
    """Whether the axis is empty is not known before the loop: the block is left alone."""
    text = """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4,), "float32")):
    end = T.alloc_buffer((1,), "int64")
    for i in range(4):
        with T.block("end"):
            vi = T.axis.spatial(4, i)
            end[0] = T.int64(vi)
        for k in range(end[0]):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                vk = T.axis.reduce(end[0], k)
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]
"""
    func = mlcc.parse(text)["main"]
    assert insert_empty_reduction_inits(func) is func


BOUND = """
@T.prim_func
def f(a: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (n,), "float32")
{loops}
{indent}with T.block("sum"):
{indent}    vi = T.axis.spatial(n, {i})
{indent}    vk = T.axis.reduce(m, {k})
{indent}    T.where({where})
{indent}    with T.init():
{indent}        B[vi] = T.float32({start})
{indent}    B[vi] = B[vi] + A[vi, vk]
"""
BLOCKS = 'for i_0 in T.thread_binding((n + 31) // 32, thread="blockIdx.x"):'
THREADS = 'for i_1 in T.thread_binding(32, thread="threadIdx.x"):'
SHARED_OUT = 'for k_1 in T.thread_binding(32, thread="threadIdx.x"):'
ROWS = 'for i in T.thread_binding(n, thread="blockIdx.x"):'
PARTS = "for k_0 in range((m + 31) // 32):"
ALL_I, ALL_K = "i_0 * 32 + i_1", "k_0 * 32 + k_1"


@pytest.mark.parametrize(
    ("loops", "i", "k"),
    [
        ((BLOCKS, THREADS, "for k in range(m):"), ALL_I, "k"),
        (("for k in range(m):", BLOCKS, THREADS), ALL_I, "k"),
        ((BLOCKS, "for k in range(m):", THREADS), ALL_I, "k"),
        ((ROWS, PARTS, SHARED_OUT), "i", ALL_K),
        ((ROWS, SHARED_OUT, PARTS), "i", ALL_K),
        ((BLOCKS, 'for i_1 in T.thread_binding(32, thread="vthread.x"):', "for k in range(m):"), ALL_I, "k"),
    ],
)
def test_loops_bound_by_hand_give_the_identity(loops: tuple[str, ...], i: str, k: str) -> None:
    """Whoever bound them, and wherever the reduction stands between: threads give their places the init."""
    where = " and ".join(f"{whole} < {n}" for whole, n in ((i, "n"), (k, "m")) if "*" in whole)
    shared_out = SHARED_OUT in loops
    lines = "\n".join("    " * (1 + depth) + line for depth, line in enumerate(loops))
    text = BOUND.format(
        loops=lines, indent="    " * (1 + len(loops)), i=i, k=k, where=where, start=0 if shared_out else 5
    )
    module = mlcc.parse(text)
    built = [mlcc.load(mlcc.build(module, "cuda{arch=sm_80}", pipeline=""), emulate=True)]
    built += [] if shared_out else [mlcc.load(mlcc.build(module, pipeline=""))]
    for exe in built:
        for count in (3, 0):
            b = np.full(40, 99, "float32")
            exe["f"](np.ones((40, count), "float32"), b)
            assert set(b.tolist()) == {count + (0 if shared_out else 5)}


def test_the_init_of_nothing_has_binders_of_its_own() -> None:
    func = mlcc.parse("""
@T.prim_func
def main(a: T.handle, B: T.Buffer((4, 8), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (4, n, 8), "float32")
    for p, k in T.grid(4, n):
        with T.block("outer"):
            vp, vk = T.axis.remap("SR", [p, k])
            T.reads(A[vp, vk, 0:8])
            T.writes(B[vp, 0:8])
            with T.init():
                for i in range(8):
                    with T.block("init"):
                        vi = T.axis.spatial(8, i)
                        B[vp, vi] = T.float32(0)
            for i in range(8):
                with T.block("update"):
                    vi = T.axis.spatial(8, i)
                    B[vp, vi] = B[vp, vi] + A[vp, vk, vi]
""")["main"]
    made = insert_empty_reduction_inits(func)
    bound = [n for s in made.body for n in walk(s) if isinstance(n, (tir.For, tir.Block))]
    loops = [n.var for n in bound if isinstance(n, tir.For)]
    axes = [axis.var for n in bound if isinstance(n, tir.Block) for axis in n.iter_vars]
    assert len(loops) == len(set(loops)) == 6
    assert len(axes) == len(set(axes)) == 6


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("opt_level", [0, 1, 2])
def test_elements_that_are_all_infinite(name: str, opt_level: int) -> None:
    """The reduction begins with what infinite elements do not change either."""
    module = mlcc.parse(f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3, 40), "float32")) -> R.Tensor((3,), "float32"):
        with R.dataflow():
            y = R.{name}(x, axis=[1])
            R.output(y)
        return y
""")
    x = np.full((3, 40), -np.inf if name == "max" else np.inf, "float32")
    x[1, 7] = 2.0
    made = mlcc.load(mlcc.build(module, opt_level=opt_level))["main"](x)
    assert np.array_equal(made, getattr(np, name)(x, 1))

"""Which parallel loops stay parallel, and what work is estimated at."""

from __future__ import annotations

import pytest

import mlcc
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.tir import ForKind
from mlcc.passes.lowering import parallel
from mlcc.passes.lowering.parallel import select_parallel_loops
from mlcc.passes.lowering.work import FUNCTION, KERNEL, OPERATION, iteration_picoseconds, picoseconds
from tests.lower import lower_func
from tests.targets.build import func, loop, var

HEAD = """
@T.prim_func
def f(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32"), n: T.int32):
    T.func_attr({"tir.noalias": True})
"""


def remaining_parallel_loops(body: str, functions: str = "") -> list[str]:
    """The parallel loops that are left of a function with this body, by variable."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    module = mlcc.parse(functions + HEAD + lines)
    funcs = {name: f for name, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
    settled = select_parallel_loops(lower_func(funcs["f"], funcs), funcs, True)
    return [n.var.name for n in walk(settled) if isinstance(n, tir.For) and n.kind is ForKind.PARALLEL]


@pytest.fixture
def any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parallel loops are worth it however small."""
    monkeypatch.setattr(parallel, "LEAST_WORK", 0)


@pytest.mark.parametrize(
    "body",
    [
        "for i in T.parallel(64):\n  for j in range(64):\n    B[i, j] = A[i, j]",
        "for i in T.parallel(64):\n  for j in range(64):\n    B[j, i] = A[j, i] + B[j, i]",
        "for i in T.parallel(64):\n  for j in range(64):\n    B[63 - i, j] = A[0, 0]",
        "for i in T.parallel(32):\n  B[i, 0] = A[i, 0]\n  B[i + 32, 0] = A[i + 32, 0]",
        "for i in T.parallel(32):\n  A[i, 1] = A[i + 32, 1] + A[32, 1]",
        "for i in T.parallel(32):\n  A[i * 2, 1] = A[i * 2 + 1, 1]",
        "for i in T.parallel(64):\n  for j in range(i, 64):\n    B[0, 0 + i] = A[0, j]",
        "for i in T.parallel(60):\n  if i < 30:\n    A[i, 0] = A[i + 30, 0]",
        "for i in T.parallel(60):\n  if i < 30:\n    A[i, 0] = A[0, 1]\n  else:\n    A[i - 30, 1] = A[i, 0]",
        "for i in T.parallel(2):\n  for v in T.vectorized(16):\n    if i * 8 + v < 8:\n      A[0, i * 8 + v] = A[1, v]",
        "for i in T.parallel(64):\n  for j in range(64):\n    if j > 5:\n      continue\n    B[i, j] = A[i, j]",
        "for i in T.parallel(64):\n  for j in range(64):\n    if j > 5:\n      break\n    B[i, j] = A[i, j]",
        "for i in T.parallel(64):\n  if i > 5:\n    continue\n  B[i, 0] = A[i, 0]",
        "for i in T.parallel(64):\n  W = T.alloc_buffer_stmt((4,), \"float32\")\n  W[0] = A[i, 0]\n  B[i, 0] = W[0]",
    ],
)  # fmt: skip
def test_loops_that_run_on_threads(body: str, any_work: None) -> None:
    assert remaining_parallel_loops(body) == ["i"]


@pytest.mark.parametrize(
    "body",
    [
        "for i in T.parallel(64):\n  B[0, 0] = B[0, 0] + A[i, 0]",
        "for i in T.parallel(64):\n  for j in range(64):\n    B[0, j] = A[i, j]",
        "for i in T.parallel(63):\n  A[i + 1, 0] = A[i, 0]",
        "for i in T.parallel(63):\n  if i >= 30:\n    A[i + 1, 0] = A[i, 0]",
        "for i in T.parallel(60):\n  if i < 31:\n    A[i, 0] = A[i + 30, 0]",
        "for i in T.parallel(62):\n  A[i, 0] = A[i + 2, 0]",
        "for i in T.parallel(62):\n  A[i, 0] = A[17, 0] + T.float32(1)",
        "for i in T.parallel(62):\n  for j in range(64):\n    A[i, j] = A[17, j] + T.float32(1)",
        "for i in T.parallel(62):\n  k: T.int32 = i + 1\n  A[k, 0] = A[i, 0]",
        "for i in T.parallel(64):\n  if i > 5:\n    break\n  B[i, 0] = A[i, 0]",
        'for i in T.parallel(64):\n  T.evaluate(T.call_packed("env.f", A[i, 0]))\n  B[i, 0] = A[i, 0]',
        "for i in T.parallel(1):\n  B[i, 0] = A[i, 0]",
    ],
)
def test_loops_that_do_not(body: str, any_work: None) -> None:
    assert remaining_parallel_loops(body) == []


def test_the_outermost_loop_runs_on_threads(any_work: None) -> None:
    nest = "for i in T.parallel(64):\n  for j in T.parallel(64):\n    B[i, j] = A[i, j]"
    assert remaining_parallel_loops(nest) == ["i"]
    assert remaining_parallel_loops(
        f"for t in range(3):\n{nest.replace('for', '  for').replace('    B', '      B')}"
    ) == ["i"]
    blocked = "for i in T.parallel(64):\n  for j in T.parallel(64):\n    B[i, j] = A[i, j]\n  B[0, 0] = A[0, 0]"
    assert remaining_parallel_loops(blocked) == ["j"]


def test_packed_functions_are_found_in_what_is_called(any_work: None) -> None:
    callee = """
@T.prim_func(private=True)
def inner(x: T.float32):
    T.evaluate(T.call_packed("env.f", x))
"""
    body = 'for i in T.parallel(64):\n  T.evaluate(T.call_extern("int32", "inner", A[i, 0]))\n  B[i, 0] = A[i, 0]'
    assert remaining_parallel_loops(body, callee) == []
    assert remaining_parallel_loops(body, callee.replace('T.call_packed("env.f", x)', "x")) == ["i"]


def test_little_work_is_not_shared() -> None:
    row = "for i in T.parallel({n}):\n  for j in range(64):\n    B[i, j] = {value}"
    assert remaining_parallel_loops(row.format(n=64, value="A[i, j]")) == []
    assert remaining_parallel_loops(row.format(n=64, value="T.exp(T.exp(T.exp(A[i, j])))")) == ["i"]
    assert remaining_parallel_loops(row.format(n="n", value="A[i, j]")) == ["i"]  # it is looked at when it runs


def test_work_is_estimated() -> None:
    a, i, n = c.make_buffer("A", (64,), "float32"), var("i"), var("n")
    store = c.store(a, c.add(c.load(a, i), 1.0), i)
    assert tir.const_int(picoseconds((store,))) == 3 * OPERATION
    assert tir.const_int(picoseconds((loop(i, 10, store),))) == 10 * 4 * OPERATION
    assert tir.const_int(picoseconds((loop(i, -10, store),))) == 0
    symbolic = picoseconds((loop(i, n, store),))
    assert {v for v in walk(symbolic) if isinstance(v, tir.Var)} == {n}
    inner = loop(var("j"), i, store)
    assert not any(isinstance(v, tir.Var) for v in walk(iteration_picoseconds(loop(i, n, inner))))
    assert not any(isinstance(v, tir.Var) for v in walk(picoseconds((loop(i, 10, inner),))))
    exp = c.store(a, tir.Call(a.dtype, tir.Op("tir.exp"), (c.load(a, i),)), i)
    assert tir.const_int(picoseconds((exp,))) == FUNCTION + 2 * OPERATION
    assert tir.const_int(picoseconds((loop(i, 4, exp), store))) == 4 * (FUNCTION + 3 * OPERATION) + 3 * OPERATION
    assert KERNEL > FUNCTION


def test_nothing_is_shared_without_threads(any_work: None) -> None:
    a, b, i = c.make_buffer("A", (64,), "int32"), c.make_buffer("B", (64,), "int32"), var("i")
    made = func([a, b], loop(i, 64, c.store(b, c.load(a, i), i), ForKind.PARALLEL))
    settled = select_parallel_loops(lower_func(made), {}, False)
    assert not any(isinstance(n, tir.For) and n.kind is ForKind.PARALLEL for n in walk(settled))

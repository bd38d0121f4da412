"""What passes do with an intrinsic is decided by its record, not by its name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import calls as interpreter
from mlcc.ir import construct as c
from mlcc.ir import intrinsics, tir
from mlcc.ir.dtypes import FLOAT32
from mlcc.ir.intrinsics import Cost, Effect, Intrinsic, Pointer, called
from mlcc.ir.node import walk
from mlcc.passes.lowering import work
from mlcc.passes.lowering.effects import memory_accesses

LANEWISE = Intrinsic("toy", 1, 1, "same", Effect.PURE, "float", Cost.SHORT, lanewise=True, widens=True)

TEXT = """
@T.prim_func
def main(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
    for i in T.vectorized(32):
        with T.block("b"):
            v = T.axis.spatial(32, i)
            B[v] = T.toy(A[v])
"""

Define = Callable[[Intrinsic], None]


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Define:
    def defined(record: Intrinsic) -> None:
        monkeypatch.setitem(intrinsics.INTRINSICS, record.name, record)
        monkeypatch.setitem(intrinsics._OF_OP, f"tir.{record.name}", record)
        monkeypatch.setitem(interpreter.MATH, record.name, lambda x: x * 2)

    return defined


def test_text_reads_and_prints_it(define: Define) -> None:
    define(LANEWISE)
    text = mlcc.script(mlcc.parse(TEXT))
    assert "T.toy(A[v])" in text and mlcc.script(mlcc.parse(text)) == text


@pytest.mark.parametrize("lanewise", [True, False])
def test_lanewise_decides_on_vectorization(define: Define, lanewise: bool) -> None:
    define(dataclasses.replace(LANEWISE, lanewise=lanewise))
    mod = mlcc.run_passes(mlcc.parse(TEXT), "lower")
    (func,) = mod.functions.values()
    lanes = {n.dtype.lanes for n in walk(func) if isinstance(n, tir.Call) and n.op == tir.Op("tir.toy")}
    assert (max(lanes) > 1) == lanewise


def test_cost_weighs_a_call(define: Define) -> None:
    call = tir.Call(FLOAT32, tir.Op("tir.toy"), (tir.Var("x", FLOAT32),))
    costs = []
    for cost in (Cost.SHORT, Cost.FUNCTION):
        define(dataclasses.replace(LANEWISE, cost=cost))
        costs.append(work.call_picoseconds(call))
    assert costs[0] < costs[1]


def test_threads_that_run_together(define: Define) -> None:
    define(dataclasses.replace(LANEWISE, effect=Effect.UPDATE, collective=True))
    text = TEXT.replace("T.vectorized(32)", 'T.thread_binding(32, thread="threadIdx.x")')
    with pytest.raises(CompileError, match=r"`T.toy` needs threads that run concurrently"):
        mlcc.run_passes(mlcc.parse(text), "lower")


def test_pointers_decide_on_accesses(define: Define) -> None:
    define(Intrinsic("toy", 3, 3, "void", Effect.UPDATE, "any", pointers=(Pointer(0, "w", 1), Pointer(2, "r"))))
    to, source = (c.make_buffer(name, (4,), "float32").data for name in "AB")
    found = {(t.data.name, t.writes) for t in memory_accesses(c.call("void", "toy", to, 0, source))}
    assert found == {(to.name, True), (source.name, False)}
    assert called(c.call("void", "toy", to, 0, source)).offsets == ((0, 1),)


def test_nothing_is_known_of_others() -> None:
    unknown = called(tir.Call(FLOAT32, tir.Op("tir.what"), ()))
    assert unknown.effect is Effect.OPAQUE and unknown.cost is Cost.FUNCTION and not unknown.lanewise
    assert called(tir.Var("x", FLOAT32)) is unknown


def test_every_name_of_an_intrinsic_has_its_record() -> None:
    for alias, name in intrinsics.ALIASES.items():
        call = tir.Call(FLOAT32, tir.Op(f"tir.{alias}"), ())
        assert called(call) is intrinsics.INTRINSICS[name]

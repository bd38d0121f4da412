"""The step `pad-temporaries`: whole vectors are stored to temporaries of unknown size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.interp import run_function
from mlcc.ir import tir
from mlcc.ir.node import find
from mlcc.passes.lowering.temporaries import pad_temporaries

ROWS = """
@I.ir_module
class Module:
    I.module_attrs({{"mlcc.stage": "flat", "mlcc.step": "flatten-buffers"}})

    @T.prim_func
    def main(a: T.handle, y: T.handle):
        n = T.int64()
        k = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        Y = T.match_buffer(y, (n,), "float32")
        row = T.alloc_buffer_stmt(({size},), "float32")
        for i in range((n + T.int64(7)) // T.int64(8)):
            for v in T.vectorized(T.int64(8)):
                {before}
                if {condition}:
                    row[{index}] = {value}
        {more}
        for j in range(n):
            Y[j] = row[j]
"""
PLAIN = {
    "size": "n", "condition": "i * T.int64(8) + v < n", "index": "i * T.int64(8) + v",
    "value": "A[i * T.int64(8) + v] * T.float32(2) + A[0]", "more": "T.evaluate(0)",
    "before": "T.evaluate(0)",
}  # fmt: skip
OTHERS = {  # what is different: the mask stays
    "another store": {"more": "row[0] = row[0]"},
    "another name": {"more": 'other = T.decl_buffer((n,), "float32", data=row.data)'},
    "a known size": {"condition": "i * T.int64(8) + v < T.int64(7)", "size": "7"},
    "vectors that are cut off wholly": {"condition": "i * T.int64(8) + v + T.int64(8) < n"},
    "a division": {"value": "T.Cast('float32', T.Cast('int32', A[i * T.int64(8) + v]) // T.Cast('int32', A[v]))"},
    "an end that moves": {"condition": "i * T.int64(8) + v < i * T.int64(8) + T.int64(3)"},
    "another place": {"index": "n - T.int64(1) - (i * T.int64(8) + v)"},
}


def function(**changes: str) -> tir.PrimFunc:
    func = mlcc.parse(ROWS.format(**{**PLAIN, **changes}))["main"]
    assert isinstance(func, tir.PrimFunc)
    return func


def masked(func: tir.PrimFunc) -> bool:
    return any(isinstance(n.then_body[0], tir.BufferStore) for n in find(func.body, tir.IfThenElse))


def test_a_temporary_holds_whole_vectors() -> None:
    padded = pad_temporaries(function())
    assert not masked(padded)
    (alloc,) = find(padded.body, tir.AllocBuffer)
    assert str(alloc.buffer.shape[0]) == "n + T.int64(7)"
    (load,) = find(padded.body, tir.Call)  # of all lanes of A, not of A[0]
    assert load.op == tir.Op("tir.if_then_else")


@pytest.mark.parametrize("what", OTHERS)
def test_other_stores_keep_their_masks(what: str) -> None:
    func = function(**OTHERS[what])
    assert masked(func) and pad_temporaries(func) is func


NAMED = {  # the index of a load has a name
    "in an expression": {"value": "T.Let(A[k] * T.float32(2), where={k: i * T.int64(8) + v}) + A[0]"},
    "before": {"before": "k: T.int64 = i * T.int64(8) + v", "value": "A[k] * T.float32(2) + A[0]"},
    "by another": {
        "before": "k: T.int64 = i * T.int64(8); r: T.int64 = k + v", "value": "A[r] * T.float32(2) + A[0]",
    },
}  # fmt: skip


@pytest.mark.parametrize("what", NAMED)
def test_loads_at_named_indices_have_masks(what: str) -> None:
    func = function(**NAMED[what])
    padded = pad_temporaries(func)
    assert not masked(padded)
    module = mlcc.IRModule({"main": padded})
    for n in (1, 5, 8, 13):
        a, y = np.arange(n, dtype="float32"), np.zeros(n, "float32")
        run_function(module, "main", [a, y])
        np.testing.assert_array_equal(y, a * 2)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 70))
def test_numbers_are_the_same(n: int) -> None:
    module = mlcc.parse(ROWS.format(**PLAIN))
    padded = module.copy()
    padded.update_func("main", pad_temporaries(function()))
    a = np.random.default_rng(n).normal(size=n).astype("float32")
    for one in (module, padded):
        y = np.zeros(n, "float32")
        run_function(one, "main", [a, y])
        np.testing.assert_array_equal(y, a * np.float32(2) + a[:1])

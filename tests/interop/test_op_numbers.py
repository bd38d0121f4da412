"""Operators, lowered here and compiled by TVM, give what their NumPy references say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlcc.ir import relax, tir
from mlcc.ops import get
from mlcc.passes.graph.lower_to_tir import LowerToTir
from mlcc.passes.manage.manager import PassContext
from tests.interop.tvm_text import to_tvm
from tests.ops import numbers
from tests.ops.cases import Case, Mine

tvm = pytest.importorskip("tvm")


def _compiled(case: Case) -> Any:
    """The case's function, lowered here and compiled by TVM."""
    lowered = LowerToTir().run(Mine().module(case), PassContext())
    func = next(f for n, f in lowered.functions.items() if n != "main")
    theirs = to_tvm(func.with_attr("global_symbol", "case"))
    return tvm.compile(tvm.IRModule({"case": theirs}), target="llvm")["case"]


@pytest.mark.parametrize("case", numbers.CASES, ids=str)
def test_both_compilers_match_the_reference(case: Case) -> None:
    side = Mine()
    call = side.call(case)
    inputs = numbers.arrays(case, side.params)
    wanted = numbers.expected(call, dict(zip(side.params, inputs, strict=True)))
    infos = call.struct_info.fields if isinstance(call.struct_info, relax.TupleStructInfo) else (call.struct_info,)
    outputs = [np.zeros([tir.const_int(d) for d in i.dims], str(i.dtype)) for i in infos]
    op = get(call.op.name)
    assert op is not None
    used = [a for i, a in enumerate(inputs) if i not in op.impl.shape_only]
    if op.short in ("sum", "prod") and not inputs[0].size:  # over nothing: a fill, which takes no operand
        used = []
    given = [tvm.runtime.tensor(a) for a in (*used, *outputs)]
    _compiled(case)(*given)
    exact = not any(np.issubdtype(w.dtype, np.floating) for w in wanted)
    half = any(a.dtype == np.float16 for a in (*inputs, *outputs))
    tolerance = 0 if exact else 4e-3 if half else 2e-5
    for got, want in zip(given[len(used) :], wanted, strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=tolerance, atol=tolerance)

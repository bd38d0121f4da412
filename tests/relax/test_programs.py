"""What the programs of the comparison with TVM build runs: the interpreter and the compiled module agree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc import relax, te
from mlcc.interp import run_function
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.verify import check
from tests.interop.builder_programs import PROGRAMS, Program

LIBRARY = SimpleNamespace(
    relax=relax,
    te=te,
    var=lambda name: te.var(name, "int64"),
    op=relax.Op.get,
    is_call=lambda value, name: isinstance(value, relax.Call) and value.op == relax.Op.get(name),
)
SIZES = {"n": 5, "m": 3}


def argument(info: Any, rng: np.random.RandomState) -> np.ndarray:
    """Data for a parameter, symbolic sizes as SIZES has them."""
    dims = info.dims if info.dims is not None else (tir.IntImm(INT64, 3), tir.IntImm(INT64, 4))
    shape = tuple(_size(d) for d in dims)
    data = np.asarray(rng.rand(*shape) + 0.1)
    return (data > 0.5) if info.dtype.is_bool else data.astype(str(info.dtype))


def _size(dim: Any) -> int:
    from mlcc.ops.relations import evaluate, variables

    size = evaluate(dim, {v: SIZES[v.name] for v in variables(dim)})
    assert size is not None
    return size


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_programs_agree_interpreted_and_compiled(program: Program) -> None:
    mod = program(LIBRARY)
    check(mod)
    if program.__name__ == "packed_functions":
        return  # nobody provides them here
    rng = np.random.RandomState(0)
    args = [argument(p.struct_info, rng) for p in mod["main"].params]
    expected = run_function(mod, "main", args)
    got = mlcc.load(mlcc.build(mod, target="llvm"))["main"](*args)
    wanted, given = _flat(expected), _flat(got)
    assert len(wanted) == len(given) > 0
    for a, b in zip(given, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3 if np.asarray(b).dtype == "float16" else 1e-5, atol=1e-6)


def _flat(value: Any) -> list[Any]:
    """The arrays and numbers in a result, however they are nested."""
    if isinstance(value, (tuple, list)):
        return [part for item in value for part in _flat(item)]
    return [np.asarray(value)]

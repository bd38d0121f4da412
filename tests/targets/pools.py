"""The process's thread pool, for tests: parallel loops of any size use it, with as many threads as a test says."""

from __future__ import annotations

import ctypes

import pytest

import mlcc
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.passes.lowering import loop_time
from mlcc.passes.lowering import parallel as choice
from mlcc.runtime import image
from mlcc.runtime.threads import RUN_WORK
from mlcc.targets.llvm.codegen import parallel

_LOOP = """
@T.prim_func
def f(A: T.Buffer((4,), "int32")):
    for i in T.parallel(4):
        A[i] = i
"""


def share_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parallel loops are worth it however small, one iteration at a time, and worth waking threads for."""
    monkeypatch.setattr(choice, "LEAST_WORK", 0)
    monkeypatch.setattr(parallel, "MIN_CHUNK_PICOSECONDS", 0)
    estimate = loop_time.picoseconds
    monkeypatch.setattr(loop_time, "picoseconds", lambda loop: c.maximum(estimate(loop), tir.IntImm(INT64, 10**12)))


def pool_address() -> int:
    """`mlcc_pool_v1_run_work` of this process; small loops must be shared (`share_any_work`)."""
    if image.shared_symbol(RUN_WORK) is None:
        mlcc.load(mlcc.build(mlcc.parse(_LOOP)))
    address = image.shared_symbol(RUN_WORK)
    assert address is not None
    return address


def use_threads(count: int) -> None:
    """Have the pool use so many threads, also more than there are cores."""
    pool_address()
    address = image.shared_symbol("mlcc_pool_v1_set_num_threads")
    assert address is not None
    ctypes.CFUNCTYPE(None, ctypes.c_int32)(address)(count)

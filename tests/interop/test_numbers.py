"""Generated functions compute the same with TVM's compiler, as far as TVM defines what they compute."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

import mlcc  # noqa: E402
from mlcc.interp import run_prim_func  # noqa: E402
from mlcc.ir import tir  # noqa: E402
from mlcc.ir.node import walk  # noqa: E402
from tests.generate.functions import Options, prim_func  # noqa: E402
from tests.interop.harness import to_tvm  # noqa: E402
from tests.targets.arguments import arguments, assert_alike, duplicate  # noqa: E402

OPTIONS = Options(raw=False, asserts=False, matched=False, dtypes=("float32", "float64", "int32", "int64", "bool"))
SHARE = 6  # functions in one test; with --all-cases, 60


def comparable(func: tir.PrimFunc) -> bool:
    """False for what TVM leaves open: floats out of an integer's range, and constants that it does not round."""
    for node in (n for stmt in func.body for n in walk(stmt)):
        if isinstance(node, tir.FloatImm) and node.dtype.bits < 32:
            return False
        if isinstance(node, tir.Cast) and node.value.dtype.is_float and not node.dtype.is_float:
            return False
    return True


def functions(start: int) -> Iterator[tuple[int, tir.PrimFunc]]:
    seed = start
    while True:
        func = prim_func(seed, OPTIONS)
        if comparable(func):
            yield seed, func
        seed += 1


@pytest.mark.parametrize("batch", range(8))
def test_generated_functions(batch: int, all_cases: bool) -> None:
    found = functions(batch * 1000)
    count, refused = 60 if all_cases else SHARE, 0
    for _ in range(count):
        seed, func = next(found)
        args, _ = arguments(func, seed)
        mine, theirs = duplicate(args), duplicate(args)
        run_prim_func(func, mine)
        read = to_tvm(mlcc.script(func, dialect="tvm"))
        try:  # TVM's passes fail on nested parallel loops, loops of unknown extent to unroll, some constants
            compiled = tvm.compile(read, "llvm")
        except (tvm.error.InternalError, ValueError):
            refused += 1
            continue
        tensors = [tvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a.item() for a in theirs]
        compiled["main"](*tensors)
        got = [t.numpy() if isinstance(t, tvm.runtime.Tensor) else t for t in tensors]
        assert_alike(func, got, mine, f"function {seed}")
    assert refused <= count // 2

"""Generated functions compute the same with TVM's compiler, as far as TVM defines what they compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

import mlcc  # noqa: E402
from mlcc.interp import run_function, run_prim_func  # noqa: E402
from mlcc.ir import IRModule, relax, tir  # noqa: E402
from mlcc.ir.node import walk  # noqa: E402
from mlcc.reduce.program import Program  # noqa: E402
from tests.fuzz.reduction import Check, reduced  # noqa: E402
from tests.generate import graphs  # noqa: E402
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
def test_generated_functions_match_tvms_code(batch: int, all_cases: bool) -> None:
    found = functions(batch * 1000)
    count, refused = 60 if all_cases else SHARE, 0
    for _ in range(count):
        seed, func = next(found)
        module = IRModule({"main": func})
        with reduced(module, Check("tests.interop.test_numbers:check_function", (str(seed),))):
            refused += not check_function(Program(module), str(seed))
    assert refused <= count // 2


def check_function(program: Program, seed: str) -> bool:
    """Compare TVM's code of a function with the interpreter. False if TVM does not compile it."""
    func = program.module["main"]
    assert isinstance(func, tir.PrimFunc)
    if not comparable(func):
        return False
    args, _ = arguments(func, int(seed))
    mine, theirs = duplicate(args), duplicate(args)
    run_prim_func(func, mine)
    read = to_tvm(mlcc.script(func, dialect="tvm"))
    try:  # TVM's passes fail on nested parallel loops, loops of unknown extent to unroll, some constants
        compiled = tvm.compile(read, "llvm")
    except (tvm.error.InternalError, ValueError):
        return False
    tensors = [tvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a.item() for a in theirs]
    compiled["main"](*tensors)
    got = [t.numpy() if isinstance(t, tvm.runtime.Tensor) else t for t in tensors]
    assert_alike(func, got, mine, f"function {seed}")
    return True


GRAPHS = graphs.Options(nested=False, dtypes=("float32", "float64", "int32", "int64"))  # TVM runs no local functions


def inputs(func: relax.Function, seed: int) -> list[np.ndarray]:
    """Random arrays for the parameters, symbolic sizes chosen alike."""
    rng = np.random.default_rng(seed)
    sizes: dict[Any, int] = {}
    made = []
    for param in func.params:
        info = param.struct_info
        assert isinstance(info, relax.TensorStructInfo) and info.dims is not None
        shape = [tir.const_int(d) or sizes.setdefault(d, int(rng.integers(1, 6))) for d in info.dims]
        values = rng.integers(-4, 5, shape) if info.dtype.is_int else rng.uniform(-2, 2, shape)  # type: ignore[union-attr]
        made.append(values.astype(str(info.dtype)))
    return made


@pytest.mark.parametrize("batch", range(6))
def test_generated_graphs_match_tvms_code(batch: int, all_cases: bool) -> None:
    for seed in range(batch * 1000, batch * 1000 + (40 if all_cases else 4)):
        mod = graphs.module(seed, GRAPHS)
        with reduced(mod, Check("tests.interop.test_numbers:check_graph", (str(seed),))):
            check_graph(Program(mod), str(seed))


def check_graph(program: Program, seed: str) -> None:
    """Compare TVM's code of a graph with the interpreter."""
    mod = program.module
    args = inputs(mod["main"], int(seed))  # type: ignore[arg-type]
    mine = run_function(mod, "main", args)
    machine = tvm.relax.VirtualMachine(tvm.compile(to_tvm(mlcc.script(mod, dialect="tvm")), "llvm"), tvm.cpu())
    theirs = machine["main"](*[tvm.runtime.tensor(a) for a in args])
    for a, b in zip(_as_list(mine), _as_list(theirs), strict=True):
        b = b.numpy()
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"graph {seed}")


def _as_list(result: Any) -> list[Any]:
    return [result] if isinstance(result, (np.ndarray, np.generic, tvm.runtime.Tensor)) else list(result)

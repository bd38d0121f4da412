"""Lowering of single functions, without a module and its passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mlcc import backends
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine.target import CudaTarget
from mlcc.passes.gpu import DeviceProgram
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.manager import pass_class
from mlcc.recursion import deep_recursion


def _steps(kind: str, last: str | None = None) -> Iterator[LoweringStep]:
    names = backends.get(kind).lowering
    for name in names if last is None else names[: names.index(last) + 1]:
        step = pass_class(name)()
        assert isinstance(step, LoweringStep)
        yield step


def lower_all(
    functions: Mapping[str, tir.PrimFunc], options: LowerOptions, last: str = "select-parallel-loops"
) -> dict[str, tir.PrimFunc]:
    """The functions as a CPU runs them, after the steps up to `last`."""
    made = dict(functions)
    with deep_recursion():
        for step in _steps("llvm", last):
            made = {n: step.lower(f, made, options) for n, f in made.items()}
    return made


def lower_gpu(name: str, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc] | None = None) -> DeviceProgram:
    """The program for a GPU of a function that may call `functions`."""
    options = backends.get("cuda").lower_options(CudaTarget())
    made = {**(functions or {}), name: func}
    module = IRModule(made)
    with deep_recursion():
        for step in _steps("cuda"):
            named = [step.lower_named(n, f, made, options, module) for n, f in made.items()]
            made = {n: f for functions in named for n, f in functions.items()}
    return DeviceProgram.of(made[name], made)


def lower_func(
    func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc] | None = None, options: LowerOptions | None = None
) -> tir.PrimFunc:
    """The loop code of a function that may call `functions`, all its parallel loops left."""
    return lower_all({**(functions or {}), "": func}, options or LowerOptions(), "unroll-loops")[""]

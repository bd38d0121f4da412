"""Lowering of single functions, without a module and its passes."""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.ir import tir
from mlcc.ir.deep import deep_recursion
from mlcc.passes.levels import LOWERING
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manager import pass_class


def lower_all(
    functions: Mapping[str, tir.PrimFunc], options: LowerOptions, last: str = LOWERING["llvm"][-1]
) -> dict[str, tir.PrimFunc]:
    """The functions as a CPU runs them, after the steps up to `last`."""
    made = dict(functions)
    names = LOWERING["llvm"]
    with deep_recursion():
        for name in names[: names.index(last) + 1]:
            step = pass_class(name)()
            assert isinstance(step, LoweringStep)
            made = {n: step.lower(f, made, options) for n, f in made.items()}
    return made


def lower_func(
    func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc] | None = None, options: LowerOptions | None = None
) -> tir.PrimFunc:
    """The loop code of a function that may call `functions`, all its parallel loops left."""
    return lower_all({**(functions or {}), "": func}, options or LowerOptions(), "unroll-loops")[""]

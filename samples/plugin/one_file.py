"""The three ways in from one file: mlcc passes model.mlc --load one_file.py -p 'count-calls,O2' --why-schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mlcc import ops, te
from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ops import topi
from mlcc.ops.registry import FusionKind, Impl
from mlcc.ops.unary import infer_float
from mlcc.passes import Pass, PassContext
from mlcc.passes.auto_schedule import rules
from mlcc.passes.auto_schedule.kernel import Kernel, not_applicable
from mlcc.passes.auto_schedule.rule import Rule
from mlcc.passes.graph.relax_mutator import map_relax_functions
from mlcc.relax.queries import all_bindings


@dataclass(frozen=True)
class CountCalls(Pass):  # a pass with a name is registered when the file is loaded
    """Write the number of calls in each function into its attribute `calls`.

    Before:  @R.function
             def main(...): ...
    After:   @R.function
             def main(...): R.func_attr({"calls": 3}); ...       # count-calls{attribute=calls}
    """

    name: ClassVar[str] = "count-calls"
    attribute: str = "calls"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        def count(_: str, func: relax.Function) -> relax.Function:
            calls = sum(isinstance(getattr(b, "value", None), relax.Call) for b, _ in all_bindings(func.body))
            counted: relax.Function = func.with_attr(self.attribute, calls)
            return counted

        return map_relax_functions(module, count)


def _softsign(v: Any) -> Any:
    return v / (te.const(1.0, v.dtype) + te.abs(v))


ops.register(
    "nn.softsign",
    Impl(
        "data",
        infer_float,
        lambda call, x: x / (1 + np.abs(x)),
        lambda call, x: topi.elementwise(x, _softsign),
        FusionKind.ELEMWISE,
    ),
)


def rows_in_parallel(kernel: Kernel) -> str:
    """One thread's work is a row."""
    if len(kernel.stages()) != 1 or kernel.stages()[0].reduced or len(kernel.stages()[0].loops) < 2:
        not_applicable("it is not one block over rows")
    (block,) = kernel.blocks()
    rows, *_, columns = kernel.loops(block)
    kernel.sch.parallel(rows)
    kernel.sch.vectorize(columns)
    return "rows in parallel"


rules.register(Rule("rows-in-parallel", rows_in_parallel))

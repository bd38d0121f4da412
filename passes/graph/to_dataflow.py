"""Grouping of bindings without side effects into dataflow blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.passes.graph.canonicalize import canonical
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import merge_blocks
from mlcc.relax.queries import is_impure


@dataclass(frozen=True)
class ToDataflow(Pass):
    """Group runs of at least `min-size` bindings without side effects into dataflow blocks, and canonicalize.

    Existing dataflow blocks, of any size, become part of runs. Calls that may have side effects, and `if`, end a run.

    Before:  lv = R.add(x, x)
             gv = R.multiply(lv, x)
    After:   with R.dataflow():
                 lv = R.add(x, x)
                 gv = R.multiply(lv, x)
                 R.output(gv)
    """

    name: ClassVar[str] = "to-dataflow"
    min_size: int = 2

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        def change(_: str, func: relax.Function) -> relax.Function:
            return canonical(_Grouper(module, self.min_size).visit_function(func), module)

        return map_relax_functions(module, change)


class _Grouper(RelaxMutator):
    def __init__(self, module: IRModule, min_size: int) -> None:
        super().__init__(module)
        self.min_size = min_size

    def visit_seq(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        seq = super().visit_seq(seq)
        blocks: list[relax.BindingBlock] = []
        run: list[relax.Binding] = []
        has_dataflow_part = False  # True if part of the run is a dataflow block already
        for block in seq.blocks:
            for binding in block.bindings:
                if isinstance(block, relax.DataflowBlock) or not self.has_effects(binding):
                    run.append(binding)
                    has_dataflow_part |= isinstance(block, relax.DataflowBlock)
                    continue
                blocks += [*self.grouped(run, has_dataflow_part), relax.BindingBlock((binding,))]
                run, has_dataflow_part = [], False
        blocks = merge_blocks([*blocks, *self.grouped(run, has_dataflow_part)])
        same = [(type(b), b.bindings) for b in blocks] == [(type(b), b.bindings) for b in seq.blocks]
        return seq if same else replace(seq, blocks=tuple(blocks))

    def grouped(self, run: list[relax.Binding], has_dataflow_part: bool) -> list[relax.BindingBlock]:
        kind = relax.DataflowBlock if has_dataflow_part or len(run) >= self.min_size else relax.BindingBlock
        return [kind(tuple(run))] if run else []

    def has_effects(self, binding: Any) -> bool:
        value = binding.value
        return isinstance(value, relax.If) or (isinstance(value, relax.Call) and is_impure(value, self.module))

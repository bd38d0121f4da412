"""Mark PrimFuncs by which of their buffer parameters are uninitialized memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc.ir import relax, tir
from mlcc.ir.intrinsics import called
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, replace, walk
from mlcc.ir.visit import rewrite_bottom_up
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.manager import PassContext
from mlcc.passes.manage.stages import BLOCKS, SANITIZED
from mlcc.relax.construct import CALL_TIR

NEW_OUTPUTS = (
    "mlcc.sanitize_fresh"  # of a PrimFunc: how many of the last buffers it takes are memory that nothing wrote
)


@dataclass(frozen=True)
class MarkNewOutputs(LoweringStep):
    """Mark PrimFuncs by how many of their last buffers are uninitialized memory, for code with checked accesses.

    The first step towards such code, from any stage. Where calls differ, or a PrimFunc is public, they call a copy.

    Before:  R.call_tir(cls.relu, (x,), out_sinfo=...)  (one output)
    After:   T.func_attr({"mlcc.sanitize_fresh": 1}) in `relu`
    """

    name: ClassVar[str] = "mark-new-outputs"
    takes: ClassVar[str] = BLOCKS
    gives: ClassVar[str] = BLOCKS

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        result = super().run(module, ctx)
        result.attrs = Attrs({**result.attrs, SANITIZED: True})
        chosen = _mark_functions(result)
        for name, func in result.functions.items():
            if isinstance(func, relax.Function):
                result.functions[name] = rewrite_bottom_up(func, lambda node: _call_marked(node, chosen))
        return result

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return func


def _mark_functions(module: IRModule) -> dict[tuple[str, int], str]:
    """Mark PrimFuncs, or copies of them, by new outputs; return the one to call by name and number of new outputs."""
    uses: dict[str, set[int]] = {}
    for func in list(module.functions.values()):
        for node in walk(func):
            for name, count in _calls(node):
                uses.setdefault(name, set()).add(count)
    chosen: dict[tuple[str, int], str] = {}
    for name, counts in uses.items():
        callee = module.functions.get(name)
        if not isinstance(callee, tir.PrimFunc):
            continue
        for count in sorted(counts - {0}):
            marked = callee.with_attr(NEW_OUTPUTS, count)
            alone = callee.is_private and len(counts) == 1
            chosen[name, count] = name if alone else module.unique_name(f"{name}_fresh")
            module.functions[chosen[name, count]] = marked if alone else marked.without_attr("global_symbol")
    return chosen


def _calls(node: Any) -> list[tuple[str, int]]:
    """Return the functions that a node calls, each with the number of new buffers that the call passes."""
    if isinstance(node, relax.Call):
        if node.op == CALL_TIR:
            callee = node.args[0]
            return [(callee.name, _output_count(node))] if isinstance(callee, relax.GlobalVar) else []
        return [(n.name, 0) for n in (node.op, *node.args) if isinstance(n, relax.GlobalVar)]
    if isinstance(node, tir.Call):
        if isinstance(node.op, relax.GlobalVar):
            return [(node.op.name, 0)]
        if called(node).extern and isinstance(node.args[0], tir.StringImm):
            return [(node.args[0].value, 0)]
    return []


def _output_count(call: relax.Call) -> int:
    return sum(map(_leaves, call.sinfo_args))


def _leaves(info: relax.StructInfo) -> int:
    return sum(map(_leaves, info.fields)) if isinstance(info, relax.TupleStructInfo) else 1


def _call_marked(node: Any, chosen: Mapping[tuple[str, int], str]) -> Any:
    """Return the call with its callee replaced by the marked PrimFunc."""
    if not isinstance(node, relax.Call) or node.op != CALL_TIR or not isinstance(node.args[0], relax.GlobalVar):
        return node
    callee = node.args[0]
    name = chosen.get((callee.name, _output_count(node)), callee.name)
    return node if name == callee.name else replace(node, args=(replace(callee, name=name), *node.args[1:]))

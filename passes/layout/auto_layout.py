"""The pass `auto-layout`: image layouts chosen for the whole graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc import ops
from mlcc.backends import cpu_facts
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.ops import OpDef, layout_rules
from mlcc.ops.layout_rules import (
    Layout,
    LayoutDecision,
    NestedLayout,
    Rule,
    TupleLayout,
    identity_layout,
    layout_string,
)
from mlcc.ops.split_layouts import is_blocked
from mlcc.passes.convolution.costs import channels_last, convolution_cycles, transpose_cycles
from mlcc.passes.convolution.winograd_choice import MAX_ERROR, admitted_error, channels_last_cycles
from mlcc.passes.graph.relax_mutator import map_relax_functions
from mlcc.passes.graph.to_dataflow import ToDataflow
from mlcc.passes.layout.convert_layout import Converter
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.queries import all_bindings, is_call, is_primitive, operands

CONVOLUTIONS = {f"relax.nn.conv{n}d" for n in (1, 2, 3)}


@dataclass(frozen=True)
class AutoLayout(Pass):
    """Compute convolutions with the channels last (NHWC) where that is faster on the target.

    Convolutions form groups with the operators around them that can adopt a layout. For each group, the estimated gain
    of its convolutions, by the target's vectors and registers, is compared with the cost of the transposes at its
    boundaries. Weights keep their layout, except those of grouped convolutions, which are not packed. Images of few
    channels are read in place. Transposes of the program into the chosen layout disappear. With `always` all groups are
    converted, whether that pays or not. `max-error` is that of the pass `winograd` which follows, whose gain counts; 0
    if it does not follow.

    Before:  lv = R.nn.conv2d(x, w1)
             lv1 = R.nn.conv2d(R.nn.relu(lv), w2)
             gv = R.mean(lv1, axis=[2, 3])
    After:   lv = R.nn.conv2d(x, w1, out_layout="NHWC")            # x has three channels
             lv1 = R.nn.conv2d(R.nn.relu(lv), w2, data_layout="NHWC")
             gv = R.mean(lv1, axis=[1, 2])
    """

    name: ClassVar[str] = "auto-layout"
    always: bool = False
    max_error: float = MAX_ERROR

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        facts = cpu_facts(ctx.target)
        if facts is None or not any(_convolutions(f) for f in module.functions.values()):
            return module
        max_error = admitted_error(self.max_error, ctx.target)
        dataflow_module = ToDataflow().run(module, ctx)

        def change(name: str, func: relax.Function) -> relax.Function:
            before: Any = dataflow_module.functions[name]
            converted = choose_layouts(before, module, facts, max_error, self.always)
            return func if converted is before else converted

        return map_relax_functions(module, change, primitive=False)


def choose_layouts(
    func: relax.Function, module: IRModule, facts: CpuFacts, max_error: float, always: bool = False
) -> relax.Function:
    """Return the function with profitable layouts; the same object if none is."""
    groups = Groups.of(func)
    if not groups.convolutions:
        return func
    trial = _LayoutChooser(module, facts, groups, groups.convolutions, max_error)
    converted = trial.visit_function(func)
    profitable = {g for g in groups.convolutions if trial.saved_cycles[g] > trial.transpose_cost[g]}
    if always or profitable == groups.convolutions:
        return converted
    return _LayoutChooser(module, facts, groups, profitable, max_error).visit_function(func) if profitable else func


def _convolutions(func: Any) -> Iterator[relax.VarBinding]:
    for binding, _ in all_bindings(func.body) if isinstance(func, relax.Function) and not is_primitive(func) else ():
        if isinstance(binding, relax.VarBinding) and is_convolution(binding.value):
            yield binding


def is_convolution(expr: relax.Expr) -> bool:
    """Return True for a convolution of tensors of known rank, in layouts that split no axis.

    Layouts with split axes are chosen by hand, and stay.
    """
    if not (isinstance(expr, relax.Call) and isinstance(expr.op, tir.Op) and expr.op.name in CONVOLUTIONS):
        return False
    attrs: Any = expr.attrs
    layouts = (attrs["data_layout"], attrs["kernel_layout"], attrs["out_layout"])
    if any(is_blocked(layout) for layout in layouts):
        return False
    return all(getattr(e.struct_info, "dims", None) is not None for e in (expr, *expr.args))


class Groups:
    """Groups of values that must share one layout: operands and results of operators that adopt layouts."""

    def __init__(self) -> None:
        self._parent: dict[relax.Var, relax.Var] = {}
        self.convolutions: set[relax.Var] = set()

    @staticmethod
    def of(func: relax.Function) -> Groups:
        groups = Groups()
        for binding, _ in all_bindings(func.body):
            var, value = binding.var, binding.value  # type: ignore[attr-defined]
            groups._parent[var] = var
            if _follows(value) if isinstance(value, relax.Call) else isinstance(var, relax.DataflowVar):
                for operand in _vars(value):
                    if operand in groups._parent:
                        groups._parent[groups.find(operand)] = groups.find(var)
        groups.convolutions = {groups.find(b.var) for b in _convolutions(func)}
        return groups

    def find(self, var: relax.Var) -> relax.Var:
        """Return the representative of a variable's group (union-find with path halving); a parameter's is itself."""
        parent = self._parent
        while parent.get(var, var) is not var:
            parent[var] = parent[parent[var]]
            var = parent[var]
        return var


def _rule(op: OpDef | None) -> Rule | None:
    """Return the layout rule of an operator, preferring one whose result may have a layout other than TVM's."""
    return None if op is None else op.impl.free_layout or op.impl.layout


def _follows(call: relax.Call) -> bool:
    return isinstance(call.op, tir.Op) and _rule(ops.get(call.op.name)) is not None


def _vars(expr: relax.Expr) -> list[relax.Var]:
    if isinstance(expr, relax.Var):
        return [expr]
    return [v for e in operands(expr) if isinstance(e, relax.Expr) for v in _vars(e)]


class _LayoutChooser(Converter):
    """Convert the groups in `chosen`; sum up by group the cycles that convolutions gain and transposes cost."""

    rule = staticmethod(_rule)

    def __init__(
        self, module: IRModule, facts: CpuFacts, groups: Groups, chosen: Collection[relax.Var], max_error: float
    ) -> None:
        super().__init__(module, {})
        self.facts, self.groups, self.chosen, self.max_error = facts, groups, chosen, max_error
        self.saved_cycles: defaultdict[relax.Var, float] = defaultdict(float)
        self.transpose_cost: defaultdict[relax.Var, float] = defaultdict(float)
        self.var: relax.Var | None = None  # the variable being bound, and its group
        self.group: relax.Var | None = None
        self._conversions: dict[tuple[relax.Expr, Layout], relax.Expr] = {}

    def visit_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        outer, self._conversions = self._conversions, {}
        rewritten = super().visit_block(block)
        self._conversions = outer
        return rewritten

    def visit_binding(self, binding: Any) -> None:
        self.var, self.group = binding.var, self.groups.find(binding.var)
        forward = self.group in self.chosen and isinstance(binding.var, relax.DataflowVar)
        if forward and is_call(binding.value, "relax.permute_dims"):
            self.forward_transpose(binding.var, binding.value)
        else:
            super().visit_binding(binding)

    def forward_transpose(self, var: relax.Var, call: Any) -> None:
        """Fold a transpose of the program into the layout of its result; the operand's data stay in place."""
        (operand,) = call.args
        layout: Any = self.layout(operand)
        axes = [int(a) for a in call.attrs["axes"] or range(len(layout) - 1, -1, -1)]
        axes = [a % len(layout) for a in axes]
        self.layouts[var] = tuple(axes.index(axis) for axis in layout)
        self.remap[var] = self.in_layout(operand, layout)
        self.transpose_cost[self.groups.find(var)] -= transpose_cycles(call.struct_info)

    def in_layout(self, expr: relax.Expr, to: NestedLayout) -> relax.Expr:
        """Return a value in another layout; the conversion is emitted once for all its uses."""
        if not isinstance(expr, relax.Var) or not isinstance(to, tuple) or self.layout(expr) == to:
            return super().in_layout(expr, to)
        if (expr, to) not in self._conversions:
            self._conversions[expr, to] = super().in_layout(expr, to)
        return self._conversions[expr, to]

    def converted_back(self, var: relax.Var, have: NestedLayout, to: NestedLayout) -> relax.Expr:
        """Convert a result of a block back; later operators in the block may still read it unconverted."""
        if isinstance(have, tuple) and self.var is not None:
            self._conversions[self.var, have] = var
        return super().converted_back(var, have, to)

    def permuted(self, expr: relax.Expr, have: Layout, to: Layout) -> relax.Expr:
        if self.group is not None and not isinstance(expr, relax.Constant):
            self.transpose_cost[self.group] += transpose_cycles(expr.struct_info)
        return super().permuted(expr, have, to)

    def decide(self, call: relax.Call) -> LayoutDecision | None:
        if self.group not in self.chosen:
            return None
        layouts = [self.layout(a) for a in call.args]
        if is_convolution(call):
            return self.convolution(call, layouts)
        pairs = zip(layouts, call.args, strict=True)
        if all(layout == identity_layout(a.struct_info) for layout, a in pairs):
            return None
        rule = _rule(ops.get(call.op.name)) if isinstance(call.op, tir.Op) else None
        return self.broadcast(call, layouts) if rule is layout_rules.broadcast else super().decide(call)

    def broadcast(self, call: relax.Call, layouts: list[Any]) -> LayoutDecision | None:
        """Give the result the layout of the first operand of full rank that is not in the program's layout.

        Operands of lower rank get leading axes.
        """
        result = identity_layout(call.struct_info)
        if not isinstance(result, tuple) or any(isinstance(g, TupleLayout) for g in layouts):
            return None
        converted = [g for g in layouts if g is not None and len(g) == len(result) and g != result]
        to = converted[0] if converted else result
        inputs = [to if g is not None and len(g) == len(to) else g for g in layouts]
        expanded = {at: self.widened(call.args[at], to) for at, g in enumerate(inputs) if g and len(g) < len(to)}
        return LayoutDecision(tuple(inputs), to, call.attrs, expanded)

    def widened(self, expr: relax.Expr, to: Layout) -> relax.Expr:
        """Return an operand in a layout, with leading axes added up to its rank."""
        source = self.in_original_layout(expr)
        rank: int = expr.struct_info.ndim  # type: ignore[union-attr]
        expanded = self.emit_op("expand_dims", source, axis=list(range(len(to) - rank)))
        return self.emit(self.permuted(expanded, identity_layout(expanded.struct_info), to))  # type: ignore[arg-type]

    def convolution(self, call: relax.Call, layouts: list[NestedLayout]) -> LayoutDecision:
        """Compute a convolution with the channels last.

        Data of few channels in the program's layout are read in that layout.
        """
        attrs: Any = call.attrs
        letters, result = attrs["data_layout"], attrs["out_layout"]
        data, out = (tuple(x.index(axis) for axis in channels_last(x)) for x in (letters, result))
        if layouts[0] == identity_layout(call.args[0].struct_info) and self.has_few_channels(call):
            data = tuple(range(len(letters)))
        weight: Any = layouts[1]
        if attrs["groups"] > 1:  # these are not packed, but read in place
            kernel = attrs["kernel_layout"]
            weight = tuple(kernel.index(x) for x in (*(x for x in kernel if x not in "OI"), "I", "O"))
        changed = attrs.with_item("data_layout", layout_string(letters, data)).with_item(
            "out_layout", layout_string(result, out)
        )
        changed = changed.with_item("kernel_layout", layout_string(attrs["kernel_layout"], weight))
        assert self.group is not None
        self.saved_cycles[self.group] += convolution_cycles(call, result[-1], self.facts)
        self.saved_cycles[self.group] -= channels_last_cycles(call, self.facts, self.max_error)
        return LayoutDecision((data, weight), out, changed)

    def has_few_channels(self, call: relax.Call) -> bool:
        """Return True if the channels of a pixel fill at most a quarter of a cache line.

        Their stride does not matter then.
        """
        info: Any = call.args[0].struct_info
        channels = tir.const_int(info.dims[call.attrs["data_layout"].index("C")])
        return channels is not None and channels * 4 * info.dtype.bits // 8 <= self.facts.line_bytes

"""The pass `convert-layout`: conversion of convolutions to requested layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc import ops
from mlcc.errors import CompileError, Diagnostic, did_you_mean, error
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.ops import OpDef
from mlcc.ops.layout_rules import (
    LAYOUT_ATTRS,
    DesiredLayouts,
    Layout,
    LayoutDecision,
    NestedLayout,
    Rule,
    TupleLayout,
    identity_layout,
    is_known,
    permutation_between,
)
from mlcc.ops.split_layouts import index_map, is_blocked, is_split, outer_letters, parse_layout
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import get_item, make_tuple, shape_expr
from mlcc.relax.queries import is_tensor_or_tuple


@dataclass(frozen=True)
class ConvertLayout(Pass):
    """Compute convolutions in other layouts, which the operators around them adopt.

    `layouts` gives the layouts of the data, the weight and, unless it is that of the data, the result. Inside a
    dataflow block, later operators work in the layout of their operands; where one cannot, and at the outputs of the
    block, `permute_dims` converts tensors back. Layouts that split axes, as NCHW4c does, use `layout_transform`
    instead; they apply where the extents are known to be multiples.

    Before:  lv = R.nn.conv2d(x, w)
             gv = R.nn.relu(lv)
    After:   lv = R.permute_dims(x, axes=[0, 2, 3, 1])  # convert-layout{layouts={"nn.conv2d": ["NHWC", "OHWI"]}}
             lv1 = R.permute_dims(w, axes=[0, 2, 3, 1])
             lv2 = R.nn.conv2d(lv, lv1, data_layout="NHWC", kernel_layout="OHWI")
             lv3 = R.nn.relu(lv2)
             gv = R.permute_dims(lv3, axes=[0, 3, 1, 2])
    """

    name: ClassVar[str] = "convert-layout"
    layouts: Mapping[str, tuple[str, ...]]

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        wanted = _check_layouts(self.layouts)
        return map_relax_functions(module, lambda _, func: Converter(module, wanted).visit_function(func))


def _check_layouts(layouts: Mapping[str, tuple[str, ...]]) -> DesiredLayouts:
    """Return the requested layouts by full operator names. Raise CompileError (E0514) for invalid ones."""
    checked: dict[str, tuple[str, ...]] = {}
    errors: list[Diagnostic] = []
    for name_given, requested in layouts.items():
        op = ops.get(name_given)
        names = _layout_attributes(op)
        if op is None or not names:
            problem = "takes its layout from its operands" if op is not None else "is not an operator"
            choices = [name for name in ops.names() if _layout_attributes(ops.get(name))]
            help = did_you_mean(name_given, choices) or "layouts are chosen for convolutions"
            errors.append(error("E0514", f"`convert-layout`: `{name_given}` {problem}", help=help))
            continue
        name = op.name
        known = {p.name: p.default for p in op.params}
        known["out_layout"] = known.get("data_layout")
        min_count = min(2, len(names))
        can_split = len(names) > 1
        if not min_count <= len(requested) <= len(names):
            count = "one layout" if min_count == 1 else "layouts for data, weight and, perhaps, result"
            errors.append(error("E0514", f"`convert-layout`: `{name}` takes {count}, not {len(requested)}"))
        for attribute, layout in zip(names, requested, strict=False):
            parts = parse_layout(layout)
            is_valid = parts is not None and (can_split or not is_blocked(layout))
            if not is_valid or sorted(outer_letters(layout)) != sorted(known[attribute]):
                message = f"`convert-layout`: `{layout}` is not a valid `{attribute}` of `{name}`"
                help = f"it must be a permutation of the letters of {known[attribute]}"
                help += ", and may split some, as in NCHW4c" if can_split else ""
                errors.append(error("E0514", message, help=help))
        checked[name] = requested
    if errors:
        raise CompileError(errors)
    return checked


def _layout_attributes(op: OpDef | None) -> tuple[str, ...]:
    """Return the attributes of an operator whose layouts can be requested."""
    rule = None if op is None else op.impl.layout
    return () if rule is None else LAYOUT_ATTRS.get(rule, ())


class Converter(RelaxMutator):
    """Rewrite a function; `layouts` holds the layouts of the current dataflow block's variables."""

    def __init__(self, module: IRModule, wanted: DesiredLayouts) -> None:
        super().__init__(module)
        self.wanted = wanted
        self.layouts: dict[relax.Var, NestedLayout] = {}

    def visit_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        outer, self.layouts = self.layouts, {}
        rewritten = super().visit_block(block)
        self.layouts = outer
        return rewritten

    def visit_binding(self, binding: Any) -> None:
        if not self.in_dataflow:
            super().visit_binding(binding)
            return
        local = isinstance(binding.var, relax.DataflowVar)
        match binding:
            case relax.MatchCast():
                self.match_cast(binding, local)
            case relax.VarBinding(value=relax.Call() as call):
                decision = self.decide(call) if is_tensor_or_tuple(binding.var.struct_info) else None
                if decision is None:
                    self.rebind(binding, self.in_original_layout(call))
                else:
                    self.convert(binding, decision, local)
            case relax.VarBinding(value=relax.Tuple() as value) if local:
                layout = self.layout(value)
                self.layouts[binding.var] = layout
                self.rebind(binding, self.in_layout(value, layout))
            case relax.VarBinding(value=relax.TupleGetItem() as value):
                self.convert_field(binding, value, local)
            case _:
                self.rebind(binding, self.in_original_layout(binding.value))

    # ------------------------------------------------------------ layouts

    def layout(self, expr: relax.Expr) -> NestedLayout:
        if isinstance(expr, relax.Tuple):
            return TupleLayout(tuple(map(self.layout, expr.fields)))
        if isinstance(expr, relax.Var) and expr in self.layouts:
            return self.layouts[expr]
        return identity_layout(expr.struct_info)

    def in_layout(self, expr: relax.Expr, to: NestedLayout) -> relax.Expr:
        """Return an expression in a layout; a conversion is bound first where needed."""
        if isinstance(to, TupleLayout):
            return self.fields_in_layout(expr, to)
        have, value = self.layout(expr), self.remap.get(expr, expr) if isinstance(expr, relax.Var) else expr
        if have == to or not isinstance(have, tuple) or to is None:
            return value
        return self.emit(self.permuted(value, have, to))

    def fields_in_layout(self, expr: relax.Expr, to: TupleLayout) -> relax.Expr:
        if not isinstance(expr, relax.Tuple):
            have, value = self.layout(expr), self.remap.get(expr, expr) if isinstance(expr, relax.Var) else expr
            if have == to:
                return value
            assert isinstance(have, TupleLayout)
            parts = [get_item(value, at) for at in range(len(to.parts))]
            pairs = zip(parts, have.parts, to.parts, strict=True)
            return make_tuple(self.emit(p if h == t else self.permuted(p, h, t)) for p, h, t in pairs)
        fields = tuple(self.in_layout(f, t) for f, t in zip(expr.fields, to.parts, strict=True))
        return expr if all(a is b for a, b in zip(fields, expr.fields, strict=True)) else make_tuple(fields)

    def permuted(self, expr: relax.Expr, have: Layout, to: Layout) -> relax.Expr:
        source = expr if isinstance(expr, (relax.Var, relax.Constant)) else self.emit(expr)
        if set(have) != set(to):
            return ops.bind_call("layout_transform", (source,), {"index_map": index_map(have, to)})
        return ops.bind_call("permute_dims", (source,), {"axes": list(permutation_between(have, to))})

    def in_original_layout(self, expr: relax.Expr) -> relax.Expr:
        """Rebuild an expression over operands in the layouts of the original program."""
        match expr:
            case relax.Var() | relax.Constant():
                return self.in_layout(expr, identity_layout(expr.struct_info))
            case relax.Call(args=args):
                converted = tuple(map(self.in_original_layout, args))
                op = self.visit(expr.op) if isinstance(expr.op, relax.Expr) else expr.op
                if op is expr.op and all(a is b for a, b in zip(converted, args, strict=True)):
                    return expr
                return self.infer(replace(expr, op=op, args=converted))
            case relax.Tuple(fields=fields):
                converted = tuple(map(self.in_original_layout, fields))
                return expr if all(a is b for a, b in zip(converted, fields, strict=True)) else make_tuple(converted)
            case relax.TupleGetItem(tuple_value=value, index=index):
                source = self.in_original_layout(value)
                return expr if source is value else get_item(source, index)
        return self.visit(expr)

    # ------------------------------------------------------------ bindings

    def rule(self, op: OpDef | None) -> Rule | None:
        """Return the layout rule of an operator."""
        return None if op is None else op.impl.layout

    def decide(self, call: relax.Call) -> LayoutDecision | None:
        op = ops.get(call.op.name) if isinstance(call.op, tir.Op) else None
        rule = self.rule(op)
        if rule is None or op is None or op.impl.infer is None or not is_known(identity_layout(call.struct_info)):
            return None
        layouts = tuple(map(self.layout, call.args))
        pairs = zip(call.args, layouts, strict=True)
        known = all(is_known(layout) for arg, layout in pairs if is_tensor_or_tuple(arg.struct_info))
        return rule(call, layouts, self.wanted) if known else None

    def convert(self, binding: relax.VarBinding, decision: LayoutDecision, local: bool) -> None:
        call: Any = binding.value
        args = [self.in_layout(a, to) for a, to in zip(call.args, decision.inputs, strict=False)]
        args += [self.in_original_layout(a) for a in call.args[len(args) :]]
        for at, arg in decision.args.items():
            args[at] = arg
        changed = decision.attrs is not call.attrs or any(a is not b for a, b in zip(args, call.args, strict=True))
        converted = self.infer(replace(call, args=tuple(args), attrs=decision.attrs)) if changed else call
        to = identity_layout(binding.var.struct_info)
        if local:
            self.layouts[binding.var] = decision.output
            self.rebind(binding, converted)
        elif decision.output == to:
            self.rebind(binding, converted)
        else:
            between = self.emit(converted)
            self.layouts[between] = decision.output
            self.rebind(binding, self.converted_back(between, decision.output, to))

    def converted_back(self, var: relax.Var, have: NestedLayout, to: NestedLayout) -> relax.Expr:
        if isinstance(have, tuple) and isinstance(to, tuple):
            return self.permuted(var, have, to)
        return self.in_layout(var, to)

    def convert_field(self, binding: relax.VarBinding, value: relax.TupleGetItem, local: bool) -> None:
        layout = self.layout(value.tuple_value)
        part = layout.parts[value.index] if isinstance(layout, TupleLayout) else None
        source = self.in_layout(value.tuple_value, layout)
        field = value if source is value.tuple_value else get_item(source, value.index)
        if local or part == identity_layout(binding.var.struct_info):
            self.layouts[binding.var] = part
            self.rebind(binding, field)
        else:
            self.rebind(binding, self.converted_back(self.emit(field), part, identity_layout(binding.var.struct_info)))

    def match_cast(self, binding: relax.MatchCast, local: bool) -> None:
        layout = self.layout(binding.value)
        split = isinstance(layout, tuple) and is_split(layout)
        if not local or split or layout == identity_layout(binding.value.struct_info):
            self.put(replace(binding, value=self.in_original_layout(binding.value)))
            return
        info = _info_in_layout(binding.struct_info, layout)
        var = self.retype(binding.var, info)
        self.layouts[binding.var] = layout
        self.put(relax.MatchCast(var, self.in_layout(binding.value, layout), info, span=binding.span))


def _info_in_layout(info: relax.StructInfo, layout: NestedLayout) -> relax.StructInfo:
    """Return the struct info of a value in another layout."""
    if isinstance(info, relax.TupleStructInfo) and isinstance(layout, TupleLayout):
        pairs = zip(info.fields, layout.parts, strict=True)
        return relax.TupleStructInfo(tuple(_info_in_layout(i, part) for i, part in pairs))
    if isinstance(info, relax.TensorStructInfo) and isinstance(layout, tuple):
        dims = info.dims
        if dims is not None:
            return replace(info, shape=shape_expr(dims[axis] for axis in layout))
    return info

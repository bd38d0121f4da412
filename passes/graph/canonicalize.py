"""The pass `canonicalize`: remove renamings, and symbolic variables with known values."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.graph.symbolic import bind_symbols, info_symbols
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import equal_struct_info
from mlcc.relax.queries import all_bindings, used_vars


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Remove bindings that only rename, and use the fields of known tuples and constants directly.

    A tuple made of all fields of a parameter is replaced by the parameter. A symbolic variable that a `match_cast`
    binds to a known value is replaced by it. A variable that only its own dataflow block uses becomes a dataflow
    variable.

    Before:  lv = R.add(x, y)
             lv1 = lv
             gv = R.multiply(lv1, lv1)
    After:   lv = R.add(x, y)
             gv = R.multiply(lv, lv)
    """

    name: ClassVar[str] = "canonicalize"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        return map_relax_functions(module, lambda _, func: canonical(func, module))


def canonical(func: relax.Function, module: IRModule) -> relax.Function:
    """Return the function in canonical form: symbolic variables first, then bindings."""
    # join blocks, so that fewer variables are used outside their block
    func = RelaxMutator(module).visit_function(func)
    func = _replace_known_symbols(func, module)
    return renamed(func, module)


def renamed(func: relax.Function, module: IRModule) -> relax.Function:
    """Return the function without bindings that only rename."""
    return _Renamer(module, _plan_renaming(func)).visit_function(func)


# ---------------------------------------------------------------- symbolic variables


def _replace_known_symbols(func: relax.Function, module: IRModule) -> relax.Function:
    """Replace the symbolic variables that a `match_cast` outside branches defines, where the matched shape is known.

    A variable that a parameter or an earlier `match_cast` defines is only checked there, and is kept.
    """
    known: dict[tir.Var, tir.Expr] = {}
    defined = {symbol for param in func.params for symbol in info_symbols(param.struct_info)}
    for block in func.body.blocks:
        for binding in block.bindings:
            if isinstance(binding, relax.MatchCast):
                _match(binding.struct_info, binding.value.struct_info, defined, known)
                defined.update(info_symbols(binding.struct_info))
    resolved: dict[tir.Var, tir.Expr] = {}
    for var, value in known.items():
        resolved[var] = _resolve(value, resolved)
    return bind_symbols(func, resolved, {}, module) if resolved else func


def _resolve(value: tir.Expr, known: dict[tir.Var, tir.Expr]) -> tir.Expr:
    from mlcc.ir.visit import substitute

    return substitute(value, known)


def _match(pattern: Any, info: Any, defined: Set[tir.Var], known: dict[tir.Var, tir.Expr]) -> None:
    """Add the values of the variables that a pattern defines, from the struct info that it is matched with."""
    pairs: Any = ()
    match pattern, info:
        case relax.TensorStructInfo(), relax.TensorStructInfo():
            pairs = zip(pattern.dims or (), info.dims or (), strict=False)
        case relax.ShapeStructInfo(), relax.ShapeStructInfo():
            pairs = zip(pattern.values or (), info.values or (), strict=False)
        case relax.TupleStructInfo(fields=fields), relax.TupleStructInfo(fields=others):
            for a, b in zip(fields, others, strict=False):
                _match(a, b, defined, known)
    for want, have in pairs:
        if isinstance(want, tir.Var) and want not in defined and want not in known:
            known[want] = have


# ---------------------------------------------------------------- bindings


@dataclass
class _Renaming:
    """The rewrites of variables: replacements at uses, replacements of bound variables, and bindings to drop."""

    use: dict[relax.Var, relax.Expr] = field(default_factory=dict)
    bind: dict[relax.Var, relax.Var] = field(default_factory=dict)
    drop: set[relax.Var] = field(default_factory=set)


@dataclass
class _Facts:
    """Bindings and uses of a function's variables, collected in one walk."""

    value: dict[relax.Var, relax.Expr] = field(default_factory=dict)
    renames: dict[relax.Var, relax.Var] = field(default_factory=dict)
    constants: dict[relax.Var, relax.Constant] = field(default_factory=dict)
    home: dict[relax.Var, relax.BindingBlock] = field(default_factory=dict)
    used_elsewhere: set[relax.Var] = field(default_factory=set)


def _collect_facts(func: relax.Function) -> _Facts:
    facts = _Facts()
    for binding, block in all_bindings(func.body):
        _record_binding(facts, binding, block)
    _record_uses(facts, func.body, None)
    return facts


def _record_binding(facts: _Facts, binding: Any, block: relax.BindingBlock) -> None:
    value = binding.value
    if isinstance(value, relax.TupleGetItem):
        source = _look_through(facts, value.tuple_value)
        if isinstance(source, relax.Tuple):
            value = source.fields[value.index]
    if isinstance(value, relax.Tuple):
        parameter = _rebuilt_parameter(facts, value)
        if parameter is not None and equal_struct_info(parameter.struct_info, binding.var.struct_info):
            value = parameter
    keeps_info = not isinstance(binding, relax.MatchCast) or equal_struct_info(
        binding.var.struct_info, value.struct_info
    )
    if isinstance(value, relax.Var) and keeps_info:
        facts.renames[binding.var] = value
    if isinstance(value, relax.Constant) and keeps_info:
        facts.constants[binding.var] = value
    facts.value[binding.var] = value
    facts.home[binding.var] = block


def _look_through(facts: _Facts, expr: relax.Expr) -> relax.Expr:
    """Return the value of a variable, looking through all renamings."""
    while isinstance(expr, relax.Var) and expr in facts.value:
        expr = facts.value[expr]
    return expr


def _rebuilt_parameter(facts: _Facts, tuple_expr: relax.Tuple) -> relax.Var | None:
    """Return the parameter that a tuple rebuilds from all its fields, in order; else None."""
    sources = set()
    for index, field_ in enumerate(tuple_expr.fields):
        item = _look_through(facts, field_)
        if not isinstance(item, relax.TupleGetItem) or item.index != index:
            return None
        sources.add(_look_through(facts, item.tuple_value))
    source = sources.pop() if len(sources) == 1 else None
    info = source.struct_info if isinstance(source, relax.Var) else None
    is_complete = isinstance(info, relax.TupleStructInfo) and len(info.fields) == len(tuple_expr.fields)
    return source if is_complete else None  # type: ignore[return-value]


def _record_uses(facts: _Facts, root: Any, block: relax.BindingBlock | None) -> None:
    """Note variables used outside the dataflow block that defines them; every other use is inside it."""
    if isinstance(root, relax.SeqExpr):
        for inner in root.blocks:
            for binding in inner.bindings:
                _record_uses(facts, binding.value, inner)  # type: ignore[attr-defined]
        _record_uses(facts, root.body, None)
    elif isinstance(root, relax.Function):
        local_vars = {*root.params, *(b.var for b, _ in all_bindings(root.body))}
        facts.used_elsewhere.update(v for v in used_vars(root.body) if v not in local_vars)
        _record_uses(facts, root.body, None)
    elif isinstance(root, relax.If):
        _record_uses(facts, root.condition, block)
        _record_uses(facts, root.true_branch, None)
        _record_uses(facts, root.false_branch, None)
    else:
        for var in used_vars(root):
            if not isinstance(block, relax.DataflowBlock) or facts.home.get(var, block) is not block:
                facts.used_elsewhere.add(var)


def _plan_renaming(func: relax.Function) -> _Renaming:
    facts = _collect_facts(func)
    renaming = _Renaming()
    for var, block in facts.home.items():
        outside = isinstance(var, relax.DataflowVar) or var in facts.used_elsewhere
        if isinstance(block, relax.DataflowBlock) and not outside:
            local = relax.DataflowVar(var.name, var.struct_info, span=var.span)
            renaming.bind[var] = local
            renaming.use[var] = local
    renaming.use.update(facts.constants)
    for var in facts.renames:
        target: relax.Var = facts.renames[var]
        while target in facts.renames:
            target = facts.renames[target]
        while target in renaming.bind:
            target = renaming.bind[target]
        exposed = var in facts.used_elsewhere and not isinstance(var, relax.DataflowVar)
        if isinstance(target, relax.DataflowVar) and exposed:
            renaming.bind[target] = var
            renaming.use[target] = var
        else:
            renaming.use[var] = target
        renaming.drop.add(var)
    return renaming


class _Renamer(RelaxMutator):
    def __init__(self, module: IRModule, renaming: _Renaming) -> None:
        super().__init__(module)
        self.renaming = renaming

    def visit(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Var):
            renamed_expr: relax.Expr = expr
            while isinstance(renamed_expr, relax.Var) and renamed_expr in self.renaming.use:
                renamed_expr = self.renaming.use[renamed_expr]
            return super().visit(renamed_expr)
        return super().visit(expr)

    def visit_binding(self, binding: relax.Binding) -> None:
        if binding.var in self.renaming.drop:
            return
        var = binding.var
        while var in self.renaming.bind:
            var = self.renaming.bind[var]
        super().visit_binding(replace(binding, var=var))

    def visit_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        new_block = super().visit_block(block)
        return _bind_outputs_directly(new_block) if isinstance(new_block, relax.DataflowBlock) else new_block


def _bind_outputs_directly(block: relax.DataflowBlock) -> relax.DataflowBlock:
    """Replace `lv = f(x); gv = lv`, with no other use of `lv`, by `gv = f(x)` in the place of the output."""
    sources: dict[relax.Var, Any] = {}
    outputs: dict[relax.Var, Any] = {}
    otherwise_used: set[relax.Var] = set()
    for binding in reversed(block.bindings):
        var, value = binding.var, binding.value  # type: ignore[attr-defined]
        if isinstance(var, relax.DataflowVar):
            otherwise_used.update(used_vars(value))
            casts = isinstance(binding, relax.MatchCast) + isinstance(outputs.get(var), relax.MatchCast)
            if var in outputs and var not in otherwise_used and casts < 2:
                sources[var] = binding
        elif isinstance(value, relax.DataflowVar):
            if value in outputs:
                otherwise_used.add(value)
            outputs[value] = binding
        else:
            otherwise_used.update(used_vars(value))
    bindings: list[relax.Binding] = []
    for binding in block.bindings:
        source = sources.get(binding.value)  # type: ignore[attr-defined]
        if binding.var in sources:
            continue
        if source is None or isinstance(binding.var, relax.DataflowVar):
            bindings.append(binding)
        elif isinstance(binding, relax.MatchCast):
            bindings.append(replace(binding, value=source.value))
        else:
            bindings.append(replace(source, var=binding.var))
    return block if len(bindings) == len(block.bindings) else replace(block, bindings=tuple(bindings))

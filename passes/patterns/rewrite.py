"""The pass `rewrite`: rewriting by example, with rules written as functions before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mlcc import ops
from mlcc.errors import CompileError, error
from mlcc.ir import relax, tir
from mlcc.ir.module import Func, IRModule
from mlcc.ir.node import Attrs, replace
from mlcc.ir.visit import Rewriter
from mlcc.ops.relations import SubtypeCheck, check_subtype
from mlcc.passes.graph.dead_code import keep_reachable, remove_unused
from mlcc.passes.graph.normalize import normalized
from mlcc.passes.graph.relax_mutator import RelaxMutator
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.passes.patterns.pattern_match import Index, Match, Matcher, Symbols
from mlcc.passes.patterns.rules import Rule, load_rules, transitive_callees
from mlcc.relax.construct import function_info, make_tuple
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import all_bindings, is_primitive, used_vars

MAX_GROWTH = 50  # growth factor of a function's bindings, and
EXTRA_BINDINGS = 10_000  # additional bindings that it may reach


@dataclass(frozen=True)
class Rewrite(Pass):
    """Replace computations that match functions NAME_before of a rule file by its functions NAME_after.

    Both have the same parameters. A parameter matches any operand of its struct info, whose symbolic dimensions match
    any size. Operands of commutative operators match in either order; attributes must be equal. Rules apply in the
    order of the file, repeatedly until none does; more than `limit` rounds are an error. Results with other uses stay.
    See docs/passes.md for the syntax of rules.

    Before:  lv = R.multiply(x, y)
             gv = R.add(lv, z)
    After:   gv = R.ewise_fma(x, y, z)                         # rewrite{rules=fma.mlc}
    """

    name: ClassVar[str] = "rewrite"
    rules: str = field(metadata={"file": True})
    limit: int = 100

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        return rewritten(module, load_rules(self.rules, ctx), self.limit)


def rewritten(module: IRModule, rules: list[Rule], limit: int = 100) -> IRModule:
    """Return the module with the rules applied to a fixed point. Raises CompileError E0543 beyond the limit."""
    builder = ModuleBuilder(module)
    imports = [_ImportedRule(rule, builder) for rule in rules]
    for name, func in module.functions.items():
        if isinstance(func, relax.Function) and not is_primitive(func) and "Codegen" not in func.attrs:
            builder.module.functions[name] = _apply_to_fixed_point(name, func, imports, builder, limit)
    return keep_reachable(builder.module, set(module))  # imported functions may be unused


def _apply_to_fixed_point(
    name: str, func: relax.Function, imports: list[_ImportedRule], builder: ModuleBuilder, limit: int
) -> relax.Function:
    max_bindings = EXTRA_BINDINGS + MAX_GROWTH * len(list(all_bindings(func.body)))
    current = normalized(func, builder.module)
    rounds = 0
    applied: dict[str, None] = {}
    while True:
        before = current
        for rule in imports:
            changed = _apply(current, rule, builder)
            if changed is not current:
                applied[rule.rule.name] = None
                current = changed
        if current is before:
            return current if applied else func
        rounds += 1
        if rounds >= limit or len(list(all_bindings(current.body))) > max_bindings:
            limit_text = f"after {rounds} rounds" if rounds >= limit else f"past {max_bindings} bindings"
            names = ", ".join(f"`{n}`" for n in applied)
            message = f"the rules still apply to `{name}` {limit_text}: {names}"
            help = "the result of a rule must not match the rule again; or raise `limit`"
            raise CompileError(error("E0543", message, func.span, help=help))


def _apply(func: relax.Function, rule: _ImportedRule, builder: ModuleBuilder) -> relax.Function:
    """Apply one rule at all non-overlapping matches. Return the same object if there are none."""
    index = Index.of(func)
    matcher = Matcher(rule.rule.pattern, builder.module, index)
    replacements: dict[relax.Var, _Replacement] = {}
    replaced: set[relax.Var] = set()
    matched_inner: set[relax.Var] = set()
    for var in list(index.value):
        if var in replaced or var in matched_inner:
            continue
        for match in matcher.at(var):
            if replaced & {*match.roots, *match.inner} or matched_inner & set(match.roots):
                continue
            replacement = _replacement(match, rule, index)
            if replacement is not None:
                replacements[replacement.place] = replacement
                replaced |= set(match.roots)
                matched_inner |= set(match.inner)
                break
    if not replacements:
        return func
    rule.import_helpers()
    replaced_func = _Replacer(builder.module, replacements, replaced).visit_function(func)
    return remove_unused(replaced_func, builder.module)


# ---------------------------------------------------------------- replacements


@dataclass(frozen=True, eq=False)
class _Replacement:
    """A replacement: `bindings` are inserted at the binding of `place`, where each root is then bound to its result."""

    place: relax.Var
    bindings: list[relax.VarBinding]
    results: dict[relax.Var, relax.Expr]


def _replacement(match: Match, rule: _ImportedRule, index: Index) -> _Replacement | None:
    """Return the replacement of a match.

    Return None if there is no position for it, or if the struct info of its results would lose precision.
    """
    insertion_point = _insertion_point(match, index)
    if insertion_point is None:
        return None
    instance = rule.instance(match, isinstance(index.block[insertion_point], relax.DataflowBlock))
    for root, result in instance.results.items():
        known, new = root.struct_info, result.struct_info
        if known is not None and (new is None or check_subtype(known, new) is not SubtypeCheck.COVERS):
            return None
    return _Replacement(insertion_point, instance.bindings, instance.results)


def _insertion_point(match: Match, index: Index) -> relax.Var | None:
    """Return the root where all operands are defined and no other root has been used yet, or None."""
    blocks = {index.block[r] for r in match.roots}
    if len(blocks) != 1:
        return None
    (block,) = blocks
    operands = {v for a in match.args for v in used_vars(a)}
    if operands & index.overwritten:
        return None  # it would be read after it was overwritten
    if any(isinstance(v, relax.DataflowVar) and index.block.get(v) is not block for v in operands):
        return None  # visible only in another block
    ordered_roots = sorted(match.roots, key=lambda r: index.place[r])
    operand_positions = [index.place[v] for v in operands if index.block.get(v) is block]
    user_positions = [
        index.place[u] for r in match.roots for u in index.users.get(r, ()) if index.block.get(u) is block
    ]
    if len(ordered_roots) > 1 and any(v in match.roots for v in operands):
        return None
    for root in ordered_roots:
        at = index.place[root]
        if all(p < at for p in operand_positions) and all(p > at for p in user_positions):
            return root
    return None


@dataclass(frozen=True)
class _Instance:
    bindings: list[relax.VarBinding]
    results: dict[relax.Var, relax.Expr]


class _ImportedRule:
    """A rule whose helper functions are imported into the module that it is applied to."""

    def __init__(self, rule: Rule, builder: ModuleBuilder) -> None:
        self.rule = rule
        self.builder = builder
        self.order = transitive_callees(rule.after, rule.pattern.module)
        self.names: dict[str, relax.GlobalVar] = {}

    def import_helpers(self) -> None:
        """Import the functions that the rule calls, under unique names."""
        import_functions(self.order, self.rule.pattern.module, self.builder, self.names)

    def instance(self, match: Match, in_dataflow: bool) -> _Instance:
        """Return the rule's bindings and results for a match."""
        after = self.rule.after
        self.import_helpers()
        symbols = Symbols()
        bindings: list[relax.VarBinding] = []
        kind = relax.DataflowVar if in_dataflow else relax.Var
        values: dict[Any, Any] = {}
        for param, arg in zip(after.params, match.args, strict=True):
            symbols.unify(param.struct_info, arg.struct_info)
            if isinstance(arg, (relax.Call, relax.TupleGetItem)):  # compute it only once
                bindings.append(relax.VarBinding(kind(param.name, arg.struct_info), arg))
                arg = bindings[-1].var
            values[param] = arg
        values |= symbols.values
        for name, var in self.names.items():
            values[name] = var
        instantiator = _Instantiator(values, self.names, match.attrs)
        computed: dict[relax.Var, relax.Expr] = {}
        for block in after.body.blocks:
            for binding in block.bindings:
                value = instantiator.visit(binding.value)  # type: ignore[attr-defined]
                if not isinstance(value, relax.Var):
                    bindings.append(relax.VarBinding(kind(binding.var.name, value.struct_info), value))
                    computed[bindings[-1].var] = value
                    value = bindings[-1].var
                instantiator.set(binding.var, value)
        result = instantiator.visit(after.body.body)
        if len(match.roots) == 1 and not isinstance(self._result_of_before(), relax.Tuple):
            results: tuple[relax.Expr, ...] = (result,)
        else:
            result = computed.get(result, result) if isinstance(result, relax.Var) else result
            results = result.fields if isinstance(result, relax.Tuple) else ()
            results = results or tuple(_field(result, i) for i in range(len(match.roots)))
        return _Instance(*_bound_at_roots(bindings, dict(zip(match.roots, results, strict=True))))

    def _result_of_before(self) -> relax.Expr:
        pattern = self.rule.pattern
        result: relax.Expr = pattern.func.body.body
        while isinstance(result, relax.Var) and result in pattern.values:
            result = pattern.values[result]
        return result


def _field(value: relax.Expr, index: int) -> relax.Expr:
    from mlcc.relax.construct import get_item

    return get_item(value, index)


def _bound_at_roots(
    bindings: list[relax.VarBinding], results: dict[relax.Var, relax.Expr]
) -> tuple[list[relax.VarBinding], dict[relax.Var, relax.Expr]]:
    """Bind the last binding directly to the root if only that needs it, so that no renaming is left."""
    if bindings and len(results) == 1:
        ((root, result),) = results.items()
        if result is bindings[-1].var:
            return bindings[:-1], {root: bindings[-1].value}
    return bindings, results


class _Instantiator(Rewriter):
    """Copy expressions of a rule over other operands, and re-infer struct info."""

    def __init__(
        self, values: Mapping[Any, Any], names: Mapping[str, relax.GlobalVar], attrs: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.names = names
        self.attrs = attrs
        for old, new in values.items():
            if not isinstance(old, str):
                self.set(old, new)

    def set(self, old: Any, new: Any) -> None:
        """Map a variable of the rule to its replacement."""
        self._memo[id(old)] = (old, new)

    def rewrite(self, node: Any) -> Any:
        match node:
            case relax.GlobalVar():
                return self.names.get(node.name, node)
            case relax.Tuple():
                return make_tuple(node.fields)
            case relax.TupleGetItem():
                return _field(node.tuple_value, node.index)
            case relax.Call():
                return self.call(node)
        return node

    def call(self, call: relax.Call) -> relax.Call:
        if isinstance(call.op, tir.Op):
            attrs = {k: self.attrs.get(f"{call.op.name}.{k}", v) for k, v in call.attrs.items()}
            call = replace(call, attrs=Attrs(attrs) if self.attrs else call.attrs, struct_info=None)
        else:
            call = replace(call, struct_info=None)
        info = ops.infer_struct_info(call, {v.name: v for v in self.names.values()})
        return replace(call, struct_info=info)


class _Replacer(RelaxMutator):
    """Replace matches by their replacements."""

    def __init__(self, module: IRModule, plan: dict[relax.Var, _Replacement], replaced: set[relax.Var]) -> None:
        super().__init__(module)
        self.plan = plan
        self.replaced = replaced
        self.roots: dict[relax.Var, Any] = {}

    def visit_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        self.roots |= {b.var: b for b in block.bindings if b.var in self.replaced}
        return super().visit_block(block)

    def visit_binding(self, binding: relax.Binding) -> None:
        if binding.var not in self.replaced:
            return super().visit_binding(binding)
        replacement = self.plan.get(binding.var)
        for inserted in replacement.bindings if replacement is not None else ():
            self.rebind(inserted, self.visit(inserted.value))
        for root, result in replacement.results.items() if replacement is not None else ():
            self.rebind(self.roots[root], self.visit(result))
        return None


# ---------------------------------------------------------------- imported functions


def import_functions(
    order: list[str], source: IRModule, builder: ModuleBuilder, names: dict[str, relax.GlobalVar],
    rename: Callable[[str], str] | None = None,
) -> None:  # fmt: skip
    """Import functions of another module as private ones; `names` maps each to its name here.

    A function equal to one of the module is shared; one that differs is renamed if its name is taken.
    """
    for name in order:
        if name not in names:
            func: Func = substitute_functions(source[name].without_attr("global_symbol"), names)
            local_name = builder.add(func, name, rename)
            names[name] = relax.GlobalVar(local_name, function_info(builder.module[local_name]))


def substitute_functions(func: Func, names: Mapping[str, relax.GlobalVar]) -> Any:
    """Return a function with its callees renamed to the names that they have here."""
    return _Names(names).visit(func) if names else func


class _Names(Rewriter):
    def __init__(self, names: Mapping[str, relax.GlobalVar]) -> None:
        super().__init__()
        self.names = names

    def rewrite(self, node: Any) -> Any:
        return self.names.get(node.name, node) if isinstance(node, relax.GlobalVar) else node

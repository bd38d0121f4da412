"""The pass `fuse-by-pattern`: outline matches of patterns into composite functions, for external libraries."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, replace
from mlcc.ir.visit import substitute
from mlcc.passes.fusion.grouping import Grouper, Style
from mlcc.passes.graph.dead_code import require_functions
from mlcc.passes.graph.relax_mutator import RelaxMutator
from mlcc.passes.graph.symbolic import renew_symbols
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.passes.patterns.pattern_match import Index, Match, Matcher
from mlcc.passes.patterns.rules import COMPOSITE, Pattern, load_patterns
from mlcc.relax.construct import PRIMITIVE, call_function, function_info, make_function, make_seq
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import is_primitive

CODEGEN = "Codegen"


@dataclass(frozen=True)
class FuseByPattern(Pass):
    """Outline the matches of a rule file's patterns into functions with the attributes Composite and Primitive.

    Patterns are the functions NAME_before or NAME_pattern of the file, and those with the attribute Composite, which
    names the composite functions; the name is NAME otherwise. Earlier patterns take precedence. Operands of `add` and
    `multiply` match in either order, unless the pattern has the attribute `commutative`. Results with other uses are
    results of the function, too. With `annotate-codegen`, each function is wrapped in a public one with the attribute
    Codegen: the part of the composite's name before the dot. Without `bind-constants`, constants are arguments.
    `entry-functions` restricts the pass to some functions.

    Before:  lv = R.matmul(x, w)
             gv = R.nn.relu(lv)
    After:   gv = cls.fused_relax_matmul_relax_nn_relu(x, w)      # fuse-by-pattern{rules=dnnl.mlc}
    """

    name: ClassVar[str] = "fuse-by-pattern"
    rules: str = field(metadata={"file": True})
    annotate_codegen: bool = False
    bind_constants: bool = True
    entry_functions: tuple[str, ...] = ()

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        require_functions(module, self.entry_functions, self.name)
        patterns = load_patterns(self.rules, ctx)
        return fused(module, patterns, self.annotate_codegen, self.bind_constants, self.entry_functions)


def fused(
    module: IRModule, patterns: list[Pattern], annotate_codegen: bool = False, bind_constants: bool = True,
    entries: Collection[str] = (),
) -> IRModule:  # fmt: skip
    """Return the module with all matches in `entries`, or in all functions, outlined into functions."""
    builder = ModuleBuilder(module)
    for name in entries or sorted(module):
        func = module[name]
        if not isinstance(func, relax.Function) or is_primitive(func) or CODEGEN in func.attrs:
            continue
        chosen = _choose_matches(func, patterns, module)
        if chosen:
            grouper = _Grouper(builder, chosen, bind_constants)
            builder.module.functions[name] = grouper.visit_function(func)
    return _wrap_for_codegen(builder.module, set(module)) if annotate_codegen else builder.module


def _choose_matches(func: relax.Function, patterns: list[Pattern], module: IRModule) -> Mapping[relax.Var, Match]:
    """Return the matches to fuse, by the variables of their bindings: by order of patterns, then of positions."""
    index = Index.of(func)
    chosen = _ChosenMatches(index)
    for pattern in patterns:
        matcher = Matcher(pattern, module, index)
        for var in index.value:
            if var in chosen.match or not isinstance(index.block[var], relax.DataflowBlock):
                continue
            for match in matcher.at(var):
                if chosen.is_free(match) and chosen.is_convex(match):
                    chosen.add(match)
                    break
    return chosen.match


@dataclass
class _ChosenMatches:
    """The matches to fuse, by the variables of their bindings.

    `covered` maps each position of a block to the last position of the matches that span it.
    """

    index: Index
    match: dict[relax.Var, Match] = field(default_factory=dict)
    covered: dict[relax.BindingBlock, dict[int, int]] = field(default_factory=dict)

    def add(self, match: Match) -> None:
        members = (*match.roots, *match.inner)
        self.match |= dict.fromkeys(members, match)
        positions = [self.index.place[m] for m in members]
        covered = self.covered.setdefault(self.index.block[match.roots[0]], {})
        for position in range(min(positions), max(positions) + 1):
            covered[position] = max(covered.get(position, 0), max(positions))

    def is_free(self, match: Match) -> bool:
        """Return True if the match lies in one block and overlaps no other match."""
        index, block = self.index, self.index.block[match.roots[0]]
        return all(
            m not in self.match and index.block.get(m) is block and m in index.value
            for m in (*match.roots, *match.inner)
        )

    def is_convex(self, match: Match) -> bool:
        """Return True if no path leaves the match and re-enters it through other operations.

        The match can then run in one piece.
        """
        index, block = self.index, self.index.block[match.roots[0]]
        members = {*match.roots, *match.inner}
        covered = self.covered.get(block, {})
        last = max(index.place[m] for m in members)
        while covered.get(last, last) > last:  # no path from later positions leads back
            last = covered[last]
        worklist = [u for m in members for u in index.users.get(m, ()) if u not in members]
        seen: set[relax.Var] = set()
        while worklist:
            var = worklist.pop()
            if var in members:
                return False
            if var in seen or index.block.get(var) is not block or index.place[var] > last:
                continue
            other = self.match.get(var)
            members_of_other = (*other.roots, *other.inner) if other is not None else (var,)
            seen.update(members_of_other)
            worklist += [u for v in members_of_other for u in index.users.get(v, ())]
        return True


class _Grouper(Grouper):
    def __init__(self, builder: ModuleBuilder, chosen: Mapping[relax.Var, Match], bind_constants: bool) -> None:
        super().__init__(builder)
        self.chosen = chosen
        self.bind_constants = bind_constants

    def groups(self, block: relax.DataflowBlock) -> list[Match | relax.Var]:
        return [self.chosen.get(b.var, b.var) for b in block.bindings]

    def style(self, group: Match | relax.Var) -> Style | None:
        if not isinstance(group, Match):
            return None
        attrs = Attrs({COMPOSITE: group.pattern.composite, PRIMITIVE: True})
        return Style(attrs, self.bind_constants, full_names=True)


# ---------------------------------------------------------------- functions for a code generator


def _wrap_for_codegen(module: IRModule, original_names: set[str]) -> IRModule:
    """Wrap each new composite function in a public one that names its code generator."""
    wrapped: dict[str, str] = {}
    annotated = module.copy()
    for name, func in module.functions.items():
        if name in original_names or not isinstance(func, relax.Function) or COMPOSITE not in func.attrs:
            continue
        codegen = str(func.attrs[COMPOSITE]).partition(".")[0]
        public = annotated.unique_name(f"{name}_{codegen}".replace(".", "_"))
        wrapped[name] = public
        del annotated.functions[name]
        annotated.functions[public] = _wrapper(func, codegen, public)
    renamed = _Caller(annotated, wrapped)
    for name in original_names:
        func = annotated[name]
        if isinstance(func, relax.Function):
            annotated.functions[name] = renamed.visit_function(func)
    return annotated


def _wrapper(func: relax.Function, codegen: str, name: str) -> relax.Function:
    """`local_func = func; output = local_func(params); return output`."""
    inner = replace(func, attrs=func.attrs.without(PRIMITIVE))
    params = tuple(relax.Var(p.name, p.struct_info) for p in func.params)
    outer: relax.Function = renew_symbols(make_function(params, make_seq([], params[0]), Attrs()))
    inner = substitute(inner, {p: relax.Var(p.name, p.struct_info) for p in func.params})
    local = relax.Var("local_func", function_info(inner))
    call = relax.Call(local, outer.params, struct_info=_result(inner, outer))
    output = relax.Var("output", call.struct_info)
    bindings = (relax.VarBinding(local, inner), relax.VarBinding(output, call))
    body = make_seq([relax.BindingBlock(bindings)], output)
    return make_function(outer.params, body, Attrs({CODEGEN: codegen, "global_symbol": name}))


def _result(inner: relax.Function, outer: relax.Function) -> relax.StructInfo | None:
    """The struct info of the inner function's result, over the symbolic variables of the outer one."""
    from mlcc.passes.patterns.pattern_match import Symbols

    symbols = Symbols()
    for mine, theirs in zip(inner.params, outer.params, strict=True):
        symbols.unify(mine.struct_info, theirs.struct_info)
    return substitute(inner.ret_struct_info, symbols.values)


class _Caller(RelaxMutator):
    def __init__(self, module: IRModule, names: Mapping[str, str]) -> None:
        super().__init__(module)
        self.names = names

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Call) and isinstance(expr.op, relax.GlobalVar) and expr.op.name in self.names:
            name = self.names[expr.op.name]
            return replace(call_function(name, self.module[name], expr.args), span=expr.span)
        return expr

"""Rewrite rules as text: reading and checking the functions before and after."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from mlcc import ops
from mlcc.errors import CompileError, Diagnostic, did_you_mean, error
from mlcc.ir import relax
from mlcc.ir.module import Func, IRModule
from mlcc.passes.graph.normalize import normalized
from mlcc.passes.manage.manager import PassContext
from mlcc.relax.queries import is_impure, used_vars

BEFORE, AFTER = ("before", "pattern"), ("after", "replacement")
COMMUTATIVE, ANY_ATTRS, COMPOSITE = "commutative", "any_attrs", "Composite"
_ATTRIBUTES = (COMMUTATIVE, ANY_ATTRS, COMPOSITE, "global_symbol")
# operators whose operands TVM's patterns match in either order
IN_COMPOSITES = frozenset({"relax.add", "relax.multiply"})
MAX_OPERATIONS = 256  # in a pattern


@dataclass(frozen=True)
class Pattern:
    """A function to match; its parameters match any value of their struct info.

    `roots` are its results, several if it returns a tuple that it constructs. `commutative` are the operators whose
    operands match in either order, `any_attrs` the attributes ("relax.sum.axis") that need not match.
    """

    name: str
    func: relax.Function
    module: IRModule
    roots: tuple[relax.Expr, ...]
    values: dict[relax.Var, relax.Expr]
    commutative: frozenset[str]
    any_attrs: frozenset[str]

    @property
    def composite(self) -> str:
        """The name of the composite functions."""
        return str(self.func.attrs.get(COMPOSITE, self.name))


@dataclass(frozen=True)
class Rule:
    """A rewrite rule: matches of `pattern` are replaced by the body of `after`.

    Functions that `after` calls are in `pattern.module`.
    """

    pattern: Pattern
    after: relax.Function

    @property
    def name(self) -> str:
        return self.pattern.name


def load_rules(path: str, ctx: PassContext) -> list[Rule]:
    """Return the rules of a file, in order. Raise CompileError listing everything that is wrong with it."""
    module, named = _read(path, ctx)
    errors: list[Diagnostic] = []
    rules: list[Rule] = []
    for name, (before, after) in named.items():
        if before is None or after is None:
            existing, missing = (before, AFTER[0]) if before is not None else (after, BEFORE[0])
            prefix = f"{name}_" if name else ""
            message = f"rule `{name or 'rule'}` has no function `{prefix}{missing}`"
            errors.append(error("E0540", message, existing.span if existing else None, help="a rule needs both"))
            continue
        problems = [*_pattern_errors(before, module), *_replacement_errors(after), *_signature_errors(before, after)]
        errors += problems
        if not problems:
            rules.append(Rule(_pattern(name or "rule", before, module, ops.commutative_names()), after))
    _raise_errors(errors)
    return rules


def load_patterns(path: str, ctx: PassContext) -> list[Pattern]:
    """Return the patterns of a file, in order: functions before, and those with the attribute Composite."""
    module, named = _read(path, ctx)
    errors: list[Diagnostic] = []
    patterns: list[Pattern] = []
    for name, (before, _) in named.items():
        if before is None:
            continue
        problems = _pattern_errors(before, module)
        errors += problems
        if not problems:
            patterns.append(_pattern(name or "pattern", before, module, IN_COMPOSITES))
    _raise_errors(errors)
    return patterns


def _raise_errors(errors: list[Diagnostic]) -> None:
    if errors:
        raise CompileError(errors)


def _read(
    path: str, ctx: PassContext
) -> tuple[IRModule, dict[str, tuple[relax.Function | None, relax.Function | None]]]:
    """Return the module of a rule file with every function normalized, and its rules by name."""
    from mlcc.files import read_bytes
    from mlcc.grammar.parser import parse
    from mlcc.grammar.syntax.reader import decode
    from mlcc.verify import check

    full = ctx.path(path)
    module = parse(decode(read_bytes(full), full), name=full, folder=os.path.dirname(full) or ".")
    check(module)
    rules_module = module.copy()
    named: dict[str, tuple[relax.Function | None, relax.Function | None]] = {}
    for key, func in module.functions.items():
        if not isinstance(func, relax.Function):
            continue
        rules_module.functions[key] = normalized(func, module)
        name, role = _role(key, func)
        if role is not None:
            before, after = named.get(name, (None, None))
            named[name] = (rules_module[key], after) if role in BEFORE else (before, rules_module[key])  # type: ignore[assignment]
    if not any(before is not None for before, _ in named.values()):
        help = "name the two functions of a rule NAME_before and NAME_after"
        raise CompileError(error("E0540", f"{full} has no rule", help=help))
    return rules_module, named


def _role(key: str, func: relax.Function) -> tuple[str, str | None]:
    """Return the rule that a function belongs to, and whether it is its before or after; None if neither."""
    for role in (*BEFORE, *AFTER):
        if key == role:
            return "", role
        if key.endswith(f"_{role}"):
            return key[: -len(role) - 1], role
    return (key, BEFORE[0]) if COMPOSITE in func.attrs else (key, None)


# ---------------------------------------------------------------- patterns


def _pattern(name: str, func: relax.Function, module: IRModule, commutative: frozenset[str]) -> Pattern:
    """Return a function as a pattern; `commutative` are those operators unless the function declares them."""
    values = {b.var: b.value for block in func.body.blocks for b in block.bindings}  # type: ignore[attr-defined]
    result = _resolved(func.body.body, values)
    roots = result.fields if isinstance(result, relax.Tuple) else (func.body.body,)
    declared = func.attrs.get(COMMUTATIVE)
    if isinstance(declared, bool):
        commutative = ops.commutative_names() if declared else frozenset()
    elif declared is not None:
        commutative = frozenset(map(_full, _as_words(declared)))
    any_attrs = frozenset(
        f"{_full(n.rpartition('.')[0])}.{n.rpartition('.')[2]}" for n in _as_words(func.attrs.get(ANY_ATTRS, ()))
    )
    return Pattern(name, func, module, roots, values, commutative, any_attrs)


def _full(name: str) -> str:
    return f"relax.{ops.short_name(name)}"


def _resolved(expr: relax.Expr, values: dict[relax.Var, relax.Expr]) -> relax.Expr:
    while isinstance(expr, relax.Var) and expr in values:
        expr = values[expr]
    return expr


def _pattern_errors(func: relax.Function, module: IRModule) -> list[Diagnostic]:
    """Return the reasons for which a function cannot be a pattern."""
    errors = [*_attribute_errors(func), *_plainness_errors(func, "a pattern")]
    if errors:
        return errors
    values = {b.var: b.value for block in func.body.blocks for b in block.bindings}  # type: ignore[attr-defined]
    result = _resolved(func.body.body, values)
    roots = result.fields if isinstance(result, relax.Tuple) else (result,)
    if not roots or not all(isinstance(_resolved(r, values), relax.Call) for r in roots):
        errors.append(error("E0542", "the result of a pattern is not computed by an operation", func.span))
    if len({_resolved(r, values) for r in roots}) < len(roots):
        errors.append(error("E0542", "a pattern returns the same value twice", func.span))
    used: set[relax.Var] = set()
    worklist = list(used_vars(func.body.body))
    while worklist:
        var = worklist.pop()
        if var not in used:
            used.add(var)
            worklist += used_vars(values[var]) if var in values else ()
    for var in (*func.params, *values):
        if var not in used:
            kind = "parameter" if var in func.params else "value"
            message = f"the {kind} `{var.name}` of a pattern does not contribute to its result"
            errors.append(error("E0542", message, var.span or func.span, help="remove it from the pattern"))
    if len(values) > MAX_OPERATIONS:
        errors.append(error("E0542", f"a pattern has more than {MAX_OPERATIONS} operations", func.span))
    for value in values.values():
        if is_impure(value, module):
            errors.append(error("E0542", "a pattern has a call with effects", value.span or func.span))
    return errors


def _replacement_errors(after: relax.Function) -> list[Diagnostic]:
    return [*_attribute_errors(after), *_plainness_errors(after, "a replacement")]


def _plainness_errors(func: relax.Function, role: str) -> list[Diagnostic]:
    """Return errors for bindings that rules do not support: branches, functions, casts."""
    errors: list[Diagnostic] = []
    if not func.is_pure:
        errors.append(error("E0542", f"{role} must be pure", func.span))
    for block in func.body.blocks:
        for binding in block.bindings:
            value: Any = getattr(binding, "value", None)
            if isinstance(binding, relax.MatchCast):
                message = f"{role} cannot contain `R.match_cast`"
                errors.append(error("E0542", message, binding.span, help="annotate the parameters instead"))
            elif isinstance(value, (relax.If, relax.Function, relax.SeqExpr)):
                kind = "branches" if isinstance(value, relax.If) else "functions inside"
                errors.append(error("E0542", f"{role} cannot have {kind}", binding.span or func.span))
    return errors


def _attribute_errors(func: relax.Function) -> Iterator[Diagnostic]:
    for key, value in func.attrs.items():
        if key not in _ATTRIBUTES:
            help = did_you_mean(key, _ATTRIBUTES) or f"its attributes may be {', '.join(_ATTRIBUTES[:3])}"
            yield error("E0540", f"a function of a rule has no attribute `{key}`", func.span, help=help)
        elif key == COMMUTATIVE and not isinstance(value, bool):
            yield from _operator_errors(_as_words(value), ops.commutative_names(), "is not commutative", func)
        elif key == ANY_ATTRS:
            for word in _as_words(value):
                name, _, attribute = str(word).rpartition(".")
                known = ops.get(name) if name else None
                if known is None or attribute not in {p.name for p in known.params}:
                    yield error("E0540", f"`{ANY_ATTRS}`: no operator has the attribute `{word}`", func.span)


def _operator_errors(
    words: tuple[str, ...], known: Collection[str], what: str, func: relax.Function
) -> Iterator[Diagnostic]:
    for word in words:
        if _full(word) not in known:
            help = did_you_mean(_full(word), known)
            yield error("E0540", f"`{COMMUTATIVE}`: `{word}` {what}", func.span, help=help)


def _as_words(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(str, value)) if isinstance(value, tuple) else (str(value),)


# ---------------------------------------------------------------- checks of both sides


def _signature_errors(before: relax.Function, after: relax.Function) -> list[Diagnostic]:
    """Return the differences between the signatures of both sides: parameters in order, then the result."""
    from mlcc.ir.visit import substitute
    from mlcc.ops.relations import SubtypeCheck, check_subtype
    from mlcc.passes.patterns.pattern_match import Symbols

    names = [p.name for p in before.params], [p.name for p in after.params]
    if len(names[0]) != len(names[1]) or (names[0] != names[1] and sorted(names[0]) == sorted(names[1])):
        message = f"the parameters are ({', '.join(names[1])}), but before they are ({', '.join(names[0])})"
        return [error("E0541", message, after.span, help="both sides must have the same parameters in the same order")]
    forward, backward = Symbols(), Symbols()
    errors = []
    for a, b in zip(before.params, after.params, strict=True):
        same = forward.unify(a.struct_info, b.struct_info) and backward.unify(b.struct_info, a.struct_info)
        if not same:
            message = f"the parameter `{b.name}` is {b.struct_info}, but before it is {a.struct_info}"
            errors.append(error("E0541", message, b.span or after.span))
    if errors:
        return errors
    info = substitute(before.ret_struct_info, forward.values)
    if (
        info is not None
        and after.ret_struct_info is not None
        and check_subtype(info, after.ret_struct_info) is not SubtypeCheck.COVERS
    ):
        message = f"the result is {after.ret_struct_info}, but before it is {before.ret_struct_info}"
        errors.append(error("E0541", message, after.span, help="both sides must have the same struct info"))
    return errors


def transitive_callees(func: Func, module: IRModule, allowed: str | None = None) -> list[str]:
    """Return the functions that a function calls, directly or not, callees first.

    Raise CompileError E0542 for recursion that does not go through `allowed`.
    """
    from mlcc.relax.queries import callees

    finished: dict[str, None] = {}
    stack: list[tuple[str | None, Iterator[str]]] = [(None, iter(sorted(callees(func))))]
    entered: set[str] = set()
    if allowed is not None:
        finished[allowed] = None
    while stack:
        name, remaining = stack[-1]
        callee = next((n for n in remaining if n in module and n not in finished), None)
        if callee is None:
            stack.pop()
            if name is not None:
                finished[name] = None
        elif callee in entered:
            message = f"`{callee}` is recursive, which an imported function cannot be"
            raise CompileError(error("E0542", message, module[callee].span))
        else:
            entered.add(callee)
            stack.append((callee, iter(sorted(callees(module[callee])))))
    return list(finished)

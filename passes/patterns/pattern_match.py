"""Matching of patterns: find values that are computed in the way that a pattern computes its results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcc.errors import CompileError, error
from mlcc.ir import relax, tir
from mlcc.ir.equal import structural_equal
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs
from mlcc.ir.visit import substitute
from mlcc.passes.fusion.grouping import ordering_dependences, written_in_place
from mlcc.passes.patterns.rules import Pattern
from mlcc.relax.queries import all_bindings, used_vars

MAX_STEPS = 100_000  # per attempted match


class Symbols:
    """The values of the symbolic variables in a pattern's struct infos: arbitrary, but consistent."""

    def __init__(self) -> None:
        from mlcc.arith.analyzer import Analyzer

        self.values: dict[tir.Var, tir.Expr] = {}
        self.analyzer = Analyzer()

    def unify(self, pattern: relax.StructInfo | None, info: relax.StructInfo | None) -> bool:
        """Return True if a value with the struct info `info` satisfies the pattern's struct info."""
        match pattern, info:
            case ((None | relax.ObjectStructInfo()), _):
                return True
            case relax.PrimStructInfo(), relax.PrimStructInfo():
                same = pattern.dtype is info.dtype
                return same and (
                    pattern.value is None or (info.value is not None and self.dim(pattern.value, info.value))
                )
            case relax.ShapeStructInfo(), relax.ShapeStructInfo():
                return pattern.ndim in (-1, info.ndim) and self.dims(pattern.values, info.values)
            case relax.TensorStructInfo(), relax.TensorStructInfo():
                if pattern.dtype is not None and pattern.dtype is not info.dtype:
                    return False
                if pattern.vdevice is not None and pattern.vdevice != info.vdevice:
                    return False
                return pattern.ndim in (-1, info.ndim) and self.dims(pattern.dims, info.dims)
            case relax.TupleStructInfo(), relax.TupleStructInfo():
                pairs = zip(pattern.fields, info.fields, strict=False)
                return len(pattern.fields) == len(info.fields) and all(self.unify(a, b) for a, b in pairs)
            case relax.FuncStructInfo(), relax.FuncStructInfo():
                return True
        return False

    def dims(self, pattern: tuple[tir.Expr, ...] | None, dims: tuple[tir.Expr, ...] | None) -> bool:
        """Unify dimensions, variables first: other dimensions may mention them."""
        if pattern is None:
            return True
        if dims is None or len(pattern) != len(dims):
            return False
        pairs = sorted(zip(pattern, dims, strict=True), key=lambda pair: not isinstance(pair[0], tir.Var))
        return all(self.dim(a, b) for a, b in pairs)

    def dim(self, pattern: tir.Expr, value: tir.Expr) -> bool:
        if isinstance(pattern, tir.Var) and pattern not in self.values:
            self.values[pattern] = value
            return True
        want = substitute(pattern, self.values)
        return want.dtype is value.dtype and self.analyzer.prove_equal(want, value)


@dataclass
class Index:
    """The definitions of a function's variables, with their blocks, positions and users."""

    value: dict[relax.Var, relax.Expr] = field(default_factory=dict)
    block: dict[relax.Var, relax.BindingBlock] = field(default_factory=dict)
    place: dict[relax.Var, int] = field(default_factory=dict)  # position within its block
    users: dict[relax.Var, list[relax.Var]] = field(default_factory=dict)  # variables whose values use it
    overwritten: set[relax.Var] = field(default_factory=set)  # operands that calls write into in place

    @staticmethod
    def of(func: relax.Function) -> Index:
        index = Index()
        counts: dict[relax.BindingBlock, int] = {}
        for binding, block in all_bindings(func.body):
            value = binding.value  # type: ignore[attr-defined]
            index.block[binding.var] = block
            index.place[binding.var] = counts[block] = counts.get(block, -1) + 1
            if isinstance(binding, relax.VarBinding):
                index.value[binding.var] = value
            index.overwritten.update(written_in_place(value))
            for var in dict.fromkeys(used_vars(value)):
                index.users.setdefault(var, []).append(binding.var)
        for each in counts:
            for var, before in ordering_dependences(each).items():
                for other in before:
                    index.users.setdefault(other, []).append(var)
        return index

    def resolve(self, expr: relax.Expr) -> relax.Expr:
        """Return the variable that a chain of renamings starts from; any other expression unchanged."""
        while isinstance(expr, relax.Var) and isinstance(self.value.get(expr), relax.Var):
            expr = self.value[expr]
        return expr

    def definition(self, expr: relax.Expr) -> relax.Expr | None:
        """Return the operation that computes an operand, or None."""
        expr = self.resolve(expr)
        return self.value.get(expr) if isinstance(expr, relax.Var) else expr


@dataclass(frozen=True, eq=False)
class Match:
    """A match of a pattern: `args` are bound to its parameters, `symbols` to its symbolic variables.

    `roots` are the variables of its results, `inner` all other matched variables. `attrs` holds the values of
    attributes that the pattern leaves open.
    """

    pattern: Pattern
    roots: tuple[relax.Var, ...]
    inner: tuple[relax.Var, ...]
    args: tuple[relax.Expr, ...]
    symbols: Mapping[tir.Var, tir.Expr]
    attrs: Mapping[str, Any]


@dataclass(frozen=True)
class _State:
    """A partial match: the bindings of the pattern's variables."""

    bound: Mapping[relax.Var, relax.Expr]
    through: tuple[relax.Var, ...]
    shapes: tuple[tuple[Any, Any], ...]  # pairs of struct infos and expressions that must agree
    attrs: Mapping[str, Any]


_Goals = tuple[Any, Any, "_Goals"] | None  # a pair (pattern, expression), and the remaining goals


class Matcher:
    """Find one pattern in one function."""

    def __init__(self, pattern: Pattern, module: IRModule, index: Index) -> None:
        self.pattern = pattern
        self.module = module
        self.index = index
        self.steps = 0
        self.heads = [self._head(pattern.values[r]) if isinstance(r, relax.Var) else None for r in pattern.roots]

    def _head(self, value: relax.Expr) -> Any:
        return value.op.name if isinstance(value, relax.Call) and isinstance(value.op, tir.Op) else None

    def at(self, var: relax.Var) -> Iterator[Match]:
        """Yield the matches with `var` as the first result; the other results are bound in the same block."""
        value = self.index.value.get(var)
        if value is None or (self.heads[0] is not None and self._head(value) != self.heads[0]):
            return
        self.steps = 0
        yield from self._roots((var,), _State({}, (), (), {}))

    def _roots(self, roots: tuple[relax.Var, ...], state: _State) -> Iterator[Match]:
        goals: _Goals = (self.pattern.roots[len(roots) - 1], roots[-1], None)
        for solution in self._solve(goals, state):
            if len(roots) == len(self.pattern.roots):
                match = self._finished(roots, solution)
                if match is not None:
                    yield match
                continue
            for other in self.index.block[roots[0]].bindings:
                known = self.index.value.get(other.var)
                head = self.heads[len(roots)]
                if known is not None and other.var not in roots and (head is None or self._head(known) == head):
                    yield from self._roots((*roots, other.var), solution)

    def _finished(self, roots: tuple[relax.Var, ...], state: _State) -> Match | None:
        """Return the match if struct infos and shapes agree, else None."""
        pattern = self.pattern
        symbols = Symbols()
        args = tuple(state.bound[p] for p in pattern.func.params)
        if not all(symbols.unify(p.struct_info, a.struct_info) for p, a in zip(pattern.func.params, args, strict=True)):
            return None
        for want, have in state.shapes:
            same = symbols.unify(want, have) if isinstance(want, relax.StructInfo) else symbols.dim(want, have)
            if not same:
                return None
        inner = tuple(dict.fromkeys(v for v in state.through if v not in roots))
        return Match(pattern, roots, inner, args, symbols.values, state.attrs)

    # ------------------------------------------------------------ goals

    def _solve(self, goals: _Goals, state: _State) -> Iterator[_State]:
        """Yield the states in which all goals hold. The only choice is the order of commutative operands."""
        while goals is not None:
            self.steps += 1
            if self.steps > MAX_STEPS:
                message = f"there are too many possible matches of `{self.pattern.name}`"
                help = 'write `R.func_attr({"commutative": False})` in the pattern'
                raise CompileError(error("E0542", message, self.pattern.func.span, help=help))
            pattern, expr, goals = goals
            if isinstance(pattern, relax.Var):
                binding = self._variable(pattern, expr, state)
                if binding is None:
                    return
                state, entered = binding
                if not entered:
                    continue
                pattern, expr = self.pattern.values[pattern], self.index.definition(expr)
            step = self._operation(pattern, expr, state)
            if step is None:
                return
            state, pairs = step
            if len(pairs) == 2 and isinstance(pattern, relax.Call) and self._commutes(pattern):
                swapped = ((pairs[0][0], pairs[1][1]), (pairs[1][0], pairs[0][1]))
                yield from self._solve(_push_goals(pairs, goals), state)
                yield from self._solve(_push_goals(swapped, goals), state)
                return
            goals = _push_goals(pairs, goals)
        yield state

    def _commutes(self, call: relax.Call) -> bool:
        return isinstance(call.op, tir.Op) and call.op.name in self.pattern.commutative

    def _variable(self, variable: relax.Var, expr: relax.Expr, state: _State) -> tuple[_State, bool] | None:
        """Bind a variable of the pattern or check its binding; return the state, and True if it was bound."""
        expr = self.index.resolve(expr)
        if variable in state.bound:
            return (state, False) if _same_value(state.bound[variable], expr) else None
        bound = {**state.bound, variable: expr}
        if variable not in self.pattern.values:
            return _State(bound, state.through, state.shapes, state.attrs), False
        through = (*state.through, expr) if isinstance(expr, relax.Var) else state.through
        shapes = state.shapes
        if not self.pattern.any_attrs:
            shapes = (*shapes, (variable.struct_info, expr.struct_info))
        return _State(bound, through, shapes, state.attrs), True

    def _operation(self, pattern: Any, expr: Any, state: _State) -> tuple[_State, list[tuple[Any, Any]]] | None:
        """Match the outermost operation. Return the pairs of operands left to match, None for a mismatch."""
        expr = expr if not isinstance(expr, relax.Var) else self.index.definition(expr)
        if type(pattern) is not type(expr):
            return None
        match pattern:
            case relax.Call():
                return self._call(pattern, expr, state)
            case relax.Tuple():
                same = len(pattern.fields) == len(expr.fields)
                return (state, list(zip(pattern.fields, expr.fields, strict=True))) if same else None
            case relax.TupleGetItem():
                return (state, [(pattern.tuple_value, expr.tuple_value)]) if pattern.index == expr.index else None
            case relax.ShapeExpr():
                return self._add_constraints(state, zip(pattern.values, expr.values, strict=False), len(expr.values))
            case relax.PrimValue():
                return self._add_constraints(state, [(pattern.value, expr.value)], 1)
            case relax.Constant():
                return (state, []) if structural_equal(pattern, expr) else None
            case relax.GlobalVar():
                return (state, []) if self._same_function(pattern.name, expr.name) else None
            case relax.ExternFunc() | relax.StringImm() | relax.DataTypeImm():
                mine, theirs = (getattr(e, "name", None) or getattr(e, "value", None) for e in (pattern, expr))
                return (state, []) if mine == theirs else None
        return None

    def _add_constraints(self, state: _State, pairs: Any, count: int) -> tuple[_State, list[Any]] | None:
        new_pairs = tuple(pairs)
        if len(new_pairs) != count:
            return None
        return _State(state.bound, state.through, (*state.shapes, *new_pairs), state.attrs), []

    def _call(
        self, pattern: relax.Call, call: relax.Call, state: _State
    ) -> tuple[_State, list[tuple[Any, Any]]] | None:
        if len(pattern.args) != len(call.args) or len(pattern.sinfo_args) != len(call.sinfo_args):
            return None
        pairs: list[tuple[Any, Any]] = list(zip(pattern.args, call.args, strict=True))
        if isinstance(pattern.op, tir.Op):
            if not isinstance(call.op, tir.Op) or pattern.op.name != call.op.name:
                return None
        else:
            pairs.insert(0, (pattern.op, call.op))
        attrs = self._attributes(pattern, call, state)
        if attrs is None:
            return None
        shapes = (*state.shapes, *zip(pattern.sinfo_args, call.sinfo_args, strict=True))
        return _State(state.bound, state.through, shapes, attrs), pairs

    def _attributes(self, pattern: relax.Call, call: relax.Call, state: _State) -> Mapping[str, Any] | None:
        """Return the open attributes with their values in this call; None if other attributes differ."""
        attrs = dict(state.attrs)
        for key in dict.fromkeys((*pattern.attrs, *call.attrs)):
            mine, theirs = pattern.attrs.get(key), call.attrs.get(key)
            full = f"{pattern.op.name}.{key}" if isinstance(pattern.op, tir.Op) else key
            if full not in self.pattern.any_attrs:
                if not _equal(mine, theirs):
                    return None
            elif full in attrs and not _equal(attrs[full], theirs):
                return None
            else:
                attrs[full] = theirs
        return attrs

    def _same_function(self, mine: str, theirs: str) -> bool:
        """Return True if a function of the rule file and one of the module are structurally equal."""
        a, b = self.pattern.module.functions.get(mine), self.module.functions.get(theirs)
        if a is None or b is None:
            return False
        return structural_equal(_without_metadata(a), _without_metadata(b))


def _without_metadata(func: Any) -> Any:
    """Return a function without attributes that do not affect its meaning."""
    return func.without_attr("global_symbol").without_attr("op_pattern")


def _push_goals(pairs: Any, goals: _Goals) -> _Goals:
    for want, have in reversed(list(pairs)):
        goals = (want, have, goals)
    return goals


def _same_value(a: relax.Expr, b: relax.Expr) -> bool:
    """Return True if two operands are the same value: one variable, or equal constants."""
    if a is b:
        return True
    if isinstance(a, relax.Var) or isinstance(b, relax.Var) or type(a) is not type(b):
        return False
    return structural_equal(a, b)


def _equal(a: Any, b: Any) -> bool:
    """Return True if two attributes are equal."""
    if isinstance(a, (relax.Expr, tir.Expr, relax.StructInfo, Attrs, tuple)) and type(a) is type(b):
        return structural_equal(Attrs({"value": a}), Attrs({"value": b}))
    return bool(a == b) and type(a) is type(b)

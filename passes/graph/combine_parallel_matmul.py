"""The pass `combine-parallel-matmul`: one product in place of several with the same left operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mlcc import ops
from mlcc.arith.analyzer import Analyzer
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.ops import bind_call
from mlcc.passes.graph.dead_code import remove_unused
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import get_item, make_tuple
from mlcc.relax.queries import is_call, used_vars


@dataclass(frozen=True)
class CombineParallelMatmul(Pass):
    """Combine products with the same left operand: concatenate the right operands, and split the result.

    An addition to each product, and an activation after it, are combined as well if all branches have them. One of the
    right operands may have a symbolic number of columns; its part comes last.

    Before:  lv = R.matmul(x, w0)
             lv1 = R.matmul(x, w1)
    After:   lv = R.concat((w0, w1), axis=1)
             lv1 = R.matmul(x, lv, out_dtype="float32")
             lv2 = R.split(lv1, indices_or_sections=[128], axis=1)
             lv3 = lv2[0]
             lv4 = lv2[1]
    """

    name: ClassVar[str] = "combine-parallel-matmul"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        def change(_: str, func: relax.Function) -> relax.Function:
            new_func = _Combiner(module).visit_function(func)
            return func if new_func is func else remove_unused(new_func, module)

        return map_relax_functions(module, change)


@dataclass(frozen=True)
class _Branch:
    """One product and its epilogue: right operand of the addition, activation, variable of the last binding."""

    product: relax.Var
    rhs: relax.Var
    columns: tir.Expr
    bias: relax.Var | None
    activation: str | None
    result: relax.Var

    def operands(self) -> list[relax.Var]:
        return [self.rhs] + ([self.bias] if self.bias is not None else [])


@dataclass
class _Block:
    """The bindings of a block, by variable and by the first operand of their calls.

    `slots` holds the replacement of each binding, `slot_of` the slot of each variable: the cost of a change depends on
    the span that it replaces, not on the size of the block.
    """

    bindings: tuple[relax.Binding, ...]
    by_first: dict[Any, list[Any]] = field(default_factory=dict)
    by_var: dict[relax.Var, Any] = field(default_factory=dict)
    slots: list[list[Any]] = field(default_factory=list)
    slot_of: dict[relax.Var, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for binding in self.bindings:
            self.by_var[binding.var] = binding
            self.slot_of[binding.var] = len(self.slots)
            self.slots.append([binding])
            value = binding.value  # type: ignore[attr-defined]
            if isinstance(binding, relax.VarBinding) and isinstance(value, relax.Call) and value.args:
                self.by_first.setdefault(value.args[0], []).append(binding)

    def replace(self, first: int, last: int, bindings: list[Any]) -> None:
        """Replace the bindings of the slots from `first` to `last`."""
        self.slots[first : last + 1] = [bindings, *([] for _ in range(last - first))]
        for binding in bindings:
            self.by_var[binding.var] = binding
            self.slot_of[binding.var] = first

    def first_user(self, var: relax.Var, fits: Callable[[relax.Call], bool]) -> Any:
        """Return the first binding of a call on a variable that satisfies a condition."""
        return next((binding for binding in self.by_first.get(var, ()) if fits(binding.value)), None)

    def branches(self, lhs: relax.Var) -> list[_Branch]:
        return [
            _Branch(b.var, b.value.args[1], shape[-1], None, None, b.var)
            for b in self.by_first[lhs]
            if is_call(b.value, "relax.matmul") and isinstance(b.value.args[1], relax.Var)
            if (shape := _dims(b.value.args[1])) is not None and len(shape) >= 2
        ]

    def extended(self, branches: list[_Branch]) -> list[_Branch]:
        """Return the branches with their additions and activations, if all branches have the same."""
        sums = [self.first_user(b.product, lambda call: is_call(call, "relax.add")) for b in branches]
        if all(s is not None and _is_column_bias(s.value.args[1], b) for s, b in zip(sums, branches, strict=True)):
            biases = [s.value.args[1] for s in sums]
            if _equal_shapes([_dims(b) for b in biases], 1):
                pairs = zip(branches, sums, strict=True)
                branches = [replace_branch(b, bias=s.value.args[1], result=s.var) for b, s in pairs]
        ends = [self.first_user(b.result, _is_activation) for b in branches]
        names = {e.value.op.name if e is not None else None for e in ends}
        if len(names) == 1 and None not in names:
            name = ends[0].value.op.name
            branches = [replace_branch(b, activation=name, result=e.var) for b, e in zip(branches, ends, strict=True)]
        return branches

    def transitive_operands(self, var: relax.Var) -> set[relax.Var]:
        """Return the variables of this block that a value depends on, directly or not."""
        operands: set[relax.Var] = set()
        stack = [var]
        while stack:
            binding = self.by_var.get(stack.pop())
            if binding is not None and binding.var not in operands:
                operands.add(binding.var)
                stack += used_vars(binding.value)
                stack += used_vars(binding.var.struct_info)
        return operands


def replace_branch(branch: _Branch, **changes: Any) -> _Branch:
    from dataclasses import replace as changed

    return changed(branch, **changes)


def _is_activation(call: relax.Call) -> bool:
    op = ops.get(call.op.name) if isinstance(call.op, tir.Op) else None
    return op is not None and op.impl.activation


def _dims(expr: relax.Expr) -> tuple[tir.Expr, ...] | None:
    return expr.struct_info.dims if isinstance(expr.struct_info, relax.TensorStructInfo) else None


def _is_column_bias(bias: relax.Expr, branch: _Branch) -> bool:
    """Return True if an addend has as many columns as the product."""
    dims = _dims(bias)
    return isinstance(bias, relax.Var) and bool(dims) and Analyzer().prove_equal(dims[-1], branch.columns)  # type: ignore[index]


def _equal_shapes(shapes: Sequence[tuple[tir.Expr, ...] | None], ignored_last: int) -> bool:
    """Return True if the shapes are provably equal, apart from their last `ignored_last` dimensions."""
    analyzer = Analyzer()
    first = shapes[0]
    if first is None or any(s is None or len(s) != len(first) for s in shapes):
        return False
    return all(
        analyzer.prove_equal(a, b)
        for s in shapes
        for a, b in zip(s[:-ignored_last], first[:-ignored_last], strict=True)  # type: ignore[index]
    )


class _Combiner(RelaxMutator):
    def visit_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        if isinstance(block, relax.DataflowBlock):
            indexed = _Block(block.bindings)
            changed = False
            for lhs in list(indexed.by_first):
                if isinstance(lhs, relax.Var) and len(_dims(lhs) or ()) >= 2:
                    changed |= _combine(indexed, lhs)
            if changed:
                block = replace(block, bindings=tuple(b for slot in indexed.slots for b in slot))
        return super().visit_block(block)


def _combine(block: _Block, lhs: relax.Var) -> bool:
    """Combine the products of `lhs` whose right operands are compatible; return True if there were any."""
    by_rank: dict[int, list[_Branch]] = {}
    products = block.branches(lhs)
    branches = block.extended(products) if len(products) > 1 else []
    operands = [o for branch in branches for o in branch.operands()]
    if len(set(operands)) < len(operands):  # equal products are left to `eliminate-common-subexpr`
        return False
    changed = False
    for branch in branches:
        by_rank.setdefault(len(_dims(branch.rhs) or ()), []).append(branch)
    for group in by_rank.values():
        if len(group) > 1 and _equal_shapes([_dims(b.rhs) for b in group], 2):
            group = _splittable(_independent(block, group))
            if len(group) > 1 and len({_dtype(b.product) for b in group}) == 1:
                changed |= _join(block, lhs, group)
    return changed


def _join(block: _Block, lhs: relax.Var, group: list[_Branch]) -> bool:
    """Replace a group of products by one; return False if the order of bindings does not allow it."""
    slots = [block.slot_of[v] for b in group for v in (b.product, b.result)]
    first, last = min(slots), max(slots)
    window = [b for slot in block.slots[first : last + 1] for b in slot]
    joined = _joined_product(lhs, group)
    fields: dict[relax.Var, relax.Expr] = {b.result: get_item(joined[-1].var, i) for i, b in enumerate(group)}
    sources = {lhs, *(o for b in group for o in b.operands())}
    bindings: list[relax.Binding] = []
    missing = {b.var for b in window}
    waiting: list[Any] = []
    started = False
    for binding in [*window, None]:
        if binding is not None:
            waiting.append(binding)
        blocked_by_cast = False  # set once a `match_cast` waits: it may bind symbols
        for other in list(waiting):  # in order, bindings whose operands are defined
            replaced = other.var in fields
            if blocked_by_cast or (sources if replaced else set(used_vars(other))) & missing:
                blocked_by_cast |= isinstance(other, relax.MatchCast)
                continue
            if replaced and not started:
                bindings += joined
                started = True
            waiting.remove(other)
            missing.discard(other.var)
            bindings.append(replace(other, value=fields[other.var]) if replaced else other)
    if waiting:
        return False
    block.replace(first, last, bindings)
    return True


def _dtype(var: relax.Var) -> str:
    return str(getattr(var.struct_info, "dtype", None))


def _independent(block: _Block, group: list[_Branch]) -> list[_Branch]:
    """Return the branches whose operands do not depend on the results of others."""
    branches: list[_Branch] = []
    replaced = {b.result for b in group}
    for branch in group:
        if not any(block.transitive_operands(o) & replaced for o in branch.operands()):
            branches.append(branch)
    return branches


def _splittable(group: list[_Branch]) -> list[_Branch]:
    """Return the branches of known width, then at most one of unknown width."""
    fixed = [b for b in group if isinstance(b.columns, tir.IntImm)]
    return fixed + [b for b in group if not isinstance(b.columns, tir.IntImm)][:1]


def _joined_product(lhs: relax.Var, group: list[_Branch]) -> list[relax.VarBinding]:
    """Return the bindings that compute all branches at once; the last one is the tuple of their results."""
    bindings: list[relax.VarBinding] = []

    def emit(operator: str, *args: relax.Expr, **attrs: Any) -> relax.Var:
        value = bind_call(operator, args, attrs)
        bindings.append(relax.VarBinding(relax.DataflowVar("lv", value.struct_info), value))
        return bindings[-1].var

    def concat(parts: list[relax.Var]) -> relax.Var:
        return emit("concat", make_tuple(parts), axis=len(_dims(parts[0]) or ()) - 1)

    out = emit("matmul", lhs, concat([b.rhs for b in group]), out_dtype=_dtype(group[0].product))
    if group[0].bias is not None:
        out = emit("add", out, concat([b.bias for b in group if b.bias is not None]))
    if group[0].activation is not None:
        out = emit(group[0].activation, out)
    ends: list[int] = []
    for branch in group[:-1]:
        assert isinstance(branch.columns, tir.IntImm)
        ends.append((ends[-1] if ends else 0) + branch.columns.value)
    rank = max(len(_dims(lhs) or ()), len(_dims(group[0].rhs) or ()))
    emit("split", out, indices_or_sections=ends, axis=rank - 1)
    return bindings

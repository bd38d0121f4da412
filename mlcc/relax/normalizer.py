"""A-normal form: every intermediate result is bound to a variable, and every expression has struct info."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mlcc import ops
from mlcc.errors import CompileError, error
from mlcc.ir import relax, tir
from mlcc.ir.node import replace
from mlcc.ir.visit import substitute
from mlcc.ops.infer import erase, match_info
from mlcc.ops.relations import SubtypeCheck, check_subtype, common_supertype, variables
from mlcc.relax.construct import flatten_block, get_item, make_function, make_seq, make_tuple

COMPUTING = (relax.Call, relax.TupleGetItem, relax.If, relax.Function, relax.SeqExpr)


class Normalizer:
    """Brings expressions to normal form. `emit` binds an expression that needs a variable to a new one.

    `begin(dataflow)` and `end()` open and close the block that `emit` adds to; `functions` are the module's.
    """

    def __init__(
        self, emit: Callable[[relax.Expr], relax.Var], begin: Callable[[bool], None],
        end: Callable[[], relax.BindingBlock], functions: Mapping[str, relax.GlobalVar],
    ) -> None:  # fmt: skip
        self._emit = emit
        self._begin = begin
        self._end = end
        self._functions = functions
        self._normal: dict[int, relax.Expr] = {}  # expressions known to be in normal form, kept alive for their ids

    def keep(self, expr: relax.Expr) -> Any:
        """Record that an expression is in normal form."""
        self._normal[id(expr)] = expr
        return expr

    def normalize(self, expr: relax.Expr) -> relax.Expr:
        """The expression with operands that compute nothing, and with struct info."""
        if id(expr) in self._normal:
            return expr
        match expr:
            case relax.Call():
                return self._call(expr)
            case relax.Tuple(fields=fields):
                leaves = self._leaves(fields)
                return (
                    expr
                    if leaves is fields and expr.struct_info is not None
                    else _with_span_of(make_tuple(leaves), expr)
                )
            case relax.TupleGetItem(tuple_value=value, index=index):
                operand = self.leaf(value)
                same = operand is value and expr.struct_info is not None
                return expr if same else _with_span_of(get_item(operand, index), expr)
            case relax.If():
                return self.keep(self._if(expr))  # type: ignore[no-any-return]
            case relax.SeqExpr():
                return self.keep(self.sequence(expr))  # type: ignore[no-any-return]
            case relax.Function():
                return self.keep(self._function(expr))  # type: ignore[no-any-return]
        return expr

    def leaf(self, expr: relax.Expr) -> relax.Expr:
        """Return the expression as an operand: computations are bound to a variable, tuples are kept."""
        normal = self.normalize(expr)
        return self._emit(normal) if isinstance(normal, COMPUTING) else normal

    def _leaves(self, exprs: tuple[relax.Expr, ...]) -> tuple[relax.Expr, ...]:
        leaves = [self.leaf(e) for e in exprs]  # no generator: it would take C stack for every level of nesting
        return exprs if all(a is b for a, b in zip(leaves, exprs, strict=True)) else tuple(leaves)

    def _call(self, call: relax.Call) -> relax.Call:
        op = self.leaf(call.op) if isinstance(call.op, relax.Expr) else call.op
        args = self._leaves(call.args)
        if op is call.op and args is call.args and call.struct_info is not None:
            return call
        bare = replace(call, op=op, args=args, struct_info=None)
        self._check_arguments(bare)
        info = ops.infer_struct_info(bare, self._functions)
        return replace(bare, struct_info=call.struct_info if info is None else info)

    def _check_arguments(self, call: relax.Call) -> None:
        """Raise CompileError for an argument that the parameter of a function can never be."""
        if not isinstance(call.op, relax.Expr):
            return
        info = call.op.struct_info
        if info is None and isinstance(call.op, relax.GlobalVar) and call.op.name in self._functions:
            info = self._functions[call.op.name].struct_info
        params = info.params if isinstance(info, relax.FuncStructInfo) else None
        if params is None or len(params) != len(call.args):
            return  # inference looks at the number
        bound: dict[tir.Var, tir.Expr] = {}
        for parameter_info, argument in zip(params, call.args, strict=True):
            if argument.struct_info is not None:
                match_info(parameter_info, argument.struct_info, bound)
        for index, (parameter_info, argument) in enumerate(zip(params, call.args, strict=True)):
            expected, known = substitute(parameter_info, bound), argument.struct_info
            if known is not None and check_subtype(expected, known) is SubtypeCheck.CONTRADICTS:
                message = f"argument {index} is `{known}`, but the function takes `{parameter_info}`"
                raise CompileError(error("E0441", message, call.span))

    def _if(self, expr: relax.If) -> relax.If:
        condition = self.leaf(expr.condition)
        then, other = self.normalize(expr.true_branch), self.normalize(expr.false_branch)
        return make_if(condition, then, other, expr)  # type: ignore[arg-type]

    def sequence(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        blocks = [part for b in seq.blocks for part in flatten_block(self._block(b))]
        self._begin(False)
        body = self.leaf(seq.body)
        blocks += flatten_block(self._end())
        new_seq = make_seq(blocks, body)
        same = len(new_seq.blocks) == len(seq.blocks) and all(
            a is b for a, b in zip(new_seq.blocks, seq.blocks, strict=True)
        )
        return seq if same and body is seq.body and seq.struct_info is not None else _with_span_of(new_seq, seq)

    def _block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        self._begin(isinstance(block, relax.DataflowBlock))
        try:
            bindings = []
            for binding in block.bindings:
                value = binding.value  # type: ignore[attr-defined]
                cast = isinstance(binding, relax.MatchCast)
                value_in_normal_form = self.leaf(value) if cast else self.normalize(value)
                bindings += [*self._end().bindings, replace(binding, value=value_in_normal_form)]
                self._begin(isinstance(block, relax.DataflowBlock))
        finally:
            self._end()
        same = len(bindings) == len(block.bindings) and all(
            a is b for a, b in zip(bindings, block.bindings, strict=True)
        )
        return block if same else replace(block, bindings=tuple(bindings))

    def _function(self, func: relax.Function) -> relax.Function:
        body = self.normalize(func.body)
        if body is func.body and func.struct_info is not None:
            return func
        return make_function(func.params, body, func.attrs, func.ret_struct_info, func.is_pure, func.span)  # type: ignore[arg-type]


def _with_span_of(expr: Any, old: relax.Expr) -> Any:
    return replace(expr, span=old.span)


def make_if(condition: relax.Expr, then: relax.SeqExpr, other: relax.SeqExpr, old: relax.If) -> relax.If:
    """Return an `if` whose struct info is the join of both branches'."""
    if then.struct_info is None or other.struct_info is None:
        info = old.struct_info
    else:
        info = common_supertype(visible_struct_info(then), visible_struct_info(other))
    same = condition is old.condition and then is old.true_branch and other is old.false_branch
    if same and old.struct_info is not None:
        return old
    return relax.If(condition, then, other, info, span=old.span)


def visible_struct_info(seq: relax.SeqExpr) -> relax.StructInfo:
    """Return the struct info of a sequence's result outside of it, without the symbolic variables that it defines."""
    info = seq.struct_info or relax.ObjectStructInfo()
    own = {v for v in _symbols_defined_in(seq.blocks) if isinstance(v, tir.Var)}
    return erase(info, {}, own) if own else info


def _symbols_defined_in(blocks: Iterable[relax.BindingBlock]) -> Iterable[tir.Var]:
    """The symbolic variables that casts in these blocks mention."""
    for block in blocks:
        for binding in block.bindings:
            if isinstance(binding, relax.MatchCast):
                known = binding.value.struct_info
                bound = set() if known is None else set(variables(known))
                yield from (v for v in variables(binding.struct_info) if v not in bound)


def check_no_dataflow_vars(expr: relax.Expr) -> None:
    """Raise CompileError for a variable of a dataflow block that is used after it."""
    for part in _operands(expr):
        if isinstance(part, relax.DataflowVar):
            message = f"`{part.name}` is visible only in its dataflow block"
            raise CompileError(error("E0461", message, part.span, help="make it an output of the block by emit_output"))


def _operands(expr: relax.Expr) -> Iterable[relax.Expr]:
    match expr:
        case relax.Var():
            yield expr
        case relax.Call(args=parts) | relax.Tuple(fields=parts):
            for part in parts:
                yield from _operands(part)
        case relax.TupleGetItem(tuple_value=value):
            yield from _operands(value)
        case relax.If(condition=condition):
            yield from _operands(condition)


def check_operands_bound(binding: Any) -> None:
    """Raise CompileError for a binding whose value contains a nested computation."""
    value = binding.value
    if isinstance(value, relax.Call):
        parts = value.args
    elif isinstance(value, (relax.Tuple, relax.TupleGetItem)):
        parts = (value,) if isinstance(value, relax.Tuple) else (value.tuple_value,)
    else:
        return
    stack = list(parts)
    while stack:
        part = stack.pop()
        if isinstance(part, relax.Tuple):
            stack += part.fields
        elif isinstance(part, COMPUTING):
            message = f"the value of `{binding.var.name}` contains a nested computation"
            raise CompileError(error("E0464", message, value.span, help="emit gives it a variable of its own"))

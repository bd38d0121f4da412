"""Loops as tail-recursive relax functions, see `mlcc.relax.tail_calls`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mlcc.ir import relax, tir
from mlcc.ir.node import EMPTY, walk
from mlcc.ir.visit import substitute
from mlcc.ops.relations import SubtypeCheck, check_subtype
from mlcc.ops.shapes import describe
from mlcc.relax import convert
from mlcc.relax.construct import call_function, get_item, make_function, make_tuple, shape_expr
from mlcc.relax.scopes import misuse_error

if TYPE_CHECKING:
    from mlcc.relax.block_builder import BlockBuilder


def while_loop(
    builder: BlockBuilder, condition: Callable[..., Any], body: Callable[..., Any], init: Iterable[Any], hint: str
) -> relax.Call:
    """The call of a loop function, with three functions added to the module: `hint`, its condition and its body."""
    values = [builder.normalize(convert.as_expr(v)) for v in init]
    values = [v if isinstance(v, (relax.Var, relax.Constant)) else builder.emit(v) for v in values]
    sizes = _unbound_sizes(values)
    carried = [relax.Var(_name(v, i), v.struct_info) for i, v in enumerate(values)]
    params = carried + ([relax.Var("sizes", sizes.struct_info)] if sizes else [])
    name = builder.get_unique_name(hint)
    test = _private_function(builder, f"{name}_condition", params, lambda given: condition(*given[: len(carried)]))
    step = _private_function(
        builder, f"{name}_body", params, lambda given: _next_values(builder, body(*given[: len(carried)]), carried)
    )
    builder.update_func(name, _recursive_function(builder, name, test, step, params, len(carried)))
    for function in (test.name, step.name, name):
        builder.update_func(function, _with_fresh_symbols(builder.get()[function]))
    return call_function(name, builder.get()[name], (*values, *([sizes] if sizes else [])))


def _with_fresh_symbols(func: Any) -> Any:
    """Return the function with new symbolic variables."""
    symbols = dict.fromkeys(n for n in walk(func) if isinstance(n, tir.Var))
    return substitute(func, {old: tir.Var(old.name, old.dtype) for old in symbols})


def _name(value: relax.Expr, index: int) -> str:
    return value.name if isinstance(value, relax.Var) else f"v{index}"


def _unbound_sizes(values: Sequence[relax.Expr]) -> relax.ShapeExpr | None:
    """The symbolic sizes that are no extent by themselves, as a shape argument that makes them known."""
    infos = [v.struct_info for v in values if isinstance(v.struct_info, relax.TensorStructInfo)]
    alone = {d for i in infos for d in i.dims or ()}
    used = dict.fromkeys(n for i in infos for d in i.dims or () for n in walk(d) if isinstance(n, tir.Var))
    missing = [v for v in used if v not in alone]
    return shape_expr(missing) if missing else None


def _private_function(
    builder: BlockBuilder, name: str, like: Sequence[relax.Var], make: Callable[[list[relax.Var]], Any]
) -> relax.GlobalVar:
    """Return a private function of the loop's parameters that returns the result of `make`."""
    params = [relax.Var(p.name, p.struct_info) for p in like]
    with builder.function(builder.get_unique_name(name), params, private=True):
        return builder.emit_func_output(make(params))


def _next_values(builder: BlockBuilder, next_values: Any, carried: Sequence[relax.Var]) -> relax.Tuple:
    """The values after one iteration, cast to the shapes before it; unknown shapes are checked at run time."""
    values = list(next_values) if isinstance(next_values, (tuple, list)) else [next_values]
    if len(values) != len(carried):
        raise misuse_error(f"the body of the loop returns {len(values)} values, but the loop carries {len(carried)}")
    checked: list[relax.Expr] = []
    for value, old in zip(values, carried, strict=True):
        new = builder.normalize(convert.as_expr(value))
        info = old.struct_info
        assert info is not None
        relation = check_subtype(info, new.struct_info or relax.ObjectStructInfo())
        if relation is SubtypeCheck.CONTRADICTS:
            after = describe(new.struct_info)
            message = f"`{old.name}` of the loop is {describe(info)}, but {after} after one iteration"
            raise misuse_error(message, "a loop-carried value must keep its shape and dtype")
        if relation is SubtypeCheck.NARROWS:
            new = builder.match_cast(new, info)
        checked.append(new)
    return make_tuple(checked)


def _recursive_function(
    builder: BlockBuilder,
    name: str,
    test: relax.GlobalVar,
    step: relax.GlobalVar,
    like: Sequence[relax.Var],
    count: int,
) -> relax.Function:
    """Build the function `if test(values): return self(step(values)) else: return values`."""
    params = tuple(relax.Var(p.name, p.struct_info) for p in like)
    carried, rest = params[:count], params[count:]
    module = builder.get()
    result = relax.TupleStructInfo(tuple(p.struct_info or relax.ObjectStructInfo() for p in carried))
    condition = call_function(test.name, module[test.name], params)
    on = relax.Var("on", condition.struct_info)
    following = relax.Var("following", result)
    items = [relax.Var(f"{p.name}_next", p.struct_info) for p in carried]
    bindings = [relax.VarBinding(following, call_function(step.name, module[step.name], params))]
    bindings += [relax.VarBinding(v, get_item(following, i)) for i, v in enumerate(items)]
    infos = tuple(p.struct_info or relax.ObjectStructInfo() for p in params)
    itself = relax.GlobalVar(name, relax.FuncStructInfo(infos, result, True))
    again = relax.Var("again", result)
    bindings.append(relax.VarBinding(again, relax.Call(itself, (*items, *rest), struct_info=result)))
    then = relax.SeqExpr((relax.BindingBlock(tuple(bindings)),), again, result)
    end = relax.Var("end", result)
    other = relax.SeqExpr((relax.BindingBlock((relax.VarBinding(end, make_tuple(carried)),)),), end, result)
    output = relax.Var("made", result)
    choice = relax.If(on, then, other, result)
    block = relax.BindingBlock((relax.VarBinding(on, condition), relax.VarBinding(output, choice)))
    return make_function(params, relax.SeqExpr((block,), output, result), EMPTY, is_pure=True)

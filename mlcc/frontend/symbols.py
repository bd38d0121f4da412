"""Apply the shapes and ranges that a user states for the inputs of an imported model to its symbols."""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.errors import CompileError, Diagnostic, did_you_mean, error
from mlcc.frontend.request import Extent, Range
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.passes.graph.symbolic import bind_symbols, info_symbols
from mlcc.relax.construct import make_function

_LOWER_BOUND, _UPPER_BOUND = "tir_var_lower_bound", "tir_var_upper_bound"  # as TVM calls them


def state_shapes(module: IRModule, shapes: Mapping[str, tuple[Extent, ...]], ranges: Mapping[str, Range]) -> IRModule:
    """Give the parameters of `main` the stated shapes: replace symbols by the stated names or values, and set the
    stated ranges. Raises CompileError E1075 for shapes and ranges that do not match."""
    func = module.functions["main"]
    assert isinstance(func, relax.Function)
    values = _substitution(func, shapes)
    if values:
        known = _renamed_bounds(func, values)
        func = bind_symbols(func, values, {}, module)
        func = func.with_attr(known) if known else func
    return module if not values and not ranges else _with_main(module, func, _range_attrs(func, ranges))


def _renamed_bounds(func: relax.Function, values: Mapping[tir.Var, tir.Expr]) -> dict[str, dict[str, int]]:
    """Return the function's ranges by the new names of its symbols. Raises CompileError E1075 for a number outside the
    range of the symbol that it replaces."""
    by_name = {var.name: value for var, value in values.items()}
    wrong: list[Diagnostic] = []
    bounds: dict[str, dict[str, int]] = {}
    for key, sign in ((_LOWER_BOUND, 1), (_UPPER_BOUND, -1)):
        for name, bound in dict(func.attrs.get(key) or {}).items():
            value = by_name.get(name)
            number = None if value is None else tir.const_int(value)
            if number is None:
                bounds.setdefault(key, {})[value.name if isinstance(value, tir.Var) else name] = bound
            elif (number - int(bound)) * sign < 0:
                end = "least" if sign > 0 else "greatest"
                wrong.append(error("E1075", f"`{name}` cannot be {number}: its {end} value is {bound}"))
    if wrong:
        raise CompileError(wrong)
    return {key: bounds.get(key, {}) for key in (_LOWER_BOUND, _UPPER_BOUND) if func.attrs.get(key)}


def _with_main(module: IRModule, func: relax.Function, attrs: Mapping[str, object]) -> IRModule:
    copy = module.copy()
    done = make_function(func.params, func.body, func.attrs, func.ret_struct_info, func.is_pure)
    copy.functions["main"] = done.with_attr(dict(attrs)) if attrs else done
    return copy


def _substitution(func: relax.Function, shapes: Mapping[str, tuple[Extent, ...]]) -> dict[tir.Var, tir.Expr]:
    """Return the substitution of the parameters' symbols. Raises CompileError E1075 for shapes that do not fit."""
    params = {param.name: param for param in func.params}
    wrong: list[Diagnostic] = []
    values: dict[tir.Var, tir.Expr] = {}
    named: dict[str, tir.Var] = {}
    for name, shape in shapes.items():
        param = params.get(name)
        if param is None:
            help = did_you_mean(name, params) or f"its inputs are {', '.join(params) or 'none'}"
            wrong.append(error("E1075", f"the model has no input `{name}`", help=help))
            continue
        dims = getattr(param.struct_info, "dims", None)
        if dims is None or len(dims) != len(shape):
            wrong.append(
                error("E1075", f"`{name}` is {param.struct_info}, which does not have {len(shape)} dimensions")
            )
            continue
        for dim, extent in zip(dims, shape, strict=True):
            problem = _bind_dim(dim, extent, values, named)
            if problem:
                wrong.append(error("E1075", f"`{name}` {problem}", help="export the model with a dynamic dimension"))
    if wrong:
        raise CompileError(wrong)
    return {var: value for var, value in values.items() if value is not var}


def _bind_dim(dim: tir.Expr, extent: Extent, values: dict[tir.Var, tir.Expr], named: dict[str, tir.Var]) -> str | None:
    """Bind a dimension to the stated extent; return the reason if it cannot be bound."""
    if not isinstance(dim, tir.Var):
        known = tir.const_int(dim)
        return None if known is not None and known == extent else f"has the extent {dim}, not {extent}"
    if isinstance(extent, int):
        value: tir.Expr = c.const(extent, dim.dtype)
    elif extent == dim.name:
        value = named.setdefault(extent, dim)
    else:
        value = named.setdefault(extent, tir.Var(extent, dim.dtype))
    before = values.setdefault(dim, value)
    same = before is value or (tir.const_int(before) is not None and tir.const_int(before) == tir.const_int(value))
    return None if same else f"has the extent {dim.name}, which is {before} and {extent}"


def _range_attrs(func: relax.Function, ranges: Mapping[str, Range]) -> dict[str, dict[str, int]]:
    """Return the range attributes of symbols: the function's own, updated by the stated ones."""
    known = {var.name for param in func.params for var in info_symbols(param.struct_info)}
    wrong = [
        error("E1075", f"no input has the dimension `{name}`", help=did_you_mean(name, known)) for name in ranges
        if name not in known
    ]  # fmt: skip
    if wrong:
        raise CompileError(wrong)
    attributes = {}
    for key, end in ((_LOWER_BOUND, 0), (_UPPER_BOUND, 1)):
        bounds = {name: bound for name, both in ranges.items() if (bound := both[end]) is not None}
        if bounds:
            attributes[key] = {**dict(func.attrs.get(key) or {}), **bounds}
    return attributes

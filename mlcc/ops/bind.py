"""Conversion between the arguments of an operator's call in text and a normalised `relax.Call`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mlcc.errors import CompileError, Span, did_you_mean, error
from mlcc.ir import construct, relax, tir
from mlcc.ir.node import EMPTY, Attrs
from mlcc.ops import values
from mlcc.ops.signature import REQUIRED, Param, Signature, names, short_name, signature, signature_text
from mlcc.ops.values import InvalidValue

# Parameter names that older or newer texts give in place of the entry's.
PARAM_ALIASES = {
    "out_ty": "out_sinfo",
    "ty_args": "sinfo_args",
    "type_args": "sinfo_args",
    "runtime_device_ind": "runtime_device_index",
    "format_args": "values",
}


def bind(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], span: Span | None = None) -> relax.Call:
    """The call `name(*args, **kwargs)` with arguments sorted into args, attributes and struct info; not yet inferred.

    Values are graph-level and TensorIR expressions, struct info, Python numbers, strings, None, and tuples or lists
    of these. Raises CompileError.
    """
    short = short_name(name)
    sig = signature(short)
    if sig is None:
        raise CompileError(unknown_operator(name, span))
    by_name = _assign(short, sig, args, dict(kwargs), span)
    arguments: list[relax.Expr] = []
    attrs: dict[str, Any] = {}
    types: tuple[relax.StructInfo, ...] = ()
    for param in sig.params:
        value = _argument_value(short, param, by_name, span)
        try:
            if param.is_attr:
                attr = values.attribute(param, value)
                if attr is not None or not param.hidden:
                    attrs[param.name] = attr
            elif param.is_types:
                several = param.kind == "typelist"
                types = () if value is None else values.result_types(value, by_name.get("dtype"), several)
            elif param.kind == "rest":
                if short == "assert_op" and len(value) == 1 and isinstance(value[0], (tuple, list)):
                    value = value[0]
                arguments += [values.expr(v, span) for v in value]
            elif value is None and param.optional:
                arguments += _omitted_operands(short, param, by_name, span)
            else:
                arguments.append(values.argument(param, value, span))
        except (InvalidValue, ValueError) as problem:
            raise _error("E0442", f"`R.{short}`: `{param.name}` {problem}", span) from None
    ordered = Attrs({n: attrs[n] for n in sig.attr_order if n in attrs}) if attrs else EMPTY
    return relax.Call(tir.Op(f"relax.{short}"), tuple(arguments), ordered, types, span=span)


def unknown_operator(name: str, span: Span | None) -> Any:
    """The diagnostic for an unknown operator name."""
    from mlcc.ops.meant import operator_help

    known = [n[len("relax.") :] for n in names()]
    return error("E0440", f"there is no operator `{name}`", span, help=operator_help(short_name(name), known))


def _assign(
    name: str, sig: Signature, args: tuple[Any, ...], kwargs: dict[str, Any], span: Span | None
) -> dict[str, Any]:
    """Assign arguments to parameter names; a `rest` parameter takes the remaining positional ones."""
    assigned: dict[str, Any] = {}
    remaining = list(args)
    for param in sig.params:
        if param.kind == "rest":
            if name in ("assert_op", "print") and param.name in _canonical_keywords(kwargs):
                continue  # given by keyword
            assigned[param.name], remaining = tuple(remaining), []
        elif remaining and not (param.kind == "string" and _is_variadic(sig)):
            assigned[param.name] = remaining.pop(0)
    if remaining:
        raise _error("E0441", f"`R.{name}` takes {_arity_text(sig)}, {len(args)} were given", span, _usage(name))
    takes_types = any(p.is_types for p in sig.params)
    for key, value in _canonical_keywords(kwargs).items():
        key = _types_parameter_name(key, sig)
        if sig.param(key) is None and not (key == "dtype" and takes_types):
            raise _error("E0441", f"`R.{name}` has no parameter `{key}`", span, _meant(key, sig) or _usage(name))
        if key in assigned:
            raise _error("E0441", f"`R.{name}`: `{key}` is given twice", span)
        assigned[key] = tuple(value) if isinstance(value, list) else value
    return assigned


_PARAMETERS = {"dim": "axis", "dims": "axes", "keepdim": "keepdims", "input": "x", "other": "x2", "eps": "epsilon"}


def _meant(key: str, sig: Signature) -> str | None:
    """The help that names the parameter that a key of another framework, or a misspelled one, means."""
    also = _PARAMETERS.get(key)
    known = [p.name for p in sig.params]
    return f"did you mean `{also}`?" if also in known else did_you_mean(key, known)


def _canonical_keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {PARAM_ALIASES.get(k, k): v for k, v in kwargs.items()}


def _types_parameter_name(key: str, sig: Signature) -> str:
    """Accept `out_sinfo` and `sinfo_args` for each other: an operator has only one of them."""
    if key in ("out_sinfo", "sinfo_args") and sig.param(key) is None:
        for param in sig.params:
            if param.is_types:
                return param.name
    return key


def _is_variadic(sig: Signature) -> bool:
    return any(p.kind == "rest" for p in sig.params)


def _arity_text(sig: Signature) -> str:
    least = sum(p.required for p in sig.params)
    most = len(sig.params)
    number = str(most) if least == most else f"{least} to {most}"
    return f"{number} argument{'s' if most != 1 else ''}"


def _argument_value(name: str, param: Param, by_name: dict[str, Any], span: Span | None) -> Any:
    if param.name in by_name:
        value = by_name[param.name]
        if value is None and param.default_from is not None:
            value = by_name.get(param.default_from)
        return value
    if param.default_from is not None:
        value = by_name.get(param.default_from, REQUIRED)
        if value is REQUIRED:
            source = next(p for p in (signature(name) or _empty()).params if p.name == param.default_from)
            value = source.default
        return value
    if param.kind == "rest":
        return ()
    if param.default is REQUIRED:
        if param.kind == "string":
            return ""
        raise _error("E0441", f"`R.{name}` is missing its argument `{param.name}`", span, _usage(name))
    return param.default


def _usage(name: str) -> str:
    """Return the help that shows the signature of an operator."""
    return f"call it as `R.{signature_text(name)}`"


def _empty() -> Signature:
    return Signature((), ())


def _omitted_operands(name: str, param: Param, by_name: dict[str, Any], span: Span | None) -> list[relax.Expr]:
    """Return the operands for an omitted argument: none at the end of a call, a null value in `memory.view`."""
    if name != "memory.view":
        _refuse_gap(name, param, by_name, span)
        return []
    if param.kind == "datatype":
        return [relax.Call(tir.Op("relax.null_value"), (), struct_info=relax.ObjectStructInfo(), span=span)]
    return [relax.Tuple((), relax.TupleStructInfo(()), span=span)]


def _refuse_gap(name: str, param: Param, by_name: dict[str, Any], span: Span | None) -> None:
    """Refuse an omitted operand before a given one: operands are positional."""
    arguments = [p.name for p in (signature(name) or _empty()).arguments]
    later = [n for n in arguments[arguments.index(param.name) + 1 :] if by_name.get(n) is not None]
    if later:
        raise _error("E0441", f"`R.{name}`: `{param.name}` is omitted although `{later[0]}` after it is given", span)


def _error(code: str, message: str, span: Span | None, help: str | None = None) -> CompileError:
    return CompileError(error(code, message, span, help=help))


# ---------------------------------------------------------------- shorthands in text


def _arange(args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Expand `arange(end)` and the defaults of step and dtype."""
    order = ("start", "end", "step", "dtype")
    named = dict(zip(order, args, strict=False))
    if len(args) > len(order):
        return args, kwargs
    named.update(kwargs)
    if named.get("end") is None and "start" in named:
        named["start"], named["end"] = 0, named["start"]
    named.setdefault("step", 1)
    if named.get("dtype") is None:
        bounds = [values.python_value(named.get(n, 0)) for n in ("start", "end", "step")]
        integral = all(isinstance(v, int) or (isinstance(v, tir.Expr) and v.dtype.is_int) for v in bounds)
        named["dtype"] = "int64" if integral else "float32"
    return [], named


def _attention(args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Name the fourth positional argument `bias`."""
    if len(args) > 3:
        kwargs, args = {**kwargs, "bias": args[3]}, args[:3] + args[4:]
    return args, kwargs


def _take(args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Convert an index given as a Python number to int32, as TVM does."""

    def narrow(value: Any) -> Any:
        plain = isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31
        return construct.const(value, "int32") if plain else value

    if "indices" in kwargs:
        return args, {**kwargs, "indices": narrow(kwargs["indices"])}
    return [*args[:1], *map(narrow, args[1:2]), *args[2:]], kwargs


def _expand_size(args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Expand a `size` of one number to both sides of an image."""
    size = kwargs.get("size", args[1] if len(args) > 1 else None)
    single = size[0] if isinstance(size, (tuple, list)) and len(size) == 1 else size
    if isinstance(single, int) or (isinstance(single, tir.Expr) and not isinstance(single, relax.Expr)):
        if "size" in kwargs:
            return args, {**kwargs, "size": (single, single)}
        return [args[0], (single, single), *args[2:]], kwargs
    return args, kwargs


_REWRITE: dict[str, Callable[[list[Any], dict[str, Any]], tuple[list[Any], dict[str, Any]]]] = {
    "arange": _arange,
    "take": _take,
    "nn.attention": _attention,
    "nn.attention_bias": _attention,
    "image.resize2d": _expand_size,
    "image.affine_grid": _expand_size,
}


def rewrite_arguments(name: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[str, list[Any], dict[str, Any]]:
    """Expand shorthands of a few operators. Return the operator's name and its arguments."""
    rule = _REWRITE.get(name)
    if rule is not None:
        args, kwargs = rule(args, kwargs)
    if name in ("nn.attention", "nn.attention_bias"):
        bias = kwargs.get("bias")
        name = "nn.attention" if bias is None else "nn.attention_bias"
        if bias is None:
            kwargs = {k: v for k, v in kwargs.items() if k != "bias"}
    return name, args, kwargs


# ---------------------------------------------------------------- back to text


def print_call_args(
    call: relax.Call, dialect: str = "mlcc"
) -> tuple[tuple[relax.Expr, ...], tuple[tuple[str, Any], ...]]:
    """Return the positional arguments (expressions) and the keyword arguments of an operator's call in its text.

    Keyword values are graph-level expressions, struct info, or plain attribute values, with lists where the text has
    brackets. The names and the spelling of absent dtypes follow the dialect.
    """
    short = short_name(call.op.name)
    sig = signature(short) or _empty()
    is_mlcc = dialect != "tvm"
    positional = call.args
    keywords: list[tuple[str, Any]] = []
    if short in ("print", "assert_op"):
        at = 0 if short == "print" else 1
        positional = call.args[:at] + call.args[at + 1 :]
        if len(call.args) > at:
            keywords.append(("format", call.args[at]))
    if call.sinfo_args:
        keywords.append(_types_keyword(short, sig, call.sinfo_args, is_mlcc))
    attrs = [n for n in sig.attr_order if n in call.attrs] + [n for n in call.attrs if sig.param(n) is None]
    for name in attrs:
        value = call.attrs[name]
        param = sig.param(name)
        if value is None and is_mlcc and param is not None and param.kind == "dtype":
            value = "void"
        keywords.append((name, _as_lists(value)))
    return positional, tuple(keywords)


def _types_keyword(name: str, sig: Signature, types: tuple[relax.StructInfo, ...], is_mlcc: bool) -> tuple[str, Any]:
    if any(p.kind == "typelist" for p in sig.params) or name == "call_py_func":
        return ("sinfo_args" if is_mlcc else "ty_args"), tuple(types)
    info = types[0]
    shown = list(info.fields) if isinstance(info, relax.TupleStructInfo) else info
    return ("out_sinfo" if is_mlcc else "out_ty"), shown


def _as_lists(value: Any) -> Any:
    return [_as_lists(v) for v in value] if isinstance(value, tuple) else value

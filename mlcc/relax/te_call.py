"""Tensor expressions as calls: arguments become `te` tensors, and the returned tensors a TensorIR function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlcc import te
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import walk
from mlcc.ir.visit import substitute
from mlcc.ops import values
from mlcc.relax import convert
from mlcc.relax.construct import call_tir, get_item, prim_value, tensor_info
from mlcc.te.scalar import Scalar, Value
from mlcc.te.tensor import parameter_name

if TYPE_CHECKING:
    from mlcc.relax.block_builder import BlockBuilder


def te_call(
    builder: BlockBuilder, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], hint: str
) -> relax.Call:
    """Return a `call_tir` that computes `func(*args, **kwargs)`; its function is added to the builder's module."""
    kwargs = dict(kwargs)
    attrs = kwargs.pop("primfunc_attrs", None)
    stated = kwargs.pop("sinfo_args", None) or kwargs.pop("ty_args", None)
    arguments = _Arguments(builder)
    result = func(*(arguments.convert(a) for a in args), **{k: arguments.convert(a) for k, a in kwargs.items()})
    outputs = list(result) if isinstance(result, (list, tuple)) else [result]
    for output in outputs:
        if not isinstance(output, te.Tensor):
            raise TypeError(f"`{hint}` must return te tensors, not {values.describe(output)}")
    unbound = arguments.unbound(outputs)
    kernel = te.create_prim_func([*arguments.params, *unbound, *outputs], "int64")
    kernel = kernel.with_attr(attrs) if attrs else kernel
    name = builder.add_func(kernel.without_attr("global_symbol"), hint)
    back = {new: old for old, new in arguments.fresh.items()}
    infos = [_result(t, back, arguments.vdevice) for t in outputs]
    out: relax.StructInfo = infos[0] if not isinstance(result, (list, tuple)) else _results(infos)
    if stated:
        out = stated[0] if len(stated) == 1 else relax.TupleStructInfo(tuple(stated))
    extra = [prim_value(substitute(v, back)) for v in unbound]
    module = builder._module.module
    return call_tir(name.name, module[name], [*arguments.values, *extra], out)  # type: ignore[arg-type]


def _results(infos: list[relax.TensorStructInfo]) -> relax.StructInfo:
    return infos[0] if len(infos) == 1 else relax.TupleStructInfo(tuple(infos))


def _result(tensor: te.Tensor, back: Mapping[tir.Var, tir.Var], vdevice: str | None) -> relax.TensorStructInfo:
    dims = tuple(values.dim(substitute(d, back)) for d in tensor.buffer.shape)
    info = tensor_info(dims, tensor.dtype)
    return relax.TensorStructInfo(info.shape, info.dtype, info.ndim, vdevice)


@dataclass
class _Arguments:
    """The arguments of a call, over symbolic variables of the TensorIR function's own."""

    builder: BlockBuilder
    params: list[Any] = field(default_factory=list)  # te tensors and variables
    values: list[relax.Expr] = field(default_factory=list)  # the arguments for them
    scalars: list[tir.Expr] = field(default_factory=list)
    fresh: dict[tir.Var, tir.Var] = field(default_factory=dict)  # the caller's -> the function's
    vdevice: str | None = None

    def convert(self, value: Any) -> Any:
        """Convert an argument of `emit_te` for the tensor-expression function; lists, tuples and dicts by element."""
        match value:
            case list():
                return [self.convert(v) for v in value]
            case tuple():
                return tuple(self.convert(v) for v in value)
            case Mapping():
                for key in value:
                    if not isinstance(key, str):
                        raise TypeError("the keys of a dict among the arguments must be strings")
                return {k: self.convert(v) for k, v in value.items()}
            case te.Tensor() | te.Axis():
                raise TypeError("emit_te makes tensors of its arguments itself: give it relax expressions")
        value = convert.unwrap(value)
        if convert.is_array(value):
            value = convert.constant(value)
        if isinstance(value, tir.Expr) and not isinstance(value, relax.Expr):
            return self._scalar(value)
        return self._expression(self.builder.normalize(value)) if isinstance(value, relax.Expr) else value

    def _expression(self, expr: relax.Expr) -> Any:
        match expr:
            case relax.Tuple(fields=fields):
                return [self._expression(f) for f in fields]
            case relax.ShapeExpr(values=dims):
                return [self._scalar(d) for d in dims]
            case relax.PrimValue(value=known):
                return self._scalar(known)
            case relax.StringImm(value=text):
                return text
            case relax.DataTypeImm(value=dtype):
                return str(dtype)
        match expr.struct_info:
            case relax.TensorStructInfo() as info:
                return self._tensor(expr, info)
            case relax.ShapeStructInfo() as info if info.values is not None:
                return [self._scalar(d) for d in info.values]
            case relax.PrimStructInfo() as info:
                if info.value is not None:
                    return self._scalar(info.value)
                var = tir.Var(expr.name if isinstance(expr, relax.Var) else "scalar", info.dtype)
                self.params.append(var)
                self.values.append(expr)
                return Scalar(var)
            case relax.TupleStructInfo() as info:
                return [self._expression(self.builder.emit(get_item(expr, i))) for i in range(len(info.fields))]
        what = f"`{expr.name}`" if isinstance(expr, relax.Var) else "an argument"
        raise TypeError(f"{what} of emit_te is not a tensor, shape or scalar with known dtype and dimensions")

    def _tensor(self, expr: relax.Expr, info: relax.TensorStructInfo) -> te.Tensor:
        count = len(self.params)
        name = expr.name if isinstance(expr, relax.Var) else parameter_name(count)
        if info.dims is None or info.dtype is None:
            help = "match_cast states it"
            raise TypeError(f"`{name}` has no known {'shape' if info.dims is None else 'dtype'} for emit_te; {help}")
        tensor = te.placeholder(tuple(self._over_own_variables(d) for d in info.dims), info.dtype, name)
        self.params.append(tensor)
        self.values.append(expr)
        self.vdevice = self.vdevice or info.vdevice
        return tensor

    def _scalar(self, value: tir.Expr) -> Value:
        if isinstance(value, tir.Var) and value.dtype is not INT64:
            var = tir.Var(value.name, value.dtype)
            self.params.append(var)
            self.values.append(prim_value(value))
            return Scalar(var)
        renewed = self._over_own_variables(value)
        self.scalars.append(renewed)
        return Scalar(renewed)

    def _over_own_variables(self, value: tir.Expr) -> tir.Expr:
        for var in walk(value):
            if isinstance(var, tir.Var) and var not in self.fresh:
                self.fresh[var] = tir.Var(var.name, var.dtype)
        replaced: tir.Expr = substitute(value, self.fresh)
        return replaced

    def unbound(self, outputs: Iterable[te.Tensor]) -> list[tir.Var]:
        """Symbolic variables that no tensor has alone as a dimension, in order of first use."""
        tensors = [*(p for p in self.params if isinstance(p, te.Tensor)), *outputs]
        dims = [d for t in tensors for d in t.buffer.shape]
        bound = {d for d in dims if isinstance(d, tir.Var)} | {p for p in self.params if isinstance(p, tir.Var)}
        used = (v for e in [*dims, *self.scalars] for v in walk(e))
        return list(dict.fromkeys(v for v in used if isinstance(v, tir.Var) and v not in bound))

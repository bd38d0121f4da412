"""Parameters of a relax function: their slots in the argument vector, and the symbols that they bind."""

from __future__ import annotations

from mlcc.errors import Span
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.targets.plan.dims import Dims, as_int, widen
from mlcc.targets.plan.steps import (
    Leaf,
    Memory,
    MemoryKind,
    Param,
    Scalar,
    Scope,
    Shape,
    Tensor,
    Tuple,
    Value,
    byte_size,
    refusal,
)


class Parameters:
    """Collect symbols and count slots of the argument vector while parameters, and later results, are declared."""

    def __init__(self, dims: Dims) -> None:
        self.dims = dims
        self.symbols: list[tir.Var] = []
        self.leaves = 0

    def find_symbols(self, info: relax.StructInfo | None, scope: Scope) -> None:
        """Find the symbols known at entry: variables that are a whole extent or value of a parameter."""
        match info:
            case relax.TupleStructInfo(fields=fields):
                for part in fields:
                    self.find_symbols(part, scope)
            case relax.TensorStructInfo() if info.dims is not None:
                self._symbols(info.dims, scope, True)
            case relax.ShapeStructInfo(values=values) if values is not None:
                self._symbols(values, scope, True)
            case relax.PrimStructInfo(dtype=dtype, value=tir.Var() as var):
                if dtype.is_float:
                    scope.symbols.setdefault(var, var)
                else:
                    self._symbols((var,), scope, False)

    def _symbols(self, dims: tuple[tir.Expr, ...], scope: Scope, extents: bool) -> None:
        for dim in dims:
            if isinstance(dim, tir.Var) and dim not in scope.symbols:
                scope.symbols[dim] = self.symbol(dim.name, extents)

    def symbol(self, name: str, extent: bool) -> tir.Var:
        """Return a new symbol; an extent is assumed not to be negative."""
        symbol = tir.Var(name, INT64)
        self.symbols.append(symbol)
        if extent:
            self.dims.extent(symbol)
        return symbol

    def declare(self, name: str, info: relax.StructInfo | None, scope: Scope, span: Span | None) -> tuple[Param, Value]:
        """Declare a parameter; return it as the caller passes it, and its value in the body."""
        match info:
            case relax.TupleStructInfo(fields=fields):
                parts = [self.declare(f"{name}[{i}]", f, scope, span) for i, f in enumerate(fields)]
                return Param(name, None, tuple(p for p, _ in parts)), Tuple(tuple(v for _, v in parts))
            case relax.TensorStructInfo(dtype=dtype, ndim=ndim):
                if dtype is None or dtype.is_void or ndim < 0:
                    missing = "number of dimensions" if ndim < 0 else "dtype"
                    raise refusal("E0757", f"the {missing} of parameter `{name}` is unknown", span)
                dims = self._entry_dims(name, info.dims, ndim, scope)
                leaf = Leaf(name, "tensor", dtype, dims, span=span)
                memory = Memory(MemoryKind.ARGUMENT, byte_size(dims, dtype), name, self.leaf())
                return Param(name, leaf), Tensor(memory, dims, dtype)
            case relax.ShapeStructInfo(values=values, ndim=ndim):
                if values is None and ndim < 0:
                    raise refusal("E0757", f"the length of the shape parameter `{name}` is unknown", span)
                self.leaf()
                leaf = Leaf(name, "shape", INT64, self._entry_dims(name, values, ndim, scope), span=span)
                return Param(name, leaf), Shape(leaf.dims)
            case relax.PrimStructInfo(dtype=dtype):
                return self._declare_scalar(name, info, dtype, scope, span)
        raise refusal("E0757", f"parameter `{name}` has a type that native code does not support", span)

    def _declare_scalar(
        self, name: str, info: relax.PrimStructInfo, dtype: DType, scope: Scope, span: Span | None
    ) -> tuple[Param, Value]:
        self.leaf()
        value: tir.Expr
        if dtype.is_int or dtype.is_bool:
            if info.value is None:
                value = self.symbol(name, False)
            elif isinstance(info.value, tir.Var):
                value = scope.symbols[info.value]
            else:
                value = as_int(widen(info.value, scope.symbols))
            body_value = c.not_equal(value, 0) if dtype.is_bool else value
            return Param(name, Leaf(name, "scalar", dtype, value=value, span=span)), Scalar(body_value)
        if not dtype.is_float or dtype.lanes > 1 or not isinstance(info.value, tir.Var | None):
            raise refusal("E0757", f"parameter `{name}` is a {dtype}, which native code does not support", span)
        value = info.value if info.value is not None else tir.Var(name, dtype)
        return Param(name, Leaf(name, "scalar", dtype, value=value, span=span)), Scalar(value)

    def leaf(self) -> int:
        """Return the number of the next slot of the argument vector."""
        self.leaves += 1
        return self.leaves - 1

    def _entry_dims(
        self, name: str, dims: tuple[tir.Expr, ...] | None, ndim: int, scope: Scope
    ) -> tuple[tir.Expr, ...]:
        if dims is None:
            return tuple(self.symbol(f"{name}_{i}", True) for i in range(ndim))
        return tuple(self.dims.simplify(as_int(widen(d, scope.symbols))) for d in dims)

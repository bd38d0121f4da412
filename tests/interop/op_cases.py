"""The calls of `tests.ops.cases`, made with TVM's Python functions."""

from __future__ import annotations

from typing import Any

from tests.ops.cases import SYMBOLS, Case, Const, S, T


class Theirs:
    """The same with TVM."""

    def __init__(self) -> None:
        import tvm

        self.tvm = tvm
        self.vars: dict[str, Any] = {}
        self.params: list[Any] = []

    def dim(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.vars.setdefault(value, self.tvm.tirx.Var(value, "int64"))
        return value

    def arg(self, value: Any) -> Any:
        relax = self.tvm.relax
        match value:
            case T(shape=None, dtype=dtype, ndim=ndim):
                return self.param(relax.TensorType(dtype=dtype, ndim=ndim))
            case T(shape=shape, dtype=dtype):
                return self.param(relax.TensorType([self.dim(d) for d in shape or ()], dtype))
            case S(name=name):
                return self.dim(name)
            case Const(value=number, dtype=dtype):
                return relax.const(number, dtype)
            case tuple():
                return tuple(self.arg(v) for v in value)
            case list():
                return [self.arg(v) for v in value]
        return value

    def param(self, info: Any) -> Any:
        """A parameter of the function that the call stands in."""
        self.params.append(self.tvm.relax.Var(f"x{len(self.params)}", info))
        return self.params[-1]

    def call(self, case: Case) -> Any:
        """The call, normalised inside a function."""
        made = self.module(case)["main"].body.blocks[0].bindings
        return made[-1].value if len(made) == 1 else made[-2].value

    def module(self, case: Case) -> Any:
        """A function of the tensors that the call takes, returning its result."""
        fn: Any = self.tvm.relax.op
        for part in case.name.split("."):
            fn = getattr(fn, part)
        made = fn(*(self.arg(a) for a in case.args), **{k: self.arg(v) for k, v in case.kwargs.items()})
        builder = self.tvm.relax.BlockBuilder()
        with builder.function("main", self.params):
            builder.emit_func_output(builder.emit(made))
        return builder.get()

    def show(self, info: Any) -> str:
        relax = self.tvm.relax
        kind = type(info).__name__
        if kind == "TensorType":
            if isinstance(info.shape, relax.ShapeExpr):
                shape = ", ".join(self.text(d) for d in info.shape.values)
            else:
                shape = f"ndim={info.ndim}"
            return f"Tensor([{shape}] {info.dtype.dtype if info.dtype is not None else 'void'})"
        if kind == "TupleType":
            return f"({', '.join(self.show(f) for f in info.fields)})"
        if kind == "ShapeType":
            if info.values is None:
                return f"Shape(ndim={info.ndim})"
            return f"Shape({', '.join(self.text(d) for d in info.values)})"
        return kind

    def text(self, expr: Any) -> str:
        kind = type(expr).__name__
        if kind == "IntImm":
            return str(expr.value)
        if kind == "Var":
            return str(expr.name)
        if kind in SYMBOLS:
            return f"({self.text(expr.a)} {SYMBOLS[kind]} {self.text(expr.b)})"
        if kind in ("Min", "Max"):
            return f"{kind.lower()}({self.text(expr.a)}, {self.text(expr.b)})"
        if kind == "Cast":
            return self.text(expr.value)
        if kind == "Call":
            return f"{expr.op.name.rpartition('.')[2]}({', '.join(self.text(a) for a in expr.args)})"
        return f"<{kind} {expr}>"

"""Plan relax functions: lower a function of the graph to the steps of a native host function.

A relax function that another one calls is inlined into its caller, so that one workspace serves all. Constructs without
a native form are diagnosed; all diagnostics of a function are collected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mlcc.errors import CompileError, Diagnostic, Span
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import BOOL, INT64, DType
from mlcc.ir.tensor_data import TensorData
from mlcc.ir.visit import substitute
from mlcc.targets.plan import branch, calls, loop
from mlcc.targets.plan.context import AnyPlanning
from mlcc.targets.plan.data_dependent import NOT_KNOWN, DataDependentSymbols
from mlcc.targets.plan.dims import Dims, as_int, format_dim, widen
from mlcc.targets.plan.params import Parameters
from mlcc.targets.plan.steps import (
    ZERO,
    Check,
    Closure,
    Constraint,
    Copy,
    HostFunction,
    Leaf,
    Memory,
    MemoryKind,
    Param,
    ReadSymbol,
    Scalar,
    Scope,
    Shape,
    Step,
    Tensor,
    Text,
    Tuple,
    Unknown,
    Unreachable,
    Value,
    byte_size,
    refusal,
)

T = TypeVar("T")
_MAX_INLINED_CALLS = 100_000  # in one plan


class Planner:
    """Plan one public relax function."""

    def __init__(self, name: str, shared: AnyPlanning) -> None:
        self.name = name
        self.shared = shared
        self.dims = Dims()
        self.params = Parameters(self.dims)
        self.steps: list[Step] = []
        self.memories: list[Memory] = []
        self.constraints: list[Constraint] = []
        self.lines: dict[int, int] = {}
        self.conditional = 0  # number of enclosing branches and loops
        self.loops: list[loop.ActiveLoop] = []  # enclosing loops, the innermost last
        self.measured = DataDependentSymbols(self.dims)
        self.findings: list[Diagnostic] = []
        self._active: list[tuple[str, relax.Function]] = []
        self._inlined = 0

    # ------------------------------------------------------------ the function

    def plan(self, func: relax.Function) -> HostFunction:
        """Plan a function. Raises CompileError with a diagnostic for every unsupported construct."""
        scope = Scope(self.name)
        for param in func.params:
            self.params.find_symbols(param.struct_info, scope)
        params = tuple(self._parameter(p, scope) for p in func.params)
        values: list[tuple[int, tir.Expr]] = []
        results = None
        if not self.findings:
            self._active.append((self.name, func))
            value = self.sequence(func.body, scope)
            self._active.pop()
            results = self._collect(lambda: self._result(value, "out", func.body.body.span or func.span, values))
        if self.findings or results is None:
            raise CompileError(self.findings)
        return HostFunction(
            self.name, "relax", params, results, tuple(self.params.symbols), self.steps, self.dims, func.span, values,
            self.memories, self.constraints, self.measured.symbols, self.lines,
        )  # fmt: skip

    def _collect(self, work: Callable[[], T]) -> T | None:
        """Return the result of `work`; if it raises CompileError, collect the diagnostics and return None."""
        try:
            return work()
        except CompileError as exc:
            self.findings += exc.diagnostics
            return None

    def _parameter(self, var: relax.Var, scope: Scope) -> Param:
        declared = self._collect(lambda: self.params.declare(var.name, var.struct_info, scope, var.span))
        if declared is None:
            return Param(var.name, None)
        scope.values[var] = declared[1]
        return declared[0]

    # ------------------------------------------------------------ results

    def _result(self, value: Value, name: str, span: Span | None, values: list[tuple[int, tir.Expr]]) -> Param:
        """Declare a result and plan how it is stored: in place of a temporary where possible, else by a copy."""
        match value:
            case Tuple(fields=fields):
                parts = tuple(self._result(f, f"{name}{i}", span, values) for i, f in enumerate(fields))
                return Param(name, None, parts)
            case Tensor(dims=dims, dtype=dtype):
                bounds = self.bounds(dims, span, f"the result of `{self.name}`")
                actual = None if bounds is dims else dims
                leaf = Leaf(name, "tensor", dtype, bounds, read=False, written=True, span=span, actual=actual)
                target = Memory(MemoryKind.RESULT, byte_size(bounds, dtype), name, self.params.leaf())
                source = value.memory.root()
                if source.place is MemoryKind.TEMPORARY and self.is_whole(value, source):
                    source.into = target
                else:
                    self.steps.append(Copy(Tensor(target, dims, dtype), value))
                return Param(name, leaf)
            case Shape(dims=dims):
                at = self.params.leaf()
                values += [(at, d) for d in dims]
                known = tuple(NOT_KNOWN if self.measured.has(d) else d for d in dims)
                return Param(name, Leaf(name, "shape", INT64, known, written=True, span=span))
            case Scalar(value=expr):
                dtype = expr.dtype
                values.append((self.params.leaf(), expr))
                return Param(name, Leaf(name, "scalar", dtype, value=expr, written=True, span=span))
            case Unknown(reason=None):
                raise CompileError(())
        reason = value.reason if isinstance(value, Unknown) else "native code cannot return it"
        raise refusal(
            "E0754", f"the result of `{self.name}` is not a tensor, scalar, shape or tuple of these: {reason}", span
        )

    def is_whole(self, value: Tensor, memory: Memory) -> bool:
        """Return True if a tensor occupies all of a piece of memory."""
        offset = self.dims.equal(value.offset, ZERO)
        size = byte_size(self.bounds(value.dims, None, "a value"), value.dtype)
        return bool(offset) and self.dims.equal(size, memory.size) is True

    # ------------------------------------------------------------ bodies

    def sequence(self, body: relax.Expr, scope: Scope) -> Value:
        """Plan the bindings of a body and return its value."""
        if not isinstance(body, relax.SeqExpr):
            return self.value(body, scope)
        for block in body.blocks:
            for binding in block.bindings:
                self._binding(binding, scope)
        value = self._collect(lambda: self.value(body.body, scope))
        return Unknown() if value is None else value

    def _binding(self, binding: relax.Binding, scope: Scope) -> None:
        def work() -> Value:
            if isinstance(binding, relax.MatchCast):
                value = self.value(binding.value, scope)
                is_shape_literal = isinstance(binding.value, relax.ShapeExpr)  # messages show its values
                what = None if is_shape_literal else f"`{binding.var.name}`"
                self.match(binding.struct_info, value, scope, what, binding.span)
                return self._cast(value, binding.struct_info, scope)
            assert isinstance(binding, relax.VarBinding)
            return self.value(binding.value, scope)

        result = self._collect(work)
        scope.values[binding.var] = Unknown() if result is None else result

    def value(self, expr: relax.Expr, scope: Scope) -> Value:
        """Plan an expression and return its value. Raises CompileError."""
        match expr:
            case relax.Var():
                if expr not in scope.values:
                    raise refusal("E0754", f"`{expr.name}` has no value here", expr.span)
                return scope.values[expr]
            case relax.Constant(data=data):
                return self._constant(data, expr)
            case relax.ShapeExpr(values=values):
                return Shape(tuple(self.dim(v, scope) for v in values))
            case relax.PrimValue(value=value):
                return Scalar(self.scalar(value, scope))
            case relax.StringImm(value=text):
                return Text(text)
            case relax.DataTypeImm(value=dtype):
                return Text(str(dtype))
            case relax.Tuple(fields=fields):
                return Tuple(tuple(self.value(f, scope) for f in fields))
            case relax.TupleGetItem(tuple_value=inner, index=index):
                return self._item(self.value(inner, scope), index, expr)
            case relax.If():
                return branch.plan_branch(self, expr, scope)
            case relax.SeqExpr():
                return self.sequence(expr, scope)
            case relax.Call():
                return calls.plan_call(self, expr, scope)
            case relax.Function():
                return Closure("a nested function", expr, scope)
            case relax.GlobalVar(name=name):
                func = self.shared.module.functions.get(name)
                if isinstance(func, relax.Function):
                    return Closure(name, func, Scope(name))
        return Unknown(f"a {type(expr).__name__} is not a value in native code")

    def scalar(self, expr: tir.Expr, scope: Scope) -> tir.Expr:
        """Rewrite a scalar over the symbols and scalar parameters of the entry; integers become int64."""
        if expr.dtype.is_int or expr.dtype.is_bool:
            return self.dims.simplify(widen(expr, scope.symbols))
        replaced: tir.Expr = substitute(expr, scope.symbols)
        return replaced

    def _constant(self, data: TensorData, expr: relax.Constant) -> Tensor:
        if data.array is None or data.dtype.is_void:
            message = f"the data of constant `{data.key}` are missing"
            raise refusal("E0751", message, expr.span, help="put the file with the constants next to the text")
        dims = tuple(tir.IntImm(INT64, n) for n in data.shape)
        index = self.shared.constant(data)
        return Tensor(Memory(MemoryKind.CONSTANT, tir.IntImm(INT64, data.nbytes), data.key, index), dims, data.dtype)

    def _item(self, value: Value, index: int, expr: relax.Expr) -> Value:
        if isinstance(value, Tuple) and 0 <= index < len(value.fields):
            return value.fields[index]
        if isinstance(value, Unknown):
            return value
        raise refusal("E0754", f"this value has no element {index}", expr.span)

    def inline(self, callee: Closure, args: list[Value], span: Span | None) -> Value:
        """Plan the body of another function in place of its call. Raises CompileError for recursion."""
        name, func = callee.name, callee.func
        if len(args) != len(func.params):
            raise refusal("E0752", f"`{name}` takes {len(func.params)} arguments, not {len(args)}", span)
        if any(f is func for _, f in self._active):
            return loop.plan_next_iteration(self, callee, args, span)
        self._inlined += 1
        if self._inlined > _MAX_INLINED_CALLS:
            raise refusal(
                "E0754", f"`{self.name}` inlines more than {_MAX_INLINED_CALLS} calls of relax functions", span
            )
        scope = Scope(name, dict(callee.scope.values), dict(callee.scope.symbols))
        for param, arg in zip(func.params, args, strict=True):
            self._bind_symbols(param.struct_info, arg, scope)
        for param, arg in zip(func.params, args, strict=True):
            self.match(param.struct_info, arg, scope, f"argument `{param.name}` of `{name}`", span)
            scope.values[param] = arg
        self._active.append((name, func))
        try:
            return loop.plan_loop(self, callee, scope) if loop.is_loop(callee) else self.sequence(func.body, scope)
        finally:
            self._active.pop()

    @property
    def depth(self) -> int:
        """The depth of inlined calls at the code that is being planned."""
        return len(self._active)

    def chain(self, callee: Closure) -> str:
        """Return the call chain from a function back to itself."""
        active = [f for _, f in self._active]
        return " -> ".join([*(n for n, _ in self._active[active.index(callee.func) :]), callee.name])

    def dim(self, expr: tir.Expr, scope: Scope) -> tir.Expr:
        """Rewrite an extent over the symbols of the entry."""
        return self.dims.simplify(as_int(widen(expr, scope.symbols)))

    # ------------------------------------------------------------ memory

    def temporary(self, dims: tuple[tir.Expr, ...], dtype: DType, name: str = "") -> Tensor:
        """Allocate a tensor in the workspace. Raises CompileError if its size has no bound."""
        if any(map(self.measured.has, dims)):
            for dim in dims:
                self.require_extent(dim, name or "a value")
        size = byte_size(self.bounds(dims, None, name or "a value"), dtype)
        return Tensor(self.memory(size, name), dims, dtype)

    def bounds(self, dims: tuple[tir.Expr, ...], span: Span | None, what: str) -> tuple[tir.Expr, ...]:
        """Return upper bounds of extents, by which memory is planned. Raises CompileError if there are none."""
        if not any(map(self.measured.has, dims)):
            return dims
        return tuple(self.measured.bound(d, span, what) for d in dims)

    def require_extent(self, dim: tir.Expr, what: str) -> None:
        """Require a data-dependent extent not to be negative: proven now, or checked at run time."""
        if not self.dims.never_negative(dim):
            code = self.shared.code("CAST", f"{self.name}: an extent of {what} is negative")
            self.steps.append(Check(Scalar(tir.LE(BOOL, tir.IntImm(INT64, 0), dim)), code))

    def measure(self, source: Tensor, count: int, name: str) -> Shape:
        """Read the first `count` elements of an int64 vector at run time, as extents of later steps."""
        code = self.shared.code("CAST", f"{self.name}: a data-dependent extent is negative")
        symbols = []
        for index in range(count):
            symbol = self.measured.symbol(f"{name}_{index}")
            offset = self.dims.simplify(c.add(source.offset, 8 * index))
            self.steps.append(ReadSymbol(symbol, Tensor(source.memory, (), INT64, offset), code))
            symbols.append(symbol)
        return Shape(tuple(symbols))

    def memory(self, size: tir.Expr, name: str = "") -> Memory:
        size = self.measured.bound(size, None, name or "a value") if self.measured.has(size) else size
        memory = Memory(MemoryKind.TEMPORARY, self.dims.simplify(size), name)
        self.memories.append(memory)
        return memory

    def fresh(self, info: relax.StructInfo | None, scope: Scope, span: Span | None, name: str = "") -> Value:
        """Allocate memory for a result. Raises CompileError if its shape or dtype is unknown."""
        match info:
            case relax.TensorStructInfo(dtype=dtype) if info.dims is not None and dtype is not None:
                return self.temporary(tuple(self.dim(d, scope) for d in info.dims), dtype, name)
            case relax.TupleStructInfo(fields=fields):
                return Tuple(tuple(self.fresh(f, scope, span, name) for f in fields))
        raise refusal("E0757", f"the shape or dtype of {name or 'a result'} is not known at compile time", span)

    # ------------------------------------------------------------ struct info at run time

    def match(
        self, info: relax.StructInfo | None, value: Value, scope: Scope, what: str | None, span: Span | None
    ) -> None:
        """Match a value against struct info: bind new variables, and check the others now or at run time.

        `what` names the value in messages; a shape without a name is shown by its values.
        """
        self._bind_symbols(info, value, scope)
        match info, value:
            case relax.TensorStructInfo(dtype=dtype, ndim=ndim), Tensor():
                if dtype is not None and not dtype.is_void and dtype is not value.dtype:
                    raise refusal("E0752", f"{what} is {value.dtype}, not {dtype}", span)
                if ndim >= 0 and ndim != len(value.dims):
                    raise refusal("E0752", f"{what} has {len(value.dims)} dimensions, not {ndim}", span)
                if info.dims is not None:
                    self._match_dims(info.dims, value.dims, scope, what, span)
            case relax.ShapeStructInfo(values=values, ndim=ndim), Shape(dims=dims):
                if ndim >= 0 and ndim != len(dims):
                    raise refusal("E0752", f"{what} has {len(dims)} values, not {ndim}", span)
                if values is not None:
                    self._match_dims(values, dims, scope, what, span)
            case relax.PrimStructInfo(value=want), Scalar(value=have) if want is not None:
                if not have.dtype.is_float:
                    self._match_dims((want,), (as_int(have),), scope, what, span)
            case relax.TupleStructInfo(fields=fields), Tuple(fields=parts):
                if len(fields) != len(parts):
                    raise refusal("E0752", f"{what} is a tuple of {len(parts)}, not {len(fields)}", span)
                for index, (f, v) in enumerate(zip(fields, parts, strict=True)):
                    self.match(f, v, scope, f"{what}[{index}]", span)
            case ((relax.ObjectStructInfo() | None), _):
                pass
            case relax.PrimStructInfo(), Scalar():
                pass
            case relax.FuncStructInfo(), Closure():
                pass
            case _, Unreachable():
                pass
            case _, Unknown(reason=reason):
                if reason is None:
                    raise CompileError(())
                raise refusal("E0754", f"{what} has no native form: {reason}", span)
            case _:
                raise refusal(
                    "E0752", f"{what} is not a {type(info).__name__.removesuffix('StructInfo').lower()}", span
                )

    def _bind_symbols(self, info: relax.StructInfo | None, value: Value, scope: Scope) -> None:
        """Bind variables that are a whole extent or value of a parameter to the argument's; nothing is checked."""
        pairs: list[tuple[tir.Expr, tir.Expr]] = []
        match info, value:
            case relax.TensorStructInfo(), Tensor(dims=dims) if info.dims is not None:
                pairs = list(zip(info.dims, dims, strict=False))
            case relax.ShapeStructInfo(values=values), Shape(dims=dims) if values is not None:
                pairs = list(zip(values, dims, strict=False))
            case relax.PrimStructInfo(value=want), Scalar(value=have) if want is not None:
                pairs = [(want, have if have.dtype.is_float else as_int(have))]
            case relax.TupleStructInfo(fields=fields), Tuple(fields=parts):
                for field_info, part in zip(fields, parts, strict=False):
                    self._bind_symbols(field_info, part, scope)
        for want, have in pairs:
            if isinstance(want, tir.Var):
                scope.symbols.setdefault(want, have)

    def _match_dims(
        self, want: tuple[tir.Expr, ...], have: tuple[tir.Expr, ...], scope: Scope, what: str | None, span: Span | None
    ) -> None:
        for index, (dim, actual) in enumerate(zip(want, have, strict=True)):
            label = format_dim(actual) if what is None else f"dim {index} of {what}"
            self.require_equal(self.dim(dim, scope), actual, label, span)

    def require_equal(self, want: tir.Expr, have: tir.Expr, what: str, span: Span | None) -> None:
        """Require two extents to be equal: proven now, or checked at entry (in a branch: when it is taken).

        Raises CompileError if they can never be equal.
        """
        equal = self.dims.equal(want, have)
        if equal is False:
            has_name = what != format_dim(have)
            text = (
                f"{what} is {format_dim(have)}, not {format_dim(want)}"
                if has_name
                else f"{what} is not {format_dim(want)}"
            )
            raise refusal("E0752", text, span)
        if equal is not None:
            return
        line = 0 if span is None else span.source.line_col(span.start)[0]
        code = self.shared.code("CAST", f"{self.name}: {what} is not {format_dim(want)}")
        is_data_dependent = self.measured.has(want) or self.measured.has(have)  # cannot be checked at entry
        if self.conditional or is_data_dependent:
            self.steps.append(Check(Scalar(tir.EQ(BOOL, want, have)), code, exact=True))
            if line:
                self.lines[code] = line
        else:
            self.constraints.append(Constraint(what, line, have, want, code))

    def _cast(self, value: Value, info: relax.StructInfo, scope: Scope) -> Value:
        """Give a value the extents of its new struct info, which is at least as precise."""
        if isinstance(value, Tensor) and isinstance(info, relax.TensorStructInfo) and info.dims is not None:
            return Tensor(value.memory, tuple(self.dim(d, scope) for d in info.dims), value.dtype, value.offset)
        return value


def plan_relax(name: str, func: relax.Function, shared: AnyPlanning) -> HostFunction:
    """Plan a public relax function. Raises CompileError listing everything that has no native form."""
    return Planner(name, shared).plan(func)

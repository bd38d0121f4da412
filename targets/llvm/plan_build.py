"""Functions of a module to plans: what a native function does, step by step.

A relax function that another one calls is planned into its caller, so that one workspace serves all. Whatever the graph
says that native code cannot do is a finding; all of a function are gathered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from mlcc.errors import CompileError, Diagnostic, Span, error
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import BOOL, INT64, DType
from mlcc.ir.tensor_data import TensorData
from mlcc.ir.visit import substitute
from mlcc.targets.llvm import plan_calls
from mlcc.targets.llvm.dims import Dims, as_number, choose, plain, widen
from mlcc.targets.llvm.plan import (
    ZERO,
    Branch,
    Check,
    Copy,
    HostFunction,
    Leaf,
    Memory,
    Param,
    Place,
    Scalar,
    Shape,
    Step,
    Tensor,
    Text,
    Tuple,
    Unknown,
    Value,
    byte_size,
)
from mlcc.targets.llvm.shared import Shared

T = TypeVar("T")
_MOST_CALLS = 100_000  # calls of relax functions in one plan; their bodies are planned into it


@dataclass(slots=True)
class Scope:
    """One activation of a relax function: its variables and symbols."""

    name: str
    values: dict[relax.Var, Value] = field(default_factory=dict)
    symbols: dict[tir.Var, tir.Expr] = field(default_factory=dict)


def refuse(code: str, message: str, span: Span | None = None, text: str = "", help: str | None = None) -> CompileError:
    """The error for a construct that has no native form."""
    return CompileError(error(code, message, span, text, help=help))


class Planner:
    """Plans one public relax function."""

    def __init__(self, name: str, shared: Shared) -> None:
        self.name = name
        self.shared = shared
        self.dims = Dims()
        self.symbols: list[tir.Var] = []
        self.steps: list[Step] = []
        self.memories: list[Memory] = []
        self.findings: list[Diagnostic] = []
        self._active: list[str] = []
        self._leaves = 0
        self._inlined = 0

    # ------------------------------------------------------------ the function

    def plan(self, func: relax.Function) -> HostFunction:
        """The plan of a function. Raises CompileError with everything that it cannot do."""
        scope = Scope(self.name)
        for param in func.params:
            self._find_symbols(param.struct_info, scope)
        params = tuple(self._parameter(p, scope) for p in func.params)
        values: list[tuple[int, tir.Expr]] = []
        results = None
        if not self.findings:
            self._active.append(self.name)
            value = self.sequence(func.body, scope)
            self._active.pop()
            results = self._collect(lambda: self._result(value, "out", func.body.body.span or func.span, values))
        if self.findings or results is None:
            raise CompileError(self.findings)
        return HostFunction(
            self.name, "relax", params, results, tuple(self.symbols), self.steps, self.dims, func.span, values,
            self.memories,
        )  # fmt: skip

    def _collect(self, work: Callable[[], T]) -> T | None:
        """What `work` gives; None if it found something wrong."""
        try:
            return work()
        except CompileError as exc:
            self.findings += exc.diagnostics
            return None

    # ------------------------------------------------------------ parameters

    def _find_symbols(self, info: relax.StructInfo | None, scope: Scope) -> None:
        """Every variable that stands alone as an extent or a value of a parameter is known at entry."""
        match info:
            case relax.TupleStructInfo(fields=fields):
                for part in fields:
                    self._find_symbols(part, scope)
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
                scope.symbols[dim] = self._symbol(dim.name, extents)

    def _symbol(self, name: str, extent: bool) -> tir.Var:
        made = tir.Var(name, INT64)
        self.symbols.append(made)
        if extent:
            self.dims.extent(made)
        return made

    def _parameter(self, var: relax.Var, scope: Scope) -> Param:
        made = self._collect(lambda: self._declare(var.name, var.struct_info, scope, var.span))
        if made is None:
            return Param(var.name, None)
        scope.values[var] = made[1]
        return made[0]

    def _declare(
        self, name: str, info: relax.StructInfo | None, scope: Scope, span: Span | None
    ) -> tuple[Param, Value]:
        """A parameter as its caller passes it, and as the body sees it."""
        match info:
            case relax.TupleStructInfo(fields=fields):
                parts = [self._declare(f"{name}[{i}]", f, scope, span) for i, f in enumerate(fields)]
                return Param(name, None, tuple(p for p, _ in parts)), Tuple(tuple(v for _, v in parts))
            case relax.TensorStructInfo(dtype=dtype, ndim=ndim):
                if dtype is None or dtype.is_void or ndim < 0:
                    missing = "number of dimensions" if ndim < 0 else "dtype"
                    raise refuse("E0757", f"the {missing} of parameter `{name}` is not known", span)
                dims = self._entry_dims(name, info.dims, ndim, scope)
                leaf = Leaf(name, "tensor", dtype, dims, span=span)
                memory = Memory(Place.ARGUMENT, byte_size(dims, dtype), name, self._leaf())
                return Param(name, leaf), Tensor(memory, dims, dtype)
            case relax.ShapeStructInfo(values=values, ndim=ndim):
                if values is None and ndim < 0:
                    raise refuse("E0757", f"the length of the shape parameter `{name}` is not known", span)
                self._leaf()
                leaf = Leaf(name, "shape", INT64, self._entry_dims(name, values, ndim, scope), span=span)
                return Param(name, leaf), Shape(leaf.dims)
            case relax.PrimStructInfo(dtype=dtype):
                return self._declare_scalar(name, info, dtype, scope, span)
        raise refuse("E0757", f"parameter `{name}` is of a kind that native code cannot take", span)

    def _declare_scalar(
        self, name: str, info: relax.PrimStructInfo, dtype: DType, scope: Scope, span: Span | None
    ) -> tuple[Param, Value]:
        self._leaf()
        value: tir.Expr
        if dtype.is_int or dtype.is_bool:
            if info.value is None:
                value = self._symbol(name, False)
            elif isinstance(info.value, tir.Var):
                value = scope.symbols[info.value]
            else:
                value = as_number(widen(info.value, scope.symbols))
            seen = c.not_equal(value, 0) if dtype.is_bool else value
            return Param(name, Leaf(name, "scalar", dtype, value=value, span=span)), Scalar(seen)
        if not dtype.is_float or dtype.lanes > 1 or not isinstance(info.value, tir.Var | None):
            raise refuse("E0757", f"parameter `{name}` is a {dtype}, which native code cannot take", span)
        value = info.value if info.value is not None else tir.Var(name, dtype)
        return Param(name, Leaf(name, "scalar", dtype, value=value, span=span)), Scalar(value)

    def _leaf(self) -> int:
        self._leaves += 1
        return self._leaves - 1

    def _entry_dims(
        self, name: str, dims: tuple[tir.Expr, ...] | None, ndim: int, scope: Scope
    ) -> tuple[tir.Expr, ...]:
        if dims is None:
            return tuple(self._symbol(f"{name}_{i}", True) for i in range(ndim))
        return tuple(self.dim(d, scope) for d in dims)

    def dim(self, expr: tir.Expr, scope: Scope) -> tir.Expr:
        """An extent in terms of the symbols of the entry."""
        return self.dims.simplify(as_number(widen(expr, scope.symbols)))

    # ------------------------------------------------------------ results

    def _result(self, value: Value, name: str, span: Span | None, values: list[tuple[int, tir.Expr]]) -> Param:
        """A result's places, and the steps that fill them: a temporary becomes the result where that is possible."""
        match value:
            case Tuple(fields=fields):
                parts = tuple(self._result(f, f"{name}{i}", span, values) for i, f in enumerate(fields))
                return Param(name, None, parts)
            case Tensor(dims=dims, dtype=dtype):
                leaf = Leaf(name, "tensor", dtype, dims, read=False, written=True, span=span)
                target = Memory(Place.RESULT, value.size, name, self._leaf())
                source = value.memory.root()
                if source.place is Place.TEMPORARY and self._is_whole(value, source):
                    source.into = target
                else:
                    self.steps.append(Copy(Tensor(target, dims, dtype), value))
                return Param(name, leaf)
            case Shape(dims=dims):
                at = self._leaf()
                values += [(at, d) for d in dims]
                return Param(name, Leaf(name, "shape", INT64, dims, written=True, span=span))
            case Scalar(value=expr):
                dtype = expr.dtype
                values.append((self._leaf(), expr))
                return Param(name, Leaf(name, "scalar", dtype, value=expr, written=True, span=span))
            case Unknown(reason=None):
                raise CompileError(())
        reason = value.reason if isinstance(value, Unknown) else "native code cannot return it"
        raise refuse(
            "E0754", f"the result of `{self.name}` is not a tensor, scalar, shape or tuple of these: {reason}", span
        )

    def _is_whole(self, value: Tensor, memory: Memory) -> bool:
        offset = self.dims.equal(value.offset, ZERO)
        return bool(offset) and self.dims.equal(value.size, memory.size) is True

    # ------------------------------------------------------------ bodies

    def sequence(self, body: relax.Expr, scope: Scope) -> Value:
        """Plan the bindings of a body and give its value."""
        if not isinstance(body, relax.SeqExpr):
            return self.value(body, scope)
        for block in body.blocks:
            for binding in block.bindings:
                self._binding(binding, scope)
        made = self._collect(lambda: self.value(body.body, scope))
        return Unknown() if made is None else made

    def _binding(self, binding: relax.Binding, scope: Scope) -> None:
        def work() -> Value:
            if isinstance(binding, relax.MatchCast):
                value = self.value(binding.value, scope)
                self.match(binding.struct_info, value, scope, f"`{binding.var.name}`", binding.span)
                return self._cast(value, binding.struct_info, scope)
            assert isinstance(binding, relax.VarBinding)
            return self.value(binding.value, scope)

        made = self._collect(work)
        scope.values[binding.var] = Unknown() if made is None else made

    def value(self, expr: relax.Expr, scope: Scope) -> Value:
        """Plan an expression and give its value. Raises CompileError."""
        match expr:
            case relax.Var():
                if expr not in scope.values:
                    raise refuse("E0754", f"`{expr.name}` has no value here", expr.span)
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
                return self._branch(expr, scope)
            case relax.SeqExpr():
                return self.sequence(expr, scope)
            case relax.Call():
                return plan_calls.call(self, expr, scope)
            case relax.Function():
                return Unknown("it is a nested function; lambda-lift moves those to the module")
        return Unknown(f"a {type(expr).__name__} is not a value in native code")

    def scalar(self, expr: tir.Expr, scope: Scope) -> tir.Expr:
        """A scalar expression over symbols and scalar parameters; integers in int64."""
        if expr.dtype.is_int or expr.dtype.is_bool:
            return self.dims.simplify(widen(expr, scope.symbols))
        made: tir.Expr = substitute(expr, scope.symbols)
        return made

    def _constant(self, data: TensorData, expr: relax.Constant) -> Tensor:
        if data.array is None or data.dtype.is_void:
            message = f"the data of constant `{data.key}` are absent"
            raise refuse("E0751", message, expr.span, help="keep the file that holds the constants beside the text")
        dims = tuple(tir.IntImm(INT64, n) for n in data.shape)
        index = self.shared.constant(data)
        return Tensor(Memory(Place.CONSTANT, tir.IntImm(INT64, data.nbytes), data.key, index), dims, data.dtype)

    def _item(self, value: Value, index: int, expr: relax.Expr) -> Value:
        if isinstance(value, Tuple) and 0 <= index < len(value.fields):
            return value.fields[index]
        if isinstance(value, Unknown):
            return value
        raise refuse("E0754", f"there is no element {index} of this value", expr.span)

    def inline(self, name: str, func: relax.Function, args: list[Value], span: Span | None) -> Value:
        """Plan the body of another function in place of its call. Raises CompileError for recursion."""
        if name in self._active:
            chain = " -> ".join([*self._active[self._active.index(name) :], name])
            raise refuse("E0756", f"relax functions call each other in a circle: {chain}", span)
        if len(args) != len(func.params):
            raise refuse("E0752", f"`{name}` takes {len(func.params)} arguments, not {len(args)}", span)
        self._inlined += 1
        if self._inlined > _MOST_CALLS:
            raise refuse("E0754", f"`{self.name}` comes to more than {_MOST_CALLS} calls of relax functions", span)
        scope = Scope(name)
        for param, arg in zip(func.params, args, strict=True):
            self._bind_alone(param.struct_info, arg, scope)
        for param, arg in zip(func.params, args, strict=True):
            self.match(param.struct_info, arg, scope, f"argument `{param.name}` of `{name}`", span)
            scope.values[param] = arg
        self._active.append(name)
        try:
            return self.sequence(func.body, scope)
        finally:
            self._active.pop()

    # ------------------------------------------------------------ memory

    def temporary(self, dims: tuple[tir.Expr, ...], dtype: DType, name: str = "") -> Tensor:
        """A fresh tensor in the workspace."""
        return Tensor(self.memory(byte_size(dims, dtype), name), dims, dtype)

    def memory(self, size: tir.Expr, name: str = "") -> Memory:
        made = Memory(Place.TEMPORARY, self.dims.simplify(size), name)
        self.memories.append(made)
        return made

    def fresh(self, info: relax.StructInfo | None, scope: Scope, span: Span | None, name: str = "") -> Value:
        """Memory for a result of known struct info. Raises CompileError where it is not known."""
        match info:
            case relax.TensorStructInfo(dtype=dtype) if info.dims is not None and dtype is not None:
                return self.temporary(tuple(self.dim(d, scope) for d in info.dims), dtype, name)
            case relax.TupleStructInfo(fields=fields):
                return Tuple(tuple(self.fresh(f, scope, span, name) for f in fields))
        raise refuse("E0757", f"the shape or dtype of {name or 'a result'} is not known at compile time", span)

    # ------------------------------------------------------------ struct info at run time

    def match(self, info: relax.StructInfo | None, value: Value, scope: Scope, what: str, span: Span | None) -> None:
        """`value` has struct info `info`: bind variables that are new, check the others, now or at run time."""
        self._bind_alone(info, value, scope)
        match info, value:
            case relax.TensorStructInfo(dtype=dtype, ndim=ndim), Tensor():
                if dtype is not None and not dtype.is_void and dtype is not value.dtype:
                    raise refuse("E0752", f"{what} is {value.dtype}, not {dtype}", span)
                if ndim >= 0 and ndim != len(value.dims):
                    raise refuse("E0752", f"{what} has {len(value.dims)} dimensions, not {ndim}", span)
                if info.dims is not None:
                    self._match_dims(info.dims, value.dims, scope, what, span)
            case relax.ShapeStructInfo(values=values, ndim=ndim), Shape(dims=dims):
                if ndim >= 0 and ndim != len(dims):
                    raise refuse("E0752", f"{what} has {len(dims)} values, not {ndim}", span)
                if values is not None:
                    self._match_dims(values, dims, scope, what, span)
            case relax.PrimStructInfo(value=want), Scalar(value=have) if want is not None:
                if not have.dtype.is_float:
                    self._match_dims((want,), (as_number(have),), scope, what, span)
            case relax.TupleStructInfo(fields=fields), Tuple(fields=parts):
                if len(fields) != len(parts):
                    raise refuse("E0752", f"{what} is a tuple of {len(parts)}, not {len(fields)}", span)
                for index, (f, v) in enumerate(zip(fields, parts, strict=True)):
                    self.match(f, v, scope, f"{what}[{index}]", span)
            case ((relax.ObjectStructInfo() | relax.PrimStructInfo() | None), _):
                pass
            case _, Unknown(reason=reason):
                if reason is None:
                    raise CompileError(())
                raise refuse("E0754", f"{what} cannot be looked at in native code: {reason}", span)
            case _:
                raise refuse("E0752", f"{what} is no {type(info).__name__.removesuffix('StructInfo').lower()}", span)

    def _bind_alone(self, info: relax.StructInfo | None, value: Value, scope: Scope) -> None:
        """Bind the variables that stand alone in a parameter to what an argument has there; nothing is checked."""
        pairs: list[tuple[tir.Expr, tir.Expr]] = []
        match info, value:
            case relax.TensorStructInfo(), Tensor(dims=dims) if info.dims is not None:
                pairs = list(zip(info.dims, dims, strict=False))
            case relax.ShapeStructInfo(values=values), Shape(dims=dims) if values is not None:
                pairs = list(zip(values, dims, strict=False))
            case relax.PrimStructInfo(value=want), Scalar(value=have) if want is not None:
                pairs = [(want, have if have.dtype.is_float else as_number(have))]
            case relax.TupleStructInfo(fields=fields), Tuple(fields=parts):
                for field_info, part in zip(fields, parts, strict=False):
                    self._bind_alone(field_info, part, scope)
        for want, have in pairs:
            if isinstance(want, tir.Var):
                scope.symbols.setdefault(want, have)

    def _match_dims(
        self, want: tuple[tir.Expr, ...], have: tuple[tir.Expr, ...], scope: Scope, what: str, span: Span | None
    ) -> None:
        for index, (dim, known) in enumerate(zip(want, have, strict=True)):
            self.require_equal(self.dim(dim, scope), known, f"dim {index} of {what}", span)

    def require_equal(self, want: tir.Expr, have: tir.Expr, what: str, span: Span | None) -> None:
        """The two are equal: known now, or checked at run time. Raises CompileError where they never are."""
        equal = self.dims.equal(want, have)
        if equal is False:
            raise refuse("E0752", f"{what} is {plain(have)}, not {plain(want)}", span)
        if equal is None:
            code = self.shared.code("CAST", f"{self.name}: {what} is not {plain(want)}")
            self.steps.append(Check(Scalar(tir.EQ(BOOL, want, have)), code))

    def _cast(self, value: Value, info: relax.StructInfo, scope: Scope) -> Value:
        """The value as its new struct info describes it, which knows at least as much."""
        if isinstance(value, Tensor) and isinstance(info, relax.TensorStructInfo) and info.dims is not None:
            return Tensor(value.memory, tuple(self.dim(d, scope) for d in info.dims), value.dtype, value.offset)
        return value

    # ------------------------------------------------------------ branches

    def _branch(self, expr: relax.If, scope: Scope) -> Value:
        step = Branch(self.condition(self.value(expr.condition, scope), expr.condition.span))
        first, then_made = self._side(expr.true_branch, scope, step.then_steps)
        second, else_made = self._side(expr.false_branch, scope, step.else_steps)
        self.steps.append(step)
        return self._join(step, (first, then_made), (second, else_made))

    def _side(self, body: relax.Expr, scope: Scope, steps: list[Step]) -> tuple[Value, set[Memory]]:
        """Plan one side of a branch: its value, and the memory that it made."""
        outer, self.steps = self.steps, steps
        before = len(self.memories)
        value = self.sequence(body, Scope(scope.name, dict(scope.values), dict(scope.symbols)))
        self.steps = outer
        return value, set(self.memories[before:])

    def condition(self, value: Value, span: Span | None) -> Scalar | Tensor:
        """Something that is true or false when its step is reached."""
        if isinstance(value, Scalar) and (value.value.dtype.is_bool or value.value.dtype.is_int):
            return value
        if isinstance(value, Tensor) and value.dtype.is_bool and all(tir.const_int(d) == 1 for d in value.dims):
            return value
        if isinstance(value, Unknown) and value.reason is None:
            raise CompileError(())
        raise refuse("E0754", "a condition must be a bool: a scalar, or a tensor without dimensions", span)

    def _join(self, step: Branch, first: tuple[Value, set[Memory]], second: tuple[Value, set[Memory]]) -> Value:
        """The value of a branch, from those of its two sides."""
        (one, one_made), (two, two_made) = first, second
        match one, two:
            case (Tuple(fields=a), Tuple(fields=b)) if len(a) == len(b):
                pairs = zip(a, b, strict=True)
                return Tuple(tuple(self._join(step, (x, one_made), (y, two_made)) for x, y in pairs))
            case (Shape(dims=a), Shape(dims=b)) if len(a) == len(b) and isinstance(step.condition, Scalar):
                condition = step.condition.value
                return Shape(tuple(self._either(condition, x, y) for x, y in zip(a, b, strict=True)))
            case Scalar(value=a), Scalar(value=b) if isinstance(step.condition, Scalar) and a.dtype is b.dtype:
                if a.dtype.is_float:
                    return Scalar(tir.Select(a.dtype, step.condition.value, a, b))
                return Scalar(self._either(step.condition.value, a, b))
            case Tensor(), Tensor() if self._same_type(one, two):
                joint = self.temporary(one.dims, one.dtype)
                self._into(joint, one, one_made, step.then_steps)
                self._into(joint, two, two_made, step.else_steps)
                return joint
        if any(isinstance(v, Unknown) and v.reason is None for v in (one, two)):
            return Unknown()
        return Unknown("the two branches give values of different shape or kind, or scalars chosen by data")

    def _either(self, condition: tir.Expr, a: tir.Expr, b: tir.Expr) -> tir.Expr:
        return a if self.dims.equal(a, b) else choose(condition, a, b)

    def _same_type(self, a: Tensor, b: Tensor) -> bool:
        if a.dtype is not b.dtype or len(a.dims) != len(b.dims):
            return False
        return all(self.dims.equal(x, y) for x, y in zip(a.dims, b.dims, strict=True))

    def _into(self, joint: Tensor, value: Tensor, made: set[Memory], steps: list[Step]) -> None:
        """Have one side's value in the joint memory: made there if it was made on that side, else copied."""
        source = value.memory.root()
        if source in made and self._is_whole(value, source):
            source.into = joint.memory
        else:
            steps.append(Copy(joint, value))


def plan_relax(name: str, func: relax.Function, shared: Shared) -> HostFunction:
    """The plan of a public relax function. Raises CompileError listing everything that has no native form."""
    return Planner(name, shared).plan(func)

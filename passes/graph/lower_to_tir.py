"""The pass `lower-to-tir`: replace operators by calls of TIR functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_
from typing import Any, ClassVar

from mlcc import backends, ops
from mlcc.errors import CompileError, Diagnostic, did_you_mean, error, merge_repeated
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, replace, semantic_field_names, walk
from mlcc.ir.visit import rewrite_bottom_up, substitute
from mlcc.ops import OpDef
from mlcc.ops.index import constant_index_range
from mlcc.ops.registry import DataDependentShape, Impl, Inline
from mlcc.ops.shapes import depends_on_data, shapes_known
from mlcc.ops.topi import is_exact_constant
from mlcc.ops.values import scalar
from mlcc.passes.graph.relax_mutator import RelaxMutator
from mlcc.passes.lowering.index_checks import IndexRule, with_index_checks
from mlcc.passes.lowering.narrow_floats import OPERATOR, uses_narrow_floats
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import call_tir, get_item, prim_value, tensor_info
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import DefUse
from mlcc.te.tensor import parameter_name


@dataclass(frozen=True)
class LowerToTir(Pass):
    """Lower operators to `call_tir` of TIR functions built from the operator table, also in fused functions.

    Equal functions are shared. Operators that `skip` names stay, and so do those without a lowering or with unknown
    shapes. Operators that have no lowering for their dtypes are an error, which lists them all.

    Where the length of a result depends on the data, a function that computes it runs first. With `check-indices`,
    indices taken from the data are checked where they are used (`T.checked_index`), and negative ones count from the
    end; with the target option `check-indices=false` they only count from the end. By default, functions that code is
    generated from are checked, and those that are printed are TVM's.

    By default functions are TVM's. With `accurate`, as in every -O level, remainders and floor quotients of floats are
    NumPy's, constants keep their precision, and functions of 16- and 8-bit floats are marked for
    `promote-narrow-floats`.

    Before:  lv = R.add(x, y)
    After:   lv = R.call_tir(cls.add, (x, y), out_sinfo=R.Tensor((3, 4), dtype="float32"))
    """

    name: ClassVar[str] = "lower-to-tir"
    needs_blocks: ClassVar[bool] = True
    skip: tuple[str, ...] = ()
    accurate: bool = False
    check_indices: bool | None = None

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        builder = ModuleBuilder(module)
        skipped = _operator_names(self.skip)
        cache: Cache = {}
        errors: list[Diagnostic] = []
        many_threads = backends.of(ctx.target).many_threads
        for name in sorted(module):
            func = module[name]
            if isinstance(func, relax.Function):
                resolve_indices = ctx.builds if self.check_indices is None else self.check_indices
                choice = Lowering(many_threads, self.accurate, resolve_indices, ctx.target.check_indices)
                lowering = _Lowering(builder, DefUse.of(func), skipped, cache, errors, choice)
                builder.module.functions[name] = lowering.visit_function(func)
        if errors:
            raise CompileError(merge_repeated(errors))
        return builder.module


def _operator_names(names: Sequence[str]) -> set[str]:
    """Return full names of operators. Raise CompileError E0503 for one that does not exist."""
    errors = []
    full_names = set()
    for name in names:
        operator = ops.get(name)
        if operator is None:
            help = did_you_mean(name, ops.names())
            errors.append(error("E0503", f"`lower-to-tir`: there is no operator `{name}` to skip", help=help))
        else:
            full_names.add(operator.name)
    if errors:
        raise CompileError(errors)
    return full_names


@dataclass(frozen=True, slots=True)
class Lowering:
    """The selection among an operator's lowerings: for devices with `many` threads, or the most `accurate` one.

    `resolve_indices`: negative indices in the data count from the end, for operators that define it so. With
    `check_indices`, indices out of bounds are errors.
    """

    many: bool = False
    accurate: bool = False
    resolve_indices: bool = False
    check_indices: bool = True

    def of(self, impl: Impl) -> Iterator[Callable[..., Any]]:
        """Yield the lowerings to try, in order; all but the last may return None."""
        if self.many and impl.many is not None:
            yield impl.many
        if self.accurate and impl.accurate is not None:
            yield impl.accurate
        assert impl.lower is not None
        yield impl.lower


class _Lowering(RelaxMutator):
    def __init__(
        self, builder: ModuleBuilder, uses: DefUse, skipped: set[str], cache: Cache, errors: list[Diagnostic],
        choice: Lowering,
    ) -> None:  # fmt: skip
        super().__init__(builder.module)
        self.choice = choice
        self.builder = builder
        self.uses = uses
        self.skipped = skipped
        self.cache = cache
        self.errors = errors

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if not (isinstance(expr, relax.Call) and isinstance(expr.op, tir.Op)) or expr.op.name in self.skipped:
            return expr
        if isinstance(expr.struct_info, relax.PrimStructInfo) and expr.struct_info.value is not None:
            return scalar(expr.struct_info.value, expr.span)  # a call on two scalars
        op = ops.get(expr.op.name)
        measure = None if op is None else op.impl.found
        if op is not None and op.impl.expand is not None and (shapes_known(expr) or depends_on_data(expr)):
            expanded = op.impl.expand(expr, self.lowered)
            if expanded is not None:
                return self.rewrite(expanded)
        if op is None or op.impl.lower is None or not (shapes_known(expr) or measure and depends_on_data(expr)):
            return expr
        call: relax.Call = replace(expr, args=tuple(self.argument(a) for a in expr.args))
        try:
            if measure is not None and not shapes_known(call):
                call = self.measured(op, call, measure)
            lowered = lower_call(op, call, self.builder, self.cache, self.choice)
        except CompileError as exc:
            self.errors += exc.diagnostics
            return expr
        return replace(lowered, span=expr.span)

    def lowered(self, operator: str, *args: Any) -> relax.Var:
        """Return a variable bound to the lowered call of another operator."""
        return self.emit(self.rewrite(ops.bind_call(operator, args)))

    def measured(self, op: OpDef, call: relax.Call, data_dependent: DataDependentShape) -> relax.Call:
        """Return the call with symbolic extents, which a function that runs first computes from the data."""
        short = f"{op.short}_extents"
        measuring_op = OpDef(f"relax.{short}", op.signature, Impl(op.impl.parameters, lower=data_dependent.measure))
        vector = relax.TensorStructInfo(None, INT64, 1)
        as_vector = replace(call, struct_info=vector)
        choice = replace_(self.choice, many=False)
        sizes = self.emit(lower_call(measuring_op, as_vector, self.builder, self.cache, choice))
        info = sizes.struct_info
        assert isinstance(info, relax.TensorStructInfo) and info.dims is not None
        count = tir.const_int(info.dims[0]) or 0
        shape = self.emit_op("tensor_to_shape", sizes)
        extents = tuple(tir.Var(f"{op.short.rpartition('.')[2]}_{i}", INT64) for i in range(count))
        extents_info = relax.ShapeStructInfo(extents, count)
        var = (relax.DataflowVar if self.in_dataflow else relax.Var)("extents", extents_info)
        self.put(relax.MatchCast(var, shape, extents_info))
        return replace(call, struct_info=data_dependent.sized(call, extents))

    def argument(self, expr: relax.Expr) -> relax.Expr:
        """Expand a variable that stands for a tuple or a shape."""
        if isinstance(expr.struct_info, relax.TupleStructInfo):
            known = self.uses.resolve(expr)
            if isinstance(known, relax.Tuple):
                return self.visit(known)
            fields = tuple(self.emit(get_item(expr, i)) for i in range(len(expr.struct_info.fields)))
            return relax.Tuple(fields, expr.struct_info)
        if isinstance(expr, relax.TupleGetItem):
            return self.emit(expr)
        if isinstance(expr.struct_info, relax.ShapeStructInfo) and expr.struct_info.values is not None:
            return relax.ShapeExpr(expr.struct_info.values, expr.struct_info)
        return expr


# ---------------------------------------------------------------- one call


@dataclass(frozen=True)
class _LoweredCall:
    """A lowered call: the name of its TIR function, the result's struct info, and symbolic sizes passed as arguments.

    The sizes are expressions over the variables in `order`.
    """

    name: str
    info: relax.StructInfo
    sizes: tuple[tir.Expr, ...]
    order: tuple[tir.Var, ...]


Cache = dict[Any, _LoweredCall]  # by the key of a call, see `_KeyBuilder`


@dataclass
class Arguments:
    """The arguments of a call as tensor expressions, over fresh symbolic variables of the function."""

    inputs: list[Any] = field(default_factory=list)
    passed: list[relax.Expr] = field(default_factory=list)
    scalars: list[tir.Expr] = field(default_factory=list)
    fresh: dict[tir.Var, tir.Var] = field(default_factory=dict)

    def convert(self, expr: relax.Expr) -> Any:
        """Convert an argument to a tensor, a list (of a tuple's or shape's elements), or a scalar."""
        from mlcc import te

        match expr:
            case relax.Tuple(fields=fields):
                return [self.convert(f) for f in fields]
            case relax.ShapeExpr(values=values):
                return [self.scalar(v) for v in values]
            case relax.PrimValue(value=value):
                return self.scalar(value)
            case relax.StringImm(value=text):
                return text
            case relax.DataTypeImm(value=dtype):
                return dtype
        match expr.struct_info:
            case relax.PrimStructInfo(value=known) if known is not None:
                return self.scalar(known)
            case relax.TensorStructInfo() as info:
                name = expr.name if isinstance(expr, relax.Var) else parameter_name(len(self.inputs))
                dims = tuple(self.renew(d) for d in info.dims or ())
                self.inputs.append(te.placeholder(dims, info.dtype, name))
                self.passed.append(expr)
                return self.inputs[-1]
        return expr

    def shape(self, expr: relax.Expr) -> list[tir.Expr]:
        """Return the shape of a tensor whose elements are not needed."""
        info = expr.struct_info
        assert isinstance(info, relax.TensorStructInfo)
        return [self.scalar(d) for d in info.dims or ()]

    def scalar(self, value: tir.Expr) -> tir.Expr:
        renewed: tir.Expr = self.renew(value)
        self.scalars.append(renewed)
        return renewed

    def renew(self, value: Any) -> Any:
        for var in walk(value):
            if isinstance(var, tir.Var) and var not in self.fresh:
                self.fresh[var] = tir.Var(var.name, var.dtype)
        return substitute(value, self.fresh)

    def unbound(self, outputs: Sequence[Any]) -> list[tir.Var]:
        """Return the variables that are not by themselves a dimension of any tensor argument."""
        tensors = [*self.inputs, *outputs]
        used = [d for t in tensors for d in t.buffer.shape] + self.scalars
        bound = {d for t in tensors for d in t.buffer.shape if isinstance(d, tir.Var)}
        return list(dict.fromkeys(v for e in used for v in walk(e) if isinstance(v, tir.Var) and v not in bound))


def lower_call(
    op: OpDef, call: relax.Call, builder: ModuleBuilder, cache: Cache, choice: Lowering = Lowering()
) -> relax.Expr:  # fmt: skip
    """Return the `call_tir` that computes an operator call; add its TIR function to the builder."""
    from mlcc import te

    arguments = Arguments()
    operands = _operands(op, call, arguments)
    key_builder = _KeyBuilder({new: old for old, new in arguments.fresh.items()})
    key = key_builder.of((op.name, call.attrs, call.struct_info, operands))
    location = operator_location(op, call) if choice.check_indices else ""
    checked_key = (key, location, constant_ranges(arguments)) if choice.resolve_indices else key
    shared = None if key is None else cache.get(key) or cache.get(checked_key)
    if shared is not None:
        current_symbols = dict(zip(shared.order, key_builder.order, strict=True))
        symbolic = [prim_value(substitute(v, current_symbols)) for v in shared.sizes]
        passed = [*arguments.passed, *symbolic]
        return call_tir(shared.name, builder.module[shared.name], passed, substitute(shared.info, current_symbols))  # type: ignore[arg-type]
    renewed_call = arguments.renew(call)  # with fresh variables in shapes and attributes, too
    result: Any = next(
        lowered for lower in choice.of(op.impl) if (lowered := lower(renewed_call, *operands)) is not None
    )
    if isinstance(result, relax.Expr):
        return result
    outputs = list(result) if isinstance(result, (list, tuple)) else [result]
    _check_dtypes(call, [t.dtype for t in outputs])
    unbound = arguments.unbound(outputs)
    func = te.create_prim_func([*arguments.inputs, *unbound, *outputs], "int64").without_attr("global_symbol")
    if not choice.accurate:
        func = with_rounded_constants(func)
    elif uses_narrow_floats(func):
        func = func.with_attr(OPERATOR, True)
    if choice.resolve_indices:
        rule = replace_(_index_rule(op, call, func, arguments), checked=choice.check_indices)
        unchecked, func = func, with_index_checks(func, rule)
        key = checked_key if key is not None and func is not unchecked else key
    name = builder.add(func, op.tir_name(call))
    original_symbols = {new: old for old, new in arguments.fresh.items()}
    infos = [
        replace(tensor_info((_int64(substitute(d, original_symbols)) for d in t.buffer.shape), t.dtype), vdevice=device)
        for t, device in zip(outputs, _devices(call.struct_info, len(outputs)), strict=True)
    ]
    single = not isinstance(call.struct_info, relax.TupleStructInfo)
    out = infos[0] if single else relax.TupleStructInfo(tuple(infos))
    sizes = tuple(substitute(v, original_symbols) for v in unbound)
    if key is not None and set(original_symbols.values()) <= set(key_builder.order):
        cache[key] = _LoweredCall(name, out, sizes, tuple(key_builder.order))
    return call_tir(name, builder.module[name], [*arguments.passed, *map(prim_value, sizes)], out)  # type: ignore[arg-type]


def _devices(info: relax.StructInfo | None, count: int) -> list[str | None]:
    """Return the devices that hold the results of a call."""
    fields = info.fields if isinstance(info, relax.TupleStructInfo) else (info,)
    devices = [i.vdevice if isinstance(i, relax.TensorStructInfo) else None for i in fields]
    return devices if len(devices) == count else [None] * count


def with_rounded_constants(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return the function with casts of exact constants to narrow floats replaced by the rounded constants."""

    def folded(node: Any) -> Any:
        return c.cast(node.dtype, node.value) if is_exact_constant(node) else node

    return rewrite_bottom_up(func, folded) if any(map(is_exact_constant, walk(func))) else func


def operator_location(op: OpDef, call: relax.Call) -> str:
    """Return the location of a call for messages: its operator, and its line if it was read from a text."""
    line = 0 if call.span is None else call.span.source.line_col(call.span.start)[0]
    return f"`R.{op.short}`" + (f" in line {line}" if line else "")


def constant_ranges(arguments: Arguments) -> tuple[tuple[int, int] | None, ...]:
    """Return the least and greatest element of each tensor argument that is a small integer constant."""
    return tuple(map(constant_index_range, arguments.passed))


def _index_rule(op: OpDef, call: relax.Call, func: tir.PrimFunc, arguments: Arguments) -> IndexRule:
    inputs = [b.data for b in func.buffers[: len(arguments.inputs)] if b is not None]
    ranges = constant_ranges(arguments)
    known_ranges = {
        data: index_range for data, index_range in zip(inputs, ranges, strict=False) if index_range is not None
    }
    from_end = op.impl.from_end and call.attrs.get("mode") not in ("clip", "wrap")
    scalars = op.impl.checks_scalars
    return IndexRule(operator_location(op, call), frozenset(inputs), from_end, from_end, known_ranges, scalars)


def _check_dtypes(call: relax.Call, produced: Sequence[DType]) -> None:
    """Raise CompileError E0444 unless a lowering produces the dtypes that struct-info inference promised."""
    info = call.struct_info
    promised = [i.dtype for i in (info.fields if isinstance(info, relax.TupleStructInfo) else (info,))]  # type: ignore[union-attr]
    if promised != list(produced):
        name, dtypes = call.op.name.removeprefix("relax."), ", ".join(map(str, promised))
        raise CompileError(error("E0444", f"`R.{name}` has no implementation that returns {dtypes}", call.span))


class _KeyBuilder:
    """Builds keys by which calls compare: tensors by shape and dtype, variables by name and order of first use."""

    def __init__(self, old: dict[tir.Var, tir.Var]) -> None:
        self.old = old  # maps fresh variables back to those of the graph
        self.order: list[tir.Var] = []

    def of(self, value: Any) -> Any:
        """Return the key of a value, or None if a part of it cannot be compared."""
        match value:
            case None | bool() | int() | float() | str() | DType():
                return (type(value), value)
            case tir.IntImm() | tir.FloatImm():
                return (value.dtype, value.value)
            case tir.Var():
                return self._var(self.old.get(value, value))
            case tir.Op():
                return value.name
            case tir.Expr():
                return self.of(
                    (type(value).__name__, *(getattr(value, name) for name in semantic_field_names(type(value))))
                )
            case te_tensor if hasattr(te_tensor, "buffer"):
                return self.of((te_tensor.dtype, te_tensor.buffer.shape))
            case relax.TensorStructInfo():
                return self.of((value.dtype, value.dims, value.vdevice))
            case relax.TupleStructInfo(fields=fields):
                return self.of(fields)
            case tuple() | list():
                parts = tuple(map(self.of, value))
                return None if any(p is None for p in parts) else parts
            case Attrs():
                return self.of([part for item in sorted(value.items(), key=lambda i: i[0]) for part in item])
        return None

    def _var(self, var: tir.Var) -> Any:
        if var not in self.order:
            self.order.append(var)
        return (self.order.index(var), var.name, var.dtype)


def _int64(value: tir.Expr) -> tir.Expr:
    return c.cast("int64", value)


def _operands(op: OpDef, call: relax.Call, arguments: Arguments) -> list[Any]:
    numbers: dict[int, tir.Expr] = {}
    if op.impl.inline is Inline.ONE_OF_TWO:
        for index in (1, 0):
            value = scalar_constant(call.args[index])
            if value is not None and not numbers:
                numbers[index] = value
    elif op.impl.inline is Inline.ALL:
        numbers = {i: v for i, a in enumerate(call.args) if (v := scalar_constant(a)) is not None}
    shapes = {i: arguments.shape(call.args[i]) for i in op.impl.shape_only}
    converted: dict[int, Any] = {**shapes, **numbers}
    return [converted[i] if i in converted else arguments.convert(a) for i, a in enumerate(call.args)]


def scalar_constant(expr: relax.Expr) -> tir.Expr | None:
    """Return the value of a constant without dimensions, or None."""
    if not isinstance(expr, relax.Constant) or expr.data.shape != () or expr.data.array is None:
        return None
    from mlcc.ir.narrow_floats import decode

    return c.const(decode(expr.data.array, expr.data.dtype).item(), expr.data.dtype)

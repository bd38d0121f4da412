"""Construction of one TIR function from a relax function of TIR calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlcc.errors import Span
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import HANDLE
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, map_children, replace, walk
from mlcc.ir.visit import fresh_var, renew_vars, substitute
from mlcc.passes.lowering.narrow_floats import OPERATOR, is_operator, promote_func, uses_narrow_floats
from mlcc.relax.construct import CALL_TIR, CALL_TIR_INPLACE
from mlcc.relax.queries import tir_callee


@dataclass(frozen=True)
class FusedKernel:
    """A merged TIR function, and the constants that callers pass after their own arguments.

    Its statements have the places of the calls that they come from, or of the texts of the callees.
    """

    function: tir.PrimFunc
    constants: list[relax.Expr]


class _NotFusible(Exception):
    """Raised for a function that does not consist of TIR calls that can be concatenated."""


def fuse_calls(func: relax.Function, module: IRModule) -> FusedKernel | None:
    """Merge a function of TIR calls into a single TIR function; return None if it does anything else."""
    try:
        return _Builder(module).build(func)
    except _NotFusible:
        return None


Values = tuple[tir.Buffer, ...]  # the tensors of a value: one, or those of a tuple, flattened


@dataclass
class _Builder:
    module: IRModule
    values: dict[relax.Expr, Values] = field(default_factory=dict)
    scalars: dict[relax.Expr, tir.Expr] = field(default_factory=dict)
    inputs: list[tir.Buffer] = field(default_factory=list)
    constants: dict[relax.Expr, tir.Buffer] = field(default_factory=dict)
    scalar_params: list[tir.Var] = field(default_factory=list)
    allocated: list[tir.Buffer] = field(default_factory=list)
    body: list[tir.Stmt] = field(default_factory=list)
    # False if functions of the program and of operators are mixed, and some have narrow floats
    same_origin: bool = True

    def build(self, func: relax.Function) -> FusedKernel:
        views = _views_of(func, self.module)
        narrow_callees = [f for f in _called(func, self.module) if uses_narrow_floats(f)]
        self.same_origin = len({is_operator(f) for f in narrow_callees}) == 1
        for param in func.params:
            self.parameter(param, views)
        for block in func.body.blocks:
            for binding in block.bindings:
                if not isinstance(binding, relax.VarBinding):
                    raise _NotFusible
                self.values[binding.var] = self.value(binding.value)
        outputs = self.value(func.body.body)
        if len(set(outputs)) != len(outputs) or not set(outputs) <= set(self.allocated):
            raise _NotFusible  # a result is an argument, or occurs twice
        inputs = [*self.inputs, *self.constants.values()]
        params = [*map(handle, inputs), *self.scalar_params, *map(handle, outputs)]
        buffers = [*inputs, *(None for _ in self.scalar_params), *outputs]
        internal = tuple(b for b in self.allocated if b not in set(outputs))
        root = tir.Block("root", (), (), (), _unique_blocks(tuple(self.body)), alloc_buffers=internal)
        body = (tir.BlockRealize((), tir.TRUE, root),)
        kernel = tir.PrimFunc(tuple(params), tuple(buffers), Attrs({"tir.noalias": True}), body)
        if self.same_origin and any(map(is_operator, narrow_callees)):
            kernel = kernel.with_attr(OPERATOR, True)
        return FusedKernel(renew_vars(kernel), list(self.constants))

    # ------------------------------------------------------------ values

    def parameter(self, param: relax.Var, views: dict[relax.Var, tir.Buffer]) -> None:
        match param.struct_info:
            case relax.ShapeStructInfo(values=values) if values is not None:
                for value in values:
                    self.scalar_param(value)
            case relax.PrimStructInfo(value=value) if value is not None:
                self.scalar_param(value)
                self.scalars[param] = value
            case info:
                tensors = list(_tensors(info))
                names = [param.name] if not isinstance(info, relax.TupleStructInfo) else None
                buffers = []
                for number, tensor in enumerate(tensors):
                    name = names[0] if names else f"{param.name}_{number}"
                    buffers.append(_buffer_like(tensor, name, views.get(param)))
                self.values[param] = tuple(buffers)
                self.inputs += buffers

    def scalar_param(self, value: tir.Expr) -> None:
        if not isinstance(value, tir.Var):
            raise _NotFusible
        if value not in self.scalar_params:
            self.scalar_params.append(value)

    def value(self, expr: relax.Expr) -> Values:
        match expr:
            case relax.Var() if expr in self.values:
                return self.values[expr]
            case relax.Tuple(fields=fields):
                return tuple(b for f in fields for b in self.value(f))
            case relax.TupleGetItem(tuple_value=value, index=index):
                return self.item(value, index)
            case relax.Constant():
                return (self.constant(expr),)
            case relax.Call(op=op) if op in (CALL_TIR, CALL_TIR_INPLACE):
                return self.call(expr)
        raise _NotFusible

    def item(self, value: relax.Expr, index: int) -> Values:
        info = value.struct_info
        if not isinstance(info, relax.TupleStructInfo) or index >= len(info.fields):
            raise _NotFusible
        sizes = [len(list(_tensors(f))) for f in info.fields]
        start = sum(sizes[:index])
        return self.value(value)[start : start + sizes[index]]

    def constant(self, expr: relax.Constant) -> tir.Buffer:
        if expr not in self.constants:
            (tensor,) = _tensors(expr.struct_info)
            self.constants[expr] = _buffer_like(tensor, f"const_{len(self.constants)}", None)
        return self.constants[expr]

    # ------------------------------------------------------------ calls

    def call(self, call: relax.Call) -> Values:
        """Append the body of the callee, with parameters replaced by the buffers of the arguments."""
        callee, arguments = call.args[:2]
        func = self.module.functions.get(callee.name) if isinstance(callee, relax.GlobalVar) else None
        if not isinstance(func, tir.PrimFunc) or func.root is None or not isinstance(arguments, relax.Tuple):
            raise _NotFusible
        written = self.written(call, arguments.fields)
        if not self.same_origin and is_operator(func):
            func = promote_func(func)
        result_buffers = self.results(call, func, len(arguments.fields), written)
        remaining = iter(result_buffers)
        outputs = tuple(next(remaining) if w is None else w for w in written)
        root = func.root
        assert root is not None
        substitutions: dict[Any, Any] = {n: fresh_var(n) for n in set(walk(func)) if isinstance(n, tir.Var)}
        actuals: list[Any] = [self.argument(a) for a in arguments.fields] + list(result_buffers)
        symbolic = call.args[2] if len(call.args) > 2 else None
        if symbolic is not None:
            actuals += list(symbolic.values) if isinstance(symbolic, relax.ShapeExpr) else []
        if len(actuals) != len(func.params):
            raise _NotFusible
        symbols: dict[tir.Var, tir.Expr] = {}
        for param, buffer, argument in zip(func.params, func.buffers, actuals, strict=True):
            if isinstance(argument, tir.Buffer) != (buffer is not None):
                raise _NotFusible
            if buffer is None:
                symbols[param] = c.cast(param.dtype, argument)
            else:
                _bind_shape(buffer, argument, symbols)
                substitutions[buffer] = argument
                substitutions[buffer.data] = argument.data
        substitutions.update(symbols)
        inlined = substitute(root, substitutions)
        self.allocated += (*inlined.alloc_buffers, *result_buffers)
        self.body += (_inlined(stmt, call.span) for stmt in inlined.body)
        return outputs

    def argument(self, expr: relax.Expr) -> tir.Buffer | tir.Expr:
        if expr in self.scalars:
            return self.scalars[expr]
        if isinstance(expr, relax.PrimValue):
            return expr.value
        values = self.value(expr)
        if len(values) != 1:
            raise _NotFusible
        return values[0]

    def written(self, call: relax.Call, arguments: tuple[relax.Expr, ...]) -> list[tir.Buffer | None]:
        """Return for each result the intermediate buffer that the call writes in place, or None."""
        if call.op == CALL_TIR:
            return [None] * len(list(_outputs(call)))
        targets: list[tir.Buffer | None] = []
        for index in call.attrs.get("inplace_indices", ()):
            target = self.argument(arguments[index]) if 0 <= index < len(arguments) else None
            if target is not None and target not in self.allocated:
                raise _NotFusible  # an argument, which the caller may still use
            targets.append(target)
        if len(targets) != len(list(_outputs(call))):
            raise _NotFusible
        return targets

    def results(self, call: relax.Call, func: tir.PrimFunc, inputs: int, written: list[tir.Buffer | None]) -> Values:
        """Return new buffers for results that are not written in place, laid out like the callee's parameters."""
        tensors = [t for t, w in zip(_outputs(call), written, strict=True) if w is None]
        params = func.buffers[inputs : inputs + len(tensors)]
        buffers = []
        for tensor, param in zip(tensors, params, strict=False):
            dims = tensor.dims
            if param is None or dims is None:
                raise _NotFusible
            data = tir.Var(f"{param.name}_intermediate", param.data.dtype, param.data.pointer)
            buffers.append(replace(param, name=data.name, data=data, shape=dims))
        return tuple(buffers)


def _called(func: relax.Function, module: IRModule) -> list[tir.PrimFunc]:
    """Return the TIR functions that a function calls."""
    values = [b.value for block in func.body.blocks for b in block.bindings if isinstance(b, relax.VarBinding)]
    callees = [module.functions.get(tir_callee(v) or "") for v in values]
    return [f for f in callees if isinstance(f, tir.PrimFunc)]


def _outputs(call: relax.Call) -> Iterable[relax.TensorStructInfo]:
    """Return the result tensors of a call; in-place calls may list them one by one."""
    if call.op == CALL_TIR_INPLACE:
        return [tensor for info in call.sinfo_args for tensor in _tensors(info)]
    return _tensors(call.sinfo_args[0] if len(call.sinfo_args) == 1 else None)


def _tensors(info: Any) -> Iterable[relax.TensorStructInfo]:
    """Yield the tensors of a struct info, tuples flattened. Raise _NotFusible for unknown shapes."""
    if isinstance(info, relax.TupleStructInfo):
        for inner in info.fields:
            yield from _tensors(inner)
    elif isinstance(info, relax.TensorStructInfo) and info.dims is not None and info.dtype is not None:
        yield info
    else:
        raise _NotFusible


def _buffer_like(tensor: relax.TensorStructInfo, name: str, view: tir.Buffer | None) -> tir.Buffer:
    """Return a compact buffer for a parameter, with the storage scope of the TIR parameter that it is passed to."""
    scope = view.scope if view is not None else "global"
    separators = view.axis_separators if view is not None else ()
    return c.make_buffer(name, tensor.dims or (), tensor.dtype or "float32", scope, axis_separators=separators)


def _views_of(func: relax.Function, module: IRModule) -> dict[relax.Var, tir.Buffer]:
    """Return, for each parameter, the TIR parameter that it is passed to (the last one)."""
    views: dict[relax.Var, tir.Buffer] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            call = binding.value  # type: ignore[attr-defined]
            if not (isinstance(call, relax.Call) and call.op == CALL_TIR and isinstance(call.args[1], relax.Tuple)):
                continue
            callee = module.functions.get(getattr(call.args[0], "name", ""))
            if isinstance(callee, tir.PrimFunc):
                for argument, buffer in zip(call.args[1].fields, callee.buffers, strict=False):
                    if isinstance(argument, relax.Var) and buffer is not None:
                        views[argument] = buffer
    return views


def _bind_shape(param: tir.Buffer, argument: tir.Buffer, symbols: dict[tir.Var, tir.Expr]) -> None:
    """Bind the variables of a parameter's shape to the dimensions of the argument."""
    if len(param.shape) != len(argument.shape) or param.dtype is not argument.dtype:
        raise _NotFusible
    layout = (*param.strides, *(() if param.elem_offset is None else (param.elem_offset,)))
    if param.strides or any(isinstance(n, tir.Var) for e in layout for n in walk(e)):
        raise _NotFusible  # the body may depend on a layout that intermediate results do not have
    for want, have in zip(param.shape, argument.shape, strict=True):
        if isinstance(want, tir.Var):
            symbols.setdefault(want, c.cast(want.dtype, have))


def extract_function(
    root: tir.Block, body: Sequence[tir.Stmt], params: Sequence[tuple[tir.Var, tir.Buffer | None]],
    local: Collection[tir.Buffer],
) -> tir.PrimFunc:  # fmt: skip
    """Return a function of some statements of a root block, over fresh variables.

    `params` are its parameters with their buffers. Of the buffers that the root block allocates, those in `local` stay
    internal.
    """
    parameter_buffers = {b for _, b in params}
    internal = tuple(b for b in root.alloc_buffers if b in local and b not in parameter_buffers)
    block = replace(root, body=tuple(body), alloc_buffers=internal)
    extracted = tir.PrimFunc(
        tuple(p for p, _ in params),
        tuple(b for _, b in params),
        Attrs({"tir.noalias": True}),
        (tir.BlockRealize((), tir.TRUE, block),),
    )
    return renew_vars(extracted)


def handle(buffer: tir.Buffer) -> tir.Var:
    """Return a handle parameter for a buffer."""
    return tir.Var(f"p_{buffer.name}", HANDLE)


def _inlined(root: tir.Stmt, span: Span | None) -> tir.Stmt:
    """Return a statement of a callee as part of the kernel.

    The regions of each buffer in the reads and writes of blocks are merged, as when two arguments are the same tensor.
    Statements without a place in a text, as those of operators, get that of the call.
    """

    def visit(node: Any) -> Any:
        if isinstance(node, (tir.Expr, tir.Buffer)):
            return node
        new_node = map_children(node, visit)
        if isinstance(new_node, tir.Block):
            new_node = replace(new_node, reads=_merged_regions(new_node.reads), writes=_merged_regions(new_node.writes))
        return replace(new_node, span=span) if isinstance(new_node, tir.Stmt) and new_node.span is None else new_node

    inlined: tir.Stmt = visit(root)
    return inlined


def _merged_regions(regions: tuple[tir.BufferRegion, ...]) -> tuple[tir.BufferRegion, ...]:
    if len({r.buffer for r in regions}) == len(regions):
        return regions
    from mlcc.arith.analyzer import Analyzer
    from mlcc.arith.intset import from_range
    from mlcc.arith.regions import Accesses

    accesses = Accesses()
    for region in regions:
        accesses.add(region.buffer, [from_range(r) for r in region.region], Analyzer())
    return accesses.as_regions()


def _unique_blocks(body: tuple[tir.Stmt, ...]) -> tuple[tir.Stmt, ...]:
    """Number blocks with equal names: `T_add`, `T_add1`, ..."""
    names: set[str] = set()

    def visit(node: Any) -> Any:
        if isinstance(node, (tir.Expr, tir.Buffer)):
            return node
        new_node = map_children(node, visit)
        if not isinstance(new_node, tir.Block):
            return new_node
        name = new_node.name
        if name in names:
            stem, number = name.rstrip("0123456789"), 1
            while f"{stem}{number}" in names:
                number += 1
            name = f"{stem}{number}"
        names.add(name)
        return replace(new_node, name=name)

    return tuple(visit(s) for s in body)

"""One TIR function from a relax function of TIR calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import HANDLE
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, map_children, replace, walk
from mlcc.ir.visit import substitute
from mlcc.passes.lowering.narrow_floats import OPERATOR, is_operator, promoted, uses_narrow_floats
from mlcc.relax.construct import CALL_TIR, CALL_TIR_INPLACE
from mlcc.relax.queries import tir_callee


@dataclass(frozen=True)
class FusedKernel:
    """The TIR function, and the constants that callers pass to it after their own arguments."""

    function: tir.PrimFunc
    constants: list[relax.Expr]


class _Unsuitable(Exception):
    """The function is not made of TIR calls that can stand one after the other."""


def fuse_calls(func: relax.Function, module: IRModule) -> FusedKernel | None:
    """The TIR function that computes what `func` does; None if `func` does more than call TIR functions with blocks."""
    try:
        return _Builder(module).build(func)
    except _Unsuitable:
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
    one_kind: bool = True  # no function of the text stands beside one of an operator, where one has narrow floats

    def build(self, func: relax.Function) -> FusedKernel:
        views = _views_of(func, self.module)
        narrow = [f for f in _called(func, self.module) if uses_narrow_floats(f)]
        self.one_kind = len({is_operator(f) for f in narrow}) == 1
        for param in func.params:
            self.parameter(param, views)
        for block in func.body.blocks:
            for binding in block.bindings:
                if not isinstance(binding, relax.VarBinding):
                    raise _Unsuitable
                self.values[binding.var] = self.value(binding.value)
        outputs = self.value(func.body.body)
        if len(set(outputs)) != len(outputs) or not set(outputs) <= set(self.allocated):
            raise _Unsuitable  # a result that is an argument, or twice the same
        given = [*self.inputs, *self.constants.values()]
        params = [*map(handle, given), *self.scalar_params, *map(handle, outputs)]
        buffers = [*given, *(None for _ in self.scalar_params), *outputs]
        inside = tuple(b for b in self.allocated if b not in set(outputs))
        root = tir.Block("root", (), (), (), _unique_blocks(tuple(self.body)), alloc_buffers=inside)
        body = (tir.BlockRealize((), tir.TRUE, root),)
        kernel = tir.PrimFunc(tuple(params), tuple(buffers), Attrs({"tir.noalias": True}), body)
        if self.one_kind and any(map(is_operator, narrow)):
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
            raise _Unsuitable
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
        raise _Unsuitable

    def item(self, value: relax.Expr, index: int) -> Values:
        info = value.struct_info
        if not isinstance(info, relax.TupleStructInfo) or index >= len(info.fields):
            raise _Unsuitable
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
        """Append the body of the callee, its parameters replaced by the buffers of the arguments."""
        callee, arguments = call.args[:2]
        func = self.module.functions.get(callee.name) if isinstance(callee, relax.GlobalVar) else None
        if not isinstance(func, tir.PrimFunc) or func.root is None or not isinstance(arguments, relax.Tuple):
            raise _Unsuitable
        written = self.written(call, arguments.fields)
        if not self.one_kind and is_operator(func):
            func = promoted(func)
        result_buffers = self.results(call, func, len(arguments.fields), written)
        remaining = iter(result_buffers)
        outputs = tuple(next(remaining) if w is None else w for w in written)
        root = func.root
        assert root is not None
        fresh: dict[Any, Any] = {n: _fresh(n) for n in set(walk(func)) if isinstance(n, tir.Var)}
        given: list[Any] = [self.argument(a) for a in arguments.fields] + list(result_buffers)
        symbolic = call.args[2] if len(call.args) > 2 else None
        if symbolic is not None:
            given += list(symbolic.values) if isinstance(symbolic, relax.ShapeExpr) else []
        if len(given) != len(func.params):
            raise _Unsuitable
        symbols: dict[tir.Var, tir.Expr] = {}
        for param, buffer, argument in zip(func.params, func.buffers, given, strict=True):
            if isinstance(argument, tir.Buffer) != (buffer is not None):
                raise _Unsuitable
            if buffer is None:
                symbols[param] = c.cast(param.dtype, argument)
            else:
                _bind_shape(buffer, argument, symbols)
                fresh[buffer] = argument
                fresh[buffer.data] = argument.data
        fresh.update(symbols)
        done = substitute(root, fresh)
        self.allocated += (*done.alloc_buffers, *result_buffers)
        self.body += map(_join_regions, done.body)
        return outputs

    def argument(self, expr: relax.Expr) -> tir.Buffer | tir.Expr:
        if expr in self.scalars:
            return self.scalars[expr]
        if isinstance(expr, relax.PrimValue):
            return expr.value
        values = self.value(expr)
        if len(values) != 1:
            raise _Unsuitable
        return values[0]

    def written(self, call: relax.Call, arguments: tuple[relax.Expr, ...]) -> list[tir.Buffer | None]:
        """For each result the intermediate buffer that the call writes it into in place, or None."""
        if call.op == CALL_TIR:
            return [None] * len(list(_outputs(call)))
        targets: list[tir.Buffer | None] = []
        for index in call.attrs.get("inplace_indices", ()):
            target = self.argument(arguments[index]) if 0 <= index < len(arguments) else None
            if target is not None and target not in self.allocated:
                raise _Unsuitable  # an argument, which the caller still has
            targets.append(target)
        if len(targets) != len(list(_outputs(call))):
            raise _Unsuitable
        return targets

    def results(self, call: relax.Call, func: tir.PrimFunc, inputs: int, written: list[tir.Buffer | None]) -> Values:
        """New buffers for what the callee writes elsewhere; they take all but the shape from its parameters."""
        tensors = [t for t, w in zip(_outputs(call), written, strict=True) if w is None]
        params = func.buffers[inputs : inputs + len(tensors)]
        buffers = []
        for tensor, param in zip(tensors, params, strict=False):
            dims = tensor.dims
            if param is None or dims is None:
                raise _Unsuitable
            data = tir.Var(f"{param.name}_intermediate", param.data.dtype, param.data.pointer)
            buffers.append(replace(param, name=data.name, data=data, shape=dims))
        return tuple(buffers)


def _called(func: relax.Function, module: IRModule) -> list[tir.PrimFunc]:
    """The TIR functions that a function calls."""
    values = [b.value for block in func.body.blocks for b in block.bindings if isinstance(b, relax.VarBinding)]
    callees = [module.functions.get(tir_callee(v) or "") for v in values]
    return [f for f in callees if isinstance(f, tir.PrimFunc)]


def _outputs(call: relax.Call) -> Iterable[relax.TensorStructInfo]:
    """The tensors that a call gives; in-place calls may state them one by one."""
    if call.op == CALL_TIR_INPLACE:
        return [tensor for info in call.sinfo_args for tensor in _tensors(info)]
    return _tensors(call.sinfo_args[0] if len(call.sinfo_args) == 1 else None)


def _tensors(info: Any) -> Iterable[relax.TensorStructInfo]:
    """The tensors of a struct info, tuples flattened. Raises _Unsuitable for anything of unknown shape."""
    if isinstance(info, relax.TupleStructInfo):
        for inner in info.fields:
            yield from _tensors(inner)
    elif isinstance(info, relax.TensorStructInfo) and info.dims is not None and info.dtype is not None:
        yield info
    else:
        raise _Unsuitable


def _buffer_like(tensor: relax.TensorStructInfo, name: str, view: tir.Buffer | None) -> tir.Buffer:
    """A compact buffer for a parameter; the storage scope is that of the TIR parameter which it is passed to."""
    scope = view.scope if view is not None else "global"
    separators = view.axis_separators if view is not None else ()
    return c.make_buffer(name, tensor.dims or (), tensor.dtype or "float32", scope, axis_separators=separators)


def _views_of(func: relax.Function, module: IRModule) -> dict[relax.Var, tir.Buffer]:
    """For parameters: the parameter of the TIR function that they are passed to (the last one)."""
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


def _bind_shape(param: tir.Buffer, given: tir.Buffer, symbols: dict[tir.Var, tir.Expr]) -> None:
    """Variables of a parameter's shape stand for the dimensions of what is passed."""
    if len(param.shape) != len(given.shape) or param.dtype is not given.dtype:
        raise _Unsuitable
    layout = (*param.strides, *(() if param.elem_offset is None else (param.elem_offset,)))
    if param.strides or any(isinstance(n, tir.Var) for e in layout for n in walk(e)):
        raise _Unsuitable  # the body may depend on a layout that intermediate results do not have
    for want, have in zip(param.shape, given.shape, strict=True):
        if isinstance(want, tir.Var):
            symbols.setdefault(want, c.cast(want.dtype, have))


def part_of(
    root: tir.Block, body: Sequence[tir.Stmt], params: Sequence[tuple[tir.Var, tir.Buffer | None]],
    local: Collection[tir.Buffer],
) -> tir.PrimFunc:  # fmt: skip
    """A function of some statements of a root block, in variables of its own. `params` are its parameters and their
    buffers; of the buffers that the root block allocates, those of `local` stay inside."""
    given = {b for _, b in params}
    inside = tuple(b for b in root.alloc_buffers if b in local and b not in given)
    block = replace(root, body=tuple(body), alloc_buffers=inside)
    part = tir.PrimFunc(
        tuple(p for p, _ in params),
        tuple(b for _, b in params),
        Attrs({"tir.noalias": True}),
        (tir.BlockRealize((), tir.TRUE, block),),
    )
    return renew_vars(part)


def handle(buffer: tir.Buffer) -> tir.Var:
    """A parameter for a buffer."""
    return tir.Var(f"p_{buffer.name}", HANDLE)


def _fresh(var: tir.Var) -> tir.Var:
    return tir.Var(var.name, var.dtype, var.pointer)


def renew_vars(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return the function with fresh variables and buffers: two functions never share one."""
    variables = {n for n in walk(func) if isinstance(n, tir.Var)}
    return substitute(func, {v: _fresh(v) for v in variables})


def _join_regions(node: Any) -> Any:
    """Every buffer once in the reads and writes of each block, also where two arguments are the same tensor."""
    new_node = map_children(node, _join_regions) if not isinstance(node, (tir.Expr, tir.Buffer)) else node
    if not isinstance(new_node, tir.Block):
        return new_node
    return replace(new_node, reads=_joined(new_node.reads), writes=_joined(new_node.writes))


def _joined(regions: tuple[tir.BufferRegion, ...]) -> tuple[tir.BufferRegion, ...]:
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
    """Blocks of equal names are numbered: `T_add`, `T_add1`, ..."""
    taken: set[str] = set()

    def visit(node: Any) -> Any:
        if isinstance(node, (tir.Expr, tir.Buffer)):
            return node
        new_node = map_children(node, visit)
        if not isinstance(new_node, tir.Block):
            return new_node
        name = new_node.name
        if name in taken:
            stem, number = name.rstrip("0123456789"), 1
            while f"{stem}{number}" in taken:
                number += 1
            name = f"{stem}{number}"
        taken.add(name)
        return replace(new_node, name=name)

    return tuple(visit(s) for s in body)

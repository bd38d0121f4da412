"""Turn the tensor maps that a kernel's code states into parameters, because the host fills them in at the launch."""

from __future__ import annotations

import re

from mlcc.errors import CompileError, error
from mlcc.ir import tir
from mlcc.ir.dtypes import HANDLE
from mlcc.ir.node import Node, replace, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.ir.visit import used_vars
from mlcc.passes.gpu.tensor_map import TensorMap, is_tensor_map, tensor_map_error
from mlcc.passes.lowering.mutator import Body, TirMutator

# intrinsics that take a map at argument 2, and where the pointer of its tensor goes then
_POINTER = {"tir.ptx_cp_async_bulk_tensor": 4, "tir.ptx_cp_async_bulk_tensor_store": 3}


def with_map_parameters(body: Body, axes: set[tir.Var]) -> tuple[Body, dict[tir.Var, TensorMap]]:
    """Return the code of a kernel with variables in place of tensor maps, and the map of each variable; equal maps
    share one. The pointer of the tensor is passed in addition. `axes` are the variables of the thread axes. Raises
    CompileError E0777.
    """
    if not any(is_tensor_map(n) for s in body for n in walk(s)):
        return body, {}
    inside = axes | {v for s in body for n in walk(s) for v in _bound_vars(n)}
    finder = _MapOutliner(inside, {n.name for s in body for n in walk(s) if isinstance(n, (tir.Var, tir.Buffer))})
    return finder.body(body), finder.maps


def _bound_vars(node: Node) -> tuple[tir.Var, ...]:
    match node:
        case tir.Bind(var=var) | tir.For(var=var) | tir.Let(var=var):
            return (var,)
    return ()


class _MapOutliner(TirMutator):
    def __init__(self, inside: set[tir.Var], names: set[str]) -> None:
        self._inside = inside
        self._names = names
        self._known: dict[tuple[object, ...], tir.Var] = {}
        self.maps: dict[tir.Var, TensorMap] = {}

    def expr_call(self, node: tir.Call) -> Expr:
        if is_tensor_map(node):
            text = "`T.tensor_map` can only be the argument of a bulk copy"
            raise CompileError(
                error("E0777", text, node.span, help="a copy of a tensor takes one as its third argument")
            )
        return super().expr_call(node)

    def stmt_evaluate(self, node: tir.Evaluate) -> Stmt | list[Stmt]:
        call = node.value
        at = _POINTER.get(call.op.name) if isinstance(call, tir.Call) and isinstance(call.op, tir.Op) else None
        if at is None or not isinstance(call, tir.Call) or len(call.args) <= at or not is_tensor_map(call.args[2]):
            return super().stmt_evaluate(node)
        stated = call.args[2]
        assert isinstance(stated, tir.Call)
        tensor_map = TensorMap.of(stated)
        if len(call.args) - at != len(tensor_map.dims):
            text = f"{len(call.args) - at} coordinates of a tensor of {len(tensor_map.dims)} dimensions"
            raise CompileError(error("E0777", text, call.span))
        if any(used_vars(e) & self._inside for e in (*tensor_map.dims, *tensor_map.strides)):
            raise tensor_map_error(stated, "its extents are not known before the kernel starts")
        var = self._map_parameter(tensor_map)
        args = (*call.args[:2], var, *call.args[3:at], tensor_map.data, *call.args[at:])
        return tir.Evaluate(replace(call, args=args), span=node.span)

    def _map_parameter(self, tensor_map: TensorMap) -> tir.Var:
        sizes = (*tensor_map.dims, *tensor_map.strides)
        names = tuple(id(v) for e in sizes for v in walk(e) if isinstance(v, tir.Var))
        key = (tensor_map.data, tensor_map.form, tuple(map(str, sizes)), names)
        var = self._known.get(key)
        if var is None:
            var = self._known[key] = tir.Var(self._fresh_name(tensor_map.data.name), HANDLE)
            self.maps[var] = tensor_map
        return var

    def _fresh_name(self, tensor: str) -> str:
        """Return a unique name for a map parameter, which an attribute of the kernel refers to."""
        base = name = f"{re.sub(r'[^A-Za-z0-9_]', '_', tensor)}_map"
        number = 1
        while name in self._names:
            name, number = f"{base}_{number}", number + 1
        self._names.add(name)
        return name

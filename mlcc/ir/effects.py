"""Memory effects of a TensorIR function: the buffers that it reads and writes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from mlcc.ir import relax, tir
from mlcc.ir.node import Node, children

READ, WRITE = 1, 2


@functools.lru_cache(maxsize=1024)
def written_parameters(func: tir.PrimFunc) -> tuple[int, ...]:
    """Return the positions of the parameters whose buffers the function certainly writes."""
    uses = effects(func, certain=True)
    return tuple(i for i, b in enumerate(func.buffers) if b is not None and uses.get(b.data, 0) & WRITE)


def effects(
    func: tir.PrimFunc, certain: bool = False, functions: Mapping[str, Any] | None = None
) -> dict[tir.Var, int]:
    """Return `READ`, `WRITE` or both (3) for the data variable of every buffer that the function uses.

    Memory whose address goes elsewhere (to an extern or packed function) counts as both, unless the access pointer
    says less; as neither if only what is `certain` counts. Launches of kernels among `functions` are followed.
    """
    unknown = 0 if certain else READ | WRITE
    kernels = {n: f for n, f in (functions or {}).items() if f.attrs.get("tir.is_global_func")}
    uses: dict[tir.Var, int] = {}
    alias: dict[tir.Var, tir.Var] = {}
    for var, buffer in zip(func.params, func.buffers, strict=True):
        if buffer is not None:
            alias[var] = buffer.data

    def note(var: tir.Var, use: int) -> None:
        while var in alias:
            var = alias[var]
        uses[var] = uses.get(var, 0) | use

    def visit(node: Node) -> None:
        match node:
            case tir.Block(match_buffers=matches):
                for match in matches:
                    alias[match.buffer.data] = match.source.buffer.data
                for part in (*node.iter_vars, *node.body, *(node.init or ())):
                    visit(part)
                return
            case tir.DeclBuffer(buffer=buffer, data=tir.Var() as data):
                if data is not buffer.data:
                    alias[buffer.data] = data
                return
            case tir.AllocBuffer():
                return
            case tir.BufferLoad(buffer=buffer, indices=indices):
                note(buffer.data, READ)
                for index in indices:
                    visit(index)
                return
            case tir.BufferStore(buffer=buffer, value=value, indices=indices):
                note(buffer.data, WRITE)
                for part in (value, *indices):
                    visit(part)
                return
            case tir.Call(op=tir.Op(name="tir.tvm_access_ptr"), args=(_, tir.Var() as data, *_, mask)):
                use = (tir.const_int(mask) or 3) & 3
                note(data, unknown if use == 3 else use)
                return
            case tir.Call(op=tir.Op(name="tir.address_of"), args=(tir.BufferLoad(buffer=buffer, indices=indices),)):
                note(buffer.data, unknown)
                for index in indices:
                    visit(index)
                return
            case tir.Call(op=relax.GlobalVar(name=name), args=args) if (kernel := kernels.get(name)) is not None:
                inside = effects(kernel, certain)
                for arg, param, matched in zip(args, kernel.params, kernel.buffers, strict=False):
                    if isinstance(arg, tir.Var) and arg.dtype.is_handle:
                        note(arg, inside.get(param if matched is None else matched.data, 0))
                    else:
                        visit(arg)
                return
            case tir.Var() if node.dtype.is_handle:
                note(node, unknown)
                return
        for child in children(node):
            visit(child)

    for stmt in func.body:
        visit(stmt)
    return uses

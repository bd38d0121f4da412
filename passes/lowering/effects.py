"""Memory accesses of loop code, including those through pointers passed to calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.ir.intrinsics import Effect, called, effect_of
from mlcc.ir.node import Node, children


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """One access of the memory `data`. `index` is that of a load or store; None if a call receives a pointer."""

    data: tir.Var
    writes: bool
    index: tir.Expr | None = None


def memory_accesses(root: Node | tuple[tir.Stmt, ...]) -> Iterator[MemoryAccess]:
    """Yield the accesses in code, in no particular order. Views count as separate memory (see `views`)."""
    stack: list[Node] = list(root) if isinstance(root, tuple) else [root]
    while stack:
        node = stack.pop()
        match node:
            case tir.AllocBuffer():
                continue
            case tir.BufferStore(buffer=buffer, value=value, indices=indices):
                yield MemoryAccess(buffer.data, True, indices[0] if len(indices) == 1 else None)
                stack += [value, *indices]
            case tir.BufferLoad(buffer=buffer, indices=indices):
                yield MemoryAccess(buffer.data, False, indices[0] if len(indices) == 1 else None)
                stack += indices
            case tir.Call(op=tir.Op(name=name), args=args):
                known = {p.at: p.access for p in called(node).pointers}
                for at, arg in enumerate(args):
                    kind = known.get(at)
                    if kind is None:
                        kind = "rw" if effect_of(node) >= Effect.UPDATE else "r"
                        kind = _access_kind(node, kind) if at == 1 and name == "tir.tvm_access_ptr" else kind
                    yield from _pointer_accesses(arg, kind, stack)
            case tir.Var() if node.dtype.is_handle:
                yield MemoryAccess(node, True)
                yield MemoryAccess(node, False)
            case tir.Var():
                pass
            case _:
                stack += children(node)


def _access_kind(access: tir.Call, default: str) -> str:
    """Return the access kind from the mask of `tvm_access_ptr` (1: read, 2: write), else `default`."""
    return {1: "r", 2: "w"}.get(tir.const_int(access.args[4]) or 0, default)


def _pointer_accesses(arg: tir.Expr, kind: str, stack: list[Node]) -> Iterator[MemoryAccess]:
    """Yield the accesses through a pointer argument; push other subexpressions on `stack`."""
    match arg:
        case tir.Call(op=tir.Op(name="tir.tvm_access_ptr"), args=(_, data, *others)):
            yield from _pointer_accesses(data, _access_kind(arg, kind), stack)
            stack += others
        case tir.Call(op=tir.Op(name="tir.address_of"), args=(tir.BufferLoad(buffer=buffer, indices=indices),)):
            yield from (MemoryAccess(buffer.data, letter == "w") for letter in kind)
            stack += indices
        case tir.Var() if arg.dtype.is_handle:
            yield from (MemoryAccess(arg, letter == "w") for letter in kind)
        case _:
            stack.append(arg)

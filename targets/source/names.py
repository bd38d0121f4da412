"""Helpers for printing kernels: scalar views of buffers, C identifiers, and the pointers written through."""

from __future__ import annotations

import re

from mlcc.ir import tir
from mlcc.ir.node import find, replace, walk


def scalar_view(buffer: tir.Buffer) -> tir.Buffer:
    """Return a view of the same memory with scalar elements."""
    return buffer if buffer.dtype.lanes == 1 else replace(buffer, dtype=buffer.dtype.element)


def identifier(hint: str, words: frozenset[str]) -> str:
    """Return a C identifier that is not one of `words`."""
    name = re.sub(r"\W", "_", hint, flags=re.ASCII) or "x"
    name = f"_{name}" if name[0].isdigit() else name
    return f"{name}_" if name in words else name


def written_pointers(body: tuple[tir.Stmt, ...]) -> set[tir.Var]:
    """Return the pointers through which memory may be written."""
    pointers: set[tir.Var] = set()
    for stmt in body:
        for node in walk(stmt):
            match node:
                case tir.BufferStore(buffer=buffer):
                    pointers.add(buffer.data)
                case tir.DeclBuffer(data=data):
                    pointers |= {n for n in walk(data) if isinstance(n, tir.Var)}
                case tir.Bind(var=var, value=value) if var.dtype.is_handle:
                    pointers |= {n for n in walk(value) if isinstance(n, tir.Var)}
                case tir.Call(args=args):
                    for arg in args:
                        pointers |= {n for n in walk(arg) if isinstance(n, tir.Var) and n.dtype.is_handle}
                        if isinstance(arg, tir.Call):
                            pointers |= {n.buffer.data for n in find(arg, tir.BufferLoad)}
    return pointers

"""A hash of programs that agrees with `mlcc.ir.equal`."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

from mlcc.ir import tir
from mlcc.ir.binding import ATTR, FIRST, PARAM, USE, VARIABLES, Mode, binds, plain_value, semantic_parts
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, Node
from mlcc.ir.tensor_data import TensorData


def structural_hash(root: Any) -> int:
    """Return a number that is equal for structurally equal values; free variables are numbered by occurrence.

    It does not depend on the process, so it can be a key in files.
    """
    return int.from_bytes(_Hasher().digest(root), "little")


class _Hasher:
    """Computes digests, children first; variables are numbered by first occurrence."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.known: dict[int, bytes] = {}
        self.count = 0

    def digest(self, root: Any) -> bytes:
        stack: list[tuple[Any, ...]] = [(root, USE)]
        digests: list[bytes] = []
        while stack:
            top = stack.pop()
            if len(top) == 4:
                head, below, node, count = top
                joined = head + b"".join(digests[len(digests) - below :])
                del digests[len(digests) - below :]
                digests.append(hashlib.blake2b(joined, digest_size=16).digest())
                if count == self.count and isinstance(node, tir.Expr) and not isinstance(node, tir.Var):
                    self.known[id(node)] = digests[-1]  # binds nothing, so it is the same wherever it stands
                continue
            value, mode = top
            if mode is ATTR:
                value = plain_value(value)
            known = self.known.get(id(value)) if isinstance(value, tir.Expr) else None
            if known is not None:
                digests.append(known)
                continue
            count = self.count
            head, below = self.parts(value, mode)
            stack.append((head, len(below), value, count))
            stack += reversed(below)
        return digests[0]

    def parts(self, value: Any, mode: Mode) -> tuple[bytes, list[tuple[Any, Mode]]]:
        """Return the bytes that identify a value without its children, and the children with their modes."""
        cls = type(value)
        name = cls.__name__.encode()
        if cls is tuple:
            return b"tuple%d" % len(value), [(v, mode) for v in value]
        if cls in VARIABLES:
            head = b"%s %d" % (name, self.number(value, binds(mode)))
            if isinstance(value, tir.Var):
                return head + f" {value.dtype} {value.pointer}".encode(), []
            return head, [(value.struct_info, FIRST if mode is PARAM else USE)] if binds(mode) else []
        if cls is tir.Buffer and mode in (USE, ATTR):
            return b"buffer %d" % self.number(value, False), []
        if cls is Attrs:
            keys = sorted(value)
            return b"map" + repr(keys).encode(), [(value[k], mode) for k in keys]
        if isinstance(value, Node):
            if cls is tir.Buffer:
                self.number(value, True)
            return name, [(v, m) for _, v, m in semantic_parts(value, USE if mode is ATTR else mode)]
        if cls is IRModule:
            names = sorted(value.functions)
            infos = value.global_infos
            head = repr((names, sorted(infos))).encode() if infos else repr(names).encode()
            below: list[tuple[Any, Mode]] = [(value.attrs, ATTR), *((infos[k], ATTR) for k in sorted(infos))]
            return head, [*below, *((value.functions[n], USE) for n in names)]
        return _leaf(value), []

    def number(self, value: Any, binds: bool) -> int:
        if binds or value not in self.numbers:
            if value in self.numbers:
                self.known.clear()
            self.numbers[value] = self.count
            self.count += 1
        return self.numbers[value]


def _leaf(value: Any) -> bytes:
    if isinstance(value, float):
        return b"nan" if value != value else b"float" + struct.pack("<d", value)
    if isinstance(value, int):
        return f"{type(value).__name__} {value:x}".encode()
    if isinstance(value, TensorData):
        return f"{value.dtype} {value.shape}".encode()  # a reference may know a part of the hash only
    return f"{type(value).__name__} {value!r}".encode("utf-8", "surrogatepass")

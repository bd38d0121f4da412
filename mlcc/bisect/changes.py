"""The changes between two modules, statement by statement and binding by binding, which can be undone one by one."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Hashable, Iterator
from typing import Any, NamedTuple

from mlcc.errors import MlccError
from mlcc.ir import relax, tir
from mlcc.ir.equal import correspondence, structural_equal
from mlcc.ir.module import Func, IRModule
from mlcc.ir.node import field_names, replace
from mlcc.ir.visit import substitute

_NESTS = (tir.For, tir.While, tir.AttrStmt, tir.IfThenElse, tir.BlockRealize, tir.Block)
_GRAPH = (relax.SeqExpr, relax.BindingBlock, relax.DataflowBlock)


class Change(NamedTuple):
    """A change: the function that it is in, and its number there, in the order of the text."""

    function: str
    number: int


class Changes:
    """The changes from one module to another.

    A change replaces adjacent statements or bindings, or a function whose parameters differ. Statements are compared
    as wholes; loops, branches, blocks and graphs around them are entered. A function that only one module has is no
    change: modules with some changes undone have the functions of both.
    """

    def __init__(self, before: IRModule, after: IRModule) -> None:
        self.before = before
        self.after = after
        self._paired: dict[str, Func] = {}  # functions of `after` with the variables of `before`
        self.all: list[Change] = []
        for name, func in after.functions.items():
            old = before.functions.get(name)
            if old is None or old is func or structural_equal(old, func):
                continue
            self._paired[name] = _with_variables_of(old, func)
            counter = _Merge(frozenset())
            counter.function(old, self._paired[name])
            self.all += [Change(name, n) for n in range(counter.count)]

    def without(self, undone: Collection[Change]) -> IRModule:
        """Return `after` with some of the changes undone; `before` with all of them."""
        if not undone:
            return self.after
        if len(undone) == len(self.all):
            return self.before
        functions = {**self.before.functions, **self.after.functions}
        for name, func in self._paired.items():
            numbers = frozenset(c.number for c in undone if c.function == name)
            if numbers:
                functions[name] = _Merge(numbers).function(self.before.functions[name], func)
        after = self.after
        return IRModule(functions, after.attrs, after.name, after.global_infos)


def _with_variables_of(old: Func, new: Func) -> Func:
    """Return a function with the variables and buffers of an earlier version of it, as far as they correspond."""
    pairs: dict[Any, Any] = {}
    for there, here in correspondence(old, new).items():
        if type(there) is type(here) and there is not here and _same_but_for_name(there, here):
            pairs[there] = here
    try:
        renamed: Func = substitute(new, pairs)
    except MlccError:
        return new
    return renamed


def _same_but_for_name(left: Any, right: Any) -> bool:
    if isinstance(left, tir.Buffer):
        return False  # follows from its variables
    if isinstance(left, relax.Var):
        return left.struct_info is None or right.struct_info is None or str(left.struct_info) == str(right.struct_info)
    return isinstance(left, tir.Var) and bool(left.dtype is right.dtype)


class _Merge:
    """Merges two versions of a function: the new one, with the changes of some numbers undone."""

    def __init__(self, undone: frozenset[int]) -> None:
        self._undone = undone
        self.count = 0

    def _choose(self, old: Any, new: Any) -> Any:
        """Count a change; return the version to take."""
        self.count += 1
        return old if self.count - 1 in self._undone else new

    def function(self, old: Any, new: Any) -> Any:
        if type(old) is not type(new) or not _same_fields(old, new, ("body", "root")):
            return self._choose(old, new)
        if isinstance(old, tir.PrimFunc):
            return replace(new, body=self._list(old.body, new.body))
        return replace(new, body=self._node(old.body, new.body))

    def _node(self, old: Any, new: Any) -> Any:
        if old is new:
            return old
        if type(old) is not type(new) or not isinstance(old, (*_NESTS, *_GRAPH)):
            return self._leaf(old, new)
        inner = _nested_fields(old)
        if not _same_fields(old, new, inner):
            return self._leaf(old, new)
        changes: dict[str, Any] = {}
        for name in inner:
            left, right = getattr(old, name), getattr(new, name)
            if isinstance(left, tuple) and isinstance(right, tuple):
                changes[name] = self._list(left, right)
            elif left is None or right is None:
                changes[name] = right if left is right else self._choose(left, right)
            else:
                changes[name] = self._node(left, right)
        return replace(new, **changes)

    def _leaf(self, old: Any, new: Any) -> Any:
        return new if structural_equal(old, new) else self._choose(old, new)

    def _list(self, old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
        merged: list[Any] = []
        for is_paired, left, right in _aligned(old, new):
            if is_paired:
                merged += [self._node(a, b) for a, b in zip(left, right, strict=True)]
            else:
                merged += self._choose(left, right)
        return tuple(merged)


def _nested_fields(node: Any) -> tuple[str, ...]:
    match node:
        case tir.BlockRealize():
            return ("block",)
        case tir.Block():
            return ("init", "body")
        case tir.IfThenElse():
            return ("then_body", "else_body")
        case relax.SeqExpr():
            return ("blocks", "body")
        case relax.BindingBlock():
            return ("bindings",)
    return ("body",)


def _same_fields(old: Any, new: Any, but: Collection[str]) -> bool:
    """Return True if two nodes of one class have the same fields, other than those named and what follows from them."""
    for name in field_names(type(old)):
        left, right = getattr(old, name), getattr(new, name)
        if name in but or name in ("span", "reads", "writes", "struct_info", "ret_struct_info") or left is right:
            continue
        if isinstance(left, tuple) and isinstance(right, tuple):
            if len(left) != len(right) or not all(_same(a, b) for a, b in zip(left, right, strict=True)):
                return False
        elif not _same(left, right):
            return False
    return True


def _same(left: Any, right: Any) -> bool:
    if left is right or left == right:
        return True
    return isinstance(left, tir.Expr) and isinstance(right, tir.Expr) and structural_equal(left, right)


def _aligned(
    old: tuple[Any, ...], new: tuple[Any, ...]
) -> Iterator[tuple[bool, tuple[Any, ...], tuple[Any, ...]]]:  # fmt: skip
    """Yield runs of two lists of statements or bindings: True with pairs to compare, False with what is replaced."""
    keys = [_key(node) for node in old], [_key(node) for node in new]
    for kind, a, b, c, d in difflib.SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        is_paired = kind == "equal" or (
            kind == "replace" and b - a == d - c and [*map(type, old[a:b])] == [*map(type, new[c:d])]
        )
        yield is_paired, old[a:b], new[c:d]


def _key(node: Any) -> Hashable:
    """What two statements have in common that may be versions of each other: what they bind or write."""
    match node:
        case relax.Binding():
            return "binding", node.var.name
        case relax.BindingBlock():
            return "block"
        case tir.For(var=var):
            return "for", var
        case tir.BlockRealize(block=block):
            return "block", block.name
        case tir.BufferStore(buffer=buffer):
            return "store", buffer
    return type(node).__name__

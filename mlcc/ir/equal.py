"""Structural equality of functions, modules and their parts; `structural_hash` agrees with it.

Names of variables, buffers and blocks, the name of the module's class, and spans do not count; everything else does:
names of functions, attributes (strictly by type: True is not 1), dtypes, regions, annotations. Binders pair: the
variable that a binder of one side introduces stands for the one that the same binder of the other side introduces.
Free variables must be the very same objects, or pair one to one with `map_free_vars`. NaN equals NaN, and -0.0 is not
0.0. `T.evaluate(0)` does not count as a statement. Constants are compared by content. The struct info of graph-level
expressions other than variables is derived data and does not count.

Both walks keep their own stack and compare a pair of shared nodes once, so depth and sharing cost nothing.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mlcc.ir import tir
from mlcc.ir.binding import (
    ATTR,
    FIRST,
    PARAM,
    USE,
    VARIABLES,
    Mode,
    binds,
    plain_value,
    semantic_fields,
    semantic_parts,
)
from mlcc.ir.hashing import structural_hash
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, Node, holds
from mlcc.ir.tensor_data import TensorData

__all__ = ["StructuralDifference", "assert_structural_equal", "correspondence", "structural_equal", "structural_hash"]


class _Pair(NamedTuple):
    """Two values at the same position of both programs, with the path from the root."""

    left: Any
    right: Any
    mode: Mode
    label: str = ""
    parent: Any = None

    def trail(self) -> list[_Pair]:
        """Return the path from the root to this pair."""
        pairs: list[_Pair] = []
        pair = self
        while pair is not None:
            pairs.append(pair)
            pair = pair.parent
        return pairs[::-1]


class _Walk:
    """The state of one comparison: the bijection between variables and buffers of both sides."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.to_right: dict[Any, Any] = {}
        self.to_left: dict[Any, Any] = {}
        self.renamed = map_free_vars  # True once an object may stand for another one than itself
        self.done: set[tuple[int, int]] = set()

    def first_difference(self, left: Any, right: Any) -> tuple[_Pair, str] | None:
        stack = [_Pair(left, right, USE)]
        while stack:
            pair = stack.pop()
            why = self.compare(pair, stack)
            if why is not None:
                return pair, why
        return None

    def pair_all(self, left: Any, right: Any) -> None:
        """Compare everything, differences or not, so that variables pair wherever both sides agree."""
        stack = [_Pair(left, right, USE)]
        while stack:
            pair = stack.pop()
            why = self.compare(pair, stack)
            a, b = pair.left, pair.right
            if why is not None and type(a) is tuple is type(b):
                stack += [_Pair(a[i], b[j], pair.mode, "", pair) for i, j in reversed(list(_aligned(a, b)))]

    def compare(self, pair: _Pair, stack: list[_Pair]) -> str | None:
        """Return the difference between two nodes themselves, or None; push the pairs of children on the stack."""
        a, b, mode = pair.left, pair.right, pair.mode
        if mode is ATTR:
            a, b = plain_value(a), plain_value(b)
        if a is b and not self.renamed and (mode is USE or not isinstance(a, Node)):
            return None
        cls = type(a)
        if cls is not type(b):
            return f"{_describe(a)} against {_describe(b)}"
        if cls is tuple:
            if len(a) != len(b):
                return f"{len(a)} against {len(b)} items"
            below = [_Pair(x, y, mode, f"[{i}]", pair) for i, (x, y) in enumerate(zip(a, b, strict=True))]
        elif cls in VARIABLES:
            return self.variable(pair, stack)
        elif cls is tir.Buffer and mode in (USE, ATTR):
            return self.buffer(pair, stack)
        elif cls is Attrs:
            if a.keys() != b.keys():
                return _keys_differ(a, b)
            below = [_Pair(a[k], b[k], mode, f"[{k!r}]", pair) for k in sorted(a)]
        elif isinstance(a, Node):
            key = (id(a), id(b))
            if key in self.done:
                return None
            if isinstance(a, tir.Expr):
                self.done.add(key)
            if cls is tir.Buffer:
                self.pair_up(a, b)
            if mode is ATTR:
                mode = USE
            below = [
                _Pair(x, y, inner, label, pair)
                for (label, x, inner), (_, y, _) in zip(semantic_parts(a, mode), semantic_parts(b, mode), strict=True)
            ]
        elif cls is IRModule:
            if a.functions.keys() != b.functions.keys():
                return _keys_differ(a.functions, b.functions)
            if a.global_infos.keys() != b.global_infos.keys():
                return _keys_differ(a.global_infos, b.global_infos)
            below = [_Pair(a.attrs, b.attrs, ATTR, ".attrs", pair)]
            below += [
                _Pair(v, b.global_infos[k], ATTR, f".global_infos[{k!r}]", pair) for k, v in a.global_infos.items()
            ]
            below += [_Pair(f, b.functions[n], USE, f"[{n!r}]", pair) for n, f in a.functions.items()]
        else:
            return None if _same_leaf(a, b) else f"{_describe(a)} against {_describe(b)}"
        below.reverse()
        stack += below
        return None

    def variable(self, pair: _Pair, stack: list[_Pair]) -> str | None:
        a, b, mode = pair.left, pair.right, pair.mode
        free = self.map_free_vars or (mode is FIRST and isinstance(a, tir.Var))
        if not binds(mode) and (not free or a in self.to_right or b in self.to_left):
            if self.to_right.get(a, a) is b and self.to_left.get(b, b) is a:
                return None
            return f"`{a.name}` and `{b.name}` do not correspond to each other"
        if isinstance(a, tir.Var):
            if a.dtype is not b.dtype or a.pointer != b.pointer:
                return f"{_kind(a)} against {_kind(b)}"
        else:
            stack.append(_Pair(a.struct_info, b.struct_info, FIRST if mode is PARAM else USE, ".struct_info", pair))
        self.pair_up(a, b)
        return None

    def buffer(self, pair: _Pair, stack: list[_Pair]) -> str | None:
        """Compare a use of a buffer."""
        a, b = pair.left, pair.right
        if a in self.to_right or b in self.to_left or not self.map_free_vars:
            if self.to_right.get(a, a) is b and self.to_left.get(b, b) is a:
                return None
            return f"`{a.name}` and `{b.name}` do not correspond to each other"
        stack.append(_Pair(a, b, FIRST, "", pair.parent))
        return None

    def pair_up(self, a: Any, b: Any) -> None:
        if self.to_right.get(a, b) is not b or self.to_left.get(b, a) is not a:
            self.done.clear()  # bound once more: pairs that compared equal before may differ now
            self.to_left.pop(self.to_right.pop(a, None), None)
            self.to_right.pop(self.to_left.pop(b, None), None)
        self.to_right[a], self.to_left[b] = b, a
        self.renamed = self.renamed or a is not b


def _aligned(a: Sequence[Any], b: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """The positions of items of two lists that stand for each other: equal ones, and as many changed ones between."""
    import difflib

    left, right = ([structural_hash(x) if isinstance(x, Node) else x for x in items] for items in (a, b))
    for kind, i, i_end, j, j_end in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if kind == "equal" or i_end - i == j_end - j:
            yield from zip(range(i, i_end), range(j, j_end), strict=True)


def _same_leaf(a: Any, b: Any) -> bool:
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b) or (a != a and b != b)
    if isinstance(a, TensorData):
        return a.same_as(b)
    return bool(a == b)


def _keys_differ(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    left, right = ([f"`{k}`" for k in x if k not in y] or ["nothing"] for x, y in ((a, b), (b, a)))
    return f"{', '.join(left)} only on the left, {', '.join(right)} only on the right"


def _kind(var: tir.Var) -> str:
    return f"{var.dtype}" if var.pointer is None else f"{var.dtype} to {var.pointer.dtype} in {var.pointer.scope}"


def _describe(value: Any) -> str:
    if isinstance(value, (Node, IRModule)):
        return type(value).__name__
    if isinstance(value, tir.Op):
        return f"`{value.name}`"
    if isinstance(value, TensorData):
        return f"a constant of {value.dtype} {value.shape}"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, (tuple, Attrs)):
        return "a list" if isinstance(value, tuple) else "a map"
    if isinstance(value, int) and value.bit_length() > 1000:
        return "a large integer"
    if isinstance(value, (bool, int, float, str)) or value is None:
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    return str(value)[:60]


def structural_equal(a: Any, b: Any, map_free_vars: bool = False) -> bool:
    """Return True if `a` and `b` mean the same program: modules, functions, or any of their parts."""
    if isinstance(a, tir.Expr) and not map_free_vars and not holds(a, tir.Let, tir.Reduce, tir.IndexMap):
        return _without_binders(a, b)
    return _Walk(map_free_vars).first_difference(a, b) is None


def _without_binders(a: tir.Expr, b: Any) -> bool:
    """Compare expressions without binders, most often indices: a variable equals only itself."""
    stack: list[tuple[Any, Any]] = [(a, b)]
    compared: set[tuple[int, int]] = set()  # shared nodes come up each time
    while stack:
        left, right = stack.pop()
        if left is right:
            continue
        cls = type(left)
        if cls is not type(right) or cls is tir.Var or cls is tir.Buffer:
            return False
        if cls is tuple:
            if len(left) != len(right):
                return False
            stack += zip(left, right, strict=True)
        elif isinstance(left, Node):
            pair = id(left), id(right)
            if pair not in compared:
                compared.add(pair)
                stack += [(getattr(left, n), getattr(right, n)) for n, _ in semantic_fields(cls)]
        elif not _same_leaf(left, right):
            return False
    return True


def correspondence(a: Any, b: Any) -> dict[Any, Any]:
    """Return the variables and buffers of `b`, with those of `a` for which they stand, as far as the programs agree.

    Statements and bindings that only one of them has are skipped.
    """
    walk = _Walk(map_free_vars=False)
    walk.pair_all(a, b)
    return walk.to_left


class StructuralDifference(AssertionError):
    """Two programs differ at `path`, for a reason; `left` and `right` are excerpts of their texts around that place."""

    def __init__(self, path: str, reason: str, left: str, right: str) -> None:
        super().__init__(f"not structurally equal at {path}: {reason}\nleft:\n{left}\nright:\n{right}")
        self.path, self.reason, self.left, self.right = path, reason, left, right


def assert_structural_equal(a: Any, b: Any, map_free_vars: bool = False) -> None:
    """Raise `StructuralDifference`, which shows the first difference as two excerpts, if there is one."""
    difference = _Walk(map_free_vars).first_difference(a, b)
    if difference is None:
        return
    pair, why = difference
    trail = pair.trail()
    path = "root" + "".join(p.label for p in trail)
    while binds(trail[-1].mode) and not isinstance(trail[-1].left, (tuple, tir.IterVar)):
        trail.pop()  # show a bound variable with its binder
    left = _excerpt(a, [(p.left, p.label) for p in trail])
    right = _excerpt(b, [(p.right, p.label) for p in trail])
    raise StructuralDifference(path, why, left, right)


def _excerpt(root: Any, path: list[tuple[Any, str]]) -> str:
    from mlcc.grammar.printer.printer import excerpt

    return excerpt(root, path)

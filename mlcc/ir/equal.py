"""Structural equality of functions, modules and their parts, and a hash that agrees with it.

Names of variables, buffers and blocks, the name of the module's class, and spans do not count; everything else does:
names of functions, attributes (strictly by type: True is not 1), dtypes, regions, annotations. Binders pair: the
variable that a binder of one side introduces stands for the one that the same binder of the other side introduces.
Free variables must be the very same objects, or pair one to one with `map_free_vars`. NaN equals NaN, and -0.0 is not
0.0. `T.evaluate(0)` is no statement. Constants are compared by content. What is known of a graph-level expression that
is no variable is derived data and does not count.

Both walks keep their own stack and compare a pair of shared nodes once, so depth and sharing cost nothing.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, Node, field_names
from mlcc.ir.tensor_data import TensorData


class _Mode(enum.Enum):
    """How variables in a field are to be taken."""

    USE = 0  # must stand for each other
    BIND = 1  # this variable or buffer is introduced here
    FIRST = 2  # what is not bound yet is introduced here: shapes of parameters, `match_cast`
    ATTR = 3  # plain data; constants of the default types count as Python's
    PARAM = 4  # like BIND, and like FIRST for the struct info


_USE, _BIND, _FIRST, _ATTR, _PARAM = _Mode.USE, _Mode.BIND, _Mode.FIRST, _Mode.ATTR, _Mode.PARAM

# The fields that count, in an order in which binders come before what they bind.
_PLANS: dict[type, tuple[tuple[str, _Mode], ...]] = {
    tir.Let: (("dtype", _USE), ("value", _USE), ("var", _BIND), ("body", _USE)),
    tir.CommReducer: (("lhs", _BIND), ("rhs", _BIND), ("result", _USE), ("identity", _USE)),
    tir.Reduce: (
        ("dtype", _USE), ("combiner", _USE), ("axis", _BIND), ("source", _USE), ("init", _USE), ("condition", _USE),
        ("value_index", _USE),
    ),
    tir.IndexMap: (("indices", _BIND), ("result", _USE), ("inverse", _USE)),
    tir.Bind: (("value", _USE), ("var", _BIND)),
    tir.AllocBuffer: (("buffer", _BIND), ("annotations", _ATTR)),
    tir.DeclBuffer: (("data", _USE), ("buffer", _BIND)),
    tir.MatchBufferRegion: (("source", _USE), ("buffer", _FIRST)),
    tir.AttrStmt: (("subject", _ATTR), ("key", _USE), ("value", _ATTR), ("body", _USE)),
    tir.For: (
        ("kind", _USE), ("min", _USE), ("extent", _USE), ("step", _USE), ("thread", _USE), ("annotations", _ATTR),
        ("var", _BIND), ("body", _USE),
    ),
    tir.Block: (
        ("iter_vars", _BIND), ("alloc_buffers", _BIND), ("match_buffers", _USE), ("reads", _USE), ("writes", _USE),
        ("annotations", _ATTR), ("init", _USE), ("body", _USE),
    ),
    tir.PrimFunc: (("params", _BIND), ("buffers", _FIRST), ("ret_dtype", _USE), ("attrs", _ATTR), ("body", _USE)),
    relax.FuncStructInfo: (("params", _FIRST), ("ret", _USE), ("purity", _USE)),
    relax.GlobalVar: (("name", _USE),),
    relax.ExternFunc: (("name", _USE),),
    relax.Call: (("op", _USE), ("args", _USE), ("attrs", _ATTR), ("sinfo_args", _USE)),
    relax.VarBinding: (("var", _BIND), ("value", _USE)),
    relax.MatchCast: (("value", _USE), ("struct_info", _FIRST), ("var", _BIND)),
    relax.Function: (
        ("params", _PARAM), ("is_pure", _USE), ("attrs", _ATTR), ("ret_struct_info", _USE), ("body", _USE),
    ),
}  # fmt: skip


def _plan(cls: type) -> tuple[tuple[str, _Mode], ...]:
    found = _PLANS.get(cls)
    if found is None:
        names = field_names(cls)
        if issubclass(cls, relax.Expr):
            names = tuple(n for n in names if n != "struct_info")
        found = _PLANS[cls] = tuple((n, _USE) for n in names)
    return found


_VARIABLES = (tir.Var, relax.Var, relax.DataflowVar)


def _plain(value: Any) -> Any:
    """An attribute's value: a constant of a default type is the Python value that the text has for it."""
    if isinstance(value, tir.IntImm):
        if value.dtype.is_bool and value.dtype.lanes == 1:
            return bool(value.value)
        return value.value if str(value.dtype) == "int32" else value
    if isinstance(value, (tir.StringImm, relax.StringImm)):
        return value.value
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()  # a NumPy scalar
    return value


def _fields(value: Any, mode: _Mode) -> Iterator[tuple[str, Any, _Mode]]:
    """Labels, values and modes of the parts of a node that is no variable."""
    cls = type(value)
    if cls is tir.Buffer:
        inner = _FIRST if mode is _FIRST else _USE
        yield ".data", value.data, _FIRST
        yield ".dtype", value.dtype, _USE
        yield ".shape", value.shape, inner
        yield ".strides", value.strides, inner
        offset = value.elem_offset
        zero = offset is None or (isinstance(offset, tir.IntImm) and offset.value == 0)
        yield ".elem_offset", None if zero else offset, inner
        for name in ("alignment", "offset_factor", "axis_separators"):
            yield "." + name, getattr(value, name), _USE
        return
    if cls is tir.IterVar:  # in a block a binder; a thread variable is bound by the first scope that names it
        yield ".var", value.var, _BIND if mode is _BIND else _FIRST
        for name in ("dom", "kind", "thread_tag"):
            yield "." + name, getattr(value, name), _USE
        return
    first = mode is _FIRST
    for name, own in _plan(cls):
        part = getattr(value, name)
        if name in _BODIES and type(part) is tuple and any(_is_nothing(s) for s in part):
            part = tuple(s for s in part if not _is_nothing(s))
        yield "." + name, part, _FIRST if first and own is _USE else own


_BODIES = frozenset(["body", "then_body", "else_body", "init"])


def _is_nothing(stmt: Any) -> bool:
    """`T.evaluate(0)` is what an empty body is written as, and does not count beside other statements either (TVM)."""
    return type(stmt) is tir.Evaluate and type(stmt.value) is tir.IntImm and stmt.value.value == 0


# ---------------------------------------------------------------- comparing


class _Pair(NamedTuple):
    """Two values at the same place, and how the walk came there."""

    left: Any
    right: Any
    mode: _Mode
    label: str = ""
    parent: Any = None

    def trail(self) -> list[_Pair]:
        """From the root to here."""
        made: list[_Pair] = []
        pair = self
        while pair is not None:
            made.append(pair)
            pair = pair.parent
        return made[::-1]


class _Walk:
    """One comparison: which objects of the left side stand for which of the right one."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.to_right: dict[Any, Any] = {}
        self.to_left: dict[Any, Any] = {}
        self.renamed = map_free_vars  # True once an object may stand for another one than itself
        self.done: set[tuple[int, int]] = set()

    def first_difference(self, left: Any, right: Any) -> tuple[_Pair, str] | None:
        stack = [_Pair(left, right, _USE)]
        while stack:
            pair = stack.pop()
            why = self.compare(pair, stack)
            if why is not None:
                return pair, why
        return None

    def compare(self, pair: _Pair, stack: list[_Pair]) -> str | None:
        """Why the pair differs at its own level, or None; what is below goes on the stack."""
        a, b, mode = pair.left, pair.right, pair.mode
        if mode is _ATTR:
            a, b = _plain(a), _plain(b)
        if a is b and not self.renamed and (mode is _USE or not isinstance(a, Node)):
            return None
        cls = type(a)
        if cls is not type(b):
            return f"{_describe(a)} against {_describe(b)}"
        if cls is tuple:
            if len(a) != len(b):
                return f"{len(a)} against {len(b)} items"
            below = [_Pair(x, y, mode, f"[{i}]", pair) for i, (x, y) in enumerate(zip(a, b, strict=True))]
        elif cls in _VARIABLES:
            return self.variable(pair, stack)
        elif cls is tir.Buffer and mode in (_USE, _ATTR):
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
            if mode is _ATTR:
                mode = _USE
            below = [
                _Pair(x, y, inner, label, pair)
                for (label, x, inner), (_, y, _) in zip(_fields(a, mode), _fields(b, mode), strict=True)
            ]
        elif cls is IRModule:
            if a.functions.keys() != b.functions.keys():
                return _keys_differ(a.functions, b.functions)
            below = [_Pair(a.attrs, b.attrs, _ATTR, ".attrs", pair)]
            below += [_Pair(f, b.functions[n], _USE, f"[{n!r}]", pair) for n, f in a.functions.items()]
        else:
            return None if _same_leaf(a, b) else f"{_describe(a)} against {_describe(b)}"
        below.reverse()
        stack += below
        return None

    def variable(self, pair: _Pair, stack: list[_Pair]) -> str | None:
        a, b, mode = pair.left, pair.right, pair.mode
        free = self.map_free_vars or (mode is _FIRST and isinstance(a, tir.Var))
        if not _binds(mode) and (not free or a in self.to_right or b in self.to_left):
            if self.to_right.get(a, a) is b and self.to_left.get(b, b) is a:
                return None
            return f"`{a.name}` and `{b.name}` do not stand for each other"
        if isinstance(a, tir.Var):
            if a.dtype is not b.dtype or a.pointer != b.pointer:
                return f"{_kind(a)} against {_kind(b)}"
        else:
            stack.append(_Pair(a.struct_info, b.struct_info, _FIRST if mode is _PARAM else _USE, ".struct_info", pair))
        self.pair_up(a, b)
        return None

    def buffer(self, pair: _Pair, stack: list[_Pair]) -> str | None:
        """A buffer where it is used."""
        a, b = pair.left, pair.right
        if a in self.to_right or b in self.to_left or not self.map_free_vars:
            if self.to_right.get(a, a) is b and self.to_left.get(b, b) is a:
                return None
            return f"`{a.name}` and `{b.name}` do not stand for each other"
        stack.append(_Pair(a, b, _FIRST, "", pair.parent))
        return None

    def pair_up(self, a: Any, b: Any) -> None:
        if self.to_right.get(a, b) is not b or self.to_left.get(b, a) is not a:
            self.done.clear()  # bound once more: what was found equal before may not be now
            self.to_left.pop(self.to_right.pop(a, None), None)
            self.to_right.pop(self.to_left.pop(b, None), None)
        self.to_right[a], self.to_left[b] = b, a
        self.renamed = self.renamed or a is not b


def _binds(mode: _Mode) -> bool:
    return mode is _BIND or mode is _PARAM


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
    if isinstance(value, TensorData):
        return f"a constant of {value.dtype} {value.shape}"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, (tuple, Attrs)):
        return "a list" if isinstance(value, tuple) else "a map"
    if isinstance(value, (bool, int, float, str)) or value is None:
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    return str(value)[:60]


def structural_equal(a: Any, b: Any, map_free_vars: bool = False) -> bool:
    """True if `a` and `b` mean the same program: modules, functions, or any of their parts."""
    return _Walk(map_free_vars).first_difference(a, b) is None


class StructuralDifference(AssertionError):
    """Two programs differ; the message shows where, in the text of both. `path` leads there."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


def assert_structural_equal(a: Any, b: Any, map_free_vars: bool = False) -> None:
    """Raise `StructuralDifference`, which shows the first difference as two excerpts, if there is one."""
    found = _Walk(map_free_vars).first_difference(a, b)
    if found is None:
        return
    pair, why = found
    trail = pair.trail()
    path = "root" + "".join(p.label for p in trail)
    while _binds(trail[-1].mode) and not isinstance(trail[-1].left, (tuple, tir.IterVar)):
        trail.pop()  # what is bound is shown with what binds it
    left = _excerpt(a, [(p.left, p.label) for p in trail])
    right = _excerpt(b, [(p.right, p.label) for p in trail])
    raise StructuralDifference(f"not structurally equal at {path}: {why}\nleft:\n{left}\nright:\n{right}", path)


def _excerpt(root: Any, path: list[tuple[Any, str]]) -> str:
    from mlcc.grammar.printer import excerpt  # like `script`, which the design lists: for messages alone

    return excerpt(root, path)


# ---------------------------------------------------------------- hashing


def structural_hash(root: Any) -> int:
    """A number that is the same for all that `structural_equal` holds equal; free variables count by their order.

    It does not depend on the process, so it can be a key in files.
    """
    return int.from_bytes(_Hasher().digest(root), "little")


class _Hasher:
    """Digests of values, children first; variables are known by the order in which they come up."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.known: dict[int, bytes] = {}
        self.count = 0

    def digest(self, root: Any) -> bytes:
        stack: list[tuple[Any, ...]] = [(root, _USE)]
        made: list[bytes] = []
        while stack:
            top = stack.pop()
            if len(top) == 4:
                head, below, node, count = top
                parts = made[len(made) - below :]
                del made[len(made) - below :]
                made.append(hashlib.blake2b(head + b"".join(parts), digest_size=16).digest())
                if count == self.count and isinstance(node, tir.Expr) and not isinstance(node, tir.Var):
                    self.known[id(node)] = made[-1]  # binds nothing, so it is the same wherever it stands
                continue
            value, mode = top
            if mode is _ATTR:
                value = _plain(value)
            known = self.known.get(id(value)) if isinstance(value, tir.Expr) else None
            if known is not None:
                made.append(known)
                continue
            count = self.count
            head, below = self.parts(value, mode)
            stack.append((head, len(below), value, count))
            stack += reversed(below)
        return made[0]

    def parts(self, value: Any, mode: _Mode) -> tuple[bytes, list[tuple[Any, _Mode]]]:
        """What a value is apart from its parts, and its parts."""
        cls = type(value)
        name = cls.__name__.encode()
        if cls is tuple:
            return b"tuple%d" % len(value), [(v, mode) for v in value]
        if cls in _VARIABLES:
            head = b"%s %d" % (name, self.number(value, _binds(mode)))
            if isinstance(value, tir.Var):
                return head + f" {value.dtype} {value.pointer}".encode(), []
            return head, [(value.struct_info, _FIRST if mode is _PARAM else _USE)] if _binds(mode) else []
        if cls is tir.Buffer and mode in (_USE, _ATTR):
            return b"buffer %d" % self.number(value, False), []
        if cls is Attrs:
            keys = sorted(value)
            return b"map" + repr(keys).encode(), [(value[k], mode) for k in keys]
        if isinstance(value, Node):
            if cls is tir.Buffer:
                self.number(value, True)
            return name, [(v, m) for _, v, m in _fields(value, _USE if mode is _ATTR else mode)]
        if cls is IRModule:
            names = sorted(value.functions)
            return repr(names).encode(), [(value.attrs, _ATTR), *((value.functions[n], _USE) for n in names)]
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
    if isinstance(value, TensorData):
        return f"{value.dtype} {value.shape}".encode()  # a reference may know a part of the hash only
    return f"{type(value).__name__} {value!r}".encode("utf-8", "surrogatepass")

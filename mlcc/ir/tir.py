"""TensorIR: scalar expressions, buffers, statements, and the loop-level function `PrimFunc`.

Meanings are TVM's. A body is a tuple of statements; `Bind`, `AllocBuffer` and `DeclBuffer` scope over what follows
them in the same tuple. Constructors only store: use `mlcc.ir.construct` for typed, folding construction.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mlcc.ir.dtypes import BOOL, DType
from mlcc.ir.node import EMPTY, Attrs, Node, node, replace


@node
class Expr(Node):
    """A scalar (or short vector) expression. Every subclass has a `dtype`, as a field or a property."""

    if TYPE_CHECKING:  # a slot of the base would clash with the fields

        @property
        def dtype(self) -> DType: ...


@dataclass(frozen=True, slots=True)
class PointerType:
    """The element type and storage scope (such as `global` or `shared`) that a handle variable points to."""

    dtype: DType
    scope: str = "global"


@node
class Var(Expr):
    """A variable; the object is the binding and `name` only a hint. `pointer` is set for typed handles."""

    name: str
    dtype: DType
    pointer: PointerType | None = None


@node
class IntImm(Expr):
    """An integer or bool constant; `value` fits `dtype`, bool is 0 or 1."""

    dtype: DType
    value: int


@node
class FloatImm(Expr):
    """A floating constant. `value`, which all computing uses, is rounded to `dtype`; `written` is the double that the
    text or the caller gave, where rounding changed it: the text of the constant, and no part of its meaning."""

    HINTS: ClassVar[tuple[str, ...]] = ("written",)
    dtype: DType
    value: float
    written: float | None = None


@node
class StringImm(Expr):
    """A string argument of an intrinsic."""

    value: str

    @property
    def dtype(self) -> DType:
        return DType.of("handle")


@node
class Cast(Expr):
    dtype: DType
    value: Expr


@node
class BinaryOp(Expr):
    """`lhs op rhs`, operands of one dtype; `dtype` is theirs, or bool (with their lanes) for comparisons."""

    dtype: DType
    lhs: Expr
    rhs: Expr

    symbol: ClassVar[str] = ""  # the infix operator, where the text has one


@node
class Add(BinaryOp):
    symbol: ClassVar[str] = "+"


@node
class Sub(BinaryOp):
    symbol: ClassVar[str] = "-"


@node
class Mul(BinaryOp):
    symbol: ClassVar[str] = "*"


@node
class Div(BinaryOp):
    """Division; of integers it truncates toward zero."""

    symbol: ClassVar[str] = "/"


@node
class Mod(BinaryOp):
    """Remainder of the truncating division (sign of the dividend)."""


@node
class FloorDiv(BinaryOp):
    symbol: ClassVar[str] = "//"


@node
class FloorMod(BinaryOp):
    symbol: ClassVar[str] = "%"


@node
class Min(BinaryOp):
    pass


@node
class Max(BinaryOp):
    pass


@node
class CompareOp(BinaryOp):
    """A comparison: dtype is bool with the operands' lanes."""


@node
class EQ(CompareOp):
    symbol: ClassVar[str] = "=="


@node
class NE(CompareOp):
    symbol: ClassVar[str] = "!="


@node
class LT(CompareOp):
    symbol: ClassVar[str] = "<"


@node
class LE(CompareOp):
    symbol: ClassVar[str] = "<="


@node
class GT(CompareOp):
    symbol: ClassVar[str] = ">"


@node
class GE(CompareOp):
    symbol: ClassVar[str] = ">="


@node
class And(BinaryOp):
    """Logical and; the right side is evaluated only if the left one is true."""

    symbol: ClassVar[str] = "and"


@node
class Or(BinaryOp):
    symbol: ClassVar[str] = "or"


@node
class Not(Expr):
    dtype: DType
    value: Expr


@node
class Select(Expr):
    """Both sides may be evaluated; `T.if_then_else` (a `Call`) evaluates only the one chosen."""

    dtype: DType
    condition: Expr
    true_value: Expr
    false_value: Expr


@node
class Ramp(Expr):
    """The vector base, base + stride, ..., `lanes` of them."""

    dtype: DType
    base: Expr
    stride: Expr
    lanes: int


@node
class Broadcast(Expr):
    """`lanes` copies of a scalar."""

    dtype: DType
    value: Expr
    lanes: int


@node
class Shuffle(Expr):
    """Lanes picked by `indices` from the concatenation of `vectors`."""

    dtype: DType
    vectors: tuple[Expr, ...]
    indices: tuple[Expr, ...]


@node
class Let(Expr):
    """`body` with `var` standing for `value`."""

    dtype: DType
    var: Var
    value: Expr
    body: Expr


@dataclass(frozen=True, slots=True)
class Op:
    """An operator or intrinsic, known by its full name: `tir.exp`, `relax.nn.relu`. Compares by value."""

    name: str

    @staticmethod
    def get(name: str) -> Op:
        """Return the operator of that full name."""
        return Op(name)


@node
class Call(Expr):
    """An intrinsic (`Op`, name without prefix `tir.` as the text writes it) or a function of the module (`GlobalVar`).

    Arguments are expressions; string arguments are `StringImm`. `call_extern` has the symbol as first argument.
    """

    dtype: DType
    op: Any
    args: tuple[Expr, ...]


@node
class BufferLoad(Expr):
    """`buffer[indices]`; the last index may be a `Ramp`, which makes the dtype a vector."""

    dtype: DType
    buffer: Buffer
    indices: tuple[Expr, ...]


@node
class CommReducer(Node):
    """`combine(lhs, rhs) = result`, with one identity element per result."""

    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity: tuple[Expr, ...]


@node
class Reduce(Expr):
    """A reduction inside a tensor expression; never in a `PrimFunc`."""

    dtype: DType
    combiner: CommReducer
    source: tuple[Expr, ...]
    init: tuple[Expr, ...]
    axis: tuple[IterVar, ...]
    condition: Expr
    value_index: int


# ---------------------------------------------------------------- buffers and ranges


@node
class Buffer(Node):
    """A view of memory. The object is the binding.

    `strides` is empty for a compact row-major layout; `elem_offset` counts elements from `data`; `scope` is that of
    `data`'s pointer type.
    """

    name: str
    data: Var
    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...] = ()
    elem_offset: Expr | None = None
    alignment: int = 64
    offset_factor: int = 1
    axis_separators: tuple[int, ...] = ()

    @property
    def scope(self) -> str:
        return self.data.pointer.scope if self.data.pointer is not None else "global"


@node
class Range(Node):
    """min, min + 1, ..., min + extent - 1."""

    min: Expr
    extent: Expr


class IterKind(enum.Enum):
    """The kind of a block axis or thread variable."""

    SPATIAL = "S"
    REDUCE = "R"
    SCAN = "scan"  # T.axis.scan: ordered
    OPAQUE = "O"
    THREAD = "thread"


@node
class IterVar(Node):
    """An axis of a block, or the variable of a thread environment (`thread_tag`)."""

    var: Var
    dom: Range
    kind: IterKind
    thread_tag: str = ""


@node
class BufferRegion(Node):
    buffer: Buffer
    region: tuple[Range, ...]


@node
class MatchBufferRegion(Node):
    """`buffer` is another view of `source` inside a block."""

    buffer: Buffer
    source: BufferRegion


@node
class IndexMap(Node):
    """A map from indices to indices, such as `lambda i, j: (j, i)`, with an optional inverse. An attribute value."""

    indices: tuple[Var, ...]
    result: tuple[Expr, ...]
    inverse: IndexMap | None = None


# ---------------------------------------------------------------- statements


@node
class Stmt(Node):
    """A statement."""


@node
class Bind(Stmt):
    """`var = value` for the statements that follow in the same body."""

    var: Var
    value: Expr


@node
class BufferStore(Stmt):
    buffer: Buffer
    value: Expr
    indices: tuple[Expr, ...]


@node
class AllocBuffer(Stmt):
    """Memory for the statements that follow in the same body (no block needed).

    `scalar` marks the one element that the text names by itself, as in `x: T.int32 = 1`: TVM gives such a buffer a
    layout of its own, so that it is not equal to `T.alloc_buffer((1,), "int32", scope="local")`.
    """

    buffer: Buffer
    annotations: Attrs = EMPTY
    scalar: bool = False


@node
class DeclBuffer(Stmt):
    """`buffer` as a view of the memory at `data` (its own data variable, or a pointer expression)."""

    buffer: Buffer
    data: Expr


@node
class Evaluate(Stmt):
    value: Expr


@node
class AssertStmt(Stmt):
    """If `condition` is false, the call ends with an error of `kind` (a Python exception name) and the message."""

    condition: Expr
    kind: str
    message: tuple[str, ...]


@node
class IfThenElse(Stmt):
    condition: Expr
    then_body: tuple[Stmt, ...]
    else_body: tuple[Stmt, ...] | None = None


@node
class While(Stmt):
    condition: Expr
    body: tuple[Stmt, ...]


@node
class Break(Stmt):
    pass


@node
class Continue(Stmt):
    pass


@node
class AttrStmt(Stmt):
    """An annotated scope: `subject` is an expression, an `IterVar` (key `thread_extent`), a buffer or a string."""

    subject: Any
    key: str
    value: Any
    body: tuple[Stmt, ...]


class ForKind(enum.Enum):
    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unroll"
    THREAD_BINDING = "thread_binding"


@node
class For(Stmt):
    """`for var in range(min, min + extent, step)`, the only binder of `var`. `thread`: the axis of a bound loop."""

    var: Var
    min: Expr
    extent: Expr
    kind: ForKind
    body: tuple[Stmt, ...]
    thread: str | None = None
    annotations: Attrs = EMPTY
    step: Expr | None = None


@node
class Block(Stmt):
    """A unit of computation, self-contained: its axes, what it reads and writes, and a body over its axes.

    `init`, if not None, runs first at each spatial point when all reduce axes are at their start.
    """

    name: str
    iter_vars: tuple[IterVar, ...]
    reads: tuple[BufferRegion, ...]
    writes: tuple[BufferRegion, ...]
    body: tuple[Stmt, ...]
    init: tuple[Stmt, ...] | None = None
    alloc_buffers: tuple[Buffer, ...] = ()
    match_buffers: tuple[MatchBufferRegion, ...] = ()
    annotations: Attrs = EMPTY


@node
class BlockRealize(Stmt):
    """Run `block` with its axes bound to `values`, where `predicate` holds."""

    values: tuple[Expr, ...]
    predicate: Expr
    block: Block


TRUE = IntImm(BOOL, 1)


class FuncAttrs:
    """Mixin for function nodes with an `attrs` field: queries of attributes, and copies with changed ones."""

    __slots__ = ()
    attrs: Attrs

    def with_attr(self: Any, key: str | dict[str, Any], value: Any = None) -> Any:
        """Return a copy with one attribute set, or with several from a map."""
        items = key if isinstance(key, dict) else {key: value}
        return replace(self, attrs=Attrs({**self.attrs, **items}))

    def without_attr(self: Any, key: str) -> Any:
        return replace(self, attrs=self.attrs.without(key))

    @property
    def is_private(self) -> bool:
        """True if the function has no `global_symbol` and so is visible only inside its module."""
        return "global_symbol" not in self.attrs


@node
class PrimFunc(Node, FuncAttrs):
    """A loop-level function. `buffers[i]` is the buffer that the handle `params[i]` is matched to, or None.

    `ret_dtype` is None for a function that returns nothing. As in TVM, a body with blocks is one `BlockRealize` of a
    block named "root" without axes; see `mlcc.arith.complete`.
    """

    params: tuple[Var, ...]
    buffers: tuple[Buffer | None, ...]
    attrs: Attrs
    body: tuple[Stmt, ...]
    ret_dtype: DType | None = None

    @property
    def root(self) -> Block | None:
        """The root block, if the function has one."""
        match self.body:
            case (BlockRealize(block=block),) if not block.iter_vars:
                return block
        return None


def const_int(value: Expr | int | None) -> int | None:
    """Return the value of an integer constant, else None."""
    if isinstance(value, int):
        return value
    return value.value if isinstance(value, IntImm) else None

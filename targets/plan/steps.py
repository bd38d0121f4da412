"""The plan of a host function: values, pieces of memory, and steps in order.

`planner` builds plans, `memory` assigns their workspace; `mlcc.targets.llvm.host`, `mlcc.targets.c` and
`mlcc.targets.launch` emit them. All extents and offsets are int64 expressions over the symbols known at entry, and over
data-dependent symbols that a step reads (`Measure`). The latter never occur in the size of a piece of memory, which is
an upper bound.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field

from mlcc.errors import CompileError, Span, error
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.targets.plan.dims import Dims

ZERO = tir.IntImm(INT64, 0)


class MemoryKind(enum.Enum):
    """The kind of a piece of memory."""

    ARGUMENT = "argument"  # a parameter's tensor
    RESULT = "result"  # a result's tensor
    CONSTANT = "constant"
    TEMPORARY = "temporary"  # in the workspace


@dataclass(eq=False, slots=True)
class Memory:
    """A piece of memory. `index` is the slot in the argument vector, or the number of the constant.

    The live range of a temporary is from step `first` to step `last`, and `offset` is its offset in the workspace.
    `into` is the piece that this one was coalesced with.
    """

    place: MemoryKind
    size: tir.Expr
    name: str = ""
    index: int = -1
    first: int = -1
    last: int = -1
    offset: tir.Expr | None = None
    into: Memory | None = None

    def root(self) -> Memory:
        """Return the piece that this one was finally coalesced with."""
        memory = self
        while memory.into is not None:
            memory = memory.into
        return memory


# ---------------------------------------------------------------- values


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A compact tensor: a window of `memory` that starts `offset` bytes in."""

    memory: Memory
    dims: tuple[tir.Expr, ...]
    dtype: DType
    offset: tir.Expr = ZERO

    @property
    def size(self) -> tir.Expr:
        return byte_size(self.dims, self.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A number: an expression over the symbols and scalar parameters."""

    value: tir.Expr


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    dims: tuple[tir.Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Tuple:
    fields: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    value: str


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """Memory without a type, from `memory.alloc_storage`."""

    memory: Memory


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A function of the graph as a value, with its enclosing scope."""

    name: str
    func: relax.Function
    scope: Scope


@dataclass(frozen=True, slots=True, eq=False)
class Unknown:
    """A value without a native form. A use is an error with this `reason`; None: the error was already reported."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Unreachable:
    """The value of a tail call: control continues with the next iteration of a loop, not here."""


Value = Tensor | Scalar | Shape | Tuple | Text | Storage | Closure | Unknown | Unreachable


def byte_size(dims: tuple[tir.Expr, ...], dtype: DType) -> tir.Expr:
    """Return the bytes of a compact tensor."""
    size: tir.Expr = tir.IntImm(INT64, dtype.bytes * dtype.lanes)
    for dim in dims:
        size = c.mul(size, c.cast(INT64, dim))
    return size


@dataclass(slots=True)
class Scope:
    """One activation of a relax function: the values of its variables and symbols."""

    name: str
    values: dict[relax.Var, Value] = field(default_factory=dict)
    symbols: dict[tir.Var, tir.Expr] = field(default_factory=dict)


def refusal(code: str, message: str, span: Span | None = None, text: str = "", help: str | None = None) -> CompileError:
    """Return the error for a construct that has no native form."""
    return CompileError(error(code, message, span, text, help=help))


# ---------------------------------------------------------------- steps


@dataclass(eq=False, slots=True)
class CallKernel:
    """Run a kernel: an argument for each parameter of its PrimFunc, values for its symbols, scratch memory.

    `span` is that of the call in the graph; for a public PrimFunc it is the function's own.
    """

    kernel: str
    args: tuple[Tensor | Scalar, ...]
    symbols: tuple[tir.Expr, ...]
    workspace: Memory | None
    number: int = 0
    span: Span | None = None


@dataclass(eq=False, slots=True)
class CallPacked:
    """Call the packed function of a slot. Outputs are the last arguments."""

    slot: int
    args: tuple[Value, ...]
    number: int = 0


@dataclass(eq=False, slots=True)
class Copy:
    target: Tensor
    source: Tensor
    number: int = 0


@dataclass(eq=False, slots=True)
class Check:
    """Fail with `code` unless the condition, a scalar or a bool tensor without dimensions, holds.

    `exact`: also fail if computing it overflows int64.
    """

    condition: Scalar | Tensor
    code: int
    exact: bool = False
    number: int = 0


@dataclass(eq=False, slots=True)
class ReadSymbol:
    """Bind a symbol to the int64 at `source`, a tensor without dimensions; fail with `code` if it is negative."""

    symbol: tir.Var
    source: Tensor
    code: int
    number: int = 0


@dataclass(eq=False, slots=True)
class Branch:
    condition: Scalar | Tensor
    then_steps: list[Step] = field(default_factory=list)
    else_steps: list[Step] = field(default_factory=list)
    number: int = 0


@dataclass(eq=False, slots=True)
class Loop:
    """A loop over steps: an iteration that reaches `Again` is followed by another one."""

    steps: list[Step] = field(default_factory=list)
    number: int = 0


@dataclass(eq=False, slots=True)
class NextIteration:
    """Start the next iteration of the innermost loop."""

    number: int = 0


Step = CallKernel | CallPacked | Copy | Check | ReadSymbol | Branch | Loop | NextIteration


def walk_steps(steps: list[Step]) -> Iterator[Step]:
    """Yield all steps in order, including those in branches and loops."""
    for step in steps:
        yield step
        if isinstance(step, Branch):
            yield from walk_steps(step.then_steps)
            yield from walk_steps(step.else_steps)
        elif isinstance(step, Loop):
            yield from walk_steps(step.steps)


def tensors_of(step: Step) -> Iterator[Tensor]:
    """Yield the tensors that a step itself uses."""
    match step:
        case CallKernel(args=args) | CallPacked(args=args):
            yield from (a for a in args if isinstance(a, Tensor))
        case Copy(target=a, source=b):
            yield a
            yield b
        case ReadSymbol(source=source):
            yield source
        case Check(condition=cond) | Branch(condition=cond):
            if isinstance(cond, Tensor):
                yield cond


# ---------------------------------------------------------------- functions


@dataclass(eq=False, slots=True)
class Leaf:
    """One slot of the argument vector: a tensor, scalar, shape or pointer parameter, or a result.

    `name` is shown in messages; `dims` are the extents of a tensor or shape, `value` is the expression for a scalar.
    `read` and `written` are the function's effects on a tensor. A result with data-dependent extents has these in
    `actual`, which is stored to the DLTensor's shape at the end; `dims` are then their upper bounds.
    """

    name: str
    kind: str
    dtype: DType | None = None
    dims: tuple[tir.Expr, ...] = ()
    value: tir.Expr | None = None
    strides: tuple[tir.Expr, ...] | None = None
    offset: tir.Expr | None = None  # elements from the kernel's pointer to the first element
    read: bool = True
    written: bool = False
    span: Span | None = None
    actual: tuple[tir.Expr, ...] | None = None


@dataclass(eq=False, slots=True)
class Param:
    """A parameter or result as declared: a leaf, or a tuple of them."""

    name: str
    leaf: Leaf | None
    fields: tuple[Param, ...] = ()

    def leaves(self) -> Iterator[Leaf]:
        if self.leaf is not None:
            yield self.leaf
        for part in self.fields:
            yield from part.leaves()


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """Two sizes that must be equal, checked on entry; `what` names the first one in messages."""

    what: str
    line: int  # of the source; 0 if unknown
    have: tir.Expr
    want: tir.Expr
    code: int


@dataclass(eq=False, slots=True)
class HostFunction:
    """A planned public function of the artifact."""

    name: str
    kind: str  # relax or prim
    params: tuple[Param, ...]
    results: Param | None
    symbols: tuple[tir.Var, ...]
    steps: list[Step]
    dims: Dims
    span: Span | None = None
    values: list[tuple[int, tir.Expr]] = field(default_factory=list)  # non-tensor results: slot and value
    memories: list[Memory] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    measured: frozenset[tir.Var] | set[tir.Var] = frozenset()  # data-dependent symbols
    lines: dict[int, int] = field(default_factory=dict)  # error code of a check between steps -> source line
    fixed_bytes: int = 0
    places: list[tuple[tir.Var, tir.Expr]] = field(default_factory=list)  # ends of slots of symbolic size, in order

    @property
    def workspace(self) -> tir.Expr:
        """Return the bytes of the workspace, over the symbols and `places`."""
        return self.places[-1][0] if self.places else tir.IntImm(INT64, self.fixed_bytes)

    def inputs(self) -> list[Leaf]:
        return [leaf for p in self.params for leaf in p.leaves()]

    def outputs(self) -> list[Leaf]:
        return [] if self.results is None else list(self.results.leaves())

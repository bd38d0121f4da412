"""The operator library: one `OpDef` per relax operator, and calls bound to it."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlcc import plugins
from mlcc.errors import Span
from mlcc.ir import relax, tir
from mlcc.ir.node import replace
from mlcc.ops import bind as binding
from mlcc.ops import guard
from mlcc.ops.entries import entries, entry
from mlcc.ops.layout_rules import Rule
from mlcc.ops.signature import EXPANDED, Param, Signature, aliases, names, short_name, signature, stated_signature

__all__ = [
    "Cost", "Emit", "FusionKind", "Impl", "Inline", "OpDef", "Param", "Precision", "Signature", "aliases", "bind_call",
    "commutative_names", "get", "is_operator", "names", "register", "short_name", "unregister",
]  # fmt: skip


class FusionKind(enum.IntEnum):
    """The fusion pattern of an operator; the numbers are those of the attribute `op_pattern`."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_EWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


class Precision(enum.Enum):
    """The precision in which `to-mixed-precision` computes an operator."""

    HALF = enum.auto()  # always in half precision: contractions, for which machines have matrix units
    FOLLOW = enum.auto()  # in half precision if all operands are
    FULL = enum.auto()


class Cost(enum.IntEnum):
    """The cost of rematerializing one element of the result."""

    VIEW = 0  # nothing: it is an element of an operand, or of a few of them
    CHEAP = 1  # some instructions
    COSTLY = 2


class Inline(enum.Enum):
    """The scalar constant operands that become literals inside the TIR function of a call."""

    NONE = enum.auto()
    ONE_OF_TWO = enum.auto()  # the second one, else the first one
    ALL = enum.auto()


Emit = Callable[..., relax.Expr]  # emit(operator, *args): a variable bound to the operator's result


@dataclass(frozen=True, slots=True)
class DataDependentShape:
    """The result extents of an operator whose shape depends on the data.

    `measure(call, *tensors)` is a tensor expression: an int64 vector of the extents that depend on the data.
    `sized(call, extents)` is the struct info with these extents, each with its upper bound, as in `T.min(n, 6)`:
    memory is planned by the bound. The operator's lowering sees this struct info.
    """

    measure: Callable[..., Any]
    sized: Callable[[relax.Call, tuple[tir.Expr, ...]], relax.StructInfo]


@dataclass(frozen=True, slots=True)
class Impl:
    """The registry entry of an operator. Passes query entries and name no operators themselves.

    `parameters` is the signature, as `mlcc.ops.signature` reads it; `attr_order` is the order of attributes in text,
    if it differs; `aliases` are names in older texts, or other spellings.

    `infer(call)` returns the struct info, of the call as `normalize` returns it if there is one. `numpy(call, *arrays)`
    computes the result from arrays for the arguments (tuples of arrays for tuples, Python numbers and tuples of them
    for scalars and shapes; narrow floats are computed in float32, see `mlcc.ops.guard`). `lower(call, *tensors)` builds
    the result from `mlcc.te` tensors; of the arguments at `shape_only` it takes only the shape. `found` computes the
    extents of results that depend on the data. `many` is a lowering for devices of many threads, which binds its loops
    to threads; `lower` is used if it is absent or returns None. `accurate` is as precise as `numpy`, for operators
    whose `lower` follows TVM in computing something coarser. `expand(call, emit)` returns the call of a packed function
    or of another operator that replaces this one and is lowered in turn, or None to use `lower`; `emit(operator,
    *args)` binds an operand of that call.

    `tir_name` is the name of its TIR functions, or a function that returns it for a call; the default is the last part
    of the operator's name. `from_end`: negative indices in the data count from the end, as in NumPy and ONNX.
    `checks_scalars`: indices given as scalars are checked at their use; otherwise `check-shapes` checks them.

    A `pure` operator does nothing but give a value; one that `allocates` gives another one each time. The two operands
    of a `commutative` one may change places. An `activation` is computed of the joined products of several branches at
    once as well. `layout` is the rule by which it takes operands that are stored in another order of their axes (see
    `mlcc.ops.layout_rules`), as TVM's does; `free_layout` is the one where results need not be TVM's, if it is another.
    """

    parameters: str
    infer: Callable[[relax.Call], relax.StructInfo] | None = None
    numpy: Callable[..., Any] | None = None
    lower: Callable[..., Any] | None = None
    kind: FusionKind = FusionKind.OPAQUE
    shape_only: tuple[int, ...] = ()
    found: DataDependentShape | None = None
    many: Callable[..., Any] | None = None
    accurate: Callable[..., Any] | None = None
    expand: Callable[[relax.Call, Emit], relax.Expr | None] | None = None
    normalize: Callable[[relax.Call], relax.Call] | None = None
    tir_name: str | Callable[[relax.Call], str] | None = None
    inline: Inline = Inline.NONE
    from_end: bool = False
    checks_scalars: bool = True
    pure: bool = True
    allocates: bool = False
    commutative: bool = False
    activation: bool = False
    cost: Cost = Cost.COSTLY
    precision: Precision = Precision.FULL
    layout: Rule | None = None
    free_layout: Rule | None = None
    attr_order: tuple[str, ...] | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpDef:
    """An operator: name with prefix `relax.`, parameters, and what is known of it."""

    name: str
    signature: Signature
    impl: Impl

    @property
    def params(self) -> tuple[Param, ...]:
        return self.signature.params

    @property
    def short(self) -> str:
        """The name as the text has it after `R.`."""
        return self.name[len("relax.") :]

    @property
    def kind(self) -> FusionKind:
        return self.impl.kind

    @property
    def pure(self) -> bool:
        return self.impl.pure

    def tir_name(self, call: relax.Call) -> str:
        """Return the name of the TIR function that implements a call."""
        stated = self.impl.tir_name
        if stated is None:
            return self.short.rpartition(".")[2]
        return stated if isinstance(stated, str) else stated(call)


@functools.cache
def get(name: str) -> OpDef | None:
    """The operator of that name (with or without prefix `relax.`, `relax.op.` or `R.`), or None."""
    short = short_name(name)
    sig = signature(short)
    return None if sig is None else OpDef(f"relax.{short}", sig, _guarded(entry(short)))


def register(name: str, impl: Impl) -> None:
    """Register an operator for programs and passes. Raises ValueError if the name, or an alias, is taken or the
    parameters do not parse."""
    for one in (name, *impl.aliases):
        if is_operator(one):
            raise plugins.NameTaken(f"there is an operator `{one}` already")
    stated_signature(impl)
    entries()[short_name(name)] = impl
    _clear_caches()
    plugins.on_unload(lambda: unregister(name) if is_operator(name) else None)


def unregister(name: str) -> None:
    """Remove a registered operator."""
    del entries()[short_name(name)]
    _clear_caches()


def _clear_caches() -> None:
    for known in (get, signature, aliases):
        known.cache_clear()


def is_operator(name: str) -> bool:
    """Return True if `bind_call` knows the name; `R.linear` and `R.nn.relu6` expand to calls of other operators."""
    return short_name(name) in _EXPAND or signature(name) is not None


def commutative_names() -> frozenset[str]:
    """The names of commutative operators, with prefix `relax.`."""
    return frozenset(f"relax.{name}" for name, impl in entries().items() if impl.commutative)


def _guarded(impl: Impl) -> Impl:
    """Return the entry with its reference and lowerings wrapped to report unsupported dtypes (see `mlcc.ops.guard`)."""
    return dataclasses.replace(
        impl,
        numpy=None if impl.numpy is None else guard.reference(impl.numpy),
        lower=None if impl.lower is None else guard.lowering(impl.lower),
        accurate=None if impl.accurate is None else guard.lowering(impl.accurate),
        found=None if impl.found is None else DataDependentShape(guard.lowering(impl.found.measure), impl.found.sized),
    )


def bind_call(
    name: str, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None, span: Span | None = None
) -> relax.Call:
    """The call `R.name(*args, **kwargs)` with bound arguments and inferred struct info.

    `R.linear` expands to nested calls. Raises CompileError.
    """
    short, positional, keywords = binding.rewrite_arguments(short_name(name), list(args), dict(kwargs or {}))
    expand = _EXPAND.get(short)
    if expand is not None:
        return expand(tuple(positional), keywords, span)
    call = binding.bind(short, tuple(positional), keywords, span)
    from mlcc.ops.infer import infer_operator

    op = get(short)
    if op is not None and op.impl.normalize is not None:
        call = op.impl.normalize(call)
    info = infer_operator(call)
    return call if info is None else replace(call, struct_info=info)


def _linear(args: tuple[Any, ...], kwargs: dict[str, Any], span: Span | None) -> relax.Call:
    """Expand `linear` to x @ w.T + b."""
    given = dict(zip(("data", "weight", "bias", "out_dtype"), args, strict=False)) | kwargs
    transposed = bind_call("permute_dims", (given.get("weight"),), {"axes": None}, span)
    product = bind_call("matmul", (given.get("data"), transposed), {"out_dtype": given.get("out_dtype")}, span)
    return product if given.get("bias") is None else bind_call("add", (product, given["bias"]), {}, span)


def _relu6(args: tuple[Any, ...], kwargs: dict[str, Any], span: Span | None) -> relax.Call:
    return bind_call("clip", (*args, *kwargs.values(), 0, 6), {}, span)


_EXPAND: dict[str, Callable[[tuple[Any, ...], dict[str, Any], Span | None], relax.Call]] = dict(
    zip(EXPANDED, (_linear, _relu6), strict=True)
)

"""The operator library: one `OpDef` per relax operator, and calls bound to it."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlcc.errors import Span
from mlcc.ir import relax, tir
from mlcc.ir.node import replace
from mlcc.ops import bind as binding
from mlcc.ops import guard
from mlcc.ops.signature import Param, Signature, aliases, names, short_name, signature

__all__ = [
    "Emit", "FusionKind", "Impl", "OpDef", "Param", "Signature", "aliases", "bind_call", "commutative_names", "get",
    "is_operator", "names", "short_name",
]  # fmt: skip

FAMILIES = (
    "unary", "binary", "create", "manipulate", "join", "index", "reduce", "linalg", "nn", "norm", "pad", "conv",
    "conv_transpose", "pool", "attention", "loss", "resize", "sample", "region", "quantize", "grad", "builtin",
    "gather", "scatter", "scan", "sort", "einsum", "sets", "layout", "ccl",
)  # fmt: skip

_IMPURE = frozenset(
    {
        "assert_op", "call_builtin_with_ctx", "invoke_closure", "memory.kill_storage", "memory.kill_tensor", "print",
        "vm.call_tir_dyn", "vm.kill_object",
    }
)  # fmt: skip

# the operators whose two operands may change places
_COMMUTATIVE = frozenset(
    {
        "add", "bitwise_and", "bitwise_or", "bitwise_xor", "equal", "logical_and", "logical_or", "logical_xor",
        "maximum", "minimum", "multiply", "not_equal",
    }
)  # fmt: skip


class FusionKind(enum.IntEnum):
    """How an operator may join others in one kernel; the numbers are those of the attribute `op_pattern`."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_EWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


Emit = Callable[..., relax.Expr]  # emit(operator, *args): a variable bound to the operator's result


@dataclass(frozen=True, slots=True)
class Found:
    """How long the results of an operator are whose extents depend on the data.

    `measure(call, *tensors)` is a tensor expression: a vector of int64 with the extents that are not known before.
    `sized(call, extents)` is the struct info for these, each extent bounded by what it can be at most, as in
    `T.min(n, 6)`: memory is planned by that bound. The operator's lowering sees this struct info.
    """

    measure: Callable[..., Any]
    sized: Callable[[relax.Call, tuple[tir.Expr, ...]], relax.StructInfo]


@dataclass(frozen=True, slots=True)
class Impl:
    """What is known of an operator beyond its signature.

    `infer(call)` gives the struct info; `numpy(call, *arrays)` computes the result from arrays that stand for the
    arguments (tuples of arrays for tuples, Python numbers and tuples of them for scalars and shapes; narrow floats
    are computed in float32, see `mlcc.ops.guard`); `lower(call, *tensors)`
    builds it from `mlcc.te` tensors. Of the arguments at `shape_only` the lowering takes the shape in their place.
    `found` says how long results are whose extents the data decide. `many` is a lowering for devices of many threads,
    to which it binds its loops; where it gives None, or is not there, `lower` does. `accurate` computes what `numpy`
    does where `lower`, which is TVM's, computes something coarser. `expand(call, emit)` gives the call
    of a packed function or of another operator that it becomes, which is lowered in turn, or None where `lower` does;
    `emit(operator, *args)` binds what it needs before it.
    """

    infer: Callable[[relax.Call], relax.StructInfo] | None = None
    numpy: Callable[..., Any] | None = None
    lower: Callable[..., Any] | None = None
    kind: FusionKind = FusionKind.OPAQUE
    shape_only: tuple[int, ...] = ()
    found: Found | None = None
    many: Callable[..., Any] | None = None
    accurate: Callable[..., Any] | None = None
    expand: Callable[[relax.Call, Emit], relax.Expr | None] | None = None


@dataclass(frozen=True, slots=True)
class OpDef:
    """An operator: name with prefix `relax.`, parameters, and what is known of it."""

    name: str
    signature: Signature
    impl: Impl
    pure: bool

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


@functools.cache
def get(name: str) -> OpDef | None:
    """The operator of that name (with or without prefix `relax.`, `relax.op.` or `R.`), or None."""
    short = short_name(name)
    sig = signature(short)
    if sig is None:
        return None
    return OpDef(f"relax.{short}", sig, _impls().get(short, Impl()), short not in _IMPURE)


def is_operator(name: str) -> bool:
    """Whether `bind_call` knows the name; `R.linear` and `R.nn.relu6` are calls of other operators."""
    return short_name(name) in _EXPAND or signature(name) is not None


def commutative_names() -> frozenset[str]:
    """The operators, with prefix `relax.`, whose two operands may change places."""
    return frozenset(f"relax.{name}" for name in _COMMUTATIVE)


@functools.cache
def _impls() -> dict[str, Impl]:
    found: dict[str, Impl] = {}
    for family in FAMILIES:
        for name, impl in importlib.import_module(f"mlcc.ops.{family}").OPS.items():
            numpy = None if impl.numpy is None else guard.reference(impl.numpy)
            lower = None if impl.lower is None else guard.lowering(impl.lower)
            accurate = None if impl.accurate is None else guard.lowering(impl.accurate)
            sizes = None if impl.found is None else Found(guard.lowering(impl.found.measure), impl.found.sized)
            found[name] = dataclasses.replace(impl, numpy=numpy, lower=lower, found=sizes, accurate=accurate)
    return found


def bind_call(
    name: str, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None, span: Span | None = None
) -> relax.Call:
    """The call `R.name(*args, **kwargs)`, its arguments sorted and its struct info inferred where that is known.

    `R.linear` becomes the calls that it stands for, nested. Raises CompileError.
    """
    short, positional, keywords = binding.rewrite_arguments(short_name(name), list(args), dict(kwargs or {}))
    expand = _EXPAND.get(short)
    if expand is not None:
        return expand(tuple(positional), keywords, span)
    made = binding.bind(short, tuple(positional), keywords, span)
    from mlcc.ops.infer import infer_operator

    if short == "reshape":
        from mlcc.ops.manipulate import normalize_reshape

        made = normalize_reshape(made)
    elif short == "layout_transform":
        from mlcc.ops.layout import normalize_layout

        made = normalize_layout(made)
    info = infer_operator(made)
    return made if info is None else replace(made, struct_info=info)


def _linear(args: tuple[Any, ...], kwargs: dict[str, Any], span: Span | None) -> relax.Call:
    """x @ w.T + b, as the operators that it consists of."""
    given = dict(zip(("data", "weight", "bias", "out_dtype"), args, strict=False)) | kwargs
    turned = bind_call("permute_dims", (given.get("weight"),), {"axes": None}, span)
    product = bind_call("matmul", (given.get("data"), turned), {"out_dtype": given.get("out_dtype")}, span)
    return product if given.get("bias") is None else bind_call("add", (product, given["bias"]), {}, span)


def _relu6(args: tuple[Any, ...], kwargs: dict[str, Any], span: Span | None) -> relax.Call:
    return bind_call("clip", (*args, *kwargs.values(), 0, 6), {}, span)


_EXPAND: dict[str, Callable[[tuple[Any, ...], dict[str, Any], Span | None], relax.Call]] = {
    "linear": _linear,
    "nn.relu6": _relu6,
}

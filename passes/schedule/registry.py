"""The table of primitives, and how the arguments of a call become what a primitive takes.

A primitive is a function `f(state, ...)`; the annotations of its parameters say how each argument is read, so that
calls from Python, from scripts and from traces are checked alike.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlcc.errors import did_you_mean
from mlcc.ir import tir
from mlcc.passes.schedule.buffers import BufferArg
from mlcc.passes.schedule.handles import BlockRV, ExprRV, Handle, LoopRV
from mlcc.passes.schedule.index_maps import IndexMapArg, MapWithInverse
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.state import BlockRef, LoopRef, State

# module of this package -> the primitives that it defines; imported when one is first called
_MODULES: dict[str, str] = {
    "lookup": "get_block get_loops get_child_blocks get_producers get_consumers get_output_blocks enter_postproc",
    "split": "split",
    "loop_partition": "loop_partition",
    "fuse": "fuse merge",
    "reorder": "reorder",
    "block_iters": "reorder_block_iter_var add_unit_loop",
    "loop_kinds": "parallel vectorize unroll bind",
    "cache": "cache_read cache_write",
    "reindex_cache": "reindex_cache_read reindex_cache_write",
    "cache_inplace": "cache_inplace",
    "cache_index": "cache_index",
    "reindex": "reindex",
    "read_write_at": "read_at write_at",
    "compute_at": "compute_at reverse_compute_at",
    "inline": "compute_inline reverse_compute_inline",
    "simplify_indices": "simplify_indices",
    "epilogue": "fuse_reduction_epilogue",
    "decompose_reduction": "decompose_reduction",
    "rfactor": "rfactor",
    "memory": "set_scope storage_align unsafe_set_dtype widen",
    "flip_sign": "flip_sign",
    "compute_in": "unsafe_compute_in",
    "layout": "transform_layout set_axis_separator",
    "block_layout": "transform_block_layout",
    "pad_einsum": "pad_einsum",
    "pad_reduction": "pad_reduction",
    "decompose_padding": "decompose_padding can_decompose_padding",
    "rolling_buffer": "rolling_buffer",
    "blockize": "blockize",
    "tensorize": "tensorize",
    "annotate": "annotate unannotate mark_scheduled",
    "buffer_access": "unsafe_hide_buffer_access annotate_buffer_access",
    "sampling": "sample_perfect_tile sample_partitioned_tile sample_categorical sample_compute_location",
}
_WHERE = {name: module for module, listed in _MODULES.items() for name in listed.split()}

ALIASES = {"get_sblock": "get_block"}
PARAMETER_ALIASES = {"get_output_blocks": {"block": "scope_block"}}  # as traces of TVM's name them


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive: `run(state, ...)`, with the signature that callers see (without `state`). `returns` is "exprs" if
    integer results become symbolic. A primitive that is not `traced` does not change the module.
    """

    name: str
    run: Callable[..., Any]
    signature: inspect.Signature
    returns: str
    traced: bool

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.run) or ""


_DEFINED: dict[str, Primitive] = {}


def primitive(returns: str = "", traced: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the primitive of its name. Functions outside of this package may be registered as well."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        whole = inspect.signature(fn)
        params = list(whole.parameters.values())[1:]
        for p in params:
            assert p.annotation in _READERS, f"{fn.__name__}({p.name}): no reader for {p.annotation!r}"
        _DEFINED[fn.__name__] = Primitive(fn.__name__, fn, whole.replace(parameters=params), returns, traced)
        _WHERE.setdefault(fn.__name__, fn.__module__)
        return fn

    return register


def names() -> list[str]:
    """Return all primitives by name."""
    return sorted(_WHERE)


def find(name: str) -> Primitive:
    """The primitive called `name`. Raises Refusal E0610 with the nearest one."""
    name = ALIASES.get(name, name)
    if name not in _WHERE:
        raise Refusal("E0610", f"a schedule has no primitive `{name}`", help=did_you_mean(name, [*_WHERE, *ALIASES]))
    if name not in _DEFINED:
        importlib.import_module(f"mlcc.passes.schedule.primitives.{_WHERE[name]}")
    return _DEFINED[name]


def bind(prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by parameter name, with defaults. Refuse (E0612) arguments that do not fit."""
    plain = _bind_fast(prim, args, kwargs)
    if plain is not None:
        return plain
    renamed = PARAMETER_ALIASES.get(prim.name, {})
    kwargs = {renamed.get(key, key): value for key, value in kwargs.items()}
    for key in kwargs:
        if key not in prim.signature.parameters:
            help = did_you_mean(key, prim.signature.parameters) or f"sch.{call_text(prim)}"
            raise Refusal("E0612", f"`{prim.name}` has no parameter `{key}`", help=help)
    try:
        bound = prim.signature.bind(*args, **kwargs)
    except TypeError as exc:
        raise Refusal("E0612", f"`{prim.name}`: {exc}", help=f"sch.{call_text(prim)}") from None
    bound.apply_defaults()
    return {name: _detached(value) for name, value in bound.arguments.items()}


def _bind_fast(prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Do the same as `bind` for correct calls, in a fifth of the time that `inspect` takes; None for others."""
    parameters = prim.signature.parameters
    if len(args) > len(parameters):
        return None
    given = dict(zip(parameters, args, strict=False))
    bound, used = {}, 0
    for name, p in parameters.items():
        if p.kind is p.VAR_POSITIONAL:
            return None
        if name in given:
            value = given[name]
        elif name in kwargs:
            value, used = kwargs[name], used + 1
        elif p.default is p.empty:
            return None
        else:
            value = p.default
        bound[name] = _detached(value)
    return bound if used == len(kwargs) else None


def _detached(value: Any) -> Any:
    """A copy that the caller cannot change any more, numbers of NumPy's as Python's: what a trace records."""
    if isinstance(value, Handle) or type(value) in (str, int, bool):
        return value
    if isinstance(value, (list, tuple)):
        items = [_detached(v) for v in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {k: _detached(v) for k, v in value.items()}
    if hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    return value


def call_text(prim: Primitive) -> str:
    """Return the text of a call: `split(loop, factors, preserve_unit_iters=True, disable_predication=False)`."""
    return f"{prim.name}({', '.join(map(_parameter_text, prim.signature.parameters.values()))})"


def _parameter_text(p: inspect.Parameter) -> str:
    star = "*" if p.kind is p.VAR_POSITIONAL else ""
    return star + (p.name if p.default is p.empty else f"{p.name}={p.default!r}")


def convert(prim: Primitive, state: State, given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Bound arguments as the primitive takes them: varargs, and the rest by name. Raises Refusal E0611 to E0613."""
    rest: tuple[Any, ...] = ()
    by_name: dict[str, Any] = {}
    for name, value in given.items():
        p = prim.signature.parameters[name]
        read = _READERS[p.annotation]
        try:
            if p.kind is p.VAR_POSITIONAL:
                if len(value) == 1 and isinstance(value[0], (list, tuple)):
                    value = tuple(value[0])
                rest = tuple(read(state, v) for v in value)
            elif value is None and p.default is None:
                by_name[name] = None
            else:
                by_name[name] = read(state, value)
        except _WrongKind as exc:
            message = f"`{name}` of `{prim.name}` takes {exc}, not {describe(value)}"
            raise Refusal("E0613", message, help=_example(str(exc), value)) from None
    return rest, by_name


def _example(wanted: str, value: Any) -> str | None:
    """The help for an argument of another kind than the `wanted` one."""
    if wanted.startswith("a loop"):
        return "loops are what `sch.get_loops(block)` returns, outermost first"
    if wanted.startswith("a list of integers or None") and isinstance(value, int):
        return f"such as [None, {value}]: None is computed from the extent"
    return None


def describe(value: Any) -> str:
    """Return a short description of a value, for messages."""
    names = {BlockRV: "a block", LoopRV: "a loop", ExprRV: "a sampled value"}
    if value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return names.get(type(value), f"a {type(value).__name__}")


# ---------------------------------------------------------------- readers of arguments


class _WrongKind(Exception):
    """The message says what is taken."""


def _block(state: State, value: Any) -> BlockRef:
    if isinstance(value, BlockRV):
        return state.find_block(value)
    raise _WrongKind("a block")


def _loop(state: State, value: Any) -> LoopRef:
    if isinstance(value, LoopRV):
        ref = state.find_loop(value)
        if isinstance(ref, str):
            raise Refusal("E0611", f"this location is `{ref}`, not a loop")
        return ref
    raise _WrongKind("a loop")


def _location(state: State, value: Any) -> LoopRef | str:
    if isinstance(value, LoopRV):
        return state.find_loop(value)
    raise _WrongKind("a loop")


def _block_or_loop(state: State, value: Any) -> BlockRef | LoopRef:
    if isinstance(value, BlockRV):
        return state.find_block(value)
    if isinstance(value, LoopRV):
        return _loop(state, value)
    raise _WrongKind("a block or a loop")


def _int(state: State, value: Any) -> int:
    if isinstance(value, ExprRV):
        return state.value(value)
    if isinstance(value, tir.IntImm):
        return value.value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _WrongKind("an integer")


def _bool(state: State, value: Any) -> bool:
    if isinstance(value, (bool, int)):
        return bool(value)
    raise _WrongKind("True or False")


def _str(state: State, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise _WrongKind("a string")


def _list(read: Callable[[State, Any], Any], what: str) -> Callable[[State, Any], Any]:
    def reader(state: State, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            try:
                return [read(state, v) for v in value]
            except _WrongKind:
                pass
        raise _WrongKind(f"a list of {what}")

    return reader


def _int_or_none(state: State, value: Any) -> int | None:
    return None if value is None else _int(state, value)


def _float(state: State, value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise _WrongKind("a number")


def _str_or_int(state: State, value: Any) -> str | int:
    return value if isinstance(value, str) else _int(state, value)


def _buffer(state: State, value: Any) -> BufferArg:
    match value:
        case str() | tir.Buffer():
            return BufferArg(value)
        case (str() as kind, index):
            return BufferArg((kind, _int(state, index)))
    try:
        return BufferArg(_int(state, value))
    except _WrongKind:
        raise _WrongKind('a buffer of the block: 0, `("read", 0)`, or its name') from None


def _index_map(state: State, value: Any) -> IndexMapArg:
    if isinstance(value, IndexMapArg):
        return value
    if isinstance(value, (tir.IndexMap, MapWithInverse)) or callable(value):
        return IndexMapArg(value)
    raise _WrongKind("an index map such as `lambda i, j: (j, i)`")


def _any(state: State, value: Any) -> Any:
    """Kept as it is, with symbolic integers evaluated and handles left alone."""
    if isinstance(value, ExprRV):
        return state.value(value)
    if isinstance(value, tir.Expr) and state.sampled_in(value):
        raise _WrongKind("a sampled value, or arithmetic of such and integers")
    if isinstance(value, (list, tuple)):
        return type(value)(_any(state, v) for v in value)
    if isinstance(value, dict):
        return {k: _any(state, v) for k, v in value.items()}
    return value


def _blocks_or_loop(state: State, value: Any) -> LoopRef | list[BlockRef]:
    if isinstance(value, LoopRV):
        return _loop(state, value)
    if isinstance(value, (list, tuple)) and all(isinstance(v, BlockRV) for v in value):
        return [_block(state, v) for v in value]
    raise _WrongKind("a loop or a list of blocks")


_READERS: dict[str, Callable[[State, Any], Any]] = {
    "BlockRef": _block, "LoopRef": _loop, "LoopRef | str": _location, "BlockRef | LoopRef": _block_or_loop,
    "BlockRef | None": _block, "LoopRef | None": _loop, "int": _int, "int | None": _int, "bool": _bool, "str": _str,
    "str | None": _str, "float": _float, "float | None": _float, "str | int": _str_or_int,
    "list[int]": _list(_int, "integers"), "list[int] | None": _list(_int, "integers"),
    "list[int | None]": _list(_int_or_none, "integers or None"), "list[float]": _list(_float, "numbers"),
    "list[float] | None": _list(_float, "numbers"), "list[BlockRef]": _list(_block, "blocks"),
    "list[BlockRef] | None": _list(_block, "blocks"), "list[str]": _list(_str, "strings"), "Any": _any,
    "BufferArg": _buffer, "IndexMapArg": _index_map, "list[BlockRef] | LoopRef": _blocks_or_loop,
}  # fmt: skip

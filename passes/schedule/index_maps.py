"""Index maps as callers give them: a function of indices (`lambda i, j: (j, i)`), or an `IndexMap`."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from mlcc.arith.index_map import AXIS_SEPARATOR
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.schedule.handles import ExprRV, Handle
from mlcc.passes.schedule.refusal import Refusal

if TYPE_CHECKING:
    from mlcc.passes.schedule.state import BlockRef


@dataclass(frozen=True, slots=True, eq=False)
class MapWithInverse:
    """A function of indices and the function that undoes it, which is taken on trust (TVM's `IndexMap.from_func`)."""

    function: Callable[..., Any]
    inverse: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class IndexMapArg:
    """A map as a caller gave it; the dtype, and the number, of its indices depend on what it is applied to.

    `separators` are where the results of an `IndexMap` are parted; functions put AXIS_SEPARATOR among theirs.
    `sampled` are the sampled integers whose variables occur in an `IndexMap`.
    """

    value: tir.IndexMap | MapWithInverse | Callable[..., Any]
    separators: tuple[int, ...] = ()
    sampled: tuple[ExprRV, ...] = ()

    def of(self, ndim: int, dtype: DType | str) -> tir.IndexMap:
        """Return the map over `ndim` indices; refuse (E0613) another number of indices, results that are not integers,
        and axis separators.
        """
        index_map, separators = self.separated(ndim, dtype)
        if separators:
            raise Refusal("E0613", "this index map may not have axis separators")
        return index_map

    def separated(self, ndim: int, dtype: DType | str) -> tuple[tir.IndexMap, tuple[int, ...]]:
        """The map, and where its results are parted by axis separators; refuses (E0613) as `of` does."""
        if isinstance(self.value, tir.IndexMap):
            if len(self.value.indices) != ndim:
                raise _arity_refusal(len(self.value.indices), ndim)
            return self.value, self.separators
        from mlcc.arith.index_map import IndexMapError, from_func_separated

        mapping = self.value if isinstance(self.value, MapWithInverse) else MapWithInverse(self.value)
        try:
            arity = _arity(mapping.function)
            if arity is not None and arity != ndim:
                raise _arity_refusal(arity, ndim)
            wrap = _operand_wrapper(mapping.function)
            return from_func_separated(mapping.function, ndim, inverse=mapping.inverse, dtype=dtype, wrap=wrap)
        except (IndexMapError, TypeError, ValueError, ZeroDivisionError) as exc:
            raise Refusal("E0613", f"the index map does not work: {exc}") from None


def resolve_sampled(
    block: BlockRef, index_map: tir.IndexMap, separators: tuple[int, ...] = ()
) -> tuple[tir.IndexMap, IndexMapArg]:
    """Return the map with the sampled integers substituted, and the map as the trace records it, where they can be
    changed.

    Refuses (E0613) a map over variables that are neither sampled by this schedule nor of the function.
    """
    free = used_vars(index_map.result) - set(index_map.indices)
    if not free:
        return index_map, IndexMapArg(index_map, separators)
    sampled = block.state.sampled_in(index_map.result)
    for var in free - set(sampled) - used_vars(block.tree.func):
        raise Refusal("E0613", f"the index map uses `{var.name}`, which is not a value of this schedule")
    values = {var: tir.IntImm(var.dtype, block.state.value(rv)) for var, rv in sampled.items()}
    result = substitute(index_map.result, values)
    inverse = None if index_map.inverse is None else substitute(index_map.inverse, values)
    chosen = tir.IndexMap(index_map.indices, result, inverse)
    return chosen, IndexMapArg(index_map, separators, tuple(sampled.values()))


def rebind_sampled(arg: IndexMapArg, known: Mapping[Handle, Handle]) -> IndexMapArg:
    """Return the map of a trace with the handles of its sampled integers in another schedule."""
    handles: dict[ExprRV, ExprRV] = {}
    for rv in arg.sampled:
        fresh = known.get(rv, rv)
        assert isinstance(fresh, ExprRV)
        handles[rv] = fresh
    value = substitute(arg.value, {rv.var: new.var for rv, new in handles.items()})
    return IndexMapArg(value, arg.separators, tuple(handles.values()))


def index_map_text(
    index_map: tir.IndexMap, separators: tuple[int, ...] = (), sampled: Mapping[tir.Var, str] | None = None
) -> str:
    """Return the text of a map, such as `lambda i, j: (j, i)`. `sampled` are the names of sampled integers."""
    names: dict[tir.Var, str] = {}
    outer = dict(sampled or {})
    for var in index_map.indices:
        base = var.name if _NAME.fullmatch(var.name) and var.name not in _RESERVED else "i"
        others = (base if not n else f"{base}_{n}" for n in count())
        names[var] = next(n for n in others if n not in names.values() and n not in outer.values())
    fresh = {var: tir.Var(name, var.dtype) for var, name in (outer | names).items()}
    items = [str(substitute(value, fresh)) for value in index_map.result]
    for at in reversed(separators):
        items.insert(at, f'"{AXIS_SEPARATOR}"')
    text = f"lambda {', '.join(names.values())}: ({', '.join(items)}{',' if len(items) == 1 else ''})"
    if index_map.inverse is None:
        return text
    return f"tvm.tir.IndexMap.from_func({text}, inverse_index_map={index_map_text(index_map.inverse, (), sampled)})"


_NAME = re.compile("[A-Za-z_][A-Za-z_0-9]*")
_RESERVED = frozenset({*keyword.kwlist, "I", "R", "T"})  # names that the printed results would not have


def _arity(function: Callable[..., Any]) -> int | None:
    """Return the number of indices that a function takes, None if any number."""
    kinds = [p.kind for p in inspect.signature(function).parameters.values()]
    return None if inspect.Parameter.VAR_POSITIONAL in kinds else len(kinds)


def _operand_wrapper(function: Callable[..., Any]) -> Callable[[tir.Var], Any] | None:
    """Return a wrapper that gives variables Python's operators; functions of scripts have their own."""
    if getattr(function, "takes_variables", False):
        return None
    from mlcc.te.scalar import Scalar

    return Scalar


def _arity_refusal(taken: int, needed: int) -> Refusal:
    names = ", ".join("ijklmnop"[:needed]) if needed <= 8 else "*i"
    return Refusal(
        "E0613", f"the index map takes {taken} ind{'ex' if taken == 1 else 'ices'}, but there are {needed}",
        help=f"lambda {names}: (...)",
    )  # fmt: skip


def index_dtype(block: tir.Block) -> DType:
    """Return the dtype of a block's indices: that of its axes, else of its regions, else int64."""
    for axis in block.iter_vars:
        return axis.var.dtype
    for region in (*block.reads, *block.writes):
        for span in region.region:
            return span.min.dtype
    return DType.of("int64")

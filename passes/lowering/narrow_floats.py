"""Promotion of 16- and 8-bit floats to float32 in the TIR functions that operators became.

A forward fixpoint over buffers finds those in which a rounded value would be kept: a store of arithmetic, or of a value
loaded from such a buffer. They become float32 buffers; a result that the function accumulates in gets a float32
stand-in and a copy that rounds. Then expressions are rewritten, see `WideFloats`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import FLOAT32
from mlcc.ir.intrinsics import called
from mlcc.ir.module import IRModule
from mlcc.ir.node import map_children, replace, walk
from mlcc.ir.visit import substitute
from mlcc.ops.topi import ROUNDS
from mlcc.passes.schedule.rewrite.cache_stage import copy_stage, zero
from mlcc.passes.schedule.rewrite.wide_floats import WideFloats, is_narrow

OPERATOR = "mlcc.operator"  # the attribute of the functions that `lower-to-tir{accurate=true}` makes


def is_operator(func: tir.PrimFunc) -> bool:
    """Return True if a function was lowered from operators and is not promoted yet."""
    return bool(func.attrs.get(OPERATOR))


def uses_narrow_floats(func: tir.PrimFunc) -> bool:
    """Return True if any value in a function is a 16- or 8-bit float."""
    return any(isinstance(n, (tir.Expr, tir.Buffer)) and is_narrow(n.dtype) for n in walk(func))


def promote_module(module: IRModule) -> IRModule:
    """Return the module with all functions promoted that were lowered from operators."""
    result = module.copy()
    for name, func in module.functions.items():
        if isinstance(func, tir.PrimFunc) and is_operator(func):
            result.update_func(name, promote_func(func))
    return result


def promote_func(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return the function with narrow floats computed in float32 and each result rounded once."""
    plain: tir.PrimFunc = func.without_attr(OPERATOR)
    rounded = _rounded_buffers(plain)
    outputs = [b for b in plain.buffers if b in rounded]
    widened = _widen_buffers(plain, rounded.difference(outputs))
    return _promote_body(_add_stand_ins(widened, [b for b in outputs if b is not None]))


def widen_intermediates(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return the function with float32 buffers for its intermediate results.

    Results are still accumulated in their own type; the rest is for `promoted`.
    """
    chosen = _rounded_buffers(func).difference(func.buffers)
    return _promote_body(_widen_buffers(func, chosen)) if chosen else func


# ---------------------------------------------------------------- buffers


def _rounded_buffers(func: tir.PrimFunc) -> set[tir.Buffer]:
    """Return the narrow buffers that would keep rounded values: temporaries, and results that are read back."""
    stores: dict[tir.Buffer, list[tir.Expr]] = {}
    loaded: set[tir.Buffer] = set()
    local: set[tir.Buffer] = set()
    rounding: set[tir.Buffer] = set()
    escaping: set[tir.Var] = set()
    bound: dict[tir.Var, tir.Expr] = {}
    for node in walk(func.body):
        match node:
            case tir.BufferStore(buffer=buffer, value=value):
                stores.setdefault(buffer, []).append(value)
            case tir.BufferLoad(buffer=buffer):
                loaded.add(buffer)
            case tir.Bind(var=var, value=value) | tir.Let(var=var, value=value):
                bound[var] = value
            case tir.Call(args=args):  # memory that is passed by its pointer
                escaping.update(a for a in args if isinstance(a, tir.Var))
            case tir.Block(alloc_buffers=allocated, match_buffers=views, annotations=annotations, writes=writes):
                local.update(allocated)
                rounding.update(r.buffer for r in writes if ROUNDS in annotations)
                for view in views:
                    escaping.update((view.buffer.data, view.source.buffer.data))
    narrow = {b for b in stores if is_narrow(b.dtype) and b.data not in escaping and b not in rounding}
    candidates = [b for b in narrow if b in local or b in loaded]
    chosen: set[tir.Buffer] = set()
    while True:
        more = [b for b in candidates if b not in chosen and any(_is_rounded(v, chosen, bound) for v in stores[b])]
        if not more:
            return chosen
        chosen.update(more)


def _is_rounded(value: Any, wide: Collection[tir.Buffer], bound: Mapping[tir.Var, tir.Expr]) -> bool:
    """Return True if computing a narrow value rounds it. Loads, constants, and selections among such values do not."""
    match value:
        case tir.BufferLoad(buffer=buffer):
            return buffer in wide or _is_wide_load(value)
        case tir.FloatImm() | tir.Cast(value=tir.FloatImm() | tir.IntImm()):
            return False
        case tir.Cast(value=inner):
            return not inner.dtype.is_bool
        case tir.Var():
            return value in bound and _is_rounded(bound[value], wide, bound)
        case tir.Max(lhs=one, rhs=other) | tir.Min(lhs=one, rhs=other) | tir.Select(true_value=one, false_value=other):
            return _is_rounded(one, wide, bound) or _is_rounded(other, wide, bound)
        case tir.Call(op=tir.Op(name="tir.if_then_else"), args=(_, one, other)):
            return _is_rounded(one, wide, bound) or _is_rounded(other, wide, bound)
        case tir.Broadcast(value=inner) | tir.Let(body=inner):
            return _is_rounded(inner, wide, bound)
        case tir.Call(op=tir.Op(name="tir.assume_number" | "tir.allow_reciprocal"), args=(inner,)):
            return _is_rounded(inner, wide, bound)
    return True


def _float32(buffer: tir.Buffer, name: str) -> tir.Buffer:
    """Return a float32 buffer to replace a narrow one."""
    data = tir.Var(name, buffer.data.dtype, tir.PointerType(FLOAT32, buffer.scope))
    return replace(buffer, name=name, dtype=FLOAT32, data=data)


def _widen_buffers(func: tir.PrimFunc, chosen: Collection[tir.Buffer]) -> tir.PrimFunc:
    """Return the function with float32 buffers for the temporaries `chosen`; loads and stores keep the narrow type."""
    wide: dict[Any, Any] = {b: _float32(b, b.name) for b in chosen}
    return substitute(func, wide | {old.data: new.data for old, new in wide.items()})


def _add_stand_ins(func: tir.PrimFunc, outputs: list[tir.Buffer]) -> tir.PrimFunc:
    """Return the function with a float32 buffer for each result, and a copy to the result after its last use."""
    root = func.root
    if root is None or not outputs:
        return func
    stand_ins = {b: _float32(b, f"{b.name}_global") for b in outputs}
    body: list[tir.Stmt] = []
    for at, stmt in enumerate(root.body):
        body.append(substitute(stmt, stand_ins))
        used, later = set(walk(stmt)), set(walk(root.body[at + 1 :]))
        body += [_rounding_copy(stand_ins[b], b) for b in outputs if b in used and b not in later]
    block = replace(root, body=tuple(body), alloc_buffers=(*root.alloc_buffers, *stand_ins.values()))
    return replace(func, body=(replace(func.body[0], block=block),))


def _rounding_copy(source: tir.Buffer, target: tir.Buffer) -> tir.Stmt:
    """Return the loops that store `source` as the type of `target`, named like those of `cache_write`."""
    whole = tuple(tir.Range(zero(n), n) for n in target.shape)
    return copy_stage(tir.BufferRegion(target, whole), source, target, "global", False).nest


# ---------------------------------------------------------------- expressions

_SELECTIONS = (tir.Max, tir.Min, tir.Select, tir.Broadcast, tir.Let, tir.Call)


def _promote_body(func: tir.PrimFunc) -> tir.PrimFunc:
    return replace(func, body=_Promoter(FLOAT32).body(func.body))


def _is_wide_load(node: Any) -> bool:
    """Return True if a load still has the narrow dtype while its buffer has been widened."""
    return isinstance(node, tir.BufferLoad) and node.dtype.element is not node.buffer.dtype.element


def _is_discontinuous(node: Any) -> bool:
    """Return True if an expression is discontinuous in a narrow operand."""
    match node:
        case tir.Cast(dtype=dtype, value=value):
            return is_narrow(value.dtype) and not dtype.is_float
        case tir.CompareOp(lhs=lhs):
            return is_narrow(lhs.dtype)
        case tir.FloorDiv() | tir.FloorMod() | tir.Mod():
            return is_narrow(node.dtype)
        case tir.Call(op=tir.Op(), args=args):
            narrow = any(isinstance(a, tir.Expr) and is_narrow(a.dtype) for a in args)
            return narrow and (called(node).jumps or not is_narrow(node.dtype))
    return False


class _Promoter(WideFloats):
    """Compute narrow floats in float32, in a function whose widened buffers are still accessed in their old type."""

    _in_discontinuous = False  # inside of an expression that `_is_discontinuous`

    def _stmt(self, stmt: Any) -> Any:
        match stmt:
            case tir.BufferStore(buffer=buffer, value=value, indices=indices) if buffer.dtype.element.is_float and (
                buffer.dtype.element is not value.dtype.element
            ):
                rewritten = self._wide(value) if is_narrow(value.dtype) else self._expr(value)
                fitting = c.cast(buffer.dtype.with_lanes(value.dtype.lanes), rewritten)
                return replace(stmt, value=fitting, indices=tuple(map(self._expr, indices)))
            case tir.Bind(value=value) if is_narrow(value.dtype) and not _is_rounded(value, (), {}):
                return replace(stmt, value=self._narrow(value))
        rewritten = super()._stmt(stmt)
        if isinstance(rewritten, tir.Block) and ROUNDS in rewritten.annotations:
            return replace(rewritten, annotations=rewritten.annotations.without(ROUNDS))
        return rewritten

    def _narrow(self, node: tir.Expr) -> tir.Expr:
        if is_narrow(node.dtype):
            if isinstance(node, tir.Cast) and isinstance(node.value, tir.FloatImm):
                return c.cast(node.dtype, node.value)
            if isinstance(node, tir.BufferLoad) and _is_wide_load(node):
                return tir.Cast(node.dtype, self._load(node))
            if isinstance(node, _SELECTIONS) and not _is_rounded(node, (), {}):
                return map_children(node, lambda n: self._narrow(n) if isinstance(n, tir.Expr) else n)
        return super()._narrow(node)

    def _wide(self, node: tir.Expr) -> tir.Expr:
        if not self._in_discontinuous and _is_discontinuous(node):
            return self._visit_discontinuous(super()._wide, node)  # type: ignore[no-any-return]
        match node:
            case tir.BufferLoad() if _is_wide_load(node):
                wide: tir.Expr = self._load(node)
            case tir.Var() if node in self._values:
                wide = self._values[node]
            case _:
                return super()._wide(node)
        return tir.Cast(wide.dtype, tir.Cast(node.dtype, wide)) if self._in_discontinuous else wide

    def _expr(self, node: Any) -> Any:
        if not self._in_discontinuous and _is_discontinuous(node):
            return self._visit_discontinuous(super()._expr, node)
        return super()._expr(node)

    def _visit_discontinuous(self, rewrite: Callable[[Any], Any], node: Any) -> Any:
        self._in_discontinuous = True
        try:
            return rewrite(node)
        finally:
            self._in_discontinuous = False

    def _load(self, node: tir.BufferLoad) -> tir.BufferLoad:
        dtype = node.buffer.dtype.with_lanes(node.dtype.lanes)
        return replace(node, dtype=dtype, indices=tuple(map(self._expr, node.indices)))

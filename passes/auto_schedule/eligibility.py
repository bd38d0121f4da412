"""The eligibility check for rules: they schedule only functions that are not scheduled yet."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.visit import has_block
from mlcc.passes.schedule.tree import child_realizes

SCHEDULED = "tir.is_scheduled"
MADE_BY = "mlcc.made_by"  # the pass that scheduled a function, and its choices
# annotations by which users schedule blocks
_USER_ANNOTATIONS = ("pragma_", "meta_schedule", "schedule_rule", "auto_copy", "tir.")


def why_ineligible(func: tir.PrimFunc) -> str | None:
    """Return why rules must not schedule a function, or None if it is as lowering produced it.

    Eligible functions have plain serial loops without annotations, bound one to one to the axes of their blocks. An
    axis of extent 1 may be bound to a constant.
    """
    if func.attrs.get(MADE_BY):
        return f"its loops are those of {func.attrs[MADE_BY]}"
    if func.attrs.get(SCHEDULED):
        return f"it has the attribute {SCHEDULED}"
    root = func.root
    if root is None:
        return "it has no blocks"
    if root.match_buffers or root.annotations or root.reads or root.writes or root.init:
        return "its root block is more than a scope"
    if not child_realizes(root.body):
        return "it has no blocks"
    for stmt in root.body:
        reason = _nest_ineligibility(stmt, [])
        if reason is not None:
            return reason
    return None


def _nest_ineligibility(stmt: tir.Stmt, loops: list[tir.For]) -> str | None:
    match stmt:
        case tir.For(var=var, body=(inner,)):
            plain = stmt.kind is tir.ForKind.SERIAL and not stmt.annotations and tir.const_int(stmt.min) == 0
            if not plain or tir.const_int(stmt.step) not in (None, 1):
                return f"loop `{var.name}` is not a plain serial one"
            return _nest_ineligibility(inner, [*loops, stmt])
        case tir.BlockRealize():
            return _block_ineligibility(stmt, loops)
        case tir.For(var=var):
            return f"loop `{var.name}` has several statements in it"
    return f"a {type(stmt).__name__} is outside of blocks"


def _block_ineligibility(realize: tir.BlockRealize, loops: list[tir.For]) -> str | None:
    block = realize.block
    name = f"block `{block.name}`"
    driven = [v for axis, v in zip(block.iter_vars, realize.values, strict=True) if not _is_unit(axis, v)]
    bound_vars = [v for v in driven if isinstance(v, tir.Var)]
    if (
        len(bound_vars) != len(driven)
        or set(bound_vars) != {loop.var for loop in loops}
        or len(bound_vars) != len(loops)
    ):
        return f"{name} is not bound one to one by its loops"
    if tir.const_int(realize.predicate) != 1:
        return f"{name} has a predicate"
    if block.match_buffers or block.alloc_buffers or has_block(block.body):
        return f"{name} has blocks or buffers of its own"
    kinds = {axis.kind for axis in block.iter_vars}
    if not kinds <= {tir.IterKind.SPATIAL, tir.IterKind.REDUCE}:
        return f"{name} has an axis that is neither spatial nor reduced"
    if any(key.startswith(_USER_ANNOTATIONS) and not _names_operator(key, v) for key, v in block.annotations.items()):
        return f"{name} is annotated"
    return None


def _is_unit(axis: tir.IterVar, value: tir.Expr) -> bool:
    """Return True for an axis of extent 1 that is bound to a constant, as in blocks that store a single element."""
    return tir.const_int(axis.dom.extent) == 1 and tir.const_int(value) is not None


def _names_operator(key: str, value: object) -> bool:
    """Return True for an annotation with which lowering marks the operator that a block comes from."""
    text = value.value if isinstance(value, tir.StringImm) else value
    return key == "schedule_rule" and isinstance(text, str) and text.startswith("meta_schedule.")

"""Matching of TIR functions that copy a tensor with its axes permuted."""

from __future__ import annotations

from mlcc.arith.structural_keys import same_expr
from mlcc.ir import tir
from mlcc.passes.auto_schedule.stage import stages_of

Axes = tuple[int, ...]  # the position in the copy of each axis of the source


def permutation(func: tir.PrimFunc) -> Axes | None:
    """Match a function that copies a whole tensor transposed; return the output position of each input axis."""
    stages = stages_of(func)
    tensors = [b for b in func.buffers if b is not None]
    if len(stages) != 1 or len(tensors) != 2 or len(stages[0].stores) != 1 or not stages[0].plain:
        return None
    ((store,), (source, target)) = stages[0].stores, tensors
    if not isinstance(store.value, tir.BufferLoad) or store.value.buffer is not source or store.buffer is not target:
        return None
    loaded, stored = store.value.indices, store.indices
    axes = {a.var: a.dom for a in stages[0].block.iter_vars}
    if not all(isinstance(i, tir.Var) and i in axes for i in (*loaded, *stored)) or set(loaded) != set(stored):
        return None
    positions = tuple(stored.index(i) for i in loaded)
    if len(set(positions)) != len(positions) or len(positions) != len(stored) or positions == tuple(range(len(stored))):
        return None
    domains = (axes[i] for i in loaded if isinstance(i, tir.Var))
    is_whole = all(
        tir.const_int(domain.min) == 0 and same_expr(domain.extent, size) and same_expr(size, target.shape[position])
        for domain, size, position in zip(domains, source.shape, positions, strict=True)
    )
    return positions if is_whole else None

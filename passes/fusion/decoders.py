"""Fusion of dequantization into matrix products: weights are decoded where they are multiplied.

TVM's FuseOps keeps the two apart, so that the decoded operand is written to memory in full and read again. The time of
a product of few rows is that of reading its weights, and encoded weights are a fraction of the operand's size.
"""

from __future__ import annotations

from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ops import FusionKind
from mlcc.passes.auto_schedule.contraction import Contraction, match_contraction
from mlcc.passes.auto_schedule.stage import stages_of
from mlcc.passes.fusion.fusion_graph import Group
from mlcc.passes.graph.few_rows import MAX_ROWS
from mlcc.relax.queries import call_arguments, tir_callee, used_vars

MIN_GAIN = 2  # least size ratio of an operand to its encoded form


def fuse_decoders(block: relax.DataflowBlock, groups: list[Group], module: IRModule) -> list[Group]:
    """Merge groups that decode an operand of a single product into the product's group; return the groups.

    The operand is the right one, which vectors are loaded from, and it is a matrix.
    """
    merged = list(groups)
    bindings = dict(enumerate(block.bindings))
    index_of = {b.var: n for n, b in bindings.items()}
    users: dict[int, set[int]] = {}
    for n, binding in bindings.items():
        for var in used_vars(binding.value):  # type: ignore[attr-defined]
            if var in index_of:
                users.setdefault(index_of[var], set()).add(n)
    for n, binding in bindings.items():
        operand = _decoded_operand(binding, module)
        source = index_of.get(operand) if operand is not None else None
        if source is None or users[source] != {n} or not isinstance(operand, relax.DataflowVar):
            continue
        members = [i for i, group in enumerate(merged) if group is merged[source]]
        member_set = set(members)
        if n in member_set or any(users[i] - member_set for i in members if i != source):
            continue
        if all(_is_injective(groups[i]) for i in members) and _is_worth_decoding(
            [bindings[i] for i in members], operand
        ):
            for i in members:
                merged[i] = merged[n]
    return merged


def _is_injective(group: Group) -> bool:
    return group.kind <= FusionKind.INJECTIVE


def _decoded_operand(binding: relax.Binding, module: IRModule) -> relax.Var | None:
    """Return the right operand of a product of few or an unknown number of rows, None for anything else."""
    value = binding.value if isinstance(binding, relax.VarBinding) else None
    func = module.functions.get(tir_callee(value) or "")
    if not isinstance(value, relax.Call) or not isinstance(func, tir.PrimFunc):
        return None
    stages = stages_of(func)
    product = match_contraction(stages[0]) if len(stages) == 1 and stages[0].reduced else "no product"
    if not isinstance(product, Contraction) or product.rhs.windows or len(product.rhs.places) != 2:
        return None
    if product.reuse is not None and product.reuse > MAX_ROWS:
        return None
    arguments = dict(zip(func.buffers, call_arguments(value), strict=False))
    operand = arguments.get(product.rhs.buffer)
    return operand if isinstance(operand, relax.Var) else None


def _is_worth_decoding(bindings: list[relax.Binding], operand: relax.Var) -> bool:
    """Return True if an operand is computed from so few bytes that decoding it at its use pays off."""
    internal_vars = {b.var for b in bindings}
    leaves: dict[relax.Expr, None] = {}
    for binding in bindings:
        value = binding.value  # type: ignore[attr-defined]
        for argument in call_arguments(value) if isinstance(value, relax.Call) else ():
            if argument not in internal_vars:
                leaves[argument] = None
    sizes = [_bytes(leaf) for leaf in leaves]
    operand_bytes = _bytes(operand)
    return operand_bytes is not None and None not in sizes and sum(n for n in sizes if n) * MIN_GAIN <= operand_bytes


def _bytes(expr: relax.Expr) -> int | None:
    """Return the size of a tensor in bytes, or None if it is unknown."""
    info = expr.struct_info
    if not isinstance(info, relax.TensorStructInfo) or info.dims is None or info.dtype is None:
        return None
    total = max(info.dtype.bits // 8, 1)
    for extent in info.dims:
        known = tir.const_int(extent)
        if known is None:
            return None
        total *= known
    return total

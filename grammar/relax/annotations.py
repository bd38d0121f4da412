"""Facts about struct infos and values, for checking the annotations of bindings."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.ir import relax, tir
from mlcc.ops import infer, relations


@dataclass(frozen=True)
class Cast:
    """`R.match_cast(value, struct_info)`, which only a binding can take."""

    value: relax.Expr
    struct_info: relax.StructInfo


def erase_to_well_defined(
    info: relax.StructInfo, visible: set[tir.Var] | None, params: tuple[relax.Var, ...]
) -> relax.StructInfo:
    """Return `info` without symbolic variables and shapes that are local to the function's body."""
    if visible is None:
        return info
    inner = set(relations.variables(info)) - visible
    erased = infer.erase(info, {}, inner) if inner else info
    return _without_shape_vars(erased, set(params))


def _without_shape_vars(info: relax.StructInfo, known: set[relax.Var]) -> relax.StructInfo:
    if isinstance(info, relax.TensorStructInfo) and isinstance(info.shape, relax.Var) and info.shape not in known:
        return relax.TensorStructInfo(None, info.dtype, info.ndim, info.vdevice)
    if isinstance(info, relax.TupleStructInfo):
        fields = tuple(_without_shape_vars(f, known) for f in info.fields)
        same = all(a is b for a, b in zip(fields, info.fields, strict=True))
        return info if same else relax.TupleStructInfo(fields)
    return info


def is_opaque(value: relax.Expr) -> bool:
    """Return True if a value's struct info cannot be inferred: results of functions, and uses of absent constants."""
    if isinstance(value.struct_info, relax.ObjectStructInfo):
        return True
    if isinstance(value, relax.Call):
        if not isinstance(value.op, tir.Op):
            return True
        return any(isinstance(a, relax.Constant) and a.data.dtype.is_void for a in value.args)
    return isinstance(value, relax.Constant) and value.data.dtype.is_void


def is_symbolic(cast: Cast) -> bool:
    """Return True if a cast involves symbolic variables, so that only run time can check it."""
    known = cast.value.struct_info
    return bool(relations.variables(cast.struct_info) or (known is not None and relations.variables(known)))


def text_of(info: relax.StructInfo) -> str:
    """A struct info as the text writes it."""
    from mlcc.grammar.printer.printer import script

    return script(info).strip()

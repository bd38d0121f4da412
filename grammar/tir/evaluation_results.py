"""Values of expressions that are not IR nodes (named scalars, Python numbers), and descriptions for messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc.errors import Span
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import children


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A name for the only element of a buffer: reading the name loads the element, assigning to it stores."""

    buffer: tir.Buffer


def is_number(value: Any) -> bool:
    """Return True for a Python bool, int or float."""
    return isinstance(value, (int, float))


def set_span(node: Any, span: Span) -> Any:
    """Set the span of a new node and of all new nodes inside it, such as implicit conversions."""
    if node.span is None:
        object.__setattr__(node, "span", span)  # new and not shared yet
        if isinstance(node, _LEAVES):
            return node
        stack = list(children(node))
        while stack:
            top = stack.pop()
            if top.span is None and not isinstance(top, (tir.Var, tir.Buffer)):
                object.__setattr__(top, "span", span)
                stack.extend(children(top))
    return node


_LEAVES = (tir.IntImm, tir.FloatImm, tir.StringImm, tir.Var)


def describe(value: Any) -> str:
    """Describe a value for messages."""
    if isinstance(value, tir.Buffer):
        return f"buffer `{value.name}`"
    if isinstance(value, relax.GlobalVar):
        return f"function `{value.name}`"
    if isinstance(value, DType):
        return f"the dtype {value}"
    names = {str: "a string", tuple: "a tuple", list: "a list", dict: "a dict", type(None): "None", bool: "a bool"}
    if value is Ellipsis:
        return "`...`"
    return names.get(type(value), "this" if not is_number(value) else "a number")

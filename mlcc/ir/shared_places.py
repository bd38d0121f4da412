"""The places in a text of code that equal functions share: those of each function, as MLIR's fused locations."""

from __future__ import annotations

from typing import Any, TypeVar

from mlcc.errors import SharedSpan, Span
from mlcc.ir import relax, tir
from mlcc.ir.node import Node, map_children, replace

F = TypeVar("F", bound=Node)
_PLACED = (tir.Stmt, relax.Binding, relax.Call)
_LEAVES = (tir.Expr, tir.Buffer, relax.StructInfo, relax.Var)


def with_places_of(func: F, other: F) -> F:
    """Return a function whose statements, bindings and calls have their own places and those of an equal function.

    What has no place in one of both gets none, since that of the other would be wrong for it.
    """
    mine, theirs = _placed(func), _placed(other)
    if [*map(type, mine)] == [*map(type, theirs)]:
        places: dict[Node, Span | None] = {a: _merged(a.span, b.span) for a, b in zip(mine, theirs, strict=True)}
    else:  # they differ in statements that do nothing
        places = dict.fromkeys(mine)
    if all(node.span == place for node, place in places.items()):
        return func

    def visit(node: Any) -> Any:
        if isinstance(node, _LEAVES):
            return node
        new_node = map_children(node, visit)
        return replace(new_node, span=places[node]) if node in places else new_node

    return map_children(func, visit)


def _placed(func: Node) -> list[Node]:
    """Return the statements, bindings and calls of a function in preorder."""
    found: list[Node] = []

    def visit(node: Any) -> Any:
        if isinstance(node, _PLACED):
            found.append(node)
        return node if isinstance(node, _LEAVES) else map_children(node, visit)

    map_children(func, visit)
    return found


def _merged(one: Span | None, other: Span | None) -> Span | None:
    if one is None or other is None:
        return None
    first, *more = dict.fromkeys((*one.all, *other.all))
    return SharedSpan(first.source, first.start, first.end, tuple(more)) if more else first

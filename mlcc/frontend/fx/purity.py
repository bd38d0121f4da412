"""Decide whether a traced graph is pure: it writes to nothing visible outside and returns no alias of an input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

_READS = ("aten.item.", "aten._local_scalar_dense.")  # numbers that depend on elements


def is_pure(graph: torch.fx.Graph) -> bool:
    """Return True if the graph has no side effects and no result aliases an input.

    The graph may not write to an input, read an element as a number, or change a mode of PyTorch such as autocast.
    """
    nodes = list(graph.nodes)
    if any(str(node.target).startswith(_READS) or _is_mode(node) for node in nodes):
        return False
    inputs = set(storages(node for node in nodes if node.op in ("placeholder", "get_attr")))
    touched = [*graph.output_node().all_input_nodes, *(into for node in nodes for into in written_nodes(node))]
    return inputs.isdisjoint(storages(touched))


def written_nodes(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The tensors that a node writes to."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    names = [argument.name for argument in schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    into = [given.get(a.name) for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [part for part in pytree.tree_leaves(into) if isinstance(part, torch.fx.Node)]


def _is_mode(node: torch.fx.Node) -> bool:
    """Return True if a node enters or leaves autocast (`torch.amp`). Grad mode has no effect without gradients."""
    return node.op == "call_function" and getattr(node.target, "__module__", "").startswith("torch.amp")


def storages(nodes: Iterable[torch.fx.Node]) -> Iterator[StorageWeakRef]:
    """Yield the storages of the tensors that nodes return."""
    for node in nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor):
                yield StorageWeakRef(value.untyped_storage())

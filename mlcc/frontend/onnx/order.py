"""Topological order of a graph's nodes, and errors that concern a whole graph."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, error

if TYPE_CHECKING:
    import onnx

DEPTH_LIMIT = 64  # nesting of graphs


def topological_order(
    nodes: Sequence[onnx.NodeProto], is_known: Callable[[str], bool], what: str
) -> list[onnx.NodeProto]:
    """Return the nodes in a stable topological order.

    Raises CompileError E1043 for names that are not defined or defined twice, and for cycles.
    """
    producers: dict[str, int] = {}
    for node in nodes:
        check_names(node.op_type, node.domain, node.name, *node.input, *node.output)
    for at, node in enumerate(nodes):
        for name in node.output:
            if name and name in producers:
                raise malformed_graph(what, f"`{name}` is the output of two nodes")
            if name:
                producers[name] = at
    reads = [_names_read(node) for node in nodes]
    for node, names in zip(nodes, reads, strict=True):
        for name in names:
            if name not in producers and not is_known(name):
                raise malformed_graph(what, f"`{node.op_type}` reads `{name}`, which is not defined")
    waits = [{producers[name] for name in names if name in producers} for names in reads]
    if all(all(source < at for source in sources) for at, sources in enumerate(waits)):
        return list(nodes)
    return [nodes[at] for at in _kahn_order(waits, what)]


def _kahn_order(waits: list[set[int]], what: str) -> list[int]:
    """Return a topological order by Kahn's algorithm, the smallest node index first."""
    users: list[list[int]] = [[] for _ in waits]
    for at, sources in enumerate(waits):
        for source in sources:
            users[source].append(at)
    left = [len(sources) for sources in waits]
    ready = [at for at, count in enumerate(left) if count == 0]
    order = []
    while ready:
        at = heapq.heappop(ready)
        order.append(at)
        for user in users[at]:
            left[user] -= 1
            if left[user] == 0:
                heapq.heappush(ready, user)
    if len(order) != len(waits):
        raise malformed_graph(what, "its nodes form a cycle")
    return order


def _names_read(node: onnx.NodeProto, depth: int = 0) -> set[str]:
    """Return the names that a node reads, including those that its subgraphs capture."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
            names |= captured_names(graph, depth + 1)
    return names


def captured_names(graph: onnx.GraphProto, depth: int = 1) -> set[str]:
    """Return the outer names that a subgraph captures (its free variables)."""
    if depth > DEPTH_LIMIT:
        raise CompileError(error("E1045", f"graphs are nested more than {DEPTH_LIMIT} deep"))
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {sparse.values.name for sparse in graph.sparse_initializer}
    reads = {out.name for out in graph.output}
    for node in graph.node:
        own |= set(node.output)
        reads |= _names_read(node, depth)
    return reads - own


def check_names(*names: Any) -> None:
    """Raise CompileError E1043 for names that are not valid text, which protobuf returns as bytes."""
    if not all(isinstance(name, str) for name in names):
        raise malformed_graph("the model", "it has a name that is not UTF-8")


def malformed_graph(what: str, reason: str) -> CompileError:
    """Return the error E1043 for a malformed graph."""
    return CompileError(error("E1043", f"{what} is malformed: {reason}"))

"""Inline wrapper graphs, which only record the mode under which their nodes were traced, into their callers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mlcc.frontend.aten.graph import Argument, AtenNode, Graph, Meta, Ref, Subgraph

_WRAPPERS = frozenset(
    f"higher_order.{name}"
    for name in (
        "wrap_with_set_grad_enabled", "wrap_with_autocast", "invoke_subgraph", "tag_activation_checkpoint", "wrap",
        "wrap_activation_checkpoint", "strict_mode", "hints_wrapper",
    )
)  # fmt: skip


def inline_wrappers(graph: Graph) -> Graph:
    """Return the graph with wrapper graphs inlined, at any depth."""
    if not any(node.target in _WRAPPERS or _subgraph_of(node) for node in graph.nodes):
        return graph
    inliner = _Inliner(graph)
    for node in graph.nodes:
        inliner.add(node, inliner.replaced)
    return replace(
        graph,
        nodes=tuple(inliner.nodes),
        outputs=tuple(inliner.known(o, inliner.replaced) for o in graph.outputs),
        values=inliner.values,
    )


def _subgraph_of(node: AtenNode) -> Subgraph | None:
    return next((value for value in node.arguments.values() if isinstance(value, Subgraph)), None)


class _Inliner:
    def __init__(self, graph: Graph) -> None:
        self.nodes: list[AtenNode] = []
        self.values: dict[str, Meta] = dict(graph.values)
        self.replaced: dict[str, Argument] = {}
        self.taken = {name for node in graph.nodes for name in node.outputs if name} | set(graph.inputs)

    def add(self, node: AtenNode, names: dict[str, Argument]) -> None:
        """Append a node, or inline the graph that it calls; `names` maps the values of its graph to outer values."""
        arguments = {key: self.known(value, names) for key, value in node.arguments.items()}
        inner = _subgraph_of(node) if node.target in _WRAPPERS else None
        if inner is None:
            arguments = {
                k: Subgraph(inline_wrappers(v.graph)) if isinstance(v, Subgraph) else v for k, v in arguments.items()
            }
            outputs = tuple(self._new_name(name, names) for name in node.outputs)
            self.nodes.append(replace(node, arguments=arguments, outputs=outputs))
            return
        inside = dict(zip(inner.graph.inputs, _operands(arguments, inner), strict=False))
        for part in inner.graph.nodes:
            for name in filter(None, part.outputs):
                self._rename_value(name, inner.graph.values.get(name), inside)
            self.add(part, inside)
        for result, value in zip(node.outputs, inner.graph.outputs, strict=False):
            if result:
                names[result] = self.known(value, inside)

    def known(self, value: Argument, names: Mapping[str, Argument]) -> Argument:
        """Replace the values in an argument by their outer values."""
        if isinstance(value, Ref):
            return names.get(value.name, value)
        if isinstance(value, (tuple, list)):
            return tuple(self.known(part, names) for part in value)
        return value

    def _rename_value(self, name: str, meta: Meta | None, names: dict[str, Argument]) -> None:
        """Give an inner value a name that is unused outside."""
        fresh, number = name, 1
        while fresh in self.taken:
            fresh, number = f"{name}_{number}", number + 1
        self.taken.add(fresh)
        if meta is not None:
            self.values[fresh] = meta
        names[name] = Ref(fresh)

    @staticmethod
    def _new_name(name: str | None, names: Mapping[str, Argument]) -> str | None:
        argument = names.get(name) if name else None
        return argument.name if isinstance(argument, Ref) else name


def _operands(arguments: Mapping[str, Argument], inner: Subgraph) -> list[Argument]:
    """Return the operands of a call of a graph: the flattened arguments after it, without a graph's name."""
    listed = list(arguments.values())
    after = listed[next(i for i, value in enumerate(listed) if isinstance(value, Subgraph)) + 1 :]
    flat = [part for value in after for part in (value if isinstance(value, tuple) else (value,))]
    count = len(inner.graph.inputs)
    return flat[len(flat) - count :] if len(flat) > count and isinstance(flat[0], str) else flat[:count]

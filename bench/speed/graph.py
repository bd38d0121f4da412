"""The input of every competitor: the operators of a workload's text as plain data, with names for values.

The text is the definition. It is parsed once, by mlcc; peers read the operators from here and never see mlcc.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Node:
    """`out = op(*args, **attrs)`; an argument is the name of a value, a number or a list of sizes."""

    op: str  # without `relax.`
    args: tuple[Any, ...]
    attrs: dict[str, Any]
    out: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """A function of tensors: `params` are its inputs and weights by name, all float32."""

    params: dict[str, tuple[int, ...]]
    nodes: tuple[Node, ...]
    result: str

    def plain(self) -> dict[str, Any]:
        """Return the graph as plain JSON data."""
        return asdict(self)

    @staticmethod
    def of(plain: dict[str, Any]) -> Graph:
        """Return the graph from the data of `plain`, also after a JSON round trip."""
        nodes = tuple(Node(n["op"], tuple(n["args"]), n["attrs"], n["out"], tuple(n["shape"])) for n in plain["nodes"])
        return Graph({k: tuple(v) for k, v in plain["params"].items()}, nodes, plain["result"])


def read_graph(text: str) -> Graph:
    """Return the graph of the function `main` of a text. Raises ValueError for constructs that peers do not support."""
    import mlcc
    from mlcc.ir import relax

    func = mlcc.parse(text)["main"]
    params = {p.name: _sizes(p.struct_info) for p in func.params}
    nodes = []
    result = ""
    for block in func.body.blocks:
        for binding in block.bindings:
            value, out = binding.value, binding.var.name
            if not isinstance(value, relax.Call):
                result = out
                continue
            args = [_argument(a) for a in value.args]
            nodes.append(
                Node(
                    value.op.name.removeprefix("relax."), tuple(args), dict(value.attrs), out, _sizes(value.struct_info)
                )
            )
    result = func.body.body.name
    if result not in {n.out for n in nodes}:
        raise ValueError(f"the result `{result}` is not the result of an operator")
    return Graph(params, tuple(nodes), result)


def _argument(value: Any) -> Any:
    from mlcc.ir import relax

    if isinstance(value, relax.ShapeExpr):
        return [v.value for v in value.values]
    if isinstance(value, relax.Var):
        return value.name
    if isinstance(value, relax.PrimValue):
        return value.value.value
    raise ValueError(f"unsupported argument of type {type(value).__name__}")


def _sizes(info: Any) -> tuple[int, ...]:
    return tuple(v.value for v in info.shape.values)


def count_flops(graph: Graph) -> int:
    """Count the multiplications and additions of products and convolutions; elementwise work is not counted."""
    shapes: dict[str, tuple[int, ...]] = dict(graph.params)
    total = 0
    for node in graph.nodes:
        shapes[node.out] = node.shape
        count = 2
        for extent in node.shape:
            count *= extent
        if node.op == "matmul":
            total += count * shapes[node.args[0]][-1]
        elif node.op == "nn.conv2d":
            _, inner, high, wide = shapes[node.args[1]]
            total += count * inner * high * wide
    return total


def traffic(graph: Graph) -> int:
    """Return the minimum memory traffic in bytes: each input and weight read once, the result written once."""
    total = 0
    for shape in (*graph.params.values(), *(n.shape for n in graph.nodes if n.out == graph.result)):
        count = 4
        for extent in shape:
            count *= extent
        total += count
    return total

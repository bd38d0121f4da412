"""PyTorch, eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from bench.speed.graph import Graph, Node
from bench.speed.peers.base import Kept, Peer, Ready, Work


def operator(node: Node) -> Callable[..., Any]:
    """A function of the tensor arguments."""
    attrs: Any = node.attrs
    match node.op:
        case "matmul":
            return F.linear if len(node.args) == 3 else torch.matmul
        case "linear":
            return F.linear
        case "concat":
            return lambda *parts: torch.cat(parts, attrs["axis"])
        case "add":
            return torch.add
        case "multiply":
            return torch.mul
        case "nn.relu":
            return torch.relu
        case "clip":
            low, high = node.args[1:]
            return lambda x: torch.clamp(x, low, high)
        case "nn.gelu":
            return F.gelu
        case "nn.softmax":
            return lambda x: torch.softmax(x, attrs["axis"])
        case "nn.layer_norm":
            return lambda x, g, b: F.layer_norm(x, g.shape, g, b, attrs["epsilon"])
        case "nn.conv2d":
            pads = attrs["padding"]
            strides, dilation, groups = attrs["strides"], attrs["dilation"], attrs["groups"]
            if list(pads[:2]) != list(pads[2:]):
                around = (pads[1], pads[3], pads[0], pads[2])
                return lambda x, w, b=None: F.conv2d(F.pad(x, around), w, b, strides, 0, dilation, groups)
            return lambda x, w, b=None: F.conv2d(x, w, b, strides, pads[:2], dilation, groups)
        case "nn.max_pool2d":
            return lambda x: F.max_pool2d(x, attrs["pool_size"], attrs["strides"], attrs["padding"][:2])
        case "mean":
            return lambda x: x.mean(dim=tuple(attrs["axis"]), keepdim=attrs["keepdims"])
        case "reshape":
            return lambda x: x.reshape(tuple(node.args[1]))
        case "permute_dims":
            axes = attrs["axes"]
            return lambda x: x.permute(*(axes if axes is not None else reversed(range(x.dim()))))
    raise NotImplementedError(node.op)


class Model(torch.nn.Module):
    """A graph, each weight a parameter."""

    def __init__(self, graph: Graph, weights: dict[str, Any]) -> None:
        super().__init__()
        self.names = [n for n in graph.params if n not in weights]
        self.result = graph.result
        nodes = with_biases(graph, weights)
        tensors = {n: torch.from_numpy(w) for n, w in weights.items()}
        for node in nodes:  # nn.Linear keeps its weights transposed, biases are flat
            if len(node.args) == 3 and node.op in ("matmul", "nn.conv2d"):
                tensors[node.args[2]] = tensors[node.args[2]].reshape(-1)
                if node.op == "matmul":
                    tensors[node.args[1]] = tensors[node.args[1]].T.contiguous()
        self.kept = torch.nn.ParameterDict({n: torch.nn.Parameter(w, requires_grad=False) for n, w in tensors.items()})
        self.steps = [(operator(n), [a for a in n.args if isinstance(a, str)], n.out) for n in nodes]

    def forward(self, *inputs: Any) -> Any:
        values = dict(zip(self.names, inputs, strict=True))
        values.update(self.kept.items())
        for function, args, out in self.steps:
            values[out] = function(*[values[a] for a in args])
        return values[self.result]


def with_biases(graph: Graph, weights: dict[str, Any]) -> list[Node]:
    """The nodes, with additions of a bias to a product or convolution of weights put into it, as users write them."""
    producer = {n.out: n for n in graph.nodes}
    uses = [a for n in graph.nodes for a in n.args if isinstance(a, str)]
    nodes: list[Node] = []
    for node in graph.nodes:
        first, bias = (*node.args, None)[:2]
        before = producer.get(first) if node.op == "add" and bias in weights and uses.count(first) == 1 else None
        if (
            before is not None
            and before in nodes
            and before.op in ("matmul", "nn.conv2d")
            and before.args[1] in weights
        ):
            nodes.remove(before)
            node = Node(before.op, (*before.args, bias), before.attrs, node.out, node.shape)
        nodes.append(node)
    return nodes


class Torch:
    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def versions(self) -> dict[str, str]:
        return {"torch": torch.__version__}

    def model(self, work: Work) -> Any:
        return Model(work.graph, work.weights).eval()

    def prepare(self, work: Work) -> Ready:
        dtype = getattr(torch, work.dtype or "float32")
        model = self.model(work).to(dtype)
        given = [torch.from_numpy(work.inputs[n]).to(dtype) for n in work.graph.params if n in work.inputs]

        def call() -> Any:
            with torch.inference_mode():
                return model(*given)

        kept = Kept(call)
        return Ready(kept, lambda: kept.value.float().numpy())  # type: ignore[attr-defined]


def make(threads: int) -> Peer:
    return Torch(threads)

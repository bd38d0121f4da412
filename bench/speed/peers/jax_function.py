"""A graph as a JAX function of its inputs, weights closed over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from bench.speed.graph import Node
from bench.speed.peers.base import Work


def jax_function(work: Work) -> Callable[..., Any]:
    """To be compiled."""
    graph = work.graph
    names = [n for n in graph.params if n in work.inputs]

    def main(*inputs: Any) -> Any:
        values: dict[str, Any] = {**work.weights, **dict(zip(names, inputs, strict=True))}
        for node in graph.nodes:
            values[node.out] = _evaluate(node, values)
        return values[graph.result]

    return main


def _evaluate(node: Node, values: dict[str, Any]) -> Any:
    args = [values[a] if isinstance(a, str) else a for a in node.args]
    attrs: Any = node.attrs
    x = args[0]
    match node.op:
        case "matmul":
            return jnp.matmul(x, args[1])
        case "add":
            return x + args[1]
        case "multiply":
            return x * args[1]
        case "nn.relu":
            return jnp.maximum(x, 0)
        case "clip":
            return jnp.clip(x, args[1], args[2])
        case "nn.gelu":
            return jax.nn.gelu(x, approximate=False)
        case "nn.softmax":
            return jax.nn.softmax(x, axis=attrs["axis"])
        case "nn.layer_norm":
            mean = x.mean(axis=-1, keepdims=True)
            variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
            return (x - mean) * lax.rsqrt(variance + attrs["epsilon"]) * args[1] + args[2]
        case "nn.conv2d":
            return lax.conv_general_dilated(
                x, args[1], attrs["strides"], _pads(attrs["padding"]), feature_group_count=attrs["groups"]
            )
        case "nn.max_pool2d":
            window = (1, 1, *attrs["pool_size"])
            pads = [(0, 0), (0, 0), *_pads(attrs["padding"])]
            return lax.reduce_window(x, -jnp.inf, lax.max, window, (1, 1, *attrs["strides"]), pads)
        case "mean":
            return x.mean(axis=tuple(attrs["axis"]), keepdims=attrs["keepdims"])
        case "reshape":
            return x.reshape(args[1])
        case "permute_dims":
            return x.transpose(attrs["axes"])
    raise NotImplementedError(node.op)


def _pads(padding: Any) -> list[tuple[int, int]]:
    top, left, bottom, right = padding
    return [(top, bottom), (left, right)]

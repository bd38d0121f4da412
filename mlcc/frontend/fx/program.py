"""A traced graph as a `Program`: plain data that the ATen converters translate to relax."""

from __future__ import annotations

from dataclasses import replace

import torch

from mlcc.frontend.aten.exported import graph_of, weight_of
from mlcc.frontend.aten.graph import Input, Output, Program, TensorMeta, Weight
from mlcc.frontend.fx.trace import Trace


def program_of(trace: Trace, name: str) -> Program:
    """Convert a trace to a program; weights share memory with the model's tensors."""
    graph = graph_of(trace.module)
    weights: dict[str, Weight] = {}
    values = dict(graph.values)
    inputs = []
    for node, bound in zip(trace.module.graph.find_nodes(op="placeholder"), trace.bound, strict=True):
        if bound is None:
            inputs.append(Input(node.name, "user"))
            continue
        key, tensor = bound
        weights[key] = weight_of(tensor, key)
        inputs.append(Input(node.name, "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer", key))
    for node in trace.module.graph.find_nodes(op="get_attr"):
        tensor = _attribute(trace.module, node.target)
        if isinstance(tensor, torch.Tensor):
            weights[node.target] = weight = weight_of(tensor, node.target)
            values[node.name] = TensorMeta(weight.dtype, weight.shape)
            inputs.append(Input(node.name, "constant", node.target))
    outputs = tuple(Output(value, "user") for value in graph.outputs)
    return Program(name, replace(graph, values=values), tuple(inputs), outputs, weights)


def _attribute(module: torch.nn.Module, path: str) -> object:
    owner, _, name = path.rpartition(".")
    return getattr(module.get_submodule(owner), name)

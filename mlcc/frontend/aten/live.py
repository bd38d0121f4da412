"""A live `torch.export.ExportedProgram` as plain data."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from mlcc.frontend.aten.graph import (
    Argument,
    AtenNode,
    Graph,
    Inner,
    Input,
    Meta,
    NumberMeta,
    Output,
    Program,
    Ref,
    Symbolic,
    TensorMeta,
    Weight,
)  # fmt: skip
from mlcc.frontend.place import Place

if TYPE_CHECKING:
    import torch

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_KINDS = {"parameter": "parameter", "buffer": "buffer", "constant_tensor": "constant", "user_input": "user"}


def program_of(exported: torch.export.ExportedProgram, name: str = "exported program") -> Program:
    """The program as plain data; weights share memory with the exported ones."""
    graph = graph_of(exported.graph_module)
    signature = exported.graph_signature
    inputs = tuple(
        Input(spec.arg.name, _KINDS.get(spec.kind.name.lower(), spec.kind.name.lower()), spec.target or "",
              getattr(spec.arg, "value", None), spec.persistent is not False)
        for spec in signature.input_specs
    )  # fmt: skip
    outputs = tuple(
        Output(_output(spec.arg), spec.kind.name.lower().removesuffix("_output"), spec.target or "")
        for spec in signature.output_specs
    )
    tensors = {**exported.state_dict, **exported.constants}
    weights = {key: _weight(tensor) for key, tensor in tensors.items() if hasattr(tensor, "untyped_storage")}
    ranges = {str(symbol): _range(values) for symbol, values in exported.range_constraints.items()}
    return Program(name, graph, inputs, outputs, weights, ranges)


def _output(arg: Any) -> Argument:
    return Ref(arg.name) if getattr(arg, "name", "") and not hasattr(arg, "value") else getattr(arg, "value", None)


def _range(values: Any) -> tuple[int, int | None]:
    """The least and the greatest value; infinities have no number."""
    upper = str(values.upper)
    return int(values.lower) if str(values.lower).isdigit() else 0, int(upper) if upper.isdigit() else None


def _weight(tensor: torch.Tensor) -> Weight:
    def load() -> Any:
        import torch

        data = tensor.detach().cpu().contiguous()
        if data.dtype == torch.bfloat16:
            return data.view(torch.uint16).numpy()
        if str(data.dtype).startswith("torch.float8"):
            return data.view(torch.uint8).numpy()
        return data.numpy()

    return Weight(_dtype(tensor.dtype), tuple(tensor.shape), load)


def _dtype(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


# ---------------------------------------------------------------- graphs


def graph_of(module: torch.fx.GraphModule) -> Graph:
    """The nodes of a graph module."""
    values: dict[str, Meta] = {}
    inputs: list[str] = []
    nodes: list[AtenNode] = []
    outputs: tuple[Argument, ...] = ()
    for node in module.graph.nodes:
        made = _meta(node.meta.get("val"))
        if made is not None:
            values[node.name] = made
        if node.op == "placeholder":
            inputs.append(node.name)
        elif node.op == "call_function":
            nodes.append(_node(module, node, values))
        elif node.op == "output":
            found = _argument(module, node.args[0])
            outputs = found if isinstance(found, tuple) else (found,)
    return Graph(tuple(inputs), tuple(nodes), outputs, values)


def _node(module: Any, node: Any, values: dict[str, Meta]) -> AtenNode:
    arguments = {name: _argument(module, value) for name, value in _by_name(node).items()}
    value = node.meta.get("val")
    return AtenNode(_target(node), arguments, (node.name,), _place(node), isinstance(value, (list, tuple)))


def _target(node: Any) -> str:
    target = node.target
    if hasattr(target, "_schema"):
        return str(target)
    if getattr(target, "__module__", "") == "_operator":
        return f"operator.{target.__name__}"
    if type(target).__module__.startswith("torch._higher_order_ops") or hasattr(target, "_ops"):
        return f"higher_order.{target.__name__}"
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"


def _by_name(node: Any) -> dict[str, Any]:
    """Arguments by the names of the schema; of what has none, `arg0`, `arg1`, ..."""
    schema = getattr(node.target, "_schema", None)
    names = [a.name for a in schema.arguments] if schema is not None else []
    names += [f"arg{i}" for i in range(len(names), len(node.args))]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _argument(module: Any, value: Any) -> Argument:
    import torch

    if isinstance(value, torch.fx.Node):
        if value.op == "get_attr":
            inner = getattr(module, str(value.target))
            return Inner(graph_of(inner)) if isinstance(inner, torch.fx.GraphModule) else Ref(value.name)
        return Ref(value.name)
    if isinstance(value, (list, tuple)):
        return tuple(_argument(module, v) for v in value)
    if isinstance(value, torch.SymInt):
        return Symbolic(str(value.node.expr))
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return _dtype(value)
    return str(value) if isinstance(value, torch.device) else value


def _meta(value: Any) -> Meta | None:
    import torch

    if isinstance(value, torch.Tensor):
        return TensorMeta(_dtype(value.dtype), tuple(_extent(e) for e in value.shape))
    if isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
        return NumberMeta("int64", _extent(value))
    if isinstance(value, (torch.SymBool, bool)):
        return NumberMeta("bool")
    return NumberMeta("float64") if isinstance(value, (torch.SymFloat, float)) else None


def _extent(extent: Any) -> int | str:
    return extent if isinstance(extent, int) else str(extent.node.expr)


def _place(node: Any) -> Place:
    """The innermost module, and the innermost line of the user's own program."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    module, kind = stack[-1] if stack and not str(stack[-1][0]).startswith("_empty") else ("", "")
    name = kind if isinstance(kind, str) else getattr(kind, "__qualname__", "")
    return Place(
        _target(node), node.name, module, name.rpartition(".")[2], own_line(node.meta.get("stack_trace") or "")
    )


def own_line(trace: str) -> str:
    """The innermost line of a stack trace that is not torch's own: `resnet.py:97`."""
    frames = [(path, line) for path, line in _FRAME.findall(trace) if "/torch/" not in path.replace(os.sep, "/")]
    return f"{os.path.basename(frames[-1][0])}:{frames[-1][1]}" if frames else ""

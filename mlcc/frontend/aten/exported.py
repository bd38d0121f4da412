"""Convert a live `torch.export.ExportedProgram` to plain data, equal to the data of its `.pt2` file."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from mlcc.frontend.aten.graph import (
    Argument,
    AtenNode,
    Extent,
    Graph,
    Input,
    Meta,
    NumberMeta,
    Output,
    Program,
    Ref,
    Subgraph,
    SymbolicNumber,
    TensorMeta,
    Weight,
)  # fmt: skip
from mlcc.frontend.aten.symbols import infix_extent
from mlcc.frontend.location import SourceLocation, user_line

if TYPE_CHECKING:
    import torch

_KINDS = {"constant_tensor": "constant", "user_input": "user"}


def program_of(exported: torch.export.ExportedProgram, name: str = "exported program") -> Program:
    """Convert the program to plain data; weights share memory with the exported ones."""
    graph = graph_of(exported.graph_module)
    signature = exported.graph_signature
    inputs = tuple(
        Input(spec.arg.name, _KINDS.get(spec.kind.name.lower(), spec.kind.name.lower()), spec.target or "",
              getattr(spec.arg, "value", None), spec.persistent is not False)
        for spec in signature.input_specs
    )  # fmt: skip
    outputs = tuple(
        Output(value, spec.kind.name.lower().removesuffix("_output"), spec.target or "")
        for spec, value in zip(signature.output_specs, graph.outputs, strict=True)
    )
    tensors = {**exported.state_dict, **exported.constants}
    weights = {key: weight_of(tensor, key) for key, tensor in tensors.items() if hasattr(tensor, "untyped_storage")}
    ranges = {
        str(symbol): (_range_end(r.lower) or 0, _range_end(r.upper)) for symbol, r in exported.range_constraints.items()
    }
    return Program(name, graph, inputs, outputs, weights, ranges)


def _range_end(value: Any) -> int | None:
    """Return the end of a range as a number; None for infinities."""
    try:
        return int(str(value))
    except ValueError:
        return None


def weight_of(tensor: torch.Tensor, key: str = "") -> Weight:
    """Return a tensor of the program as a weight, whose elements are read on demand."""

    def load() -> Any:
        import torch

        data = tensor.detach().cpu().contiguous()
        if data.dtype == torch.bfloat16:
            return data.view(torch.uint16).numpy()
        if str(data.dtype).startswith("torch.float8"):
            return data.view(torch.uint8).numpy()
        return data.numpy()

    address = tensor.untyped_storage().data_ptr()
    layout = (*tensor.stride(), int(tensor.storage_offset()))
    return Weight(_plain_name(tensor.dtype), tuple(tensor.shape), load, str(address) if address else key, layout)


def _plain_name(constant: Any) -> str:
    """`float32` for `torch.float32`, `channels_last` for `torch.channels_last`."""
    return str(constant).removeprefix("torch.")


# ---------------------------------------------------------------- graphs


def graph_of(module: torch.fx.GraphModule) -> Graph:
    """Convert a graph module to plain data."""
    values: dict[str, Meta] = {}
    inputs: list[str] = []
    nodes: list[AtenNode] = []
    outputs: tuple[Argument, ...] = ()
    renamed: dict[str, str] = {}
    argument = functools.partial(_argument, module, renamed)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            inputs.append(node.name if _is_runtime_value(node.meta.get("val")) else "")
            _record_meta(values, inputs[-1], node.meta.get("val"))
        elif node.op == "call_function" and not _is_unpacking(node):
            nodes.append(_node(node, values, renamed, argument))
        elif node.op == "output":
            returned = argument(node.args[0])
            outputs = returned if isinstance(returned, tuple) else (returned,)
    return Graph(tuple(inputs), tuple(nodes), outputs, values)


def _is_runtime_value(value: Any) -> bool:
    """Return True if an input is known at run time only: a tensor or a symbolic number, not a constant."""
    return not isinstance(value, (bool, int, float, str)) and value is not None


def _is_unpacking(node: Any) -> bool:
    """Return True if a node is a `getitem` that only names one result of a multi-result node."""
    return _is_getitem(node) and hasattr(node.args[0], "users") and _is_unpacked(node.args[0])


def _is_getitem(node: Any) -> bool:
    import operator

    return node.op == "call_function" and node.target is operator.getitem


def _is_unpacked(node: Any) -> bool:
    """Return True if a node has several results and is used only by `getitem` nodes."""
    value = node.meta.get("val")
    if not isinstance(value, (list, tuple)) or not all(_is_getitem(user) for user in node.users):
        return False
    return not _is_getitem(node) or _is_unpacked(node.args[0])


def _unpacked_results(node: Any, value: Any, renamed: dict[str, str]) -> list[tuple[str | None, Any]]:
    """Return the names and metadata of a node's results, lists included."""
    results: list[tuple[str | None, Any]] = []
    for index, part in enumerate(value):
        users = [u for u in node.users if u.args[1] == index] if node is not None else []
        first: Any = users[0] if users else None
        name = first.name if users else None
        renamed.update({other.name: name for other in users[1:] if name})
        results += _unpacked_results(first, part, renamed) if isinstance(part, list) else [(name, part)]
    return results


def _node(node: Any, values: dict[str, Meta], renamed: dict[str, str], argument: Callable[[Any], Argument]) -> AtenNode:
    value = node.meta.get("val")
    has_parts = _is_unpacked(node)
    if value is None and getattr(node.target, "_schema", None) is not None and not node.target._schema.returns:
        results: list[tuple[str | None, Any]] = []
    else:
        results = _unpacked_results(node, value, renamed) if has_parts else [(node.name, value)]
    for name, meta in results:
        _record_meta(values, name, meta)
    arguments = {name: argument(given) for name, given in _arguments_by_name(node).items()}
    names = tuple(name if meta is not None else None for name, meta in results)
    if not has_parts and value is None:
        names = tuple(name for name, _ in results)
    return AtenNode(_target(node), arguments, names, _place(node), isinstance(value, (list, tuple)))


def _target(node: Any) -> str:
    target = node.target
    if hasattr(target, "_schema"):
        return str(target)
    if getattr(target, "__module__", "") == "_operator":
        return f"operator.{target.__name__}"
    if type(target).__module__.startswith("torch._higher_order_ops") or hasattr(target, "_ops"):
        return f"higher_order.{target.__name__}"
    module = getattr(target, "__module__", "").replace("torch._ops", "torch.ops").removeprefix("torch.ops.")
    return f"{module}.{getattr(target, '__name__', target)}"


def _arguments_by_name(node: Any) -> dict[str, Any]:
    """Return the arguments by their names in the schema, in its order; without a schema as `arg0`, `arg1`, ..."""
    schema = getattr(node.target, "_schema", None)
    names: Iterable[str] = [a.name for a in schema.arguments] if schema is not None else []
    given = dict(zip(names, node.args, strict=False)) if schema is not None else {}
    if schema is None:
        return {**{f"arg{i}": value for i, value in enumerate(node.args)}, **node.kwargs}
    given.update(node.kwargs)
    return {name: given[name] for name in names if name in given}


def _argument(module: Any, renamed: dict[str, str], value: Any) -> Argument:
    import torch

    if isinstance(value, torch.fx.Node):
        inner = getattr(module, str(value.target), None) if value.op == "get_attr" else None
        if isinstance(inner, torch.fx.GraphModule):
            return Subgraph(graph_of(inner))
        return Ref(renamed.get(value.name, value.name))
    if isinstance(value, (list, tuple)):
        return tuple(_argument(module, renamed, v) for v in value)
    if isinstance(value, dict):
        return {str(k): _argument(module, renamed, v) for k, v in value.items()}
    if isinstance(value, torch.SymInt):
        return SymbolicNumber(str(_number(value)))
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return _plain_name(value)
    return str(value) if isinstance(value, torch.device) else value


def _record_meta(values: dict[str, Meta], name: str | None, value: Any) -> None:
    """Record the metadata of a value."""
    meta = _meta(value)
    if name and meta is not None:
        values[name] = meta


def _meta(value: Any) -> Meta | None:
    import torch

    if isinstance(value, torch.Tensor):
        strides = None if value.layout != torch.strided else tuple(_number(s) for s in value.stride())
        return TensorMeta(_plain_name(value.dtype), tuple(_number(e) for e in value.shape), strides)
    if isinstance(value, (torch.SymBool, bool)):
        return NumberMeta("bool", _number(value))
    if isinstance(value, (torch.SymInt, int)):
        return NumberMeta("int64", _number(value))
    return NumberMeta("float64", _number(value)) if isinstance(value, (torch.SymFloat, float)) else None


def _number(value: Any) -> Extent | Any:
    """A number, or its expression."""
    if isinstance(value, (bool, int, float)):
        return value
    return _expression(value.node.expr)


@functools.lru_cache(maxsize=4096)
def _expression(expression: Any) -> Extent | Any:
    return infix_extent(importlib.import_module("sympy").srepr(expression))


def _place(node: Any) -> SourceLocation:
    """Return the innermost module and the innermost line of the user's own program."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    module, kind = stack[-1] if stack and not str(stack[-1][0]).startswith("_empty") else ("", "")
    name = kind if isinstance(kind, str) else getattr(kind, "__qualname__", "")
    line = user_line(node.meta.get("stack_trace") or "")
    return SourceLocation(_target(node), node.name, module, name.rpartition(".")[2], line)

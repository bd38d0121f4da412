"""Programs in the JSON of `torch.export`: nodes, arguments, shapes and the signature as plain data.

The input is untrusted: missing fields and fields of a wrong type raise Malformed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mlcc.frontend.aten.graph import (
    Argument,
    AtenNode,
    Extent,
    Graph,
    Input,
    Meta,
    NumberMeta,
    Output,
    Ref,
    Subgraph,
    TensorMeta,
)  # fmt: skip
from mlcc.frontend.aten.symbols import infix_extent
from mlcc.frontend.location import SourceLocation, user_line

MAX_GRAPH_DEPTH = 40  # nesting of graphs
_MAX_RANK = 64

DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64",
    9: "complex32", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16", 29: "float8_e4m3fn",
    30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz", 33: "float8_e8m0fnu", 34: "uint32", 35: "uint64",
}  # fmt: skip
_MEMORY_FORMATS = {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}
_LAYOUTS = {
    1: "sparse_coo", 2: "sparse_csr", 3: "sparse_csc", 4: "sparse_bsr", 5: "sparse_bsc", 6: "_mkldnn", 7: "strided",
}  # fmt: skip
_FLOATS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
_UNUSED = re.compile(r".*_unused_\d+(_\d+)?")


class Malformed(Exception):
    """A malformed program; the message says what is wrong."""


def typed_field(value: Any, field: str, kind: type) -> Any:
    """Return a field of a JSON object. Raises Malformed if it is missing or not of type `kind`."""
    item = value.get(field) if isinstance(value, dict) else None
    if type(item) is not kind:
        raise Malformed(f"`{field}` is missing or malformed")
    return item


def tagged_value(value: Any) -> tuple[str, Any]:
    """Return the kind and the content of a tagged union: a JSON object with one field. Raises Malformed."""
    if not isinstance(value, dict) or len(value) != 1:
        raise Malformed(f"`{str(value)[:80]}` is malformed")
    ((kind, content),) = value.items()
    return str(kind), content


# ---------------------------------------------------------------- graphs


def graph_of(given: Any, depth: int = 0) -> Graph:
    """Read a graph, with the graphs in its arguments."""
    if depth > MAX_GRAPH_DEPTH:
        raise Malformed("it is nested too deeply")
    values: dict[str, Meta] = {
        name: tensor_meta(meta) for name, meta in typed_field(given, "tensor_values", dict).items()
    }
    for field, dtype in (("sym_int_values", "int64"), ("sym_float_values", "float64"), ("sym_bool_values", "bool")):
        numbers = typed_field(given, field, dict) if given.get(field) is not None else {}
        values.update((name, NumberMeta(dtype, read_extent(value))) for name, value in numbers.items())
    nodes = tuple(_node(node, depth) for node in typed_field(given, "nodes", list))
    inputs = tuple(_input_name(a) for a in typed_field(given, "inputs", list))
    outputs = tuple(argument(a, depth) for a in typed_field(given, "outputs", list))
    _check_order(inputs, nodes, outputs)
    return Graph(inputs, nodes, outputs, values)


def _node(node: Any, depth: int) -> AtenNode:
    raw = typed_field(node, "target", str)
    target = target_name(raw)
    has_schema = raw.startswith("torch.ops.") and not raw.startswith("torch.ops.higher_order.")
    arguments: dict[str, Argument] = {}
    for i, given in enumerate(typed_field(node, "inputs", list)):
        name = typed_field(given, "name", str)
        by_name = name and (has_schema or given.get("kind") == 2)
        arguments[name if by_name else f"arg{i}"] = argument(typed_field(given, "arg", dict), depth)
    produced = typed_field(node, "outputs", list)
    is_list = node.get("is_hop_single_tensor_return") is False or any("as_tensors" in tagged_value(o) for o in produced)
    outputs = tuple(_name_or_none(name) for output in produced for name in _result_names(output))
    named = str(node.get("name") or next((n for n in outputs if n), ""))
    return AtenNode(target, arguments, outputs, _place(node, target, named), is_list or len(produced) > 1)


def target_name(target: str) -> str:
    """`torch.ops.aten.conv2d.default` as `aten.conv2d.default`, `_operator.add` as `operator.add`."""
    return target.removeprefix("_") if target.startswith("_operator.") else target.removeprefix("torch.ops.")


def _name_or_none(name: str) -> str | None:
    """Return the name of a result; None if the exporter marked it as unused."""
    return None if not name or _UNUSED.fullmatch(name) else name


def _result_names(given: Any) -> list[str]:
    """Return the names of the results in an argument of a node's outputs."""
    kind, value = tagged_value(given)
    if kind == "as_tensors" and isinstance(value, list):
        return [typed_field(v, "name", str) for v in value]
    if kind in ("as_sym_int", "as_sym_bool", "as_sym_float"):
        return [typed_field(value, "as_name", str)]
    return [""] if kind == "as_none" else [typed_field(value, "name", str)]


def _input_name(given: Any) -> str:
    """The name of an input of a graph; "" for a constant."""
    _, value = tagged_value(given)
    return str(value.get("name") or value.get("as_name") or "") if isinstance(value, dict) else ""


def _place(node: Any, target: str, name: str) -> SourceLocation:
    """Return the innermost module and the innermost line of the user's own program."""
    metadata = node.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise Malformed("the metadata of a node are malformed")
    last = str(metadata.get("nn_module_stack") or "").rpartition(";")[2]
    _, module, kind = last.rsplit(",", 2) if last.count(",") >= 2 else ("", "", "")
    if module.startswith("_empty"):
        module = kind = ""
    return SourceLocation(
        target, name, module, kind.rpartition(".")[2], user_line(str(metadata.get("stack_trace") or ""))
    )


def _check_order(inputs: Iterable[str], nodes: Iterable[AtenNode], outputs: Iterable[Argument]) -> None:
    """Raise Malformed if a node uses a name that no input or earlier node defines, or a name is defined twice."""
    known = {name for name in inputs if name}
    for node in nodes:
        for ref in value_refs(node.arguments.values()):
            if ref.name not in known:
                raise Malformed(f"`{node.place.node}` uses `{ref.name}`, which nothing before it defines")
        for name in filter(None, node.outputs):
            if name in known:
                raise Malformed(f"`{name}` is defined twice")
            known.add(name)
    for ref in value_refs(outputs):
        if ref.name not in known:
            raise Malformed(f"the result `{ref.name}` is not defined")


def value_refs(arguments: Iterable[Argument]) -> list[Ref]:
    """Return the values that arguments refer to, except inside nested graphs."""
    mentioned: list[Ref] = []
    for given in arguments:
        if isinstance(given, Ref):
            mentioned.append(given)
        elif isinstance(given, (tuple, list)):
            mentioned += value_refs(given)
        elif isinstance(given, Mapping):
            mentioned += value_refs(given.values())
    return mentioned


# ---------------------------------------------------------------- arguments


def argument(given: Any, depth: int = 0) -> Argument:
    """Read an argument of a node, or an output of a graph."""
    kind, value = tagged_value(given)
    if kind == "as_graph":
        return Subgraph(graph_of(typed_field(value, "graph", dict), depth + 1))
    if kind == "as_string_to_argument" and isinstance(value, dict):
        return {str(key): argument(part, depth) for key, part in value.items()}
    read = _ARGUMENTS.get(kind)
    if read is None:
        raise Malformed(f"an argument is of the unknown kind `{kind[:60]}`")
    try:
        return read(value)
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
        raise Malformed(f"an argument of the kind `{kind}` is malformed: {str(value)[:80]}") from None


def _exactly(kind: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(kind.__name__)
        return value

    return read


def _tuples(read: Callable[[Any], Argument]) -> Callable[[Any], Argument]:
    return lambda value: tuple(read(v) for v in _exactly(list)(value))


def _float(value: Any) -> float:
    return _FLOATS[value] if isinstance(value, str) else float(value)


def _ref(value: Any) -> Ref:
    return Ref(_exactly(str)(value["name"]))


def _symbolic(value: Any) -> Argument:
    """Return a reference to a symbolic number, or a constant."""
    ((kind, content),) = value.items()
    return (
        Ref(_exactly(str)(content))
        if kind == "as_name"
        else _float(content)
        if kind == "as_float"
        else _exactly(int)(content)
    )


def _symbolic_bool(value: Any) -> Argument:
    ((kind, content),) = value.items()
    return Ref(_exactly(str)(content)) if kind == "as_name" else _exactly(bool)(content)


def _optional(value: Any) -> Argument:
    return _ref(value["as_tensor"]) if "as_tensor" in value else None


def _device(value: Any) -> str:
    index = value.get("index")
    return str(value["type"]) if index is None else f"{value['type']}:{index}"


def _constant(value: Any) -> Any:
    return None


_ARGUMENTS: dict[str, Callable[[Any], Argument]] = {
    "as_none": _constant, "as_tensor": _ref, "as_tensors": _tuples(_ref), "as_nested_tensors": _tuples(_tuples(_ref)),
    "as_int": _exactly(int), "as_ints": _tuples(_exactly(int)), "as_int_lists": _tuples(_tuples(_exactly(int))),
    "as_float": _float, "as_floats": _tuples(_float), "as_float_lists": _tuples(_tuples(_float)),
    "as_string": _exactly(str), "as_strings": _tuples(_exactly(str)), "as_bool": _exactly(bool),
    "as_bools": _tuples(_exactly(bool)), "as_sym_int": _symbolic, "as_sym_ints": _tuples(_symbolic),
    "as_sym_bool": _symbolic_bool, "as_sym_bools": _tuples(_symbolic_bool), "as_sym_float": _symbolic,
    "as_sym_floats": _tuples(_symbolic), "as_optional_tensor": _optional, "as_optional_tensors": _tuples(_optional),
    "as_scalar_type": lambda v: DTYPES[v], "as_device": _device, "as_memory_format": lambda v: _MEMORY_FORMATS[v],
    "as_layout": lambda v: _LAYOUTS[v], "as_custom_obj": _ref,
    "as_operator": lambda v: target_name(_exactly(str)(v)),
    "as_complex": lambda v: complex(_float(v["real"]), _float(v["imag"])),
}  # fmt: skip


# ---------------------------------------------------------------- shapes and dtypes


def tensor_meta(meta: Any) -> TensorMeta:
    """Read the metadata of a serialized tensor. Raises Malformed for an impossible shape."""
    shape = tuple(read_extent(e) for e in typed_field(meta, "sizes", list))
    strides = tuple(read_extent(e) for e in typed_field(meta, "strides", list))
    is_sound = all(isinstance(e, str) or (type(e) is int and 0 <= e < 1 << 62) for e in shape)
    if len(shape) > _MAX_RANK or not is_sound or len(strides) != len(shape):
        raise Malformed(f"a tensor has the invalid shape {list(shape)[:8]}")
    return TensorMeta(dtype_name(meta), shape, strides)


def dtype_name(meta: Any) -> str:
    """The dtype of a tensor."""
    name = DTYPES.get(typed_field(meta, "dtype", int))
    if name is None:
        raise Malformed(f"a tensor has the unknown dtype {meta['dtype']}")
    return name


def read_extent(value: Any) -> Extent | Any:
    """Read an extent: a number, or the text of an expression."""
    kind, content = tagged_value(value)
    try:
        if kind == "as_expr":
            return infix_extent(typed_field(content, "expr_str", str))
        if kind in ("as_int", "as_bool", "as_float"):
            return _ARGUMENTS[kind](content)
    except (ValueError, TypeError, KeyError) as problem:
        raise Malformed(f"a number is malformed: {problem}") from None
    raise Malformed(f"a number is of the unknown kind `{kind[:60]}`")


def range_of(given: Any) -> tuple[int, int | None]:
    """Return the least and the greatest value of a symbol, None for no upper bound. Raises Malformed for a range
    without an int64."""
    least, most = given.get("min_val"), given.get("max_val")
    least, most = least if type(least) is int else 0, most if type(most) is int and most <= _MAX_INT64 else None
    if least > _MAX_INT64 or most is not None and most < -_MAX_INT64:
        raise Malformed(f"the range from {least} to {most} contains no extent")
    return max(least, -_MAX_INT64), most


_MAX_INT64 = (1 << 63) - 1


# ---------------------------------------------------------------- the signature

_STORED_INPUTS = {
    "parameter": ("parameter", "parameter_name"), "buffer": ("buffer", "buffer_name"),
    "tensor_constant": ("constant", "tensor_constant_name"), "custom_obj": ("custom_obj", "custom_obj_name"),
}  # fmt: skip


def input_of(spec: Any) -> Input:
    """Read an input of the outermost graph."""
    kind, value = tagged_value(spec)
    if kind == "constant_input":
        field, content = tagged_value(typed_field(value, "value", dict))
        return Input(
            typed_field(value, "name", str), "user", "", _ARGUMENTS[field](content) if field in _ARGUMENTS else None
        )
    given = typed_field(value, "arg", dict)
    if kind == "user_input":
        name = _input_name(given)
        return Input(name, "user", "", None if name else argument(given))
    if kind == "token":
        return Input(typed_field(given, "name", str), "token")
    if kind not in _STORED_INPUTS:
        raise Malformed(f"an input is of the unknown kind `{kind[:60]}`")
    shown, field = _STORED_INPUTS[kind]
    return Input(
        typed_field(given, "name", str),
        shown,
        typed_field(value, field, str),
        None,
        value.get("persistent") is not False,
    )


def output_of(spec: Any) -> Output:
    """Read an output of the outermost graph."""
    kind, value = tagged_value(spec)
    given = typed_field(value, "arg", dict)
    result = Ref(typed_field(given, "name", str)) if "name" in given else argument(given)
    target = next((str(v) for k, v in value.items() if k.endswith("_name")), "")
    return Output(result, kind.removesuffix("_output"), target)

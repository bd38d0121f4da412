"""Constants and strings of `metadata = tvm.ir.load_json("...")`, which TVM prints above a text with `show_meta=True`.

The string is a graph: numbered nodes that refer to each other by number. Its root maps the names of node types to lists
of nodes; `metadata["ir.GenericConst"][0]` is the first of its list. A constant refers to a tensor, whose base64 has the
form in which TVM saves tensors.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import TYPE_CHECKING, Any

from mlcc.grammar.syntax import tree
from mlcc.ir.dtypes import DType
from mlcc.ir.tensor_data import TensorData, storage_dtype

if TYPE_CHECKING:
    import numpy as np

_MAGIC = 0xDD5E40F096B4A13F
_HEAD = struct.Struct("<QQiiiBBH")  # magic, reserved, device type and number, dimensions, dtype: code, bits, lanes
_TENSORS = ("ffi.Tensor", "runtime.NDArray")
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}  # DLPack's


def metadata_of(text: str) -> tuple[dict[str, TensorData], dict[str, str]]:
    """Tensors and strings by the names that references use, such as `ir.GenericConst[0]`; other nodes are left out.

    Raises ValueError if `text` is not such a graph.
    """
    tensors, strings = {}, {}
    try:
        graph = json.loads(text)
        nodes = graph["nodes"]
        sections = nodes[graph["root_index"]]["data"]
        for name, items in zip(sections[::2], sections[1::2], strict=True):
            section = str(nodes[name]["data"])
            for number, index in enumerate(nodes[items]["data"]):
                key = f"{section}[{number}]"
                array, string = _constant(nodes, nodes[index]), _string(nodes, nodes[index])
                if array is not None:
                    dtype, values = array
                    tensors[key] = TensorData(dtype, values.shape, values, key)
                elif string is not None:
                    strings[key] = string
        return tensors, strings
    except (KeyError, IndexError, TypeError, ValueError, RecursionError, struct.error) as problem:
        raise ValueError(f"{type(problem).__name__}: {problem}") from None


def metadata_key(cst: tree.Index) -> str | None:
    """`ir.StringImm[0]` for `metadata["ir.StringImm"][0]`; None for anything else."""
    inner = cst.base
    if not isinstance(inner, tree.Index) or not isinstance(inner.base, tree.Name) or inner.base.id != "metadata":
        return None
    if len(inner.items) != 1 or len(cst.items) != 1:
        return None
    section, number = inner.items[0], cst.items[0]
    if not isinstance(section, tree.Str) or not isinstance(number, tree.Int):
        return None
    return f"{section.value}[{number.value}]"


def _string(nodes: list[Any], node: Any) -> str | None:
    """The text that a node of a string holds."""
    fields = node["data"]
    index = fields.get("value") if isinstance(fields, dict) and str(node["type"]).endswith(".StringImm") else None
    if isinstance(index, str):
        return index
    return str(nodes[index]["data"]) if type(index) is int else None


def _constant(nodes: list[Any], node: Any) -> tuple[DType, np.ndarray] | None:
    """The tensor that a node of constants holds, or is."""
    fields = node["data"]
    if node["type"] in _TENSORS and isinstance(fields, str):
        return _decode_tensor(base64.b64decode(fields, validate=True))
    index = fields.get("value", fields.get("data")) if isinstance(fields, dict) else None
    if type(index) is not int or nodes[index]["type"] not in _TENSORS:
        return None
    return _decode_tensor(base64.b64decode(nodes[index]["data"], validate=True))


def _decode_tensor(raw: bytes) -> tuple[DType, np.ndarray]:
    import numpy as np

    magic, _, _, _, ndim, code, bits, lanes = _HEAD.unpack_from(raw)
    if magic != _MAGIC or code not in _CODES or lanes != 1 or not 0 <= ndim <= 64:
        raise ValueError("this is not a saved tensor")
    dtype = DType.of("bool" if code == 6 else f"{_CODES[code]}{bits}")
    *shape, size = struct.unpack_from(f"<{ndim + 1}q", raw, _HEAD.size)
    content = raw[_HEAD.size + 8 * (ndim + 1) :]
    element = np.dtype(storage_dtype(dtype)).newbyteorder("<")
    if min(shape, default=0) < 0 or size != len(content):
        raise ValueError("this saved tensor is damaged")
    values = np.frombuffer(content, element).reshape(shape)
    return dtype, values.astype(element.newbyteorder("="), copy=False)

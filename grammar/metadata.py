"""The constants of `metadata = tvm.ir.load_json("...")`, which TVM prints above a module with `show_meta=True`.

The string is a graph: numbered nodes that refer to each other by number. Its root maps the names of node types to lists
of nodes; `metadata["ir.GenericConst"][0]` is the first of its list. A constant refers to a tensor, whose base64 has the
form in which TVM saves tensors.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import TYPE_CHECKING, Any

from mlcc.ir.dtypes import DType
from mlcc.ir.tensor_data import TensorData, storage_dtype

if TYPE_CHECKING:
    import numpy as np

_MAGIC = 0xDD5E40F096B4A13F
_HEAD = struct.Struct("<QQiiiBBH")  # magic, reserved, device type and number, dimensions, dtype: code, bits, lanes
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}  # DLPack's


def tensors_of(text: str) -> dict[str, TensorData]:
    """The tensors by the names that references use, such as `ir.GenericConst[0]`; other nodes are left out.

    Raises ValueError if `text` is not such a graph.
    """
    try:
        graph = json.loads(text)
        nodes = graph["nodes"]
        sections = nodes[graph["root_index"]]["data"]
        found = {}
        for name, items in zip(sections[::2], sections[1::2], strict=True):
            section = str(nodes[name]["data"])
            for number, index in enumerate(nodes[items]["data"]):
                array = _constant(nodes, nodes[index])
                if array is not None:
                    key = f"{section}[{number}]"
                    dtype, values = array
                    found[key] = TensorData(dtype, values.shape, values, key)
        return found
    except (KeyError, IndexError, TypeError, ValueError, RecursionError, struct.error) as problem:
        raise ValueError(f"{type(problem).__name__}: {problem}") from None


def _constant(nodes: list[Any], node: Any) -> tuple[DType, np.ndarray] | None:
    """The tensor that a node of constants holds."""
    fields = node["data"]
    index = fields.get("value", fields.get("data")) if isinstance(fields, dict) else None
    if type(index) is not int or nodes[index]["type"] not in ("ffi.Tensor", "runtime.NDArray"):
        return None
    return _saved(base64.b64decode(nodes[index]["data"], validate=True))


def _saved(raw: bytes) -> tuple[DType, np.ndarray]:
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

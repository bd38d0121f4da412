"""The values of attributes as text: annotations, function attributes, keyword arguments of operators."""

from __future__ import annotations

import enum
from typing import Any

from mlcc.grammar.constants import as_tensor
from mlcc.grammar.printer.constant import tensor_text
from mlcc.grammar.printer.literals import integer, plain_float, quote
from mlcc.grammar.printer.writer import Child, Part, Value, Writer, separated
from mlcc.ir.dtypes import DType
from mlcc.ir.node import Attrs, Node
from mlcc.ir.tensor_data import TensorData, is_ndarray


def attribute_parts(out: Writer, value: Any) -> list[Part]:
    """The parts of a value's text. Maps are sorted by key: their order has no meaning."""
    if isinstance(value, Node):
        return [Child(value)]
    if isinstance(value, Attrs) and value.keys() == {"device_type", "index"}:
        kind = value["device_type"]  # a name or DLPack's number
        shown = quote(kind) if isinstance(kind, str) else str(kind)
        return [f"R.device(device_type={shown}, index={value['index']})"]
    if isinstance(value, Attrs):
        return ["{", *separated([[quote(k) + ": ", Value(value[k])] for k in sorted(value)]), "}"]
    if isinstance(value, (tuple, list)):
        return ["[", *separated([[Value(v)] for v in value]), "]"]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if is_ndarray(value) and value.dtype.kind in "biufV":
        value = as_tensor(value, None, "")
    if isinstance(value, TensorData):
        return [tensor_text(out, value)]
    if value is None or isinstance(value, bool):
        return [str(value)]
    if isinstance(value, int):
        return [integer(value)]
    if isinstance(value, float):
        return [plain_float(value)]
    if isinstance(value, DType):
        return [quote(str(value))]
    return [quote(value if isinstance(value, str) else str(value.value if isinstance(value, enum.Enum) else value))]

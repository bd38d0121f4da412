"""Constants as text: small ones written out, larger ones as references whose data travel beside the text."""

from __future__ import annotations

import math
import re
from typing import Any

from mlcc.grammar.printer.literals import float_text, integer, quote
from mlcc.grammar.printer.writer import Writer
from mlcc.ir import relax
from mlcc.ir.dtypes import DType
from mlcc.ir.tensor_data import INLINE_LIMIT, TensorData

_METADATA = re.compile(r"(relax\.expr\.Constant|ir\.GenericConst|ffi\.Tensor)\[(\d+)\]$")
_LEGACY = re.compile(r"meta\[[A-Za-z_.]+\]\[\d+\]$")


def constant(out: Writer, node: relax.Constant) -> str:
    """Return the expression that denotes the constant."""
    return tensor_text(out, node.data)


def tensor_text(out: Writer, tensor: TensorData) -> str:
    """The expression for an array, in a graph or in an attribute."""
    if tensor.array is not None:
        if out.dialect.is_tvm or (tensor.size <= INLINE_LIMIT and _has_literal(tensor.shape)):
            return f"R.const({_literal(tensor)}, {quote(str(tensor.dtype))})"
    elif tensor.sha256 is None:
        metadata = _METADATA.match(tensor.key)
        if metadata is not None:
            return f"metadata[{quote(metadata[1])}][{metadata[2]}]"
        if _LEGACY.match(tensor.key):
            return tensor.key
    args = [quote(out.keys.of(tensor))]
    if not tensor.dtype.is_void:
        dims = ", ".join([integer(n) for n in tensor.shape]) + ("," if len(tensor.shape) == 1 else "")
        args.append(f"R.Tensor(({dims}), dtype={quote(str(tensor.dtype))})")
    if tensor.sha256 is not None:
        args.append(f"sha256={quote(tensor.sha256)}")
    return f"R.data({', '.join(args)})"


def _has_literal(shape: tuple[int, ...]) -> bool:
    """False for shapes that no nested list has, such as (0, 3)."""
    return 0 not in shape[:-1]


def _literal(tensor: TensorData) -> str:
    from mlcc.ir.narrow_floats import decode

    assert tensor.array is not None
    return _nested(decode(tensor.array, tensor.dtype).tolist(), tensor.dtype)


def _nested(value: Any, dtype: DType) -> str:
    if isinstance(value, list):
        return f"[{', '.join([_nested(v, dtype) for v in value])}]"
    if isinstance(value, float):
        text = float_text(value, dtype)
        return text if math.isfinite(value) else f"float({text})"
    return str(value)

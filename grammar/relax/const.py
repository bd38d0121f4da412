"""Constants in text: `R.const` with its literals, references to data, metadata of printed modules."""

from __future__ import annotations

from typing import Any

from mlcc.grammar.relax.scope import FunctionWalk
from mlcc.grammar.relax.types import struct_info, tensor_dtype, type_of
from mlcc.grammar.syntax import tree
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import decode, encode
from mlcc.ir.tensor_data import TensorData
from mlcc.ops import values

Arguments = dict[str, tree.Expr]


def constant(data: TensorData, fw: FunctionWalk, cst: tree.Expr) -> relax.Constant:
    """A graph-level constant; without data and without a stated type, it is a tensor of unknown type."""
    if data.dtype.is_void:
        info = relax.TensorStructInfo(None, None, -1)
    else:
        info = values.tensor_info(data.shape, data.dtype)
    return relax.Constant(data, info, span=fw.walk.span(cst))


# ---------------------------------------------------------------- R.const


def const(fw: FunctionWalk, cst: tree.Call, arguments: Arguments) -> relax.Constant:
    """`R.const(value, dtype)`: a number, a bool, or nested lists; int32, float32 or bool unless stated."""
    captured = _captured(fw, arguments["value"])
    value = literal(fw, arguments["value"]) if captured is None else decode(captured.array, captured.dtype)
    dtype, shape = _stated(fw, arguments["dtype"]) if "dtype" in arguments else (None, None)
    if captured is not None and dtype is None:  # as `relax.const` takes arrays
        name = str(captured.dtype)
        dtype = DType.of({"int64": "int32", "float64": "float32"}.get(name, name))
    return constant(_tensor(fw, arguments["value"], value, dtype, shape), fw, cst)


def _captured(fw: FunctionWalk, cst: tree.Expr) -> Any:
    """The data of the array that a name of the program around the text stands for; None for any other expression."""
    found = fw.find(cst.id) if isinstance(cst, tree.Name) and cst.id in fw.walk.captured else None
    return found.value.data if found is not None and isinstance(found.value, relax.Constant) else None


def number(fw: FunctionWalk, cst: tree.Expr, value: Any, dtype: DType | None = None) -> relax.Constant:
    """A Python number as a constant tensor without dimensions."""
    return constant(_tensor(fw, cst, value, dtype, None), fw, cst)


def literal(fw: FunctionWalk, cst: tree.Expr) -> Any:
    """Numbers in nested lists, as Python values."""
    if isinstance(cst, (tree.Int, tree.Float)):
        return cst.value
    if isinstance(cst, tree.Display):
        return [literal(fw, item) for item in cst.items]
    if isinstance(cst, tree.Unary) and isinstance(cst.operand, (tree.Int, tree.Float)) and cst.op in ("-", "+"):
        return -cst.operand.value if cst.op == "-" else cst.operand.value
    if isinstance(cst, tree.Const):
        if isinstance(cst.value, bool):
            return cst.value
    elif (text := _float_text(cst)) is not None:
        if text.strip().lower().lstrip("+-") in ("inf", "infinity", "nan"):
            return float(text)
        help = 'only "inf", "-inf" and "nan" are written as text'
        fw.walk.fail("E0905", f'"{text}" is not a number', cst, help=help)
    else:
        value = values.python_value(fw.scalar(cst))
        if isinstance(value, (bool, int, float)):
            return value
    fw.walk.fail("E0905", "a constant must be made of numbers", cst, help='write float("inf") for infinity')


def _float_text(cst: tree.Expr) -> str | None:
    """The string of `float("inf")`, or of `"inf"` as TVM prints it; None for anything else."""
    if isinstance(cst, tree.Str):
        return cst.value
    if not isinstance(cst, tree.Call) or not isinstance(cst.function, tree.Name) or cst.function.id != "float":
        return None
    return cst.args[0].value if len(cst.args) == 1 and isinstance(cst.args[0], tree.Str) else None


def _stated(fw: FunctionWalk, cst: tree.Expr) -> tuple[DType | None, tuple[int, ...] | None]:
    """The stated dtype, and perhaps shape, of a constant: a string or `R.Tensor(...)` after the value."""
    info = type_of(fw, cst) if not isinstance(cst, tree.Str) else None
    if isinstance(info, relax.TensorStructInfo):
        return info.dtype, _static(fw, cst, info)
    return tensor_dtype(fw, cst), None


def _static(fw: FunctionWalk, cst: tree.Expr, info: relax.TensorStructInfo) -> tuple[int, ...] | None:
    if info.dims is None:
        return None
    sizes = tuple(tir.const_int(d) for d in info.dims)
    if any(n is None for n in sizes):
        fw.walk.fail("E0905", "the shape of a constant must be made of numbers", cst)
    return sizes  # type: ignore[return-value]


def _tensor(
    fw: FunctionWalk, cst: tree.Expr, value: Any, dtype: DType | None, shape: tuple[int, ...] | None
) -> TensorData:
    import numpy as np

    try:
        array = np.asarray(value)
    except ValueError:
        help = "the rows of a constant must have the same length"
        fw.walk.fail("E0905", "the lists have different lengths", cst, help=help)
    if array.dtype.kind == "O":
        fw.walk.fail("E0905", "a number does not fit any dtype", cst)
    if dtype is None:
        dtype = _default(array)
    if dtype.is_handle or dtype.is_void or dtype.lanes != 1 or dtype.bits < 8:
        fw.walk.fail("E0905", f"a constant cannot have dtype {dtype}", cst)
    if shape is not None and array.shape != shape:
        have = "x".join(map(str, array.shape)) or "scalar"
        fw.walk.fail("E0905", f"the value is {have}, but its type says {'x'.join(map(str, shape)) or 'scalar'}", cst)
    _check_range(fw, cst, array, dtype)
    return TensorData(dtype, array.shape, encode(array, dtype))


def _default(array: Any) -> DType:
    if array.dtype.kind == "b":
        return DType.of("bool")
    if array.dtype.kind == "f" or not array.size:
        return DType.of("float32")
    least, most = int(array.min()), int(array.max())
    if least >= -(2**31) and most < 2**31:
        return DType.of("int32")
    return DType.of("int64" if most < 2**63 else "uint64")


def _check_range(fw: FunctionWalk, cst: tree.Expr, array: Any, dtype: DType) -> None:
    """Check that integers are in the range of an integer dtype; floats are rounded."""
    import numpy as np

    if not array.size or dtype.is_float or array.dtype.kind == "b":
        return
    if dtype.is_bool:
        wrong = (array != 0) & (array != 1)
    elif array.dtype.kind == "f":
        info = np.iinfo(str(dtype))
        wrong = ~(np.floor(array) == array) | (array < info.min) | (array > info.max)
    else:
        info = np.iinfo(str(dtype))
        wrong = (array < info.min) | (array > info.max)
    if wrong.any():
        help = 'convert the integers that it stands beside, R.astype(x, "float32"), or give it a float dtype'
        fraction = array.dtype.kind == "f" and not dtype.is_bool
        fw.walk.fail("E0905", f"{array[wrong].ravel()[0]} does not fit {dtype}", cst, help=help if fraction else None)


# ---------------------------------------------------------------- references


def data(fw: FunctionWalk, cst: tree.Call, arguments: Arguments) -> relax.Constant:
    """`R.data(key, R.Tensor(shape, dtype), sha256=...)`: data in a file beside the text."""
    key = fw.scalar(arguments["key"])
    if not isinstance(key, str) or not key:
        fw.walk.fail("E0905", "the key of a constant must be a string", arguments["key"])
    dtype, shape, sha256 = None, None, None
    if "info" in arguments:
        info = struct_info(fw, arguments["info"])
        if not isinstance(info, relax.TensorStructInfo) or info.dims is None or info.dtype is None:
            fw.walk.fail("E0905", "the type of a constant must be R.Tensor with a shape and a dtype", arguments["info"])
        dtype, shape = info.dtype, _static(fw, arguments["info"], info)
    if "sha256" in arguments:
        sha256 = fw.scalar(arguments["sha256"])
        if not isinstance(sha256, str) or len(sha256) < 16 or sha256.strip("0123456789abcdef"):
            fw.walk.fail("E0905", "a hash must be at least 16 lower-case hex digits", arguments["sha256"])
    with fw.guard(cst):
        tensor = fw.constants.resolve(key, dtype, shape, sha256, fw.walk.span(cst))
        return constant(tensor, fw, cst)


def metadata(fw: FunctionWalk, cst: tree.Index) -> relax.Constant | None:
    """`metadata["relax.expr.Constant"][0]` or `meta[relay.Constant][0]`; None for anything else."""
    inner = cst.base
    if not isinstance(inner, tree.Index) or not isinstance(inner.base, tree.Name):
        return None
    if len(inner.items) != 1 or len(cst.items) != 1:
        return None
    root, section, number = inner.base.id, inner.items[0], cst.items[0]
    if root not in ("metadata", "meta") or fw.scope.find(root) is not None or not isinstance(number, tree.Int):
        return None
    if isinstance(section, tree.Str):
        key = f"{section.value}[{number.value}]"
    else:
        name = _dotted(section)
        if name is None:
            return None
        key = f"{root}[{name}][{number.value}]"
    with fw.guard(cst):
        return constant(fw.constants.resolve(key, None, None, None, fw.walk.span(cst)), fw, cst)


def _dotted(cst: tree.Expr) -> str | None:
    if isinstance(cst, tree.Attribute):
        base = _dotted(cst.base)
        return None if base is None else f"{base}.{cst.name}"
    return cst.id if isinstance(cst, tree.Name) else None


__all__ = ["const", "data", "literal", "metadata", "number"]

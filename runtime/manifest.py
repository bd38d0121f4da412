"""The manifest of an artifact: its contents and requirements, as JSON in the object. `docs/abi.md` has the schema.

Manifests are untrusted input: every field is checked before it is used.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mlcc.errors import LoadError, error
from mlcc.runtime import elf
from mlcc.runtime.abi import ABI_VERSION, MANIFEST_SECTION, dtype_code
from mlcc.runtime.large_file import LargeFile

Dim = int | str | tuple[Any, ...]  # an integer, a symbol's name, or (operator, operands...)

OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else 0,  # as everywhere, x / 0 = x % 0 = 0
    "%": lambda a, b: a % b if b else 0,
    "div": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0,  # toward zero
    "mod": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1) if b else 0,
    "min": min,
    "max": max,
    "<<": lambda a, b: a << b if 0 <= b < 64 else 0,  # a count outside the width shifts everything out
    ">>": lambda a, b: a >> (b if 0 <= b < 64 else 63),
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
}
SELECT = "select"  # (select, condition, if true, if false)
_WORDS = {"div", "mod", "min", "max", SELECT}


def evaluate(dim: Dim, symbols: Mapping[str, int]) -> int:
    """Evaluate a dimension. Raises KeyError for a symbol without a value, ValueError."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, str):
        return symbols[dim]
    if dim[0] == SELECT:
        return evaluate(dim[2] if evaluate(dim[1], symbols) else dim[3], symbols)
    return int(OPERATORS[dim[0]](evaluate(dim[1], symbols), evaluate(dim[2], symbols)))


def show(dim: Dim) -> str:
    """Format a dimension."""
    if isinstance(dim, (int, str)):
        return str(dim)
    parts = [show(d) for d in dim[1:]]
    if dim[0] in _WORDS:
        return f"{dim[0]}({', '.join(parts)})"
    left, right = (
        f"({p})" if isinstance(d, tuple) and d[0] not in _WORDS else p for p, d in zip(parts, dim[1:], strict=True)
    )
    return f"{left} {dim[0]} {right}"


def show_shape(shape: tuple[Dim, ...]) -> str:
    """Format a shape as a Python tuple."""
    return f"({', '.join(show(d) for d in shape)}{',' if len(shape) == 1 else ''})"


def symbols_of(dim: Dim) -> Iterator[str]:
    """Yield the symbols in a dimension, left to right."""
    if isinstance(dim, str):
        yield dim
    elif isinstance(dim, tuple):
        for part in dim[1:]:
            yield from symbols_of(part)


# ---------------------------------------------------------------- specifications


class Value(NamedTuple):
    """A parameter or result. `kind` is tensor, scalar, shape, tuple or pointer; the other fields as the kind needs.

    `dims` are a tensor's shape, or a shape's values; `value` is the symbol or constant that a scalar must equal. `role`
    of a tensor is in, out, or inout. `prove_less_equal`: a result's extents are data-dependent, and
    `dims` are upper bounds.
    """

    kind: str
    name: str = ""
    dtype: str = ""
    dims: tuple[Dim, ...] = ()
    role: str = "in"
    strides: tuple[Dim, ...] | None = None
    value: Dim | None = None
    fields: tuple[Value, ...] = ()
    code: tuple[int, int, int] = (0, 0, 0)
    at_most: bool = False

    def leaves(self) -> Iterator[Value]:
        """Yield the values that take a slot in the argument vector, with tuples flattened."""
        if self.kind == "tuple":
            for part in self.fields:
                yield from part.leaves()
        else:
            yield self


def show_tensor(leaf: Value) -> str:
    """Format the declared type of a tensor."""
    return f"{leaf.dtype}{show_shape(leaf.dims)}" if leaf.dims else f"a {leaf.dtype} scalar tensor"


class Constraint(NamedTuple):
    """Two sizes that must be equal, and the error code of the check.

    `what` names the first one in messages; `line` is the line of the source, 0 if unknown.
    """

    what: str
    line: int
    code: int
    have: Dim
    want: Dim


class FunctionSpec(NamedTuple):
    """A public function. `kind` is relax or prim; a prim function's outputs are among its parameters.

    `lines` are the source lines of error codes. `workspace_from`: where the C function `symbol` takes its workspace
    from, `stack` or `heap`; with `caller` there is no such function, only `symbol`_ws.
    """

    name: str
    kind: str
    symbol: str
    symbols: tuple[str, ...]
    params: tuple[Value, ...]
    results: Value | None
    constraints: tuple[Constraint, ...] = ()
    lines: tuple[tuple[int, int], ...] = ()  # code, line
    workspace_from: str = "heap"


class PackedSpec(NamedTuple):
    """A packed function that the code calls from one or more places, all with the same kinds of arguments.

    `args` has one of tensor, int, float, bool, shape, str, pointer per argument; `results` tensors follow them. In
    style `dps` the function writes into those, in style `value` a Python callable returns them. `args` of None means
    any number of arguments, each a tensor.
    """

    name: str
    args: tuple[str, ...] | None
    results: int
    style: str


class Manifest(NamedTuple):
    raw: dict[str, Any]
    prefix: str
    arch: str
    features: tuple[str, ...]
    functions: dict[str, FunctionSpec]
    packed: tuple[PackedSpec, ...]
    externs: tuple[str, ...]
    versions: Mapping[str, tuple[str, ...]] = {}  # the features of each CPU that kernels have versions for


def invalid(reason: str) -> LoadError:
    """Return the error for an invalid manifest."""
    return LoadError(
        error("E0852", f"the manifest is not valid: {reason}", help="compile the artifact again with this mlcc")
    )


# ---------------------------------------------------------------- reading


def extract(data: elf.Data) -> dict[str, Any]:
    """Return the manifest of an object or shared library as plain data. Raises LoadError."""
    content = elf.find_section(data, MANIFEST_SECTION)
    if content is None:
        raise elf.damaged("it has no manifest, so mlcc did not make it")
    return _parse_json(content)


def extract_from(pieces: Sequence[bytes | bytearray | memoryview]) -> dict[str, Any]:
    """Return the manifest of an object in pieces, without joining them."""
    for piece in reversed(pieces):
        if len(piece) < 1 << 24 and piece[:1] == b"{" and checksum_offset(bytes(piece)) >= 0:
            return _parse_json(bytes(piece))
    return extract(b"".join(pieces))


def _parse_json(content: bytes) -> dict[str, Any]:
    """Parse the content of the manifest's section."""
    try:
        raw = json.loads(content.split(b"\0", 1)[0])
    except (ValueError, RecursionError):
        raise elf.damaged("its manifest is not JSON") from None
    if not isinstance(raw, dict):
        raise elf.damaged("its manifest is not a JSON object")
    return raw


CHECKSUM = b'"checksum": "'


def checksum_offset(data: elf.Data, start: int = 0) -> int:
    """Return the offset of the eight hexadecimal digits of the checksum, -1 if there is none."""
    offset = data.rfind(CHECKSUM, start)
    return offset + len(CHECKSUM) if offset >= 0 and offset + len(CHECKSUM) + 8 <= len(data) else -1


def verify_checksum(data: elf.Data, file: LargeFile | None = None) -> None:
    """Raise LoadError if the checksum does not match. `file` is the file of a large object."""
    offset = checksum_offset(data)
    if offset < 0:
        raise elf.damaged("it has no checksum")
    if file is not None:
        checksum = file.crc32(offset + 8, len(data), zlib.crc32(b"00000000", file.crc32(0, offset)))
    else:
        view = memoryview(data)
        checksum = zlib.crc32(view[offset + 8 :], zlib.crc32(b"00000000", zlib.crc32(view[:offset])))
    if data[offset : offset + 8] != b"%08x" % checksum:
        raise elf.damaged("its content does not match its checksum")


def with_checksum(data: bytes) -> bytes:
    """Recompute the checksum of an artifact."""
    offset = checksum_offset(data)
    if offset < 0:
        raise elf.damaged("it has no checksum")
    blank = data[:offset] + b"00000000" + data[offset + 8 :]
    return data[:offset] + b"%08x" % zlib.crc32(blank) + data[offset + 8 :]


class _Reader:
    """Checked field access; errors name the location."""

    def __init__(self, where: str) -> None:
        self.where = where

    def get(self, raw: Any, key: str, kind: type | tuple[type, ...]) -> Any:
        if not isinstance(raw, dict) or key not in raw:
            raise invalid(f"{self.where} has no `{key}`")
        value = raw[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise invalid(f"`{key}` of {self.where} has the wrong type")
        return value

    def strings(self, raw: Any, key: str) -> tuple[str, ...]:
        values = self.get(raw, key, list)
        if not all(isinstance(s, str) for s in values):
            raise invalid(f"`{key}` of {self.where} must only contain strings")
        return tuple(values)


def read(raw: dict[str, Any]) -> Manifest:
    """Validate a manifest and convert it to typed data. Raises LoadError."""
    top = _Reader("the manifest")
    about = top.get(raw, "mlcc", dict)
    abi = _Reader("mlcc").get(about, "abi", int)
    if abi != ABI_VERSION:
        version = about.get("version", "of another version")
        raise LoadError(
            error(
                "E0852",
                f"made by mlcc {version} for interface {abi}; this one loads {ABI_VERSION}",
                help="compile it again",
            )
        )
    target = top.get(raw, "target", dict)
    machine = _Reader("target")
    functions = {name: read_function(name, spec) for name, spec in top.get(raw, "functions", dict).items()}
    packed = tuple(_packed(i, spec) for i, spec in enumerate(top.get(raw, "packed", list)))
    _check_optional(top, raw, target)
    return Manifest(
        raw, top.get(raw, "prefix", str), machine.get(target, "arch", str), machine.strings(target, "features"),
        functions, packed, top.strings(raw, "externs"), _versions(target),
    )  # fmt: skip


def _versions(target: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the features of each CPU that kernels have versions for, the best last; usually none."""
    machine, reader = _Reader("target"), _Reader("a version")
    listed = machine.get(target, "versions", list) if "versions" in target else []
    return {reader.get(version, "cpu", str): reader.strings(version, "features") for version in listed}


# what messages and `mlcc inspect` show of a target, and what devices compare
_TARGET_TEXTS = ("arch", "cpu", "cuda", "driver", "kind", "ptx_isa", "runs_on", "text", "triple", "variant")
_KERNEL_COUNTS = ("shared", "dynamic_shared")


def _check_optional(top: _Reader, raw: Mapping[str, Any], target: Mapping[str, Any]) -> None:
    """The parts that only some artifacts have: each is of its kind where it is there."""
    machine = _Reader("target")
    for key in _TARGET_TEXTS:
        if key in target:
            machine.get(target, key, str)
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", target["arch"] if isinstance(target.get("arch"), str) else ""):
        raise invalid("`arch` of target names no architecture")
    capability = target.get("compute_capability", [])
    if not isinstance(capability, list) or not all(_is_count(n) for n in capability):
        raise invalid("`compute_capability` of target is no list of numbers")
    about = _Reader("mlcc")
    if "version" in raw["mlcc"]:
        about.get(raw["mlcc"], "version", str)
    for name, kernel in top.get(raw, "kernels", dict).items() if "kernels" in raw else ():
        _check_kernel(_Reader(f"kernel `{name}`"), kernel)


def _check_kernel(reader: _Reader, raw: Any) -> None:
    block = reader.get(raw, "block", list)
    if len(block) != 3 or not all(_is_count(n) for n in block):
        raise invalid(f"`block` of {reader.where} is not three numbers")
    reader.get(raw, "shared", int)
    if not all(_is_count(abs(raw[key])) for key in _KERNEL_COUNTS if type(raw.get(key, 0)) is int and key in raw):
        raise invalid(f"the shared memory of {reader.where} is out of range")
    if "dynamic_shared" in raw:
        reader.get(raw, "dynamic_shared", int)
    if "symbol" in raw:
        reader.get(raw, "symbol", str)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 40


def read_function(name: str, raw: Any) -> FunctionSpec:
    """Convert the entry of a function to typed data. Raises LoadError."""
    reader = _Reader(f"function `{name}`")
    kind = reader.get(raw, "kind", str)
    if kind not in ("relax", "prim"):
        raise invalid(f"function `{name}` is of kind `{kind}`")
    symbols = reader.strings(raw, "symbols")
    params = tuple(_value(reader, p, symbols, 0) for p in reader.get(raw, "params", list))
    results = None if kind == "prim" else _value(reader, reader.get(raw, "results", dict), symbols, 0)
    listed = reader.get(raw, "constraints", list) if "constraints" in raw else []
    constraints = tuple(_constraint(reader, c, symbols) for c in listed)
    lines = tuple(_source_line(p) for p in reader.get(raw, "lines", list)) if "lines" in raw else ()
    workspace_from = reader.get(raw, "workspace_from", str) if "workspace_from" in raw else "heap"
    if workspace_from not in ("stack", "heap", "caller"):
        raise invalid(f"function `{name}` takes its workspace from `{workspace_from}`")
    return FunctionSpec(
        name, kind, reader.get(raw, "symbol", str), symbols, params, results, constraints, lines, workspace_from
    )


def _source_line(raw: Any) -> tuple[int, int]:
    if not (isinstance(raw, list) and len(raw) == 2 and all(isinstance(n, int) for n in raw)):
        raise invalid("`lines` of a function are pairs of a code and a line")
    return raw[0], raw[1]


def _constraint(reader: _Reader, raw: Any, symbols: tuple[str, ...]) -> Constraint:
    have, want = (_dim(reader, reader.get(raw, key, (int, str, list)), symbols, 0) for key in ("have", "want"))
    line, code = reader.get(raw, "line", int), reader.get(raw, "code", int)
    return Constraint(reader.get(raw, "what", str), line, code, have, want)


KINDS = ("tensor", "scalar", "shape", "tuple", "pointer")
DEPTH = 64


def _value(reader: _Reader, raw: Any, symbols: tuple[str, ...], depth: int) -> Value:
    kind = reader.get(raw, "kind", str)
    name = raw.get("name", "")
    if kind not in KINDS or not isinstance(name, str) or depth > DEPTH:
        raise invalid(f"{reader.where} has a value of unknown kind")
    if kind == "tuple":
        fields = tuple(_value(reader, f, symbols, depth + 1) for f in reader.get(raw, "fields", list))
        return Value(kind, name, fields=fields)
    if kind == "shape":
        return Value(kind, name, dims=_dims(reader, reader.get(raw, "values", list), symbols))
    if kind == "pointer":
        return Value(kind, name)
    dtype = reader.get(raw, "dtype", str)
    try:
        code = dtype_code(dtype)
    except ValueError:
        raise invalid(f"{reader.where} has a value of dtype `{dtype}`") from None
    if kind == "scalar":
        value = raw.get("value")
        return Value(kind, name, dtype, value=None if value is None else _dim(reader, value, symbols, 0), code=code)
    dims = _dims(reader, reader.get(raw, "shape", list), symbols)
    strides = _dims(reader, raw["strides"], symbols) if isinstance(raw.get("strides"), list) else None
    role = raw.get("role", "in")
    if role not in ("in", "out", "inout") or (strides is not None and len(strides) != len(dims)) or len(dims) > 32:
        raise invalid(f"{reader.where} has a malformed tensor")
    return Value(kind, name, dtype, dims, role, strides, code=code, at_most=raw.get("at_most") is True)


def _dims(reader: _Reader, raw: Any, symbols: tuple[str, ...]) -> tuple[Dim, ...]:
    return tuple(_dim(reader, d, symbols, 0) for d in raw)


def _dim(reader: _Reader, raw: Any, symbols: tuple[str, ...], depth: int) -> Dim:
    if isinstance(raw, int) and not isinstance(raw, bool) and abs(raw) < 1 << 63:
        return raw
    if isinstance(raw, str) and raw in symbols:
        return raw
    if isinstance(raw, list) and raw and depth < DEPTH:
        operands = 3 if raw[0] == SELECT else 2
        if isinstance(raw[0], str) and (raw[0] in OPERATORS or raw[0] == SELECT) and len(raw) == operands + 1:
            return (raw[0], *(_dim(reader, d, symbols, depth + 1) for d in raw[1:]))
    raise invalid(f"{reader.where} has a malformed dimension")


ARGUMENT_KINDS = ("tensor", "int", "float", "bool", "shape", "str", "pointer")


def _packed(index: int, raw: Any) -> PackedSpec:
    reader = _Reader(f"packed function {index}")
    args = None if isinstance(raw, dict) and raw.get("args", 0) is None else reader.strings(raw, "args")
    results = reader.get(raw, "results", int)
    style = reader.get(raw, "style", str)
    if not set(args or ()) <= set(ARGUMENT_KINDS) or not 0 <= results < 1 << 16 or style not in ("dps", "value"):
        raise invalid(f"{reader.where} is malformed")
    return PackedSpec(reader.get(raw, "name", str), args, results, style)

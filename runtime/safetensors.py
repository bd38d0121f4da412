"""Reading and writing .safetensors: a JSON header of names, dtypes, shapes and offsets, then the elements.

Nothing of a file is believed: the header is of bounded size, and its tensors tile the rest of the file, one behind the
other, without a gap, without overlaps, each as large as its dtype and shape say. Elements are not read before somebody
asks for them, and then they are views of the memory that the file lies in, which may be mapped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from mlcc.runtime.abi import STORAGE, dtype_tag, tagged_dtype
from mlcc.runtime.npz import Damaged, Header, Validator, finish, view_or_copy

LENGTH = 8  # bytes that say how long the header is
MAX_HEADER = 1 << 25  # bytes; 150,000 tensors with names of 100 letters
MAX_DIMENSIONS = 32
_ALIGNMENT = 64  # of the elements, where mlcc writes them
_METADATA = "__metadata__"
_COMMENT = "comment"
_FIELDS = {"dtype", "shape", "data_offsets"}

DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "F32": "float32", "F64": "float64", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
_NAMES = {ours: theirs for theirs, ours in DTYPES.items()}


def storage(name: str) -> np.dtype[Any]:
    """The little-endian NumPy dtype of elements; one that NumPy lacks is stored as its bits, and says its name."""
    bits = np.dtype(STORAGE.get(name, name)).newbyteorder("<")
    return tagged_dtype(name, bits) if name in STORAGE else bits


class Tensors:
    """The tensors of a .safetensors by name, over bytes or a mapped file. Raises Damaged."""

    def __init__(self, data: Any) -> None:
        self._data = memoryview(data)
        entries = _header(self._data)
        metadata = entries.pop(_METADATA, {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise Damaged(f"`{_METADATA}` is no map of strings")
        self.comment = str(metadata.get(_COMMENT, "")).encode("utf-8", "surrogatepass")
        start = LENGTH + int.from_bytes(self._data[:LENGTH], "little")
        room = len(self._data) - start
        self.members = {name: _tensor(name, entry, start, room) for name, entry in entries.items()}
        _check_tiling(self.members, start, len(self._data))

    def header(self, name: str) -> Header:
        """Return the header of a tensor. Raises KeyError."""
        return self.members[name]

    def read(self, name: str, judge: Validator | None = None) -> np.ndarray:
        """A tensor; `judge` sees its shape and dtype first. Raises KeyError, Damaged."""
        head = self.members[name]
        if judge is not None:
            judge(head.shape, head.dtype)
        content = self._data[head.start : head.start + head.nbytes]
        elements = view_or_copy(np.frombuffer(content, head.dtype)) if content else np.empty(0, head.dtype)
        return finish(elements, head, name)


def _header(data: memoryview) -> dict[str, Any]:
    """The header as plain data. Raises Damaged."""
    if len(data) < LENGTH:
        raise Damaged("it is cut off before its header")
    size = int.from_bytes(data[:LENGTH], "little")
    if size > MAX_HEADER:
        raise Damaged(f"its header would have {size} bytes, more than {MAX_HEADER}")
    if LENGTH + size > len(data):
        raise Damaged("its header is cut off")
    try:
        text = bytes(data[LENGTH : LENGTH + size]).decode()
        header = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_no_number)
    except (ValueError, RecursionError) as exc:
        raise Damaged("its header is not JSON") from exc
    if not isinstance(header, dict):
        raise Damaged("its header is no map of names to tensors")
    return header


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Damaged(f"its header says `{twice[:200]}` twice")
    return mapping


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


def _tensor(name: str, entry: Any, start: int, room: int) -> Header:
    """Parse a tensor's entry in the header; its elements are in the `room` bytes from `start` on. Raises Damaged."""
    if not isinstance(entry, dict) or entry.keys() != _FIELDS:
        raise Damaged(f"the header does not say dtype, shape and offsets of `{name}`, and nothing else")
    dtype = entry["dtype"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise Damaged(f"`{name}` has the dtype `{str(dtype)[:40]}`, which is not known; known are {', '.join(DTYPES)}")
    shape, offsets = _integers(entry["shape"]), _integers(entry["data_offsets"])
    if shape is None or len(shape) > MAX_DIMENSIONS or math.prod(max(n, 1) for n in shape) >= 1 << 60:
        raise Damaged(f"`{name}` has a malformed shape")
    if offsets is None or len(offsets) != 2 or not offsets[0] <= offsets[1] <= room:
        raise Damaged(f"`{name}` does not lie inside the file")
    header = Header(shape, storage(DTYPES[dtype]), False, start + offsets[0])
    if header.nbytes != offsets[1] - offsets[0]:
        raise Damaged(f"`{name}` takes {header.nbytes} bytes, and has {offsets[1] - offsets[0]}")
    return header


def _integers(value: Any) -> tuple[int, ...] | None:
    """Return a list of non-negative integers; None for any other value."""
    if not isinstance(value, list) or not all(type(n) is int and 0 <= n < 1 << 63 for n in value):
        return None
    return tuple(value)


def _check_tiling(members: Mapping[str, Header], start: int, end: int) -> None:
    """Raise Damaged unless the tensors fill the range from `start` to `end` without gaps or overlap."""
    offset = start
    for name, head in sorted(members.items(), key=lambda item: (item[1].start, item[1].nbytes)):
        if head.start != offset:
            what = (
                "overlaps another tensor"
                if head.start < offset
                else f"begins {head.start - offset} bytes behind the last"
            )
            raise Damaged(f"`{name}` {what}")
        offset += head.nbytes
    if offset != end:
        raise Damaged(f"{end - offset} bytes at its end belong to no tensor")


# ---------------------------------------------------------------- writing


class NoDtype(Exception):
    """Names an array that no .safetensors holds."""


def header_bytes(arrays: Mapping[str, np.ndarray], comment: str = "") -> bytes:
    """The start of a file of these arrays, up to the elements. Raises NoDtype."""
    entries: dict[str, Any] = {_METADATA: {_COMMENT: comment}} if comment else {}
    at = 0
    for name, array in in_order(arrays):
        dtype = _NAMES.get(dtype_tag(array.dtype) or array.dtype.name)
        if dtype is None:
            raise NoDtype(f"array `{name}` is of {array.dtype}, which a .safetensors cannot hold")
        entries[name] = {
            "dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes],
        }  # fmt: skip
        at += array.nbytes
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(LENGTH + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(LENGTH, "little") + text


def in_order(arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Arrays in the order of their elements in a file: those of wide dtypes first, so that all of them are aligned."""
    return iter(sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])))

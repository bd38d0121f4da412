"""The data of a text's constants: comment lines at its end, or FILE.npz or FILE.safetensors beside FILE.

    # mlcc.data KEY DTYPE SHAPE BASE64        the elements, little-endian, as they lie in memory
    # mlcc.data KEY + BASE64                  more of the same

    # mlcc.data-file NAME.npz                 the data lie there, in the text's folder or below, not in FILE.npz
                                              or FILE.safetensors; there may be several such lines

SHAPE is `128x784`, or `scalar`. A reference in the text names its data by key and, if it was printed by mlcc, by
content hash; data that are not there leave an absent constant, which is legal until it is needed.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, Label, Source, Span, error
from mlcc.ir.dtypes import DType
from mlcc.ir.tensor_data import TensorData, storage_dtype

if TYPE_CHECKING:
    import numpy as np

    from mlcc.array_files import ArrayFile

DATA_MARK = "# mlcc.data "
FILE_MARK = "# mlcc.data-file "
CHUNK = 3000  # bytes in one line: 4000 characters; a multiple of 3, so that no line but the last is padded
_FILE_LINE = re.compile("^" + FILE_MARK + r"(\S+)[ \t]*$", re.MULTILINE)
_LINE = re.compile("^" + DATA_MARK + "(.*)$", re.MULTILINE)


class ConstantKeys:
    """Keys for the constants of one text; constants share a key if and only if their data are equal."""

    def __init__(self) -> None:
        self.tensors: dict[str, TensorData] = {}
        self._key_of: dict[tuple[object, ...], str] = {}
        self._next: dict[str, int] = {}

    def of(self, tensor: TensorData) -> str:
        """The key that the text uses for `tensor`: its own, made unique."""
        hint = tensor.key or "constant"
        content = (hint, tensor.dtype, tensor.shape, tensor.sha256)
        key = self._key_of.get(content)
        if key is None:
            key, number = hint, self._next.get(hint, 1)
            while key in self.tensors:
                key, number = f"{hint}_{number}", number + 1
            self._next[hint] = number
            self._key_of[content] = key
            self.tensors[key] = tensor
        return key


def data_lines(tensors: Mapping[str, TensorData]) -> Iterator[str]:
    """Yield the comment lines with the data of all constants that have an array."""
    for key, tensor in tensors.items():
        if tensor.array is None:
            continue
        raw = _raw(tensor.array)
        shape = "x".join(map(str, tensor.shape)) if tensor.shape else "scalar"
        head = f"{DATA_MARK}{_escape(key)} {tensor.dtype} {shape} "
        yield head + base64.b64encode(raw[:CHUNK]).decode()
        for start in range(CHUNK, len(raw), CHUNK):
            yield f"{DATA_MARK}{_escape(key)} + {base64.b64encode(raw[start : start + CHUNK]).decode()}"


def is_inside_folder(path: str, text: str) -> bool:
    """Return True if a file is in the folder of the text at `text` or below it, after resolving links."""
    home = os.path.realpath(os.path.dirname(text) or ".")
    return text != "-" and os.path.commonpath([home, os.path.realpath(path)]) == home


def data_file_line(path: str, text: str) -> str:
    """Return the comment line that names the data file `path` of the text at `text`. Raises CompileError E0906 for data
    outside the folder of the text."""
    name = os.path.relpath(path, os.path.dirname(text) or ".")
    if text == "-" or name.split(os.sep)[0] == os.pardir:
        where = "the text goes to standard output" if text == "-" else f"{path} does not"
        help = "the data of a text must lie in its folder or below"
        raise CompileError(error("E0906", f"a text finds its data from its own folder: {where}", help=help))
    return f"{FILE_MARK}{_escape(name)}\n"


def stored_arrays(tensors: Mapping[str, TensorData]) -> dict[str, np.ndarray]:
    """Return the arrays to save beside a text, by key."""
    return {key: array_with_dtype(t.array, t.dtype) for key, t in tensors.items() if t.array is not None}


def array_with_dtype(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Return the array, with a dtype NumPy lacks recorded in the metadata of its NumPy dtype."""
    from mlcc.runtime.abi import STORAGE, tagged_dtype

    return array.view(tagged_dtype(str(dtype), array.dtype)) if str(dtype) in STORAGE else array


def _raw(array: np.ndarray) -> memoryview:
    """The bytes of a C-contiguous array, little-endian."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return memoryview(little.reshape(-1).view("uint8").data) if little.size else memoryview(b"")


def _escape(key: str) -> str:
    """Return a key without blanks: `%` and bytes of UTF-8 that are not printable ASCII become `%XX`."""
    return re.sub(r"[^!-~]|%", lambda m: "".join(f"%{b:02X}" for b in m.group().encode("utf-8", "surrogatepass")), key)


def _unescape(text: str) -> str:
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda m: bytes([int(m.group(1), 16)]), text.encode("utf-8", "surrogatepass"))
    return raw.decode("utf-8", "replace")


# ---------------------------------------------------------------- reading


def strip_data(text: str) -> str:
    """The text without its data lines."""
    return re.sub("^" + DATA_MARK + ".*\n?", "", text, flags=re.MULTILINE) if DATA_MARK in text else text


class Constants:
    """The data of the constants that one text refers to.

    Sources are arrays given by the caller, data lines, and FILE.npz or FILE.safetensors beside the text.
    """

    def __init__(self, source: Source, data: Mapping[str, Any] | None = None, folder: str | None = None) -> None:
        self._source = source
        self._supplied = data or {}
        self._lines: dict[str, _DataLines] | None = None
        self._folder = folder
        self._beside: list[ArrayFile] | None = None

    def resolve(
        self, key: str, dtype: DType | None, shape: tuple[int, ...] | None, sha256: str | None, span: Span | None
    ) -> TensorData:
        """Return the constant that a reference denotes. Properties that it omits (None) are taken from the data.

        Raises CompileError for data whose dtype, shape or hash differs from the reference.
        """
        source = self._find(key, dtype, shape, span)
        if source is None:
            return TensorData(dtype or DType.of("void"), shape or (), None, key, sha256)
        tensor, origin = source
        self._compare(key, dtype, shape, (tensor.dtype, tensor.shape), span, origin)
        if sha256 is not None and not (tensor.sha256 or "").startswith(sha256):
            raise CompileError(
                error(
                    "E0903",
                    f"the data of constant `{key}` have changed since the text was written",
                    span,
                    f"their hash is {(tensor.sha256 or '')[:16]}...",
                    related=(origin,),
                    help="bring the data back, or drop `sha256=` to take the new ones",
                )  # fmt: skip
            )
        tensor.release()  # its checksum has been verified
        return tensor

    def _compare(
        self, key: str, dtype: DType | None, shape: tuple[int, ...] | None, stored: tuple[DType, tuple[int, ...]],
        span: Span | None, origin: Label,
    ) -> None:  # fmt: skip
        """Raises CompileError E0902 for data of another dtype or shape than the reference states."""
        kind, extents = stored
        if (dtype is not None and kind is not dtype) or (shape is not None and extents != shape):
            raise CompileError(
                error(
                    "E0902",
                    f"the data of constant `{key}` are {_kind(kind, extents)}",
                    span,
                    f"the reference says {_kind(dtype or kind, extents if shape is None else shape)}",
                    related=(origin,),
                )  # fmt: skip
            )

    def check_unused(self) -> None:
        """Read every data line, so that damage is found even where nothing refers to it."""
        for lines in self._data_lines().values():
            lines.tensor(self._source)

    def _find(
        self, key: str, dtype: DType | None, shape: tuple[int, ...] | None, span: Span | None
    ) -> tuple[TensorData, Label] | None:
        if key in self._supplied:
            supplied = self._supplied[key]
            tensor = supplied if isinstance(supplied, TensorData) else as_tensor(supplied, dtype, key)
            return tensor, Label(None, f"`{key}` is given by the caller")
        lines = self._data_lines().get(key)
        if lines is not None:
            return lines.tensor(self._source), Label(lines.span, "the data are here")
        holders = [file for file in self._files(span) if key in file]
        if not holders:
            return None
        if len(holders) > 1:
            names = " and ".join(file.path for file in holders)
            help = f"remove one of them, or name the right one in a line `{FILE_MARK}NAME`"
            raise CompileError(error("E1071", f"the data of constant `{key}` are in two files: {names}", help=help))
        origin = Label(None, f"`{key}` is read from {holders[0].path}")

        def check_stated(extents: tuple[int, ...], stored: np.dtype[Any]) -> bool:
            self._compare(key, dtype, shape, constant_type(extents, stored, dtype, key), span, origin)
            return shape is not None and dtype is not None

        return as_tensor(holders[0].read(key, check_stated), dtype, key), origin

    def _data_lines(self) -> dict[str, _DataLines]:
        if self._lines is None:
            self._lines = _scan(self._source)
        return self._lines

    def _paths(self) -> list[str]:
        """The files that may hold the data."""
        from mlcc.array_files import SUFFIXES

        named = _FILE_LINE.findall(self._source.text) if FILE_MARK in self._source.text else []
        if named:
            return [os.path.join(self._folder or "", _unescape(name)) for name in dict.fromkeys(named)]
        stem = os.path.splitext(os.path.basename(self._source.name))[0]
        return [os.path.join(self._folder or "", stem + suffix) for suffix in SUFFIXES]

    def _files(self, span: Span | None) -> list[ArrayFile]:
        """The existing files beside the text, opened on first use."""
        if self._beside is None:
            from mlcc.array_files import ArrayFile

            paths = [path for path in self._paths() if self._folder is not None and os.path.lexists(path)]
            for path in paths:
                home = os.path.realpath(self._folder or "")
                if os.path.commonpath([home, os.path.realpath(path)]) != home:
                    raise CompileError(
                        error("E0906", f"{path} is a link out of its folder", span, "data are looked for there")
                    )
            self._beside = [ArrayFile(path) for path in paths]
        return self._beside


def constant_type(
    shape: tuple[int, ...], stored: np.dtype[Any], dtype: DType | None, key: str
) -> tuple[DType, tuple[int, ...]]:
    """The dtype and shape of the constant that an array of that kind makes, whose elements nobody has read."""
    import numpy as np

    return as_tensor(np.empty(0, stored), dtype, key).dtype, shape


def as_tensor(array: Any, dtype: DType | None, key: str) -> TensorData:
    """A constant from an array; bit patterns of types that NumPy lacks are taken as such where they or `dtype` say
    so."""
    import numpy as np

    from mlcc.runtime.abi import dtype_tag

    array = np.asarray(array)
    recorded = dtype_tag(array.dtype)
    if recorded is not None:
        return TensorData(DType.of(recorded), array.shape, array.view(array.dtype.str), key)
    if dtype is not None and array.dtype.itemsize == np.dtype(storage_dtype(dtype)).itemsize:
        foreign = array.dtype.kind == "V" or array.dtype.name == str(dtype)
        if foreign and array.dtype.name != storage_dtype(dtype):
            array = np.ascontiguousarray(array).view(storage_dtype(dtype))
        if array.dtype.name == storage_dtype(dtype):
            return TensorData(dtype, array.shape, array, key)
    try:
        own = DType.of(array.dtype.name)
        stored = array.view(storage_dtype(own)) if array.dtype.name != storage_dtype(own) else array
    except (ValueError, TypeError):
        raise CompileError(
            error("E0902", f"the array for constant `{key}` has the dtype {array.dtype}, which tensors cannot have")
        ) from None
    return TensorData(own, array.shape, stored, key)


class _DataLines:
    """The data lines of one key, decoded on first use."""

    def __init__(self, key: str, dtype: DType, shape: tuple[int, ...], span: Span, parts: list[str]) -> None:
        self.key, self.dtype, self.shape, self.span, self.parts = key, dtype, shape, span, parts
        self._tensor: TensorData | None = None

    def tensor(self, source: Source) -> TensorData:
        if self._tensor is None:
            import numpy as np

            try:
                raw = b"".join(base64.b64decode(part, validate=True) for part in self.parts)
            except (binascii.Error, ValueError):
                raise CompileError(error("E0901", f"the data of `{self.key}` are not base64", self.span)) from None
            count = 1
            for extent in self.shape:
                count *= extent
            element = np.dtype(storage_dtype(self.dtype)).newbyteorder("<")
            if count * element.itemsize != len(raw):
                raise CompileError(
                    error(
                        "E0901",
                        f"the data of `{self.key}` are damaged",
                        self.span,
                        f"{_kind(self.dtype, self.shape)} takes {count * element.itemsize} bytes; here are {len(raw)}",
                    )  # fmt: skip
                )
            if self.dtype.is_bool and raw.strip(b"\0\1"):
                raise CompileError(error("E0901", f"the data of `{self.key}` are not bools", self.span))
            array = np.frombuffer(raw, element).astype(element.newbyteorder("="), copy=False).reshape(self.shape)
            self._tensor = TensorData(self.dtype, self.shape, array, self.key)
        return self._tensor


def _scan(source: Source) -> dict[str, _DataLines]:
    """The data lines of a text by key. Raises CompileError for lines that cannot be read."""
    lines_of: dict[str, _DataLines] = {}
    for match in _LINE.finditer(source.text) if DATA_MARK in source.text else ():
        span = Span(source, match.start(), min(match.end(), match.start() + 80))
        words = match.group(1).split()
        if len(words) in (2, 3) and words[1] == "+":
            lines = lines_of.get(_unescape(words[0]))
            if lines is None:
                raise CompileError(error("E0901", "this data line continues one that is missing", span))
            lines.parts += words[2:]
            continue
        if len(words) not in (3, 4):
            raise CompileError(
                error(
                    "E0901",
                    "a data line must be `# mlcc.data KEY DTYPE SHAPE BASE64`",
                    span,
                    f"{len(words)} words here",
                )
            )
        key = _unescape(words[0])
        if key in lines_of:
            raise CompileError(
                error(
                    "E0901", f"there are two data lines for `{key}`", span, related=(Label(lines_of[key].span, "one"),)
                )
            )
        try:
            dtype = DType.of(words[1])
            shape = () if words[2] == "scalar" else tuple(_extent(n) for n in words[2].split("x"))
        except ValueError as exc:
            raise CompileError(error("E0901", f"in this data line: {exc}", span)) from None
        if dtype.is_void or dtype.is_handle or dtype.lanes != 1 or len(shape) > 64:
            raise CompileError(error("E0901", f"no constant is {_kind(dtype, shape)}", span))
        lines_of[key] = _DataLines(key, dtype, shape, span, words[3:])
    return lines_of


def _extent(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ValueError(f"`{text[:40]}` is not an extent")
    return int(text)


def _kind(dtype: DType, shape: tuple[int, ...]) -> str:
    return f"{dtype} {'x'.join(map(str, shape)) if shape else 'scalar'}"

"""Reading zip archives of arrays (.npz): members are judged by their headers before memory is taken for them.

Nothing of a file is believed. A member lies inside the file, is as large as its header says, and matches its CRC-32;
what is packed is unpacked as a stream, so that a few bytes cannot claim the machine. Large members that are stored as
they are become views of the memory that the archive lies in, which may be a mapped file.
"""

from __future__ import annotations

import io
import math
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

HEAD = 1 << 16  # bytes that the header of an array takes at most
VIEW = 1 << 20  # bytes from which on an array is a view where it can be one
UNPACKED = 1 << 30  # bytes that an array unpacks to at most, plus three times the archive, unless its size is declared
CHUNK = 1 << 18
MAX_MEMBERS = 1 << 16
_DEFLATE_RATIO = 1040  # a deflate stream never unpacks to more than 1032 times its size

_LOCAL = b"PK\x03\x04"
_ENCRYPTED = 0x1 | 0x20 | 0x40  # or patched, which nothing writes
_MAGIC = b"\x93NUMPY"
_ITEM = r"""\s*['"](?:(descr)['"]\s*:\s*['"]([^'"\\]{1,32})['"]|(fortran_order)['"]\s*:\s*(True|False)|
    (shape)['"]\s*:\s*\(([0-9,\sL]*)\))\s*"""
_DICT = re.compile(rf"\{{{_ITEM},{_ITEM},{_ITEM},?\s*\}}\s*", re.VERBOSE)
_DTYPE = re.compile(r"[<>|=]?[?bhilqpBHILQPefdgFDGSUVMmiuc]\d{0,9}(\[\w{1,8}\])?")


class Damaged(Exception):
    """An archive or a member is malformed; the message says how."""


class Header(NamedTuple):
    """The header of an array; `start` is the offset of its elements."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_fortran: bool
    start: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


# Looks at a header before memory is taken, and raises what it likes; true if it knows the number of bytes to be right
Validator = Callable[[tuple[int, ...], "np.dtype[Any]"], bool]


class Archive:
    """The members of a zip by name, over bytes or a mapped file. Raises Damaged."""

    def __init__(self, data: Any) -> None:
        self.data = memoryview(data)
        try:
            with zipfile.ZipFile(io.BytesIO(data) if isinstance(data, bytes) else data) as archive:
                entries, self.comment = archive.infolist(), archive.comment
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, EOFError, OSError, OverflowError):
            raise Damaged("the list of its members, at its end, is cut off or damaged") from None
        if len(entries) > MAX_MEMBERS:
            raise Damaged(f"it has {len(entries)} members")
        self.members: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            if entry.filename in self.members:
                raise Damaged(f"it has two members `{entry.filename}`")
            self.members[entry.filename] = entry

    def raw(self, entry: zipfile.ZipInfo) -> memoryview:
        """Return the bytes of a member as stored in the archive, perhaps compressed."""
        name, at = entry.filename, entry.header_offset
        if entry.flag_bits & _ENCRYPTED:
            raise Damaged(f"`{name}` is encrypted")
        head = bytes(self.data[at : at + 30]) if 0 <= at < len(self.data) else b""
        if len(head) < 30 or not head.startswith(_LOCAL):
            raise Damaged(f"`{name}` is not where the list of members says")
        start = at + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        if start + entry.compress_size > len(self.data):
            raise Damaged(f"`{name}` is cut off")
        return self.data[start : start + entry.compress_size]

    def stored(self, entry: zipfile.ZipInfo) -> memoryview:
        """Return the content of an uncompressed member, verified by its checksum."""
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            raise Damaged(f"`{entry.filename}` is packed, or of two sizes")
        content = self.raw(entry)
        if zlib.crc32(content) != entry.CRC:
            raise Damaged(f"`{entry.filename}` does not match its checksum")
        return content

    def unpacked(self, entry: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield the content of a compressed member in pieces of at most `CHUNK` bytes, verifying length and
        checksum."""
        name, remaining, crc = entry.filename, entry.file_size, 0
        for piece in _decompress(self.raw(entry), entry):
            remaining -= len(piece)
            if remaining < 0:
                raise Damaged(f"`{name}` unpacks to more than it says")
            crc = zlib.crc32(piece, crc)
            yield piece
        if remaining:
            raise Damaged(f"`{name}` ends early")
        if crc != entry.CRC:
            raise Damaged(f"`{name}` does not match its checksum")


def _decompress(raw: memoryview, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield the decompressed content of a member, in pieces of at most `CHUNK` bytes. Raises Damaged."""
    if entry.compress_type == zipfile.ZIP_STORED:
        for at in range(0, len(raw), CHUNK):
            yield bytes(raw[at : at + CHUNK])
        return
    damaged = Damaged(f"what `{entry.filename}` is packed in is damaged")
    if entry.compress_type == zipfile.ZIP_DEFLATED:
        yield from _inflate(raw, damaged)
        return
    try:
        maker, body = _bzip2_or_lzma(raw, entry)
        decoder = maker()
        fed = False
        while not decoder.eof:
            piece = decoder.decompress(b"" if fed else bytes(body), CHUNK)
            fed = True
            if piece:
                yield piece
            elif decoder.needs_input:
                return  # the end of the stream is missing, or, by lzma, not marked
    except (OSError, ValueError, EOFError, MemoryError, OverflowError):
        raise damaged from None
    except Exception as exc:
        if type(exc).__name__ == "LZMAError":  # its module may be absent
            raise damaged from None
        raise


def _inflate(raw: memoryview, damaged: Damaged) -> Iterator[bytes]:
    decoder = zlib.decompressobj(-15)
    pending: Any = b""
    offset = 0
    try:
        while not decoder.eof:
            if not pending:
                pending, offset = raw[offset : offset + CHUNK], offset + CHUNK
                if not pending:
                    return
            piece = decoder.decompress(pending, CHUNK)
            pending = decoder.unconsumed_tail
            if piece:
                yield piece
    except zlib.error:
        raise damaged from None


def _bzip2_or_lzma(raw: memoryview, entry: zipfile.ZipInfo) -> tuple[Callable[[], Any], memoryview]:
    """Return (decoder factory, its input) for bzip2 and lzma. Raises Damaged."""
    try:
        if entry.compress_type == zipfile.ZIP_BZIP2:
            from bz2 import BZ2Decompressor

            return BZ2Decompressor, raw
        if entry.compress_type == zipfile.ZIP_LZMA:
            import lzma

            if len(raw) < 9 or bytes(raw[2:4]) != b"\x05\0" or raw[4] >= 225:
                raise Damaged(f"what `{entry.filename}` is packed in is damaged")
            code = raw[4]
            size = min(int.from_bytes(raw[5:9], "little"), max(entry.file_size, 4096), 1 << 30)
            chain = {"id": lzma.FILTER_LZMA1, "dict_size": size, "lc": code % 9, "lp": code // 9 % 5, "pb": code // 45}
            return lambda: lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[chain]), raw[9:]
    except ImportError:
        pass
    raise Damaged(f"`{entry.filename}` is packed by a method that is not known here ({entry.compress_type})")


# ---------------------------------------------------------------- arrays


def read_header(head: bytes, name: str) -> Header:
    """Parse the header of an array, from the start of a .npy file. Raises Damaged."""
    if not head.startswith(_MAGIC) or len(head) < 12 or head[6] not in (1, 2, 3):
        raise Damaged(f"`{name}` is no array")
    fields = 10 if head[6] == 1 else 12
    start = fields + int.from_bytes(head[8:fields], "little")
    if start > HEAD or start > len(head):
        raise Damaged(f"the header of `{name}` is cut off or damaged")
    text = head[fields:start].decode("latin1")
    if re.search(r"""['"]\|?O\d*['"]""", text):
        raise Damaged(f"`{name}` holds Python objects, which are never loaded")
    match = _DICT.fullmatch(text)
    if match is None:
        kind = "a structured dtype, which no tensor has" if re.search(r"descr['\"]\s*:\s*[\[(]", text) else None
        raise Damaged(f"`{name}` has {kind}" if kind else f"the header of `{name}` is damaged")
    words = [w for w in match.groups() if w is not None]
    fields_by_name = dict(zip(words[::2], words[1::2], strict=True))
    if len(fields_by_name) != 3:
        raise Damaged(f"the header of `{name}` is damaged")
    return Header(
        _shape(fields_by_name["shape"], name), _dtype(fields_by_name["descr"], name),
        fields_by_name["fortran_order"] == "True", start,
    )  # fmt: skip


def _shape(text: str, name: str) -> tuple[int, ...]:
    parts = [p.strip() for p in text.split(",")]
    if parts[-1] == "" and len(parts) > 1 or parts == [""]:
        parts.pop()
    is_number = len(parts) == 1 and "," not in text  # `(8)` is no tuple
    if is_number or len(parts) > 32 or not all(re.fullmatch(r"\d{1,19}L?", p) for p in parts):
        raise Damaged(f"`{name}` has a malformed shape")
    shape = tuple(int(p.rstrip("L")) for p in parts)
    if math.prod(max(d, 1) for d in shape) >= 1 << 60:
        raise Damaged(f"`{name}` says that it is an array of {' x '.join(parts)} elements")
    return shape


def _dtype(text: str, name: str) -> np.dtype[Any]:
    try:
        if not _DTYPE.fullmatch(text):
            raise ValueError(text)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dtype = np.dtype(text)
    except (TypeError, ValueError, OverflowError, MemoryError, Warning):
        raise Damaged(f"`{name}` has the dtype `{text[:40]}`, which is not known") from None
    if not 0 < dtype.itemsize < 1 << 20:
        raise Damaged(f"`{name}` has elements of {dtype.itemsize} bytes")
    return dtype


class Arrays:
    """The arrays of an .npz by name. Raises Damaged, for an invalid array only when it is read."""

    def __init__(self, data: Any) -> None:
        self._archive = Archive(data)
        self.comment = self._archive.comment
        self.members: dict[str, zipfile.ZipInfo] = {}
        for member, entry in self._archive.members.items():
            if member.endswith("/") or not (member.endswith(".npy") or self._is_array(entry)):
                continue
            name = member.removesuffix(".npy")
            if name in self.members:
                raise Damaged(f"it has two arrays `{name}`")
            self.members[name] = entry

    def _is_array(self, entry: zipfile.ZipInfo) -> bool:
        """Return True if a member without the suffix `.npy` is an array, stored uncompressed."""
        return entry.compress_type == zipfile.ZIP_STORED and bytes(self._archive.raw(entry)[:6]) == _MAGIC

    @property
    def is_pickle(self) -> bool:
        """True for a file of torch.save: no arrays, and a pickle, which is never loaded."""
        return not self.members and any(name.endswith("data.pkl") for name in self._archive.members)

    def header(self, name: str) -> Header:
        """Return the header of an array, checked against the archive's list. Raises KeyError, Damaged."""
        entry = self.members[name]
        return self._header(entry, self._head(entry))

    def read(self, name: str, judge: Validator | None = None) -> np.ndarray:
        """Read an array; `judge` validates its shape and dtype before memory is allocated. Raises KeyError, Damaged."""
        entry = self.members[name]
        head = self.header(name)
        is_sure = judge is not None and judge(head.shape, head.dtype)
        try:
            if entry.compress_type == zipfile.ZIP_STORED:
                elements = self._stored(entry, head)
            else:
                self._check_size(entry, head, is_sure)
                elements = self._unpacked(entry, head)
        except MemoryError:
            raise Damaged(f"`{entry.filename}` takes {head.nbytes} bytes, for which there is no memory") from None
        return finish(elements, head, entry.filename)

    def _head(self, entry: zipfile.ZipInfo) -> bytes:
        if entry.compress_type == zipfile.ZIP_STORED:
            return bytes(self._archive.raw(entry)[:HEAD])
        head = b""
        for piece in _decompress(self._archive.raw(entry), entry):
            head += piece
            if len(head) >= HEAD:
                break
        return head[:HEAD]

    def _header(self, entry: zipfile.ZipInfo, data: bytes) -> Header:
        head = read_header(data, entry.filename)
        if head.start + head.nbytes != entry.file_size:
            what = f"says that it has {head.nbytes} bytes, and has {max(entry.file_size - head.start, 0)}"
            raise Damaged(f"`{entry.filename}` {what}")
        return head

    def _check_size(self, entry: zipfile.ZipInfo, head: Header, is_sure: bool) -> None:
        """Reject impossible sizes, and large ones that no declaration confirms."""
        packed, total = entry.compress_size, len(self._archive.data)
        if entry.compress_type == zipfile.ZIP_DEFLATED and entry.file_size > packed * _DEFLATE_RATIO + CHUNK:
            raise Damaged(f"`{entry.filename}` cannot unpack to {entry.file_size} bytes, being {packed}")
        if head.nbytes > UNPACKED + 3 * total and not is_sure:
            text = f"`{entry.filename}` unpacks to {head.nbytes} bytes from {packed}"
            raise Damaged(f"{text}; store so large an array unpacked (numpy.savez)")

    def _stored(self, entry: zipfile.ZipInfo, head: Header) -> np.ndarray:
        """Return the elements in one dimension: a view of the archive if large and aligned, else a copy."""
        content = self._archive.stored(entry)
        return view_or_copy(np.frombuffer(content, head.dtype, math.prod(head.shape), head.start))

    def _unpacked(self, entry: zipfile.ZipInfo, head: Header) -> np.ndarray:
        elements = np.empty(math.prod(head.shape), head.dtype)
        target, offset = memoryview(elements.view(np.uint8).data), -head.start  # before 0: in the header
        for piece in self._archive.unpacked(entry):
            skip = min(max(-offset, 0), len(piece))
            target[offset + skip : offset + len(piece)] = piece[skip:]
            offset += len(piece)
        return elements


class OneArray:
    """The array of a .npy file, under a name that is not in it. Has the methods of `Arrays`. Raises Damaged."""

    def __init__(self, data: Any, name: str) -> None:
        self._data = memoryview(data)
        self.comment = b""
        self.members = {name: None}

    def header(self, name: str) -> Header:
        """See `Arrays.header`."""
        head = read_header(bytes(self._data[:HEAD]), name)
        if head.start + head.nbytes != len(self._data):
            size = len(self._data) - head.start
            raise Damaged(f"its header says that it has {head.nbytes} bytes of elements, and there are {size}")
        return head

    def read(self, name: str, judge: Validator | None = None) -> np.ndarray:
        """See `Arrays.read`."""
        head = self.header(name)
        if judge is not None:
            judge(head.shape, head.dtype)
        elements = np.frombuffer(self._data, head.dtype, math.prod(head.shape), head.start)
        try:
            return finish(view_or_copy(elements), head, name)
        except MemoryError:
            raise Damaged(f"it takes {head.nbytes} bytes, for which there is no memory") from None


def view_or_copy(elements: np.ndarray) -> np.ndarray:
    """Return elements of a mapped file as they are if they are many and aligned, else a copy."""
    is_mapped = not isinstance(elements.base.obj if isinstance(elements.base, memoryview) else elements.base, bytes)
    return elements if elements.nbytes >= VIEW and is_mapped and elements.flags.aligned else elements.copy()


def finish(elements: np.ndarray, head: Header, name: str) -> np.ndarray:
    """Shape the elements of an array, in the byte order of this machine."""
    if elements.dtype.kind == "b" and elements.size and int(elements.view(np.uint8).max()) > 1:
        raise Damaged(f"`{name}` holds bytes that are no bools")
    if not elements.dtype.isnative:
        elements = elements.astype(elements.dtype.newbyteorder("="))
    try:
        return elements.reshape(head.shape[::-1]).T if head.is_fortran else elements.reshape(head.shape)
    except ValueError:
        raise Damaged(f"`{name}` says that it is an array of {' x '.join(map(str, head.shape))} elements") from None

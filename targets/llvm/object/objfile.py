"""Finish an object that LLVM emitted: add data sections, rename symbols, fill in the checksum.

Constants never pass through LLVM: the code refers to an undefined hidden symbol, which is defined here in an added
section. The result is a list of pieces, which refer to the constants' memory without copying it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mlcc.files import release_pages
from mlcc.runtime import elf
from mlcc.runtime.abi import MANIFEST_SECTION
from mlcc.runtime.elf import HEADER, SECTION_HEADER, SYMBOL
from mlcc.runtime.manifest import checksum_offset

Buffer = bytes | bytearray | memoryview
_HIDDEN_VISIBILITY = 2  # from other objects and libraries


class Pieces(list[Buffer]):
    """The content of a file in pieces. Iteration releases the pages of a mapped file after each piece."""

    def __iter__(self) -> Iterator[Buffer]:
        import numpy as np

        for piece in super().__iter__():
            yield piece
            if isinstance(piece, memoryview) and piece.readonly:
                release_pages(np.frombuffer(piece, np.uint8))


@dataclass(frozen=True, slots=True)
class NewSection:
    """A section to add, with its content in pieces."""

    name: str
    flags: int
    align: int
    pieces: tuple[Buffer, ...]

    @property
    def size(self) -> int:
        return sum(len(p) for p in self.pieces)


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition to add for an undefined symbol of the code: an offset in a new section."""

    section: int
    offset: int
    size: int


def finish(
    obj: bytes, sections: Sequence[NewSection], define: Mapping[str, Definition], rename: Callable[[str], str],
    hidden: Callable[[str], bool] = lambda name: False,
) -> Pieces:  # fmt: skip
    """Add sections, define and rename symbols, and fill in the checksum of the manifest, if there is one.

    Symbols whose new names are `hidden` are seen by the other objects of a program or library, not outside of it.
    """
    old = elf.read_sections(obj)
    symtab = next(s for s in old if s.type == elf.SYMTAB)
    strings = old[symtab.link]
    fields = list(HEADER.unpack_from(obj))
    keep = max(s.offset + s.size for s in old if s.type not in (elf.NOBITS, 0) and s is not strings)
    code = bytearray(obj[: max(keep, HEADER.size)])

    table = StringTable()
    names = [table.add(s.name) for s in old]
    new_names = [table.add(s.name) for s in sections]
    _rewrite_symbols(code, obj, symtab, strings, table, define, rename, hidden, len(old))

    pieces = Pieces([code])
    at = len(code)
    headers = [SECTION_HEADER.pack(*([0] * 10))]
    for section, name in zip(old[1:], names[1:], strict=True):
        raw = list(SECTION_HEADER.unpack_from(obj, fields[6] + section.index * SECTION_HEADER.size))
        raw[0] = name
        headers.append(SECTION_HEADER.pack(*raw))
    for new, name in zip(sections, new_names, strict=True):
        at = _pad(pieces, at, new.align)
        headers.append(SECTION_HEADER.pack(name, elf.PROGBITS, new.flags, 0, at, new.size, 0, 0, new.align, 0))
        pieces += new.pieces
        at += new.size
    content = table.content()
    headers[strings.index] = SECTION_HEADER.pack(names[strings.index], elf.STRTAB, 0, 0, at, len(content), 0, 0, 1, 0)
    pieces.append(content)
    at = _pad(pieces, at + len(content), 8)
    pieces.append(b"".join(headers))
    fields[6], fields[12], fields[13] = at, len(headers), strings.index
    HEADER.pack_into(code, 0, *fields)
    return _with_checksum(pieces) if any(s.name == MANIFEST_SECTION for s in sections) else pieces


class StringTable:
    """An ELF string table without duplicates."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {"": 0}
        self._bytes = bytearray(b"\0")

    def add(self, name: str) -> int:
        offset = self._at.get(name)
        if offset is None:
            offset = self._at[name] = len(self._bytes)
            self._bytes += name.encode() + b"\0"
        return offset

    def content(self) -> bytes:
        return bytes(self._bytes)


def _rewrite_symbols(
    code: bytearray, obj: bytes, symtab: elf.Section, strings: elf.Section, table: StringTable,
    define: Mapping[str, Definition], rename: Callable[[str], str], hidden: Callable[[str], bool], first: int,
) -> None:  # fmt: skip
    """Rewrite the symbol table in place: names in the new string table, definitions of the symbols of `define`."""
    source = elf.Strings(obj, strings.offset, strings.size)
    for at in range(symtab.offset, symtab.offset + symtab.size, SYMBOL.size):
        name_at, info, other, section, value, size = SYMBOL.unpack_from(obj, at)
        name = source.at(name_at) if name_at else ""
        definition = define.get(name)
        if definition is not None:
            section, value, size = first + definition.section, definition.offset, definition.size
            info, other = info & 0xF0 | 1, _HIDDEN_VISIBILITY  # an object
        new_name = rename(name)
        if section != elf.UNDEFINED and info >> 4 != elf.LOCAL and hidden(new_name):
            other = _HIDDEN_VISIBILITY
        SYMBOL.pack_into(code, at, table.add(new_name), info, other, section, value, size)


def _pad(pieces: list[Buffer], at: int, align: int) -> int:
    gap = -at % align
    if gap:
        pieces.append(bytes(gap))
    return at + gap


def _with_checksum(pieces: Pieces) -> Pieces:
    """Fill in the checksum of the whole object, computed with zeros in its place."""
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
    for index in range(len(pieces) - 1, -1, -1):
        if len(pieces[index]) < 1 << 24 or index == len(pieces) - 1:
            at = checksum_offset(bytes(pieces[index]))
            if at >= 0:
                piece = bytearray(pieces[index])
                piece[at : at + 8] = b"%08x" % crc
                pieces[index] = piece
                return pieces
    raise AssertionError("the object has no manifest")

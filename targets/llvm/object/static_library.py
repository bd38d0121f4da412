"""Write static libraries: `ar` archives in the System V format that the linkers of ELF systems read.

Members have no times, owners or modes of their own, so that equal objects give equal libraries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlcc.errors import CompileError, error
from mlcc.runtime import elf
from mlcc.runtime.elf import SYMBOL, UNDEFINED
from mlcc.runtime.static_library import HEADER_BYTES, MAGIC
from mlcc.targets.llvm.object.objfile import Buffer

_LONGEST_NAME = 15  # and a slash


@dataclass(frozen=True, slots=True)
class Member:
    """An object in a library: its name, its content in pieces, and the global symbols that it defines."""

    name: str
    pieces: Sequence[Buffer]
    symbols: tuple[str, ...]

    @property
    def size(self) -> int:
        return sum(len(piece) for piece in self.pieces)


def defined_symbols(obj: bytes) -> Iterator[str]:
    """Yield the global symbols that an object defines, in the order of its table."""
    sections = elf.read_sections(obj)
    table = next(s for s in sections if s.type == elf.SYMTAB)
    names = sections[table.link]
    strings = elf.Strings(obj, names.offset, names.size)
    for name_at, info, _, section, _, _ in SYMBOL.iter_unpack(obj[table.offset : table.offset + table.size]):
        if info >> 4 != elf.LOCAL and section != UNDEFINED:
            yield strings.at(name_at)


def static_library(members: Sequence[Member]) -> list[Buffer]:
    """Return a library of objects in pieces: the index of symbols, long names, and the members.

    Raises CompileError E0755 if an object would begin beyond 4 GiB, where the index does not reach.
    """
    long_names, fields = _names(members)
    symbols = [(name, index) for index, member in enumerate(members) for name in member.symbols]
    texts = b"".join(name.encode() + b"\0" for name, _ in symbols)
    index_size = 4 + 4 * len(symbols) + len(texts)
    at = len(MAGIC) + HEADER_BYTES + index_size + index_size % 2
    if long_names:
        at += HEADER_BYTES + len(long_names) + len(long_names) % 2
    offsets = []
    for member in members:
        offsets.append(at)
        at += HEADER_BYTES + member.size + member.size % 2
    if any(offset >= 1 << 32 for offset in offsets):
        message = "a static library of this size has no index: its objects begin within 4 GiB"
        raise CompileError(error("E0755", message, help="write an object (.o), whatever its size"))
    index = len(symbols).to_bytes(4, "big") + b"".join(offsets[m].to_bytes(4, "big") for _, m in symbols) + texts
    pieces: list[Buffer] = [MAGIC, *_entry("/", [index], len(index))]
    if long_names:
        pieces += _entry("//", [long_names], len(long_names))
    for member, name in zip(members, fields, strict=True):
        pieces += _entry(name, member.pieces, member.size)
    return pieces


def _names(members: Sequence[Member]) -> tuple[bytes, list[str]]:
    """Return the table of long names, and each member's name as its header says it."""
    table, fields = b"", []
    for member in members:
        if len(member.name.encode()) <= _LONGEST_NAME and member.name.isascii():
            fields.append(f"{member.name}/")
        else:
            fields.append(f"/{len(table)}")
            table += member.name.encode() + b"/\n"
    return table, fields


def _entry(name: str, content: Sequence[Buffer], size: int) -> list[Buffer]:
    """Return the header and the content of one entry, padded to an even size."""
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{size:<10}`\n".encode()
    assert len(header) == HEADER_BYTES
    return [header, *content, *([b"\n"] if size % 2 else [])]

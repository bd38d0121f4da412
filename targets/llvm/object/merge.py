"""Link relocatable objects into one relocatable object, as `ld -r` does, for the objects that LLVM emits.

Sections of one name, type and flags are concatenated. Symbols are resolved by name: a definition takes the place of
undefined ones, and a hidden definition becomes local, for nothing outside needs it. Relocations stay relocations,
against the symbols and sections of the result. Equal inputs in equal order give equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mlcc.runtime import elf
from mlcc.runtime.elf import HEADER, RELOCATION, SECTION_HEADER, SYMBOL, UNDEFINED
from mlcc.targets.llvm.object.objfile import StringTable

_DROPPED_TYPES = frozenset(
    {0, elf.SYMTAB, elf.STRTAB, elf.RELA, 0x6FFF4C03}
)  # the last: LLVM's table of address-taken symbols
_ATTRIBUTES = 0x70000003  # SHT_RISCV_ATTRIBUTES
_SECTION = 3
_VISIBILITY, _HIDDEN = 3, 2
_INFO_LINK = 0x40  # sh_info is the index of a section


@dataclass(slots=True)
class _Symbol:
    name: str
    bind: int
    type: int
    other: int
    section: _Merged | None = None
    value: int = 0
    size: int = 0
    index: int = 0


@dataclass(slots=True)
class _Merged:
    """A section of the merged object."""

    name: str
    type: int
    flags: int
    entsize: int
    align: int = 1
    size: int = 0
    pieces: list[bytes | memoryview] = field(default_factory=list)
    relocations: list[tuple[int, int, _Symbol, int]] = field(default_factory=list)  # offset, type, symbol, addend

    def add(self, content: bytes | memoryview, size: int, align: int) -> int:
        """Append a section of an input; return its offset."""
        gap = -self.size % align
        self.align = max(self.align, align)
        if self.type != elf.NOBITS:
            filler = b"\x90" if self.flags & elf.EXECINSTR and align > 1 else b"\0"
            self.pieces += [filler * gap, content] if gap else [content]
        start = self.size + gap
        self.size = start + size
        return start


def merge_objects(objects: Sequence[bytes]) -> bytes:
    """Merge objects for one machine. Raises ValueError if a symbol is defined twice."""
    return objects[0] if len(objects) == 1 else _Linker().link(objects)


class _Linker:
    def __init__(self) -> None:
        self.sections: dict[tuple[str, int, int, int], _Merged] = {}
        self.local: list[_Symbol] = []
        self.section_symbols: dict[int, _Symbol] = {}  # id of a merged section (kept alive by `sections`) -> its symbol
        self.external: dict[str, _Symbol] = {}

    def link(self, objects: Sequence[bytes]) -> bytes:
        for obj in objects:
            self._add_object(obj)
        return self._write(objects[0])

    def _add_object(self, data: bytes) -> None:
        sections = elf.read_sections(data)
        view = memoryview(data)
        placed: dict[int, tuple[_Merged, int]] = {}
        for section in sections:
            if section.type in _DROPPED_TYPES:
                continue
            key = section.name, section.type, section.flags, section.entsize
            target = self.sections.get(key)
            if target is not None and section.type == _ATTRIBUTES:
                continue  # of the instruction set: one machine's, so all objects say the same
            if target is None:
                target = self.sections[key] = _Merged(*key)
            content = b"" if section.type == elf.NOBITS else view[section.offset : section.offset + section.size]
            placed[section.index] = target, target.add(content, section.size, section.align)
        (table,) = (s for s in sections if s.type == elf.SYMTAB)
        names = sections[table.link]
        symbols = self._symbols(data, table, elf.Strings(data, names.offset, names.size), placed)
        for section in sections:
            if section.type == elf.RELA and section.info in placed:
                target, start = placed[section.info]
                content = view[section.offset : section.offset + section.size]
                for offset, info, addend in RELOCATION.iter_unpack(content):
                    symbol, shift = symbols[info >> 32]
                    target.relocations.append((start + offset, info & 0xFFFFFFFF, symbol, addend + shift))

    def _symbols(
        self, data: bytes, table: elf.Section, strings: elf.Strings, placed: dict[int, tuple[_Merged, int]]
    ) -> list[tuple[_Symbol, int]]:
        """Map the symbols of an object to those of the result, each with an addend for its relocations."""
        symbols: list[tuple[_Symbol, int]] = []
        content = memoryview(data)[table.offset : table.offset + table.size]
        for name_at, info, other, section, value, size in SYMBOL.iter_unpack(content):
            bind, kind = info >> 4, info & 15
            target, start = placed.get(section, (None, 0))
            name = strings.at(name_at) if name_at else ""
            if kind == _SECTION and target is not None:
                symbols.append((self._section_symbol(target), start))
                continue
            symbol = _Symbol(name, bind, kind, other, target, value + start, size)
            if bind == elf.LOCAL:
                if target is not None:
                    self.local.append(symbol)
                symbols.append((symbol, 0))
            else:
                symbols.append((self._resolve(symbol), 0))
        return symbols

    def _section_symbol(self, section: _Merged) -> _Symbol:
        symbol = self.section_symbols.get(id(section))
        if symbol is None:
            symbol = self.section_symbols[id(section)] = _Symbol("", elf.LOCAL, _SECTION, 0, section)
            self.local.append(symbol)
        return symbol

    def _resolve(self, symbol: _Symbol) -> _Symbol:
        existing = self.external.setdefault(symbol.name, symbol)
        if existing is symbol:
            return symbol
        visibility = max(existing.other & _VISIBILITY, symbol.other & _VISIBILITY)  # of 0 and hidden
        if symbol.section is not None:
            if existing.section is not None and existing.bind != elf.WEAK != symbol.bind:
                raise ValueError(f"`{symbol.name}` is defined twice")
            if existing.section is None or (existing.bind == elf.WEAK and symbol.bind != elf.WEAK):
                existing.bind, existing.type, existing.section = symbol.bind, symbol.type, symbol.section
                existing.value, existing.size = symbol.value, symbol.size
        elif existing.section is None and symbol.bind == elf.GLOBAL:
            existing.bind = elf.GLOBAL
        existing.other = existing.other & ~_VISIBILITY | visibility
        return existing

    # ------------------------------------------------------------ the result

    def _write(self, first: bytes) -> bytes:
        sections = list(self.sections.values())
        number = {id(section): index for index, section in enumerate(sections, 1)}
        linked = [section for section in sections if section.relocations]
        names = StringTable()
        table, local = self._table(number, names)
        body = bytearray(HEADER.size)
        headers = [SECTION_HEADER.pack(*([0] * 10))]
        symtab = 1 + len(sections) + len(linked)

        def begin(align: int, name: str, *fields: int) -> None:
            """Append a section header; `fields`: type, flags, size, link, info, alignment, entry size."""
            body.extend(bytes(-len(body) % align))
            headers.append(SECTION_HEADER.pack(names.add(name), *fields[:2], 0, len(body), *fields[2:]))

        for section in sections:
            fields = section.type, section.flags, section.size, 0, 0, section.align, section.entsize
            begin(section.align, section.name, *fields)
            for piece in section.pieces:
                body += piece
        for section in linked:
            size = len(section.relocations) * RELOCATION.size
            link = symtab, number[id(section)], 8, RELOCATION.size
            begin(8, f".rela{section.name}", elf.RELA, _INFO_LINK, size, *link)
            for offset, type, symbol, addend in section.relocations:
                body += RELOCATION.pack(offset, symbol.index << 32 | type, addend)
        begin(8, ".symtab", elf.SYMTAB, 0, len(table), symtab + 1, local, 8, SYMBOL.size)
        body += table
        names.add(".strtab")
        content = names.content()
        begin(1, ".strtab", elf.STRTAB, 0, len(content), 0, 0, 1, 0)
        body += content + bytes(-(len(body) + len(content)) % 8)
        header = list(HEADER.unpack_from(first))
        header[6], header[12], header[13] = len(body), len(headers), len(headers) - 1
        HEADER.pack_into(body, 0, *header)
        for section in linked:
            section.relocations.clear()  # breaks reference cycles that would keep all pieces alive
        return bytes(body) + b"".join(headers)

    def _table(self, number: dict[int, int], names: StringTable) -> tuple[bytearray, int]:
        """Build the symbol table; return it and the number of its local entries."""
        local = list(self.local)
        external: list[_Symbol] = []
        for symbol in self.external.values():
            is_hidden = symbol.section is not None and symbol.other & _VISIBILITY == _HIDDEN
            if is_hidden and symbol.bind == elf.GLOBAL:
                symbol.bind, symbol.other = elf.LOCAL, 0
            (local if symbol.bind == elf.LOCAL else external).append(symbol)
        table = bytearray(SYMBOL.size)
        for index, symbol in enumerate((*local, *external), 1):
            symbol.index = index
            section_index = UNDEFINED if symbol.section is None else number[id(symbol.section)]
            info = symbol.bind << 4 | symbol.type
            table += SYMBOL.pack(names.add(symbol.name), info, symbol.other, section_index, symbol.value, symbol.size)
        return table, 1 + len(local)

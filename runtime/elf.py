"""Read ELF files (64-bit, little-endian); every field is validated against the file before use.

`read_object` parses a relocatable object into plain data; nothing is mapped or executed here. Malformed files raise
`LoadError`.
"""

from __future__ import annotations

import mmap
import struct
from typing import NamedTuple

from mlcc.errors import LoadError, error

MAGIC = b"\x7fELF"  # how every file begins
X86_64, AARCH64 = 62, 183
MACHINES = {X86_64: "x86_64", AARCH64: "aarch64"}
RELOCATABLE, SHARED = 1, 3

PROGBITS, SYMTAB, STRTAB, RELA, NOBITS, REL, INIT_ARRAY, FINI_ARRAY, PREINIT_ARRAY = 1, 2, 3, 4, 8, 9, 14, 15, 16
WRITE, ALLOC, EXECINSTR, TLS, COMPRESSED = 0x1, 0x2, 0x4, 0x400, 0x800
FAR = 0x10000000  # SHF_X86_64_LARGE: code reaches the section only by 64-bit addresses
UNDEFINED = 0
LOCAL, GLOBAL, WEAK = 0, 1, 2
FUNC, FILE, TLS_SYMBOL, IFUNC = 2, 4, 6, 10

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")
PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")

Data = bytes | mmap.mmap  # the content of a file

MAX_NAME_LENGTH = 4096
MAX_MEMORY = 1 << 31  # addresses in an image are within 32 bits, except for far constants
MAX_CONSTANTS = 1 << 46


class Section(NamedTuple):
    index: int  # type: ignore[assignment]
    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entsize: int

    @property
    def is_far(self) -> bool:
        """True for a section of constants so large that it is placed behind everything else."""
        return self.size > MAX_MEMORY // 2 and self.flags & ~FAR == ALLOC

    @property
    def is_loaded(self) -> bool:
        """True if the running program needs the section: unwind tables and notes are omitted."""
        return bool(self.flags & ALLOC) and self.type in (PROGBITS, NOBITS) and self.name != ".eh_frame"


class Symbol(NamedTuple):
    name: str
    bind: int
    type: int
    section: int  # an index, or UNDEFINED
    value: int
    size: int


class Relocation(NamedTuple):
    offset: int
    type: int
    symbol: int
    addend: int


class ObjectFile(NamedTuple):
    """A relocatable object with validated offsets. `relocations` are by index of the section that they patch."""

    data: Data
    machine: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: dict[int, tuple[Relocation, ...]]

    def bytes_of(self, section: Section) -> memoryview:
        """Return the content of a section that has bytes in the file."""
        return memoryview(self.data)[section.offset : section.offset + section.size]


def damaged(reason: str) -> LoadError:
    """Return the error for a file that is not a valid artifact."""
    return LoadError(
        error("E0851", f"not a valid artifact: {reason}", help="compile it again; the file may be truncated or damaged")
    )


def not_elf(data: Data | memoryview) -> LoadError:
    """The error for a file that is no ELF file; a text is named as one."""
    head = bytes(data[:4096])
    if head and b"\0" not in head and all(byte >= 32 or byte in b"\t\r\n\f" for byte in head):
        help = "compile it, `mlcc compile model.mlc -o model.o`; `mlcc run` takes a .mlc as it is"
        return LoadError(error("E0851", "not a valid artifact: this is a text", help=help))
    return damaged("not an ELF file")


def is_elf(data: Data | memoryview) -> bool:
    return bytes(data[:4]) == MAGIC


def read_header(data: Data) -> tuple[int, int, tuple[int, ...]]:
    """Return (type, machine, all header fields) of a 64-bit little-endian ELF file."""
    if len(data) < HEADER.size or not is_elf(data):
        raise not_elf(data)
    fields = HEADER.unpack_from(data)
    ident, kind, machine, version = fields[0], fields[1], fields[2], fields[3]
    if ident[4] != 2 or ident[5] != 1 or ident[6] != 1 or version != 1:
        raise damaged("not a 64-bit little-endian ELF file")
    return kind, machine, fields


def read_sections(data: Data) -> tuple[Section, ...]:
    """Read all sections; check that ranges are inside the file and names are terminated."""
    fields = read_header(data)[2]
    table, entry, count, names_at = fields[6], fields[11], fields[12], fields[13]
    if entry != SECTION_HEADER.size or count < 2 or count >= 0xFF00:
        raise damaged("no section table")
    if table + count * entry > len(data) or names_at >= count:
        raise damaged("the section table lies outside the file")
    raw = list(SECTION_HEADER.iter_unpack(memoryview(data)[table : table + count * entry]))
    for index, (_, kind, _, _, offset, size, _, _, align, _) in enumerate(raw):
        if index and kind != NOBITS and offset + size > len(data):
            raise damaged(f"section {index} lies outside the file")
        if size > (MAX_CONSTANTS if kind == PROGBITS else MAX_MEMORY) or align & (align - 1) or align > 65536:
            raise damaged(f"section {index} has an impossible size or alignment")
    names = raw[names_at]
    if names[1] != STRTAB:
        raise damaged("the section names are no string table")
    strings = Strings(data, names[4], names[5])
    return tuple(
        Section(i, strings.at(name), kind, flags, offset, size, link, info, max(align, 1), entsize)
        for i, (name, kind, flags, _, offset, size, link, info, align, entsize) in enumerate(raw)
    )


class Strings:
    """A string table: names by offset, each terminated inside the table."""

    def __init__(self, data: Data, start: int, size: int) -> None:
        self.data, self.start, self.end = data, start, start + size

    def at(self, offset: int) -> str:
        begin = self.start + offset
        end = self.data.find(b"\0", begin, min(self.end, begin + MAX_NAME_LENGTH)) if begin < self.end else -1
        if end < 0 and (offset or self.start != self.end):
            raise damaged("a name lies outside its string table")
        return self.data[begin:end].decode("utf-8", "replace") if end > begin else ""


def read_object(data: Data) -> ObjectFile:
    """Parse a relocatable object. Raises LoadError for anything but an object written by mlcc."""
    kind, machine, _ = read_header(data)
    if kind != RELOCATABLE:
        raise damaged("not a relocatable object")
    if machine not in MACHINES:
        raise damaged(f"objects for ELF machine {machine} cannot be loaded")
    sections = read_sections(data)
    for section in sections:
        refuse_section(section)
    tables = [s for s in sections if s.type == SYMTAB]
    if len(tables) != 1:
        raise damaged("there must be one symbol table")
    symbols = read_symbols(data, sections, tables[0])
    relocations: dict[int, tuple[Relocation, ...]] = {}
    for section in sections:
        if section.type not in (RELA, REL):
            continue
        target = sections[section.info] if 0 < section.info < len(sections) else None
        if target is None or section.info in relocations:
            raise damaged("a relocation section has no target of its own")
        if not target.is_loaded:
            continue
        if section.type == REL or target.type != PROGBITS:
            raise damaged(f"unexpected relocations of {target.name}")
        if section.link != tables[0].index:
            raise damaged("relocations refer to another symbol table")
        relocations[section.info] = read_relocations(data, section, target, len(symbols))
    return ObjectFile(data, machine, sections, symbols, relocations)


def refuse_section(section: Section) -> None:
    """Raise LoadError for a section that mlcc never writes: start-up code, thread-local or compressed data."""
    if section.type in (INIT_ARRAY, FINI_ARRAY, PREINIT_ARRAY) or section.name.startswith(
        (".ctors", ".dtors", ".init")
    ):
        raise damaged("it has start-up code")
    if section.flags & (TLS | COMPRESSED):
        raise damaged(f"section {section.name} is thread-local or compressed")
    if section.is_loaded and section.flags & WRITE and section.flags & EXECINSTR:
        raise damaged(f"section {section.name} is both writable and executable")
    if section.is_loaded and section.flags & EXECINSTR and section.type == NOBITS:
        raise damaged(f"section {section.name} has no code")


def read_symbols(data: Data, sections: tuple[Section, ...], table: Section) -> tuple[Symbol, ...]:
    """Read all symbols; check that defined ones are inside their sections."""
    if table.size % SYMBOL.size or table.entsize != SYMBOL.size or not table.size:
        raise damaged("the symbol table has a wrong size")
    if table.link >= len(sections) or sections[table.link].type != STRTAB:
        raise damaged("the symbol table has no string table")
    names = sections[table.link]
    strings = Strings(data, names.offset, names.size)
    symbols = []
    content = memoryview(data)[table.offset : table.offset + table.size]
    for name, info, _, section, value, size in SYMBOL.iter_unpack(content):
        bind, kind = info >> 4, info & 15
        if bind not in (LOCAL, GLOBAL, WEAK) or kind in (TLS_SYMBOL, IFUNC):
            raise damaged("a symbol is of an unexpected kind")
        if kind == FILE:
            section = value = size = 0
        if section >= len(sections):
            raise damaged("a symbol is absolute, common, or in a section that does not exist")
        if section and (value > sections[section].size or size > sections[section].size - value):
            raise damaged("a symbol lies outside its section")
        symbols.append(Symbol(strings.at(name) if name else "", bind, kind, section, value, size))
    return tuple(symbols)


def read_relocations(data: Data, section: Section, target: Section, symbols: int) -> tuple[Relocation, ...]:
    """Read the relocations of one section; check offsets and symbols. Widths are checked when they are applied."""
    if section.size % RELOCATION.size or section.entsize != RELOCATION.size:
        raise damaged("a relocation section has a wrong size")
    relocations = []
    content = memoryview(data)[section.offset : section.offset + section.size]
    for offset, info, addend in RELOCATION.iter_unpack(content):
        symbol = info >> 32
        if symbol >= symbols or offset + 4 > target.size:
            raise damaged("a relocation lies outside its section")
        relocations.append(Relocation(offset, info & 0xFFFFFFFF, symbol, addend))
    return tuple(relocations)


def find_section(data: Data, name: str) -> bytes | None:
    """Return the content of a section of an object or shared library by name."""
    for section in read_sections(data):
        if section.name == name and section.type == PROGBITS:
            return data[section.offset : section.offset + section.size]
    return None

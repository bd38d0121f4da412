"""Sizes of the code and data in an object or shared library: in total, and of each kernel by its symbols."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlcc.runtime import elf
from mlcc.runtime.abi import CONSTANTS_SECTION, FAR_CONSTANTS_SECTION

_KERNEL = re.compile(r"(?:parallel\.)?(?:kernel|grid)\.(.+?)(?:\.\d+)*(?:\.piece)?")
_NATIVE = re.compile(r"mlcc\.native\.(.+)")
_LEAST = ".least"  # ends the symbol of a version for the object's own CPU


@dataclass(frozen=True)
class CodeSize:
    """Bytes: of all machine code, of each kernel with its parallel parts and its versions for several CPUs, of
    read-only data besides the model's constants, of initialized data, and of memory that starts as zeros. `kernels` and
    `imports`, the symbols that it takes from outside, are None without a symbol table."""

    code: int
    kernels: dict[str, int] | None
    read_only: int
    data: int
    zeros: int
    imports: tuple[str, ...] | None

    @property
    def writable(self) -> int:
        """Return the bytes of writable memory."""
        return self.data + self.zeros

    @property
    def rest(self) -> int:
        """Return the bytes of code outside of kernels: entry points, checks, the thread pool."""
        return self.code - sum((self.kernels or {}).values())


def code_size(data: elf.Data, version_cpus: Sequence[str] = ()) -> CodeSize:
    """Return the sizes in an object or shared library; `version_cpus` are those that its kernels have versions for.

    Raises LoadError for a damaged file.
    """
    sections = elf.read_sections(data)
    apart = (CONSTANTS_SECTION, FAR_CONSTANTS_SECTION)
    code = read_only = data_bytes = zeros = 0
    for section in sections:
        if section.flags & elf.EXECINSTR:
            code += section.size
        elif section.flags & elf.ALLOC and section.name not in apart:
            if not section.flags & elf.WRITE:
                read_only += section.size
            elif section.type == elf.NOBITS:
                zeros += section.size
            else:
                data_bytes += section.size
    table = next((s for s in sections if s.type == elf.SYMTAB), None)
    if table is None or table.link >= len(sections):
        return CodeSize(code, None, read_only, data_bytes, zeros, None)
    kernels: dict[str, int] = {}
    suffixes = ["_" + re.sub(r"\W", "_", cpu) for cpu in version_cpus]
    for name, size in _functions(data, table, sections[table.link]):
        kernel = kernel_of(name)
        if kernel is not None:
            suffix = next((s for s in suffixes if kernel.endswith(s)), "")
            kernel = kernel.removesuffix(suffix)
            kernels[kernel] = kernels.get(kernel, 0) + size
    imports = tuple(sorted(_imports(data, table, sections[table.link])))
    return CodeSize(code, kernels, read_only, data_bytes, zeros, imports)


def kernel_of(symbol: str) -> str | None:
    """Return the kernel that the function of a symbol belongs to, by itself or as a parallel part; None for others."""
    match = _KERNEL.fullmatch(symbol) or _NATIVE.fullmatch(symbol)
    return None if match is None else match[1].removesuffix(_LEAST)


def _imports(data: elf.Data, table: elf.Section, names: elf.Section) -> Iterator[str]:
    """Yield the names of the undefined symbols."""
    strings = elf.Strings(data, names.offset, names.size)
    for name_at, info, _, section, _, _ in _symbols(data, table):
        if section == elf.UNDEFINED and info >> 4 != elf.LOCAL and name_at:
            yield strings.at(name_at).partition("@")[0]


def _symbols(data: elf.Data, table: elf.Section) -> Iterator[tuple[int, ...]]:
    whole = table.size - table.size % elf.SYMBOL.size
    return elf.SYMBOL.iter_unpack(bytes(memoryview(data)[table.offset : table.offset + whole]))


def _functions(data: elf.Data, table: elf.Section, names: elf.Section) -> Iterator[tuple[str, int]]:
    """Yield the name and size of each defined function."""
    strings = elf.Strings(data, names.offset, names.size)
    for name_at, info, _, section, _, size in _symbols(data, table):
        if info & 0xF == elf.FUNC and section != elf.UNDEFINED and size:
            yield strings.at(name_at), size

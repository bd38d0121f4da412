"""The systems that code for CPUs is made for: their LLVM triples, and the spellings in use."""

from __future__ import annotations

import re
from dataclasses import dataclass

ARCHES = ("x86_64", "aarch64", "riscv64")
GNU, MUSL, BARE_METAL = "linux-gnu", "linux-musl", "none-elf"
_SYSTEMS = (GNU, MUSL, BARE_METAL)
_SPELLING = re.compile(rf"({'|'.join(ARCHES)})(?:-(?:unknown|pc))?-(linux-gnu|linux-musl|none-elf|none|elf)")


@dataclass(frozen=True, slots=True)
class Triple:
    """An architecture and a system: Linux with the GNU C library or musl, or no system at all (bare metal)."""

    arch: str
    system: str

    def __str__(self) -> str:
        return f"{self.arch}-unknown-{self.system}"

    @property
    def is_bare_metal(self) -> bool:
        """True if there is no operating system: no allocator, no threads, no environment variables."""
        return self.system == BARE_METAL

    @property
    def short(self) -> str:
        """Return the triple without its vendor, as cross compilers are called."""
        return f"{self.arch}-{self.system}"


TRIPLES = tuple(Triple(arch, system) for system in _SYSTEMS for arch in ARCHES)


def find_triple(text: str) -> Triple | None:
    """Return the system that a triple names, with or without its vendor; None if code is not made for it."""
    match = _SPELLING.fullmatch(text)
    if match is None:
        return None
    return Triple(match[1], BARE_METAL if match[2] in ("none", "elf") else match[2])


def is_bare_metal(text: str) -> bool:
    """Return True if a triple, in any spelling, names a machine without an operating system."""
    triple = find_triple(text)
    return triple is not None and triple.is_bare_metal

"""The code of each kernel as lines with the places that they come from, from assembly, PTX or C with debug lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mlcc.runtime.code_size import kernel_of

_LOCATION = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_FUNCTION = re.compile(r'\s*\.type\s+"?([^",]+)"?,\s*[@%]function')
_PTX_ENTRY = re.compile(r"(?:\.visible |\.weak )?\.(?:entry|func)\b.*?([A-Za-z_$][\w$]*)\s*\(")
_C_PLACE = re.compile(r'#line (\d+) "')
# directives, labels that only debug information uses, and comments on lines of their own
_LABEL = re.compile(r"((?:\$L__|\.L)(?:BB|CPI|JTI))\d+(_\d+)(?:\.u\d+)?")
_KEPT = "param|reg|shared|local|const|global|visible|entry|func|weak|maxntid|reqntid"
_NOISE = re.compile(rf"\s*(?:\.(?!{_KEPT})[a-z_]|[#/;]|(?:\$L__|\.L)(?:tmp|func_begin|func_end)[\w.$]*:)")


@dataclass
class Listing:
    """The code of a kernel. `places` has the line of the lowered text for each line, None where none is known;
    `functions` counts those of a kernel with parallel parts."""

    lines: list[str] = field(default_factory=list)
    places: list[int | None] = field(default_factory=list)
    functions: int = 0

    def add(self, line: str, place: int | None) -> None:
        self.lines.append(line)
        self.places.append(place)

    def extend(self, other: Listing) -> None:
        if self.lines:
            self.add("", None)
        self.lines += other.lines
        self.places += other.places

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def kernel_listings(text: str) -> dict[str, Listing]:
    """Return the code of each kernel, with its parallel parts, from the assembly of a CPU."""
    listings: dict[str, Listing] = {}
    for symbol, lines in _functions(text.splitlines()):
        kernel = kernel_of(symbol)
        if kernel is not None:
            listing = listings.setdefault(kernel, Listing())
            listing.extend(_listing(lines, listing.functions))
            listing.functions += 1
    return listings


def _functions(lines: Iterable[str]) -> Iterable[tuple[str, list[str]]]:
    """Yield the symbol of each function with its lines, from its label to the end."""
    symbol = ""
    body: list[str] | None = None
    for line in lines:
        match = _FUNCTION.match(line)
        if match is not None:
            symbol, body = match[1], []
        elif body is not None and re.match(r"\s*\.size\s", line):
            yield symbol, body
            body = None
        elif body is not None:
            body.append(line)


def ptx_listings(text: str, symbols: Mapping[str, str]) -> dict[str, Listing]:
    """Return the code of each kernel from PTX; `symbols` are those of the kernels by name."""
    names = {symbol: name for name, symbol in symbols.items()}
    listings = {}
    name: str | None = None
    body: list[str] = []
    for line in text.splitlines():
        match = _PTX_ENTRY.match(line)
        if match is not None:
            name, body = names.get(match[1]), []
        body.append(line)
        if line == "}" and name is not None:
            listings[name] = _listing(body)
            name = None
    return listings


def c_listing(text: str) -> Listing:
    """Return the code of a kernel from C source with `#line` directives."""
    listing = Listing()
    place: int | None = None
    for line in text.splitlines():
        match = _C_PLACE.match(line)
        if match is not None:
            place = int(match[1])
        else:
            listing.add(line, place)
            place = None
    return listing


def _listing(lines: Sequence[str], number: int = 0) -> Listing:
    """Return the code of a function without directives; a place holds for the following instructions up to the next
    one. Its labels get this number of the function, in place of that which it has in its file."""
    listing = Listing()
    place: int | None = None
    for line in lines:
        match = _LOCATION.match(line)
        if match is not None:
            place = int(match[2]) or None
        elif line.strip() and not _NOISE.match(line):
            is_code = line.startswith("\t") and not line.strip().startswith(".")
            listing.add(_LABEL.sub(rf"\g<1>{number}\2", line), place if is_code else None)
    return listing

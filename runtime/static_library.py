"""Static libraries (`.a`) as mlcc writes them and `ar` does: the members, and the one that is an artifact."""

from __future__ import annotations

from collections.abc import Iterator

from mlcc.errors import LoadError, error
from mlcc.runtime import elf
from mlcc.runtime.abi import MANIFEST_SECTION

MAGIC = b"!<arch>\n"
HEADER_BYTES = 60
_END = b"`\n"


def members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each member of a static library, without its symbol index. Raises LoadError."""
    at, names = len(MAGIC), b""
    while at < len(data):
        header = data[at : at + HEADER_BYTES]
        digits = header[48:58].strip()
        if len(header) < HEADER_BYTES or header[58:] != _END or not digits.isdigit():
            raise elf.damaged("a member of the static library has no header")
        size = int(digits)
        start, at = at + HEADER_BYTES, at + HEADER_BYTES + size + size % 2
        if start + size > len(data):
            raise elf.damaged("a member of the static library lies outside the file")
        name = header[:16].rstrip().decode("latin-1")
        if name == "//":
            names = data[start : start + size]
        elif name not in ("/", "/SYM64/"):
            if name[:1] == "/" and name[1:].isdigit():
                name = names[int(name[1:]) :].split(b"\n", 1)[0].decode("utf-8", "replace")
            yield name.removesuffix("/"), data[start : start + size]


def artifact_in(data: bytes) -> bytes:
    """Return the member of a static library that is an artifact. Raises LoadError if there is none, or several."""
    found = [(name, content) for name, content in members(data) if _is_artifact(content)]
    if len(found) == 1:
        return found[0][1]
    if not found:
        raise LoadError(error("E0851", "not a valid artifact: no member of the static library has a manifest"))
    names = ", ".join(name for name, _ in found)
    help = f"take one out: `ar x FILE {found[0][0]}`"
    raise LoadError(error("E0850", f"the static library has several artifacts: {names}", help=help))


def _is_artifact(content: bytes) -> bool:
    try:
        return elf.is_elf(content) and elf.find_section(content, MANIFEST_SECTION) is not None
    except LoadError:
        return False

"""References to a buffer of a block: by position among its reads or writes, by name, or the buffer object.

`0` (where the primitive implies reads or writes), `("read", 0)`, `("write", 1)`, `"A"`, or a `tir.Buffer`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from mlcc.errors import did_you_mean
from mlcc.ir import tir
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.storage import quoted

Access = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class BufferPosition:
    """The position of a buffer among those that a block reads, or writes."""

    access: Access
    index: int
    buffer: tir.Buffer

    @property
    def pair(self) -> tuple[str, int]:
        """As traces have it."""
        return self.access, self.index


@dataclass(frozen=True, slots=True, eq=False)
class BufferArg:
    """A buffer as a caller gave it; what it means depends on the block."""

    value: int | str | tuple[str, int] | tir.Buffer

    def of(self, block: tir.Block, access: Access | None = None) -> BufferPosition:
        """Return the referenced buffer of `block`, one that it reads or writes if `access` requires it.

        A name, or a buffer, that is both read and written is taken as read unless `access` says otherwise. Refuses
        (E0614) what the block does not have.
        """
        match self.value:
            case int() as index:
                if access is None:
                    raise _refusal(block, access, f"{index} may be a buffer that block `{block.name}` reads or writes")
                return _nth(block, access, index)
            case (str() as kind, int() as index):
                if kind not in ("read", "write"):
                    raise _refusal(block, access, f"a buffer is read or written, not {quoted(kind)}")
                if access is not None and kind != access:
                    raise _refusal(block, access, f"the primitive takes a buffer that the block {access}s")
                return _nth(block, "read" if kind == "read" else "write", index)
            case str() as name:
                return _named(block, access, name)
            case tir.Buffer() as buffer:
                for position in _positions(block, access):
                    if position.buffer is buffer:
                        return position
                verb = f"{access}" if access else "access"
                raise _refusal(block, access, f"block `{block.name}` does not {verb} this buffer `{buffer.name}`")
        raise AssertionError(f"no reader gives {self.value!r}")


def _nth(block: tir.Block, access: Access, index: int) -> BufferPosition:
    regions = block.reads if access == "read" else block.writes
    if 0 <= index < len(regions):
        return BufferPosition(access, index, regions[index].buffer)
    count = f"{len(regions) or 'no'} buffer{'' if len(regions) == 1 else 's'}"
    raise _refusal(block, access, f"block `{block.name}` {access}s {count}: there is no {access} buffer {index}")


def _named(block: tir.Block, access: Access | None, name: str) -> BufferPosition:
    matches = [p for p in _positions(block, access) if p.buffer.name == name]
    if len({p.buffer for p in matches}) > 1:
        raise _refusal(block, access, f"block `{block.name}` has several buffers called `{name}`")
    if matches:
        return matches[0]
    other = [p for p in _positions(block) if p.buffer.name == name]
    if other:
        words = f"block `{block.name}` {other[0].access}s `{name}`, and does not {access} it"
    else:
        words = f"block `{block.name}` neither reads nor writes a buffer `{name}`"
    raise _refusal(block, access, words, did_you_mean(name, [p.buffer.name for p in _positions(block, access)]))


def _positions(block: tir.Block, access: Access | None = None) -> Iterator[BufferPosition]:
    if access != "write":
        yield from (BufferPosition("read", i, r.buffer) for i, r in enumerate(block.reads))
    if access != "read":
        yield from (BufferPosition("write", i, r.buffer) for i, r in enumerate(block.writes))


def _refusal(block: tir.Block, access: Access | None, message: str, help: str | None = None) -> Refusal:
    return Refusal("E0614", message, block, help or list_buffers(block, access))


def list_buffers(block: tir.Block, access: Access | None = None) -> str:
    """Return the numbered buffers of a block: "it reads 0: `A`, 1: `B`; and writes 0: `C`"."""
    parts = []
    for verb, regions in (("read", block.reads), ("write", block.writes)):
        if access in (None, verb):
            names = ", ".join(f"{i}: `{r.buffer.name}`" for i, r in enumerate(regions)) or "nothing"
            parts.append(f"{verb}s {names}")
    return f"block `{block.name}` {' and '.join(parts)}"


def region_of(regions: tuple[tir.BufferRegion, ...], buffer: tir.Buffer, block: tir.Block) -> tir.BufferRegion | None:
    """The one region of `buffer` among `regions` of `block`; refuses (E0614) if several are listed."""
    matches = [r for r in regions if r.buffer is buffer]
    if len(matches) > 1:
        raise Refusal(
            "E0614", f"block `{block.name}` lists {len(matches)} regions of `{buffer.name}`, but must list one", block,
            f"write one region around all of them in the `T.{'reads' if regions is block.reads else 'writes'}(...)`",
        )  # fmt: skip
    return matches[0] if matches else None

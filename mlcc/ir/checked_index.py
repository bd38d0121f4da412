"""`T.checked_index(index, extent, where, dimension, from_end)`: an index from the data, brought within bounds.

The value is the place, an int64 in 0 .. extent - 1: the index itself or, with `from_end`, `index + extent` for a
negative one. An index for which there is no such place ends the call with an error that says `where` it was found (the
operator and its line), the index, and how many elements the dimension has. The call is pure as far as rewriting goes:
it may be moved, copied and left out like any arithmetic, and fails only where its value is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import BOOL, INT32, INT64
from mlcc.runtime.abi import FIRST, FIRST_UNSIGNED, SECOND

OP = tir.Op("tir.checked_index")
INDEX_ERROR = "index"  # the kind of failure, where those of assertions are names of Python exceptions


@dataclass(frozen=True, slots=True, eq=False)
class CheckedIndex:
    """The arguments of a call."""

    index: tir.Expr
    extent: tir.Expr
    where: str
    dimension: int
    from_end: bool

    @property
    def message(self) -> str:
        """Return the text of the error, with marks for the index and the extent."""
        dtype = self.index.dtype
        index = FIRST_UNSIGNED if dtype.is_uint and dtype.bits == 64 else FIRST
        return f"{self.where}: index {index} is outside dimension {self.dimension}, which has {SECOND}"

    def unchecked(self) -> tir.Expr:
        """Return the place as plain arithmetic without a check, for consumers that do not know `T.checked_index`."""
        if not self.from_end or self.index.dtype.is_uint:
            return self.index
        zero = c.const(0, self.index.dtype)
        turned, plain = c.match_types(c.add(self.index, self.extent), self.index)
        return tir.Select(plain.dtype, c.less(self.index, zero), turned, plain)

    def call(self) -> tir.Call:
        where = tir.StringImm(self.where)
        dimension, from_end = tir.IntImm(INT32, self.dimension), tir.IntImm(BOOL, int(self.from_end))
        dtype = INT64.with_lanes(self.index.dtype.lanes)
        return tir.Call(dtype, OP, (self.index, self.extent, where, dimension, from_end), span=self.index.span)


def checked_index(node: object) -> CheckedIndex | None:
    """Return the parts of a call of `T.checked_index`; None for anything else or other arguments."""
    match node:
        case tir.Call(
            op=tir.Op(name="tir.checked_index"), args=(index, extent, tir.StringImm(value=where), dimension, from_end)
        ):
            return CheckedIndex(index, extent, where, tir.const_int(dimension) or 0, bool(tir.const_int(from_end)))
    return None

"""Rounding of float32 to tf32: 10 bits of fraction, in the first 19 bits of the word.

Tensor cores ignore the other 13 bits. So adding half a unit of the tenth bit to the word rounds to nearest, halfway
cases away from zero, as `cvt.rna.tf32` does. Infinities and NaN stay as they are.
"""

from __future__ import annotations

import math

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import FLOAT32, DType
from mlcc.passes.lowering.mutator import TirMutator

_WORD = DType.of("uint32")
_HALF_UNIT = 1 << 12


def rounded(value: tir.Expr) -> tir.Expr:
    """Return a float32 rounded to tf32, with any low bits."""
    x = tir.Var("x", FLOAT32)
    word = c.add(c.call(_WORD, "reinterpret", x), c.const(_HALF_UNIT, _WORD))
    finite = c.less(c.call(FLOAT32, "fabs", x), c.const(math.inf, FLOAT32))
    return tir.Let(FLOAT32, x, value, tir.Select(FLOAT32, finite, c.call(FLOAT32, "reinterpret", word), x))


class RoundStores(TirMutator):
    """Round each float32 that statements store to tf32."""

    def stmt_store(self, node: tir.BufferStore) -> tir.Stmt | list[tir.Stmt]:
        if node.value.dtype is not FLOAT32:
            return node
        return tir.BufferStore(node.buffer, rounded(node.value), node.indices, span=node.span)

"""Matrix products and convolutions."""

from __future__ import annotations

from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.ir import relax


@converts("aten.linear")
def _linear(t: Translator, input: relax.Expr, weight: relax.Expr, bias: relax.Expr | None = None) -> relax.Expr:
    made = t.emit(t.op.matmul(input, t.emit(t.op.permute_dims(weight))))
    return made if bias is None else t.op.add(made, bias)

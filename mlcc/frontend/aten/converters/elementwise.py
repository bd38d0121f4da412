"""Functions of single elements."""

from __future__ import annotations

from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.ir import relax


@converts("aten.relu", "aten.relu_")
def _relu(t: Translator, self: relax.Expr) -> relax.Expr:
    return t.op.nn.relu(self)

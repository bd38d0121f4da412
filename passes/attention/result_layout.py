"""Layout operators after an attention, folded into its kernel's stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.tir import Expr
from mlcc.passes.attention.operands import Operands, reshape_indices
from mlcc.passes.patterns.pattern_match import Index
from mlcc.relax.queries import DefUse

_PERMUTE, _RESHAPE = "relax.permute_dims", "relax.reshape"


@dataclass(frozen=True, slots=True, eq=False)
class ResultLayout:
    """The transposes and reshapes after an attention, in order.

    `last` is the variable of the final one, or that of the attention itself if there are none.
    """

    layout_calls: tuple[relax.Call, ...]
    last: relax.Var

    @staticmethod
    def of(var: relax.Var, index: Index, uses: DefUse) -> ResultLayout:
        """Collect the transposes and reshapes after a variable, as long as each value has a single use."""
        layout_calls: list[relax.Call] = []
        while uses.count.get(var) == 1 and len(index.users.get(var, ())) == 1:
            (user,) = index.users[var]
            value = index.value.get(user)
            if not isinstance(value, relax.Call) or not isinstance(value.op, tir.Op):
                break
            known = isinstance(user.struct_info, relax.TensorStructInfo) and user.struct_info.dims is not None
            if value.op.name not in (_PERMUTE, _RESHAPE) or value.args[0] is not var or not known:
                break
            if index.block.get(user) is not index.block.get(var):
                break
            layout_calls.append(value)
            var = user
        return ResultLayout(tuple(layout_calls), var)

    def shape(self, operands: Operands) -> tuple[Expr, ...]:
        """Return the shape of the final result."""
        return _shape(self.last, operands)

    def place(self, at: Sequence[Expr], shape: Sequence[Expr], operands: Operands) -> tuple[Expr, ...]:
        """Map the indices of the attention's own result, of shape `shape`, to indices of the final result."""
        for call in self.layout_calls:
            if call.op.name == _PERMUTE:
                axes = call.attrs["axes"]
                order = [a % len(at) for a in axes] if axes is not None else list(range(len(at)))[::-1]
                at, shape = [at[a] for a in order], [shape[a] for a in order]
            else:
                new = _shape(call, operands)
                at, shape = reshape_indices(at, shape, new), new
        return tuple(at)


def _shape(expr: relax.Expr, operands: Operands) -> tuple[Expr, ...]:
    info = expr.struct_info
    assert isinstance(info, relax.TensorStructInfo) and info.dims is not None
    return tuple(c.cast(INT64, operands.arguments.renew(n)) for n in info.dims)

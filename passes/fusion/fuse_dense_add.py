"""Fusion of a given pair of producer and consumer operators into one function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, replace
from mlcc.passes.graph.dead_code import remove_unused
from mlcc.passes.graph.relax_mutator import RelaxMutator
from mlcc.passes.graph.symbolic import free_symbols, renew_symbols
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import PRIMITIVE, call_function, make_function, make_seq
from mlcc.relax.queries import DefUse, is_call, is_primitive


@dataclass(frozen=True)
class _FusePair(Pass):
    """Fuse a producer of two operands with the addition of a third to its result."""

    producer: ClassVar[str] = ""
    prefix: ClassVar[str] = ""

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        new_module = module.copy()
        for name, func in module.functions.items():
            if isinstance(func, relax.Function) and not is_primitive(func):
                fused = _PairFuser(new_module, DefUse.of(func), self.producer, self.prefix).visit_function(func)
                new_module.functions[name] = remove_unused(fused, new_module) if fused is not func else func
        return new_module


@dataclass(frozen=True)
class FuseMatmulAdd(_FusePair):
    """Move `matmul` and the addition to its result into functions `fused_matmul_add0`, `fused_matmul_add1`, ...

    The functions have the attribute Primitive; functions that have it already are left alone. A product that
    anything else uses too is left alone: it would be computed twice.

    Before:  lv0 = R.matmul(x, w)
             lv1 = R.add(lv0, b)
    After:   lv1 = cls.fused_matmul_add0(x, w, b)
    """

    name: ClassVar[str] = "fuse-matmul-add"
    producer: ClassVar[str] = "relax.matmul"
    prefix: ClassVar[str] = "fused_matmul_add"


@dataclass(frozen=True)
class FuseDenseAdd(_FusePair):
    """Move `nn.dense` and the addition to its result into functions `fused_dense_add0`, `fused_dense_add1`, ...

    The functions have the attribute Primitive; functions that have it already are left alone. A product that
    anything else uses too is left alone: it would be computed twice.

    Before:  lv0 = R.nn.dense(x, w)
             lv1 = R.add(lv0, b)
    After:   lv1 = cls.fused_dense_add0(x, w, b)
    """

    name: ClassVar[str] = "fuse-dense-add"
    producer: ClassVar[str] = "relax.nn.dense"
    prefix: ClassVar[str] = "fused_dense_add"


class _PairFuser(RelaxMutator):
    def __init__(self, module: IRModule, uses: DefUse, producer: str, prefix: str) -> None:
        super().__init__(module)
        self.uses = uses
        self.producer = producer
        self.prefix = prefix

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if not (isinstance(expr, relax.Call) and is_call(expr, "relax.add")):
            return expr
        first = expr.args[0]
        producer = self.uses.value.get(first) if isinstance(first, relax.Var) else None
        if not (isinstance(producer, relax.Call) and is_call(producer, self.producer)):
            return expr
        if not isinstance(first, relax.DataflowVar) or self.uses.count[first] != 1:
            return expr
        fused = self.fused_function(producer, expr)
        if fused is None:
            return expr
        number = 0
        while f"{self.prefix}{number}" in self.module:
            number += 1
        name = f"{self.prefix}{number}"
        self.module.functions[name] = fused.with_attr("global_symbol", name)
        args = (*(self.remap.get(a, a) for a in producer.args), expr.args[1])  # type: ignore[call-overload]
        return replace(call_function(name, self.module[name], args), span=expr.span)

    def fused_function(self, producer: relax.Call, add: relax.Call) -> relax.Function | None:
        """Return the function of both operations; None if it would depend on a size that is only known outside."""
        x, w = (relax.Var(n, a.struct_info) for n, a in zip("xw", producer.args, strict=True))
        b = relax.Var("b", add.args[1].struct_info)
        lv = relax.DataflowVar("lv", producer.struct_info)
        gv = relax.Var("gv", add.struct_info)
        first = relax.VarBinding(lv, replace(producer, args=(x, w)))
        second = relax.VarBinding(gv, replace(add, args=(lv, b)))
        body = make_seq([relax.DataflowBlock((first, second))], gv)
        func = make_function((x, w, b), body, Attrs({PRIMITIVE: 1}))
        return None if free_symbols(func) else renew_symbols(func)

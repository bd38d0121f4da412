"""What all nodes share: children, walks, copies with other fields."""

from __future__ import annotations

import pytest

import mlcc
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.node import Attrs, Node, children, find, holds, map_children, replace, walk

TEXT = """
@I.ir_module
class Module:
    @T.prim_func
    def add_one(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
        for i, j in T.grid(8, 4):
            with T.block("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.block_attr({"by": [T.min(vi, 3), {"at": vj}]})
                B[vi, vj] = T.if_then_else(vi < 3, A[vi, vj] + T.exp(A[0, vj]), T.float32(0))

    @R.function
    def main(x: R.Tensor((8, 4), "float32"), c: R.Tensor((), "bool")):
        if c:
            y = R.call_tir(Module.add_one, (x,), out_sinfo=R.Tensor((8, 4), "float32"))
        else:
            y = R.add(x, x)
        return y
"""
NODES = [node for func in mlcc.parse(TEXT).functions.values() for node in walk(func)]


def _parts(value: object) -> list[Node]:
    if isinstance(value, Node):
        return [value]
    items = value if isinstance(value, tuple) else value.values() if isinstance(value, Attrs) else ()
    return [node for item in items for node in _parts(item)]


def test_children_are_the_nodes_in_all_fields() -> None:
    assert {tir.For, tir.Block, tir.BufferLoad, relax.If, relax.Call} <= {type(n) for n in NODES}
    for node in NODES:
        fields = [getattr(node, name) for name in type(node).__match_args__]
        assert children(node) == [part for field in fields for part in _parts(field)]


@pytest.mark.parametrize("kinds", [(tir.Call,), (tir.Expr,), (tir.For, tir.BinaryOp), (relax.Var,), (tir.While,)])
def test_finding_is_walking_past_all_else(kinds: tuple[type[Node], ...]) -> None:
    for func in mlcc.parse(TEXT).functions.values():
        wanted = [n for n in walk(func) if isinstance(n, kinds)]
        assert list(find(func, *kinds)) == wanted
        assert holds(func, *kinds) is bool(wanted)
        assert list(find((func, func), *kinds)) == wanted * 2


def test_copies_share_what_stays() -> None:
    for node in NODES:
        assert map_children(node, lambda n: n) is node
        assert replace(node, span=node.span) is node
        copy = replace(node, span=mlcc.errors.Span("t.mlc", 0, 0) if node.span is None else None)
        assert type(copy) is type(node) and copy is not node
        assert all(getattr(copy, n) is getattr(node, n) for n in type(node).__match_args__)


def test_children_are_replaced_one_by_one() -> None:
    i, j = tir.Var("i", INT32), tir.Var("j", INT32)
    total = tir.Add(INT32, i, tir.Mul(INT32, i, tir.IntImm(INT32, 2)))
    made = map_children(total, lambda n: j if n is i else n)
    assert made.lhs is j and made.rhs is total.rhs
    with pytest.raises(TypeError):
        replace(total, left=j)

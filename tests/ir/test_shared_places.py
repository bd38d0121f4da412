"""Places in a text of code that equal functions share."""

from __future__ import annotations

import pytest

import mlcc
from mlcc.errors import Span
from mlcc.ir import relax, tir
from mlcc.ir.equal import structural_equal
from mlcc.ir.module import Func
from mlcc.ir.node import replace, walk
from mlcc.ir.shared_places import with_places_of

KERNEL = """
@T.prim_func
def {name}(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("b"):
            v = T.axis.spatial(8, i)
            B[v] = A[v] * T.float32(2)
"""
GRAPH = """
@R.function
def {name}(x: R.Tensor((8,), "float32")):
    with R.dataflow():
        a = R.exp(x)
        b = R.tanh(a)
        R.output(b)
    return b
"""
PLACED = (tir.Stmt, relax.Binding, relax.Call)


def copies(text: str, count: int) -> list[Func]:
    """Equal functions, one below the other in a text."""
    names = [f"f{k}" for k in range(count)]
    module = mlcc.parse("".join(text.format(name=name) for name in names))
    return [module[name] for name in names]


def lines(span: Span | None) -> list[int]:
    return [] if span is None else [one.source.line_col(one.start)[0] for one in span.all]


@pytest.mark.parametrize("text", [KERNEL, GRAPH])
def test_every_statement_has_the_places_of_all(text: str) -> None:
    one, two, three = copies(text, 3)
    merged = with_places_of(with_places_of(one, two), three)
    height = text.count("\n")
    assert structural_equal(merged, one)
    pairs = [(a, b) for a, b in zip(walk(merged), walk(one), strict=True) if isinstance(a, PLACED) and b.span]
    assert len(pairs) > 2
    for node, first in pairs:
        (line,) = lines(first.span)
        assert lines(node.span) == [line, line + height, line + 2 * height]
        assert (node.span.start, node.span.end) == (first.span.start, first.span.end)  # where messages point


def test_equal_places_are_one() -> None:
    one, two = copies(KERNEL, 2)
    assert with_places_of(one, one) is one
    merged = with_places_of(one, two)
    assert with_places_of(merged, two) is merged
    assert with_places_of(merged, one) is merged


def test_a_place_of_one_alone_is_none() -> None:
    one, two = copies(KERNEL, 2)
    body = tuple(replace(stmt, span=None) for stmt in two.body)
    merged = with_places_of(one, replace(two, body=body))
    assert [stmt.span for stmt in merged.body] == [None] * len(merged.body)
    assert any(lines(node.span) for node in walk(merged.body) if isinstance(node, tir.Stmt))


def test_statements_that_do_nothing_leave_no_places() -> None:
    one, _ = copies(KERNEL, 2)
    other = mlcc.parse(KERNEL.format(name="g") + "    T.evaluate(0)\n")["g"]
    merged = with_places_of(one, other)
    assert structural_equal(merged, one)
    assert not any(node.span for node in walk(merged.body) if isinstance(node, tir.Stmt))

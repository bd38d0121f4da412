"""What is printed reads back to an equal module, in both dialects, and prints to the same text again."""

from __future__ import annotations

import pytest

from mlcc.grammar.parser import parse
from mlcc.grammar.printer.printer import script
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import HANDLE, INT64
from mlcc.ir.equal import assert_structural_equal, structural_equal
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, walk
from tests.generate.functions import Options, prim_func
from tests.generate.graphs import module
from tests.grammar.samples import SAMPLES


def check(mod: IRModule, dialect: str = "mlcc") -> None:
    text = script(mod, dialect)
    again = parse(text)
    assert_structural_equal(mod, again)
    assert script(again, dialect) == text


def large(mod: IRModule) -> bool:
    """Constants that TVM has no literal for."""
    nodes = (n for f in mod.functions.values() for n in walk(f))
    return any(isinstance(n, tir.IntImm) and n.value >= 2**63 for n in nodes)


@pytest.mark.parametrize("dialect", ["mlcc", "tvm"])
@pytest.mark.parametrize("batch", range(30))
def test_generated_functions_read_back(batch: int, dialect: str) -> None:
    for seed in range(batch * 10, batch * 10 + 10):
        mod = IRModule({"main": prim_func(seed, Options(threads=seed % 3 == 0))})
        if dialect == "mlcc" or not large(mod):
            check(mod, dialect)


@pytest.mark.parametrize("dialect", ["mlcc", "tvm"])
@pytest.mark.parametrize("batch", range(15))
def test_generated_graphs_read_back(batch: int, dialect: str) -> None:
    for seed in range(batch * 10, batch * 10 + 10):
        check(module(seed), dialect)


@pytest.mark.parametrize("dialect", ["mlcc", "tvm"])
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_samples_read_back(name: str, dialect: str) -> None:
    if name == "threads":
        pytest.skip("reductions in tensor expressions are not read")
    check(SAMPLES[name](), dialect)


N, M = tir.Var("n", INT64), tir.Var("m", INT64)


@pytest.mark.parametrize(
    ("low", "extent"),
    [
        (c.const(2, INT64), N),
        (N, c.const(4, INT64)),
        (N, M),
        (c.mul(N, 4), c.minimum(M, c.sub(N, M))),
        (c.add(N, 1), c.add(c.mul(M, 2), 1)),
        (c.const(0, INT64), c.floordiv(c.mul(N, 4), 4)),
        (c.const(3, INT64), c.floordiv(c.mul(N, 4), 4)),
        (c.sub(N, M), c.sub(M, N)),
        (tir.Add(INT64, c.const(1, INT64), c.const(1, INT64)), c.const(3, INT64)),
        (N, c.const(0, INT64)),
        (N, tir.Add(INT64, N, N)),
    ],
)
def test_symbolic_ranges_read_back(low: tir.Expr, extent: tir.Expr) -> None:
    """Loops, regions and domains of axes keep their extent as it is, not only its value."""
    a = c.make_buffer("A", (N, M))
    i, v = tir.Var("i", INT64), tir.Var("v", INT64)
    span = tir.Range(low, extent)
    region = tir.BufferRegion(a, (span, tir.Range(c.const(0, INT64), M)))
    block = tir.Block("b", (tir.IterVar(v, span, tir.IterKind.OPAQUE),), (region,), (), (tir.Evaluate(v),))
    realize = tir.BlockRealize((i,), tir.TRUE, block)
    loop = tir.For(i, low, extent, tir.ForKind.PARALLEL, (realize,))
    root = tir.BlockRealize((), tir.TRUE, tir.Block("root", (), (), (), (loop,)))
    func = tir.PrimFunc((tir.Var("A", HANDLE),), (a,), Attrs(global_symbol="main"), (root,))
    check(IRModule({"main": func}))
    check(IRModule({"main": func}), "tvm")


@pytest.mark.parametrize("target", ['T.target("llvm")', 'T.target({"kind": "llvm", "keys": ["cpu"]})'])
def test_targets_read_back(target: str) -> None:
    text = f"""
@T.prim_func(private=True)
def main():
    T.func_attr({{"target": {target}}})
    T.evaluate(1)
"""
    mod = parse(text)
    assert "T.target(" in script(mod)
    check(mod)


@pytest.mark.parametrize(
    "value",
    [
        "T.index_map(lambda i, j: (j // T.int64(4), i, j % T.int64(4)))",
        "T.index_map(lambda i: (i,), inverse_index_map=lambda i: (i,))",
        'T.index_map(lambda i, j: (j, i), index_dtype="int32")',
    ],
)
def test_index_maps_read_back(value: str) -> None:
    text = f"""
@T.prim_func(private=True)
def main():
    T.func_attr({{"layout": {value}}})
    T.evaluate(1)
"""
    mod = parse(text)
    assert value in script(mod)
    check(mod)


def test_global_symbols_read_back() -> None:
    text = """
@I.ir_module
class Module:
    @T.prim_func
    def f():
        T.func_attr({"global_symbol": "other"})
        T.evaluate(1)

    @R.function
    def main() -> R.Tuple:
        return R.tuple()
"""
    mod = parse(text)
    assert mod["f"].attrs["global_symbol"] == "other" and mod["main"].attrs["global_symbol"] == "main"
    check(mod)


def test_equal_text_for_equal_programs() -> None:
    """Two texts of one program print alike, whatever their layout and names of equal standing."""
    first = parse("@T.prim_func\ndef f(A: T.Buffer((4,), 'int32')):\n  for i in range(4): A[i] = i + 1\n")
    second = parse(
        '@T.prim_func\ndef f(A: T.Buffer[4, "int32"]):\n    for i in T.serial(0, 4):\n        A[i] = 1 + i * 1\n'
    )
    assert not structural_equal(first, second)
    third = parse('@T.prim_func\ndef f(A: T.Buffer[4, "int32"]):\n    for i in T.serial(0, 4):\n        A[i] = i + 1\n')
    assert structural_equal(first, third) and script(first) == script(third)

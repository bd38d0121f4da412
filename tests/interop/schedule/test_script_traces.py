"""Traces that TVM prints are scripts: every step is read with its arguments."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from mlcc.errors import Source, Span
from mlcc.grammar.syntax.reader import parse_syntax
from mlcc.ir import tir
from mlcc.passes.schedule.handles import BlockRV, ExprRV, LoopRV
from mlcc.passes.schedule.mls.statements import Script

tvm = pytest.importorskip("tvm")

TEXT = """
@T.prim_func(s_tir=True)
def main(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (128, 128), "float32")
    B = T.match_buffer(b, (128, 128), "float32")
    C = T.match_buffer(c, (128, 128), "float32")
    D = T.sblock_alloc_buffer((128, 128))
    for i, j in T.grid(128, 128):
        with T.sblock("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j, k in T.grid(128, 128, 128):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + D[vi, vk] * B[vk, vj]
"""


def scheduled() -> Any:
    """A schedule with steps of many kinds."""
    from tvm.script import from_source
    from tvm.tirx import FloatImm, IntImm

    sch = tvm.s_tir.Schedule(from_source(TEXT), seed=3)
    block = sch.get_sblock("C")
    sch.transform_layout(block, ("read", 0), lambda i, j: (i // 4, j, i % 4))
    sch.transform_layout(block, ("write", 0), lambda i, j: [j, i], pad_value=None)
    sch.transform_block_layout("D", lambda i, j: (i * 128 + j,))
    i, j, k = sch.get_loops(block)
    tiles = sch.sample_perfect_tile(j, n=3, max_innermost_factor=16)
    j0, j1, j2 = sch.split(j, factors=[None, tiles[1], tiles[2]])
    width = sch.sample_categorical([2, 4, 8], [0.25, 0.5, 0.25])
    k0, k1 = sch.split(k, factors=[None, width], preserve_unit_iters=False)
    sch.reorder(i, j0, j1, k0, k1, j2)
    fused = sch.fuse(i, j0)
    sch.parallel(fused)
    sch.vectorize(j2)
    sch.annotate(fused, "first", [1, 2, 3])
    sch.annotate(fused, "second", "a text, with commas")
    sch.annotate(block, "third", 2.5)
    sch.annotate(block, "fourth", IntImm("int64", 7))
    sch.annotate(block, "fifth", FloatImm("float32", 0.5))
    sch.annotate(block, "sixth", {"a": 1, "b": [2, 3]})
    sch.unannotate(fused, "first")
    local = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(local, j1, preserve_unit_loops=True, index=-1)
    sch.cache_read(block, 1, "global", consumer_blocks=[block])
    sch.storage_align(block, 0, -2, 32, 8)
    sch.decompose_reduction(block, k0)
    sch.enter_postproc()
    sch.get_child_blocks(sch.get_sblock("root"))
    sch.get_consumers(sch.get_sblock("D"))
    return sch


class Notes:
    """Notes calls; answers with as many handles as TVM's step had."""

    def __init__(self, outputs: list[list[Any]]) -> None:
        self.calls: list[tuple[str, list[Any], dict[str, Any]]] = []
        self._outputs = outputs

    def primitives(self) -> list[str]:
        from mlcc.passes.schedule import registry

        return [*registry.names(), *registry.ALIASES]

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any], span: Span) -> Any:
        kinds = {"LoopRV": LoopRV, "SBlockRV": BlockRV}
        made = [kinds.get(type(o).__name__, ExprRV)() for o in self._outputs[len(self.calls)]]
        self.calls.append((name, args, kwargs))
        listed = name in ("get_loops", "split", "sample_perfect_tile", "get_child_blocks", "get_consumers")
        return made if listed else made[0] if made else None

    def cost(self) -> int:
        return 100

    def name_of(self, value: Any) -> str | None:
        return None

    def size_named(self, name: str) -> None:
        return None

    def register_intrinsic(self, *given: Any) -> None:
        raise AssertionError(given)


def test_every_step_is_read() -> None:
    sch = scheduled()
    text = str(sch.trace)
    notes = Notes([list(i.outputs) for i in sch.trace.insts])
    source = Source("trace.mls", text)
    Script(source, notes).run(parse_syntax(source, start="script"))
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    steps = [s.value for s in function.body if isinstance(s, (ast.Assign, ast.Expr)) and isinstance(s.value, ast.Call)]
    assert len(steps) == len(notes.calls) == len(sch.trace.insts) > 25
    for step, (name, args, kwargs) in zip(steps, notes.calls, strict=True):
        assert ast.unparse(step.func) == f"sch.{name}"
        assert len(step.args) == len(args)
        assert [k.arg for k in step.keywords] == list(kwargs)
        for keyword in step.keywords:
            _same(keyword.value, kwargs[str(keyword.arg)])


def _same(text: ast.expr, value: Any) -> None:
    """A literal has its value; an index map gives what its text says."""
    if isinstance(text, ast.Lambda):
        names = [a.arg for a in text.args.args]
        made = value(*(tir.Var(n, tir.DType.of("int32")) for n in names))
        assert isinstance(text.body, ast.Tuple)
        assert [str(e) for e in made] == [ast.unparse(e) for e in text.body.elts]
        return
    try:
        want = ast.literal_eval(text)
    except ValueError:
        return  # a handle, or a list that holds some
    if isinstance(value, (tir.IntImm, tir.FloatImm)):
        value = value.value
    assert value == want and type(value) is type(want), ast.unparse(text)

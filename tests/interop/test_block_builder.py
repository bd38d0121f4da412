"""The same programs build the same modules here and in TVM."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

import mlcc
from mlcc.verify import verify
from tests.interop.builder_programs import PROGRAMS, Program, te_matmul, te_relu, tensor

tvm = pytest.importorskip("tvm")

from tests.interop.harness import rounded, to_tvm  # noqa: E402  (needs TVM)

MINE = SimpleNamespace(
    relax=mlcc.relax,
    te=mlcc.te,
    var=lambda name: mlcc.te.var(name, "int64"),
    op=mlcc.relax.Op.get,
    is_call=lambda value, name: isinstance(value, mlcc.relax.Call) and value.op == mlcc.relax.Op.get(name),
)
THEIRS = SimpleNamespace(
    relax=tvm.relax,
    te=tvm.te,
    var=lambda name: tvm.tirx.Var(name, "int64"),
    op=tvm.ir.Op.get,
    is_call=lambda value, name: isinstance(value, tvm.ir.Call) and value.op == tvm.ir.Op.get(name),
)


def assert_same(mine: Any, theirs: Any) -> None:
    """`mine`, printed and read by TVM, is structurally equal to `theirs`, and well formed."""
    assert verify(mine) == []
    text = mlcc.script(mine, dialect="tvm")
    tvm.ir.assert_structural_equal(rounded(to_tvm(text)), rounded(theirs), map_free_vars=True)
    again = mlcc.parse(mlcc.script(mine))
    mlcc.assert_structural_equal(mine, again)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_programs_build_the_same_module(program: Program) -> None:
    assert_same(program(MINE), program(THEIRS))


def random_program(lib: Any, seed: int) -> Any:
    """Functions of random steps: blocks, nested operators, tuples, tensor expressions, calls."""
    relax, te, rng = lib.relax, lib.te, random.Random(seed)
    unary = [relax.op.exp, relax.op.nn.relu, relax.op.negative, relax.op.tanh]
    binary = [relax.op.add, relax.op.multiply, relax.op.maximum]
    bb = relax.BlockBuilder()
    functions: list[Any] = []
    symbolic = rng.random() < 0.5

    pairs: list[Any] = []

    def expression(known: list[Any], depth: int) -> Any:
        kind = rng.randrange(6 if depth else 1)
        if kind == 0:
            return rng.choice(known)
        if kind == 1:
            return rng.choice(unary)(expression(known, depth - 1))
        if kind == 2 and functions:
            return relax.Call(rng.choice(functions), [expression(known, depth - 1)])
        if kind == 3 and pairs:
            return relax.TupleGetItem(rng.choice(pairs), rng.randrange(2))
        return rng.choice(binary)(expression(known, depth - 1), expression(known, depth - 1))

    def step(known: list[Any], emit: Any) -> None:
        kind = rng.randrange(5)
        if kind == 0:
            hint = rng.choice(["relu", "matmul", "other"])
            known.append(emit(bb.call_te(te_relu(te), rng.choice(known), primfunc_name_hint=hint), ""))
        elif kind == 1:
            known.append(emit(bb.call_te(te_matmul(te), rng.choice(known), rng.choice(known)), ""))
        elif kind == 2 and emit == bb.emit and not bb.current_block_is_dataflow():
            pairs.append(emit([expression(known, 2), rng.choice(known)], ""))
        else:
            known.append(emit(expression(known, 2), rng.choice(["", "y", "gv"])))

    for index in range(rng.randint(1, 3)):
        size = lib.var("n") if symbolic else 4
        x = tensor(lib, "x", size, size)
        with bb.function(f"f{index}", [x], private=rng.random() < 0.5):
            known, pairs[:] = [x], []
            for _ in range(rng.randint(1, 3)):
                if rng.random() < 0.6:
                    with bb.dataflow():
                        inner = list(known)
                        for _ in range(rng.randint(0, 3)):
                            step(inner, bb.emit)
                        step(inner, bb.emit_output)
                        known.append(inner[-1])
                else:
                    step(known, bb.emit)
            functions.append(bb.emit_func_output(expression(known, 2)))
    return bb.get()


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_build_the_same_module(seed: int) -> None:
    assert_same(random_program(MINE, seed), random_program(THEIRS, seed))


def mutated(lib: Any, seed: int) -> Any:
    """A random program rewritten by random rules, one for each of a few operators."""
    relax, te, rng = lib.relax, lib.te, random.Random(seed + 1000)
    mod = random_program(lib, seed)

    def negated(self: Any, call: Any) -> Any:
        return relax.op.negative(relax.op.tanh(call.args[0]))

    def lowered(self: Any, call: Any) -> Any:
        return self.builder_.emit_te(te_relu(te), call.args[0])

    def called(self: Any, call: Any) -> Any:
        return self.builder_.call_te(te_relu(te), call.args[-1], primfunc_name_hint="rewritten")

    def first(self: Any, call: Any) -> Any:
        return call.args[0]

    def bound(self: Any, call: Any) -> Any:
        value = self.lookup_binding(call.args[0])
        return call if value is None else relax.op.add(value, call.args[-1])

    names = ["relax.exp", "relax.nn.relu", "relax.add", "relax.multiply", "relax.maximum", "relax.tanh"]
    rules = [negated, lowered, called, first]
    table = {name: rng.choice(rules) for name in names if rng.random() < 0.6}
    table.setdefault("relax.negative", bound)

    @relax.expr_functor.mutator
    class Rewrite(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            for name, rule in table.items():
                if lib.is_call(call, name):
                    return rule(self, call)
            return call

    mutator = Rewrite(mod)
    for gv in sorted(mod.get_global_vars(), key=lambda g: g.name_hint):
        if isinstance(mod[gv], relax.Function):
            func = mutator.visit_expr(mod[gv])
            if seed % 2:
                func = relax.analysis.remove_all_unused(func)
            mutator.builder_.update_func(gv, func)
    return mutator.builder_.get()


@pytest.mark.parametrize("seed", range(40))
def test_random_mutations_give_the_same_module(seed: int) -> None:
    assert_same(mutated(MINE, seed), mutated(THEIRS, seed))

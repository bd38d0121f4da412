"""Visitors and mutators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc import relax
from mlcc.interp import run_function
from mlcc.relax import analysis
from mlcc.verify import check

MODULE = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def half(x: T.Buffer((T.int64(3),), "float32"), y: T.Buffer((T.int64(3),), "float32")):
        for i in range(T.int64(3)):
            with T.block("half"):
                v = T.axis.spatial(T.int64(3), i)
                y[v] = x[v] * T.float32(0.5)

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((3,), "float32"), n: R.Shape([3])) -> R.Tensor((3,), "float32"):
        cls = Module
        with R.dataflow():
            a = R.add(x, R.const([1.0, 2.0, 3.0], "float32"))
            b = R.call_tir(cls.half, (a,), out_sinfo=R.Tensor((3,), dtype="float32"))
            unused = R.exp(b)
            t = (a, b)
            d = t[1]
            s = R.reshape(d, R.shape([3]))
            R.output(s)
        e = R.call_pure_packed("env.f", s, R.str("mode"), R.prim_value(2), sinfo_args=R.Tensor((3,), dtype="float32"))
        if c:
            f = R.nn.relu(e)
            g = R.negative(f)
        else:
            g = R.multiply(e, e)
        h = R.match_cast(g, R.Tensor((3,), "float32"))
        return h
"""


@pytest.fixture
def module() -> Any:
    return mlcc.parse(MODULE)


class Log(relax.PyExprVisitor):
    """Notes the names of what it comes to."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def visit_expr(self, expr: Any) -> None:
        self.seen.append(type(expr).__name__)
        super().visit_expr(expr)

    def visit_binding(self, binding: Any) -> None:
        super().visit_binding(binding)
        self.seen.append(f"{type(binding).__name__} {binding.var.name}")

    def visit_span(self, span: Any) -> None:
        assert span.end >= span.start


def test_visitor_sees_everything(module: Any) -> None:
    log = Log()
    log.visit_expr(module["main"])
    kinds = set(log.seen)
    assert kinds >= {
        "Function", "SeqExpr", "Call", "Op", "Constant", "Var", "DataflowVar", "GlobalVar", "Tuple", "TupleGetItem",
        "ShapeExpr", "ExternFunc", "StringImm", "PrimValue", "If", "MatchCast h", "VarBinding a",
    }  # fmt: skip
    order = [s for s in log.seen if s.startswith(("VarBinding", "MatchCast"))]
    assert [o.split()[1] for o in order] == ["a", "b", "unused", "t", "d", "s", "e", "f", "g_then", "g_else", "g", "h"]


def test_overridden_methods_see_every_node_of_their_kind(module: Any) -> None:
    """An overridden method sees all of its kind; without super() it does not go on."""

    class Calls(relax.PyExprVisitor):
        def __init__(self) -> None:
            self.names: list[str] = []
            self.constants = self.blocks = self.definitions = 0

        def visit_call_(self, op: Any) -> None:
            self.names.append(op.op.name)
            super().visit_call_(op)

        def visit_constant_(self, op: Any) -> None:
            self.constants += op.data.size

        def visit_dataflow_block_(self, block: Any) -> None:
            self.blocks += 1
            super().visit_dataflow_block_(block)

        def visit_dataflow_var_def_(self, var: Any) -> None:
            self.definitions += 1

        def visit_if_(self, op: Any) -> None:
            pass

    found = Calls()
    found.visit_expr(module["main"])
    assert found.names == ["relax.add", "relax.call_tir", "relax.exp", "relax.reshape", "relax.call_pure_packed"]
    assert (found.constants, found.blocks, found.definitions) == (3, 1, 5)


def test_decorators_and_base_names() -> None:
    @relax.expr_functor.visitor
    class Mine(relax.PyExprVisitor):
        pass

    assert issubclass(Mine, relax.ExprFunctor) and Mine.__name__ == "Mine"
    with pytest.raises(TypeError, match="only relax expressions can be visited, not 3"):
        Mine().visit_expr(3)


def test_a_mutator_that_changes_nothing_gives_the_same_object(module: Any) -> None:
    mutator = relax.PyExprMutator(module)
    assert mutator.visit_expr(module["main"]) is module["main"]


def test_mutator_rewrites_everywhere(module: Any) -> None:
    class Rename(relax.PyExprMutator):
        def visit_call_(self, op: Any) -> Any:
            call = self.visit_expr_post_order(op)
            return relax.op.abs(relax.op.tanh(call.args[0])) if call.op.name == "relax.nn.relu" else call

        def visit_constant_(self, op: Any) -> Any:
            return relax.const([0.0, 0.0, 0.0])

        def visit_extern_func_(self, op: Any) -> Any:
            return relax.ExternFunc("env.g")

        def visit_string_imm_(self, op: Any) -> Any:
            return relax.StringImm(op.value.upper())

    mutator = Rename(module)
    mutator.builder_.update_func("main", mutator.visit_expr(module["main"]))
    made = mutator.builder_.get()
    check(made)
    text = made.script()
    assert "R.nn.relu" not in text and "R.abs" in text and "R.tanh" in text
    assert "[0.0, 0.0, 0.0]" in text and '"env.g"' in text and '"MODE"' in text
    assert "env.f" in module.script()


def test_struct_info_follows(module: Any) -> None:
    """A change of dtype reaches the result, through blocks, tuples and items."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            a = bb.emit(relax.op.exp(x))
            t = bb.emit((a, x))
            out = bb.emit_output(t[0])
        bb.emit_func_output((relax.op.nn.relu(out), x))
    mod = bb.get()

    class Narrow(relax.PyExprMutator):
        def visit_call_(self, op: Any) -> Any:
            call = self.visit_expr_post_order(op)
            return relax.op.astype(call.args[0], "int32") if call.op.name == "relax.exp" else call

    func = Narrow(mod).visit_expr(mod["main"])
    assert [str(f.dtype) for f in func.ret_struct_info.fields] == ["int32", "float32"]
    made = mlcc.IRModule({"main": func})
    check(made)
    got = run_function(made, "main", [np.array([-1.5, 0.0, 2.5], "float32")])
    np.testing.assert_array_equal(got[0], [0, 0, 2])


def test_contradictions_are_refused(module: Any) -> None:
    class Wrong(relax.PyExprMutator):
        def visit_call_(self, op: Any) -> Any:
            call = self.visit_expr_post_order(op)
            return relax.op.reshape(call.args[0], (3, 1)) if call.op.name == "relax.add" else call

        def visit_var_binding_(self, binding: Any) -> None:
            super().visit_var_binding_(binding)
            if binding.var.name == "a":
                assert str(self.get_var_remap(binding.var).struct_info) == 'R.Tensor((3, 1), dtype="float32")'

    mutator = Wrong(module)
    mutator.builder_.update_func("main", mutator.visit_expr(module["main"]))
    with pytest.raises(mlcc.CompileError):
        check(mutator.builder_.get())  # the TensorIR function takes (3,)


def test_mutators_look_up_remap_and_emit(module: Any) -> None:
    class Mine(relax.PyExprMutator):
        seen: Any = None

        def visit_var_binding_(self, binding: Any) -> None:
            if binding.var.name == "b":
                assert self.lookup_binding(binding.value.args[1].fields[0]).op == relax.Op.get("relax.add")
                assert self.lookup_binding(relax.const(1.0)) is None
                self.set_var_remap(binding.var, self.builder_.emit(relax.op.exp(self.visit_expr(self.seen))))
                return  # the binding goes
            self.seen = binding.var
            super().visit_var_binding_(binding)

    mutator = Mine(module)
    func = mutator.visit_expr(module["main"])
    check(mlcc.IRModule({"main": func}))
    values = [b.value for b in func.body.blocks[0].bindings]
    assert [v.op.name for v in values[:2]] == ["relax.add", "relax.exp"]
    assert values[2].args[0] is func.body.blocks[0].bindings[1].var
    with pytest.raises(TypeError):
        mutator.set_var_remap("b", values[0])


def test_parameters_may_change() -> None:
    """A new parameter stands where the old one was used."""
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    func = relax.BlockBuilder().normalize(relax.Function([x], relax.op.exp(x)))

    class Wider(relax.PyExprMutator):
        def visit_var_def_(self, var: Any) -> Any:
            if var is not x:
                return super().visit_var_def_(var)
            made = relax.Var("x", relax.TensorStructInfo((3,), "float64"))
            self.set_var_remap(var, made)
            return made

    made = Wider().visit_expr(func)
    assert str(made.ret_struct_info) == 'R.Tensor((3,), dtype="float64")'
    check(mlcc.IRModule({"main": made}))


def test_cost_is_linear() -> None:
    """Each binding is visited once, however many there are."""
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        value: Any = x
        with bb.dataflow():
            for _ in range(400):
                value = bb.emit(relax.op.nn.relu(value))
            value = bb.emit_output(value)
        bb.emit_func_output(value)
    mod = bb.get()

    class Count(relax.PyExprMutator):
        visits = 0

        def visit_call_(self, op: Any) -> Any:
            Count.visits += 1
            return relax.op.exp(*self.visit_expr_post_order(op).args)

    made = Count(mod).visit_expr(mod["main"])
    assert Count.visits == 400
    assert len(made.body.blocks[0].bindings) == 401


# ---------------------------------------------------------------- analysis


def test_free_and_bound_variables_are_found(module: Any) -> None:
    func = module["main"]
    assert analysis.free_vars(func) == []
    assert [v.name for v in analysis.free_vars(func.body)] == ["x", "c"]
    assert {v.name for v in analysis.bound_vars(func)} >= {"c", "x", "n", "a", "unused", "h"}
    assert set(analysis.all_vars(func)) == set(analysis.bound_vars(func))
    assert [g.name for g in analysis.all_global_vars(func)] == ["half"]


def test_post_order_visits_operands_first(module: Any) -> None:
    order: list[Any] = []
    analysis.post_order_visit(module["main"], order.append)
    assert order[-1] is module["main"]
    call = next(e for e in order if isinstance(e, relax.Call))
    assert all(order.index(arg) < order.index(call) for arg in call.args)


def test_remove_all_unused_removes_all_unused_bindings(module: Any) -> None:
    made = analysis.remove_all_unused(module["main"], module)
    assert "unused" not in str(made) and "R.exp" not in str(made)
    check(mlcc.IRModule({**module.functions, "main": made}))
    assert analysis.remove_all_unused(made, module) is made

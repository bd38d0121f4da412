"""BlockBuilder: what it builds verifies and runs, and what is wrong is refused with words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc import relax, te
from mlcc.errors import CompileError
from mlcc.interp import run_function
from mlcc.ir import relax as ir
from mlcc.verify import check


def tensor(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return relax.Var(name, relax.TensorStructInfo(shape, dtype))


def matmul(A: Any, B: Any) -> Any:
    k = te.reduce_axis((0, A.shape[1]), name="k")
    return te.compute((A.shape[0], B.shape[1]), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="matmul")


def relu(A: Any) -> Any:
    return te.compute(A.shape, lambda *i: te.max(A(*i), 0), name="relu")


def run_both(mod: Any, *args: Any, name: str = "main") -> Any:
    """The result of the interpreter, checked against that of the compiled module."""
    check(mod, build=True)
    expected = run_function(mod, name, list(args))
    built = mlcc.load(mlcc.build(mod, target="llvm"))[name](*args)
    np.testing.assert_allclose(built, expected, rtol=1e-5, atol=1e-6)
    return expected


def builder_of(params: Any, body: Callable[[Any], Any]) -> Any:
    bb = relax.BlockBuilder()
    with bb.function("main", params):
        bb.emit_func_output(body(bb))
    return bb.get()


# ---------------------------------------------------------------- what is built


@pytest.mark.parametrize("early", [True, False])
def test_mlp_is_built_and_runs(early: bool) -> None:
    x, w = tensor("x", 2, 3), tensor("w", 3, 4)
    bb = relax.BlockBuilder()
    with bb.function("main", [x, w] if early else None):
        with bb.dataflow():
            y = bb.emit_te(matmul, x, w)
            assert isinstance(y, relax.DataflowVar)
            out = bb.emit_output(bb.emit_te(relu, y, primfunc_name_hint="activate"))
            assert isinstance(out, relax.Var) and not isinstance(out, relax.DataflowVar)
        bb.emit_func_output(out, *([] if early else [[x, w]]))
    mod = bb.get()
    assert set(mod) == {"main", "matmul", "activate"}
    assert mod["main"].attrs["global_symbol"] == "main"
    assert "global_symbol" not in mod["matmul"].attrs
    a, b = np.random.rand(2, 3).astype("float32") - 0.5, np.random.rand(3, 4).astype("float32")
    np.testing.assert_allclose(run_both(mod, a, b), np.maximum(a @ b, 0), rtol=1e-5)


@pytest.mark.parametrize("size", [0, 1, 5])
def test_symbolic_shapes_are_passed(size: int) -> None:
    """A variable that no shape binds is passed; the results have the caller's sizes."""
    n = te.var("n", "int64")
    x = tensor("x", n + 1)

    def head(A: Any, count: Any) -> Any:
        return te.compute((count,), lambda i: A[i] * 2.0, name="head")

    y = tensor("y", n)
    mod = builder_of([x, y], lambda bb: relax.op.add(bb.emit_te(head, x, n), y))
    call = mod["main"].body.blocks[0].bindings[0].value
    assert str(call.struct_info) == 'R.Tensor((n,), dtype="float32")'
    data = np.arange(size + 1, dtype="float32")
    np.testing.assert_array_equal(run_both(mod, data, data[:-1]), data[:-1] * 3)


def test_symbolic_sizes_become_parameters() -> None:
    n = te.var("n", "int64")
    x = tensor("x", n + 1)

    def last(A: Any, at: Any) -> Any:
        return te.compute((1,), lambda i: A[at + i], name="last")

    mod = builder_of([x, relax.Var("k", relax.PrimStructInfo(value=n))], lambda bb: bb.emit_te(last, x, n))
    call = mod["main"].body.blocks[0].bindings[0].value
    assert [type(f).__name__ for f in call.args[1].fields] == ["Var", "PrimValue"]
    assert len(mod["last"].params) == 3
    data = np.arange(4, dtype="float32")
    np.testing.assert_array_equal(run_both(mod, data, 3), [3.0])


def test_scalars_become_parameters() -> None:
    x, s = tensor("x", 3), relax.Var("s", relax.PrimStructInfo("float32"))

    def scale(A: Any, factor: Any) -> Any:
        return te.compute(A.shape, lambda i: A[i] * factor, name="scale")

    mod = builder_of([x, s], lambda bb: bb.emit_te(scale, x, s))
    check(mod)
    assert [p.dtype.kind for p in mod["scale"].params] == ["handle", "float", "handle"]


def test_functions_call_each_other() -> None:
    bb = relax.BlockBuilder()
    x = tensor("x", 3)
    with bb.function("twice", [x], private=True):
        twice = bb.emit_func_output(x + x)
    y = tensor("y", 3)
    with bb.function("main", [y]):
        bb.emit_func_output(twice(twice(y)))
    mod = bb.get()
    assert "global_symbol" not in mod["twice"].attrs
    np.testing.assert_array_equal(run_both(mod, np.ones(3, "float32")), [4.0, 4.0, 4.0])


def test_builder_goes_on_from_a_module() -> None:
    first = builder_of([tensor("x", 3)], lambda bb: relax.const([1.0, 2.0, 3.0]))
    bb = relax.BlockBuilder(first)
    y = tensor("y", 3)
    with bb.function("other", [y]):
        bb.emit_func_output(relax.Call(relax.GlobalVar("main"), [y]))
    assert set(bb.get()) == {"main", "other"}
    assert set(first) == {"main"}
    assert str(bb.get()["other"].ret_struct_info) == 'R.Tensor((3,), dtype="float32")'


def test_equal_functions_are_one() -> None:
    bb = relax.BlockBuilder()
    x = tensor("x", 3)
    with bb.function("main", [x]):
        y = bb.emit_te(relu, bb.emit_te(relu, x))
        z = bb.emit_te(relu, y, primfunc_attrs={"op_pattern": 0})
        bb.emit_func_output(z)
    mod = bb.get()
    assert set(mod) == {"main", "relu", "relu1"}
    assert mod["relu1"].attrs["op_pattern"] == 0
    again = bb.add_func(mod["relu"], "anything")
    assert again.name == again.name_hint == "relu"


def test_updated_functions_are_compared_anew() -> None:
    bb = relax.BlockBuilder()
    f = relax.Function([tensor("x", 3)], relax.op.exp(tensor("y", 3)))
    gv = bb.add_func(f, "f")
    x = tensor("x", 3)
    g = bb.normalize(relax.Function([x], relax.op.log(x)))
    bb.update_func(gv, g)
    assert bb.get()["f"] is g
    assert bb.add_func(g, "g").name == "f"
    assert bb.add_func(f, "g").name == "g"


def test_get_is_a_snapshot() -> None:
    bb = relax.BlockBuilder()
    x = tensor("x", 3)
    with bb.function("first", [x]):
        bb.emit_func_output(x)
    before = bb.get()
    y = tensor("y", 3)
    with bb.function("second", [y]):
        bb.emit_func_output(y)
    assert list(before) == ["first"] and list(bb.get()) == ["first", "second"]


def test_finalize_gives_public_functions_their_names() -> None:
    bb = relax.BlockBuilder()
    x = tensor("x", 3)
    with bb.function("main", [x], private=True):
        inner = bb.emit_func_output(relax.op.exp(x))
    y = tensor("y", 3)
    with bb.function("main", [y]):
        bb.emit_func_output(relax.op.log(inner(y)))
    assert set(bb.get()) == {"main", "main1"} and bb.get()["main1"].attrs["global_symbol"] == "main"
    mod = bb.finalize()
    assert set(mod) == {"main", "main1"} and mod["main"].attrs["global_symbol"] == "main"
    np.testing.assert_allclose(run_both(mod, np.ones(3, "float32")), np.ones(3), rtol=1e-6)


def test_two_public_functions_of_one_name() -> None:
    bb = relax.BlockBuilder()
    for op in (relax.op.exp, relax.op.log):
        x = tensor("x", 3)
        with bb.function("main", [x]):
            bb.emit_func_output(op(x))
    with pytest.raises(CompileError, match="global_symbol `main`"):
        bb.finalize()


def test_names_are_made_unique() -> None:
    bb = relax.BlockBuilder()
    assert [bb.get_unique_name(n) for n in ("a", "a", "a1", "b.c", "a")] == ["a", "a1", "a11", "b_c", "a2"]


def test_a_function_keeps_its_name_beside_variables() -> None:
    mod = builder_of([tensor("x", 3)], lambda bb: bb.emit(relax.const([1.0]), "main"))
    assert list(mod) == ["main"]


def test_nested_expressions_get_variables() -> None:
    """Everything nested has a variable; a function of several parts stays as deep as it is."""
    x = tensor("x", 3)
    value: Any = x
    for _ in range(3000):
        value = relax.op.exp(value)
    mod = builder_of([x], lambda bb: (value, x))
    assert len(mod["main"].body.blocks[0].bindings) == 3000
    check(mod)


def test_functions_in_functions_and_branches() -> None:
    c, x = tensor("c", dtype="bool"), tensor("x", 3)
    y = tensor("y", 3)
    inner = relax.Function([y], relax.op.exp(relax.op.exp(y)))

    def body(bb: Any) -> Any:
        f = bb.emit(inner)
        return bb.emit(relax.If(c, f(relax.op.exp(x)), relax.op.nn.relu(relax.op.negative(x))))

    mod = builder_of([c, x], body)
    check(mod)
    data = np.array([-1.0, 0.0, 0.5], "float32")
    np.testing.assert_allclose(run_function(mod, "main", [np.array(False), data]), [1.0, 0.0, 0.0])
    np.testing.assert_allclose(
        run_function(mod, "main", [np.array(True), data]), np.exp(np.exp(np.exp(data))), rtol=1e-5
    )


def test_match_cast_binds_variables() -> None:
    n = te.var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo(None, "float32", ndim=1))

    def body(bb: Any) -> Any:
        y = bb.match_cast(relax.op.exp(x), relax.TensorStructInfo([n], "float32"))
        return bb.emit_te(relu, bb.emit_match_cast(y, relax.TensorStructInfo([n], "float32"), "again"))

    mod = builder_of([x], body)
    check(mod)
    assert mod["main"].ret_struct_info.ndim == 1 and mod["main"].ret_struct_info.shape is None
    np.testing.assert_allclose(run_function(mod, "main", [np.zeros(4, "float32")]), np.ones(4))


def test_errors_leave_the_builder_usable() -> None:
    bb = relax.BlockBuilder()
    with pytest.raises(KeyError), bb.function("broken", [tensor("x", 3)]), bb.dataflow():
        raise KeyError("mine")
    assert relax.BlockBuilder.current() is None
    x = tensor("x", 3)
    with bb.function("main", [x]):
        assert relax.BlockBuilder.current() is bb
        bb.emit_func_output(relax.op.exp(x))
    assert list(bb.get()) == ["main"]


def test_builders_in_threads_keep_apart() -> None:
    import threading

    barrier, modules = threading.Barrier(2, timeout=60), []

    def build() -> None:
        bb = relax.BlockBuilder()
        x = tensor("x", 3)
        with bb.function("main", [x]):
            barrier.wait()
            assert relax.BlockBuilder.current() is bb
            bb.emit_func_output(relax.op.exp(x))
            barrier.wait()
        modules.append(bb.get())

    threads = [threading.Thread(target=build) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(modules) == 2 and mlcc.structural_equal(*modules)


def test_blocks_without_a_function() -> None:
    bb = relax.BlockBuilder()
    x = tensor("x", 3)
    with bb.testing_scope([te.var("n", "int64")]):
        assert isinstance(bb.emit(relax.op.exp(x)), relax.DataflowVar)
        assert isinstance(bb.normalize(relax.op.exp(relax.op.exp(x))).args[0], relax.DataflowVar)
    bb.begin_scope([x])
    bb._begin_binding_block()
    var = bb.emit(relax.op.exp(x))
    assert bb.lookup_binding(var).op == relax.Op.get("relax.exp")
    assert [b.var for b in bb._end_block().bindings] == [var]
    bb.end_scope()
    assert relax.BlockBuilder.current() is None


def test_functions_can_be_begun_inside_others() -> None:
    bb = relax.BlockBuilder()
    x, y = tensor("x", 3), tensor("y", 3)
    with bb.function("main", [x]):
        a = bb.emit(relax.op.exp(x))
        with bb.function("helper", [y], private=True):
            helper = bb.emit_func_output(relax.op.log(y))
        bb.emit_func_output(helper(a))
    mod = bb.get()
    check(mod)
    assert len(mod["main"].body.blocks[0].bindings) == 2


# ---------------------------------------------------------------- what is refused


def in_function(body: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    def run() -> None:
        bb = relax.BlockBuilder()
        x = tensor("x", 2, 3)
        with bb.function("main", [x]):
            body(bb, x)

    return run


def outside_of_dataflow(bb: Any, x: Any) -> None:
    with bb.dataflow():
        y = bb.emit(relax.op.exp(x))
    bb.emit_func_output((x, [y]))


def nested_dataflow(bb: Any, x: Any) -> None:
    with bb.dataflow(), bb.dataflow():
        pass


def output_in_dataflow(bb: Any, x: Any) -> None:
    with bb.dataflow():
        bb.emit_func_output(x)


def after_the_end(bb: Any, x: Any) -> None:
    bb.emit_func_output(x)
    bb.emit(x)


def second_result(bb: Any, x: Any) -> None:
    bb.emit_func_output(x)
    bb.emit_func_output(x)


def bare() -> Any:
    return relax.BlockBuilder()


def without_parameters() -> None:
    bb = bare()
    with bb.function("main"):
        bb.emit_func_output(relax.const(1.0))


def branch_in_dataflow(bb: Any, x: Any) -> None:
    with bb.dataflow():
        bb.emit_output(relax.If(relax.const(True), x, x))


def wrong_argument(bb: Any, x: Any) -> None:
    n = te.var("n", "int64")
    y = tensor("y", n, n)
    with bb.function("square", [y], private=True):
        square = bb.emit_func_output(y)
    bb.emit(square(x))


def nested_binding(bb: Any, x: Any) -> None:
    value = relax.op.exp(relax.op.exp(x))
    bb.emit_normalized(relax.VarBinding(relax.Var("y", value.struct_info), value))


X = tensor("x", 2, 3)
CAST = relax.TensorStructInfo((2, 4), "float32")
REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: bare().emit(X), CompileError, "emit: no block is open"),
    (lambda: bare().emit_te(relu, X), CompileError, "emit_te: no block is open"),
    (lambda: bare().normalize(relax.op.exp(relax.op.exp(X))), CompileError, "a nested expression: no block is open"),
    (lambda: bare().emit_func_output(X), CompileError, "no function is open"),
    (lambda: bare().dataflow().__enter__(), CompileError, "a dataflow block must be inside a function"),
    (lambda: bare().end_scope(), CompileError, "no scope"),
    (in_function(lambda bb, x: None), CompileError, "`main` has no result"),
    (in_function(lambda bb, x: bb.emit_output(x)), CompileError, "emit_output: this is not a dataflow block"),
    (in_function(outside_of_dataflow), CompileError, "`lv` is visible only in its dataflow block"),
    (in_function(nested_dataflow), CompileError, "cannot be nested"),
    (in_function(output_in_dataflow), CompileError, "a dataflow block is open"),
    (in_function(branch_in_dataflow), CompileError, "`if` is not allowed inside a dataflow block"),
    (in_function(wrong_argument), CompileError, "argument 0 is `R.Tensor((2, 3)"),
    (in_function(lambda bb, x: bb.emit(x(x))), CompileError, "not a function"),
    (in_function(nested_binding), CompileError, "the value of `y` contains a nested computation"),
    (in_function(lambda bb, x: bb.emit_normalized(x)), TypeError, "only a binding can be added"),
    (in_function(after_the_end), CompileError, "already has its result"),
    (in_function(second_result), CompileError, "already has its result"),
    (in_function(lambda bb, x: bb.emit_func_output(x, [x])), CompileError, "already has its parameters"),
    (without_parameters, CompileError, "has no parameters"),
    (in_function(lambda bb, x: bb.match_cast(x, CAST)), CompileError, "can never be"),
    (in_function(lambda bb, x: bb.match_cast(x, (2, 3))), TypeError, "relax.TensorStructInfo"),
    (in_function(lambda bb, x: bb.emit(object())), TypeError, "object is not a relax expression"),
    (in_function(lambda bb, x: bb.emit(relax.op.add(x, tensor("y", 2, 4)))), CompileError, "do not broadcast"),
    (in_function(lambda bb, x: bb.emit_te(lambda A: A[0, 0], x)), TypeError, "must return te tensors"),
    (in_function(lambda bb, x: bb.emit_te(relu, te.placeholder((2,)))), TypeError, "give it relax expressions"),
    (in_function(lambda bb, x: bb.emit_te(relu, relax.Var("u", relax.ObjectStructInfo()))), TypeError, "`u`"),
    (in_function(lambda bb, x: bb.add_func(x, "f")), TypeError, "only functions can be added"),
    (lambda: bare().function("no name", [X]), TypeError, "is not a valid function name"),
    (lambda: bare().function("main", ["x"]), TypeError, "a parameter must be a relax.Var, not a string"),
    (lambda: bare().function("main", [relax.Var("y")]), TypeError, "`y` needs struct info"),
    (lambda: bare().function("main", [X, X]), TypeError, "twice"),
    (lambda: relax.BlockBuilder.missing, AttributeError, "missing"),
]


@pytest.mark.parametrize("case", REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_wrong_calls_are_refused(case: tuple[Callable[[], Any], type[Exception], str]) -> None:
    run, kind, words = case
    with pytest.raises(kind) as caught:
        run()
    assert words in str(caught.value)
    assert relax.BlockBuilder.current() is None


def test_unknown_shapes_are_refused_for_te() -> None:
    x = relax.Var("x", relax.TensorStructInfo(None, "float32", ndim=2))
    with pytest.raises(TypeError, match="`x` has no known shape"):
        builder_of([x], lambda bb: bb.emit_te(relu, x))


def test_emits_ir_nodes() -> None:
    mod = builder_of([X], lambda bb: relax.op.exp(X))
    assert type(mod["main"].body.blocks[0].bindings[0].value) is ir.Call

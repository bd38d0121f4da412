"""Programs that build modules with BlockBuilder, for mlcc and for TVM: they take what differs as `lib`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np


class Library(Protocol):
    """`relax` and `te` of one side, a symbolic variable, an operator by name, and its class of calls."""

    relax: Any
    te: Any

    def var(self, name: str) -> Any: ...
    def op(self, name: str) -> Any: ...
    def is_call(self, value: Any, name: str) -> bool: ...


Program = Callable[[Library], Any]
PROGRAMS: list[Program] = []


def program(fn: Program) -> Program:
    PROGRAMS.append(fn)
    return fn


def tensor(lib: Library, name: str, *shape: Any, dtype: str = "float32") -> Any:
    return lib.relax.Var(name, lib.relax.TensorType(shape, dtype))


# ---------------------------------------------------------------- tensor expressions that programs use


def te_matmul(te: Any) -> Any:
    def matmul(A: Any, B: Any) -> Any:
        n, m = A.shape[0], B.shape[1]
        k = te.reduce_axis((0, A.shape[1]), name="k")
        return te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="matmul")

    return matmul


def te_relu(te: Any) -> Any:
    def relu(A: Any) -> Any:
        return te.compute(A.shape, lambda *i: te.max(A(*i), 0), name="relu")

    return relu


def te_scale(te: Any) -> Any:
    def scale(A: Any, factor: float, by: str = "mul") -> Any:
        if by == "mul":
            return te.compute(A.shape, lambda *i: A(*i) * factor, name="scaled")
        return te.compute(A.shape, lambda *i: A(*i) + factor, name="shifted")

    return scale


# ---------------------------------------------------------------- blocks and bindings


@program
def mlp_of_te(lib: Library) -> Any:
    relax, te = lib.relax, lib.te
    x, w = tensor(lib, "x", 3, 4), tensor(lib, "w", 4, 5)
    bb = relax.BlockBuilder()
    with bb.function("main"):
        with bb.dataflow():
            y = bb.emit_te(te_matmul(te), x, w)
            z = bb.emit_te(te_relu(te), y)
            out = bb.emit_output(z)
        bb.emit_func_output(out, params=[x, w])
    return bb.get()


@program
def nested_operators(lib: Library) -> Any:
    relax = lib.relax
    x, y = tensor(lib, "x", 4, 4), tensor(lib, "y", 4, 4)
    bb = relax.BlockBuilder()
    with bb.function("main", [x, y]):
        with bb.dataflow():
            a = bb.emit(relax.op.add(relax.op.multiply(x, y), relax.op.nn.relu(y)), "a")
            out = bb.emit_output(relax.op.nn.softmax(relax.op.subtract(a, x), axis=1))
        bb.emit_func_output(relax.op.sum(relax.op.exp(out), axis=[0], keepdims=True))
    return bb.get()


@program
def tuples(lib: Library) -> Any:
    relax = lib.relax
    x, y = tensor(lib, "x", 2, 3), tensor(lib, "y", 2, 3)
    bb = relax.BlockBuilder()
    with bb.function("main", [x, y]):
        with bb.dataflow():
            pair = bb.emit((relax.op.add(x, y), [y, x]))
            first = bb.emit(relax.TupleGetItem(pair, 0))
            inner = bb.emit(relax.TupleGetItem(relax.TupleGetItem(pair, 1), 1))
            out = bb.emit_output((first, inner, relax.Tuple([])))
        bb.emit_func_output([out, x, relax.op.add(y, y)])
    return bb.get()


@program
def several_blocks(lib: Library) -> Any:
    """Neighbouring dataflow blocks become one; empty ones go."""
    relax = lib.relax
    x = tensor(lib, "x", 4)
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            a = bb.emit_output(relax.op.exp(x))
        with bb.dataflow():
            bb.emit(relax.op.exp(a))
            b = bb.emit_output(relax.op.add(a, a))
        c = bb.emit(relax.op.log(b))
        with bb.dataflow():
            pass
        d = bb.emit(c)
        with bb.dataflow():
            e = bb.emit_output(relax.op.add(d, c))
        bb.emit_func_output(e)
    return bb.get()


@program
def constants(lib: Library) -> Any:
    relax = lib.relax
    x = tensor(lib, "x", 2, 3)
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        a = bb.emit(relax.op.add(x, relax.const(1.5)))
        b = bb.emit(relax.op.multiply(a, relax.const(np.arange(3, dtype="float32"))))
        c = bb.emit(relax.op.astype(b, "int32"))
        d = bb.emit(relax.op.add(c, relax.const(7)))
        e = bb.emit(relax.op.add(d, relax.const([1, 2, 3])))
        bb.emit_func_output((e, relax.const(np.array([1, 2], "int64")), relax.const(True), relax.const(2, "float16")))
    return bb.get()


@program
def operators_of_expressions(lib: Library) -> Any:
    """Python's operators, on variables of which everything is known."""
    relax = lib.relax
    x, y = tensor(lib, "x", 2, 3), tensor(lib, "y", 3)
    bb = relax.BlockBuilder()
    with bb.function("main", [x, y]):
        a = bb.emit(x + y)
        b = bb.emit(a - x)
        c = bb.emit(b * y)
        d = bb.emit(c / y)
        bb.emit_func_output(bb.emit(-d))
    return bb.get()


@program
def shapes(lib: Library) -> Any:
    relax = lib.relax
    x = tensor(lib, "x", 2, 6)
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        a = bb.emit(relax.op.reshape(x, (3, 4)))
        b = bb.emit(relax.op.reshape(a, relax.ShapeExpr([12])))
        s = bb.emit(relax.ShapeExpr([3, 4]))
        c = bb.emit(relax.op.broadcast_to(relax.op.expand_dims(b, 0), (2, 12)))
        bb.emit_func_output((c, s, relax.get_shape_of(c)))
    return bb.get()


@program
def condition(lib: Library) -> Any:
    relax = lib.relax
    c, x = tensor(lib, "c", dtype="bool"), tensor(lib, "x", 4)
    bb = relax.BlockBuilder()
    with bb.function("main", [c, x]):
        y = bb.emit(relax.If(c, relax.op.add(relax.op.nn.relu(x), x), x))
        bb.emit_func_output(relax.op.exp(y))
    return bb.get()


# ---------------------------------------------------------------- functions


@program
def functions_calling_each_other(lib: Library) -> Any:
    relax, te = lib.relax, lib.te
    bb = relax.BlockBuilder()
    x = tensor(lib, "x", 4, 4)
    with bb.function("helper", [x], attrs={"note": "inner", "level": 3}, private=True):
        helper = bb.emit_func_output(relax.op.exp(x))
    y = tensor(lib, "y", 4, 4)
    with bb.function("middle", [y]):
        a = bb.emit(relax.Call(helper, [y]))
        middle = bb.emit_func_output(bb.emit_te(te_relu(te), a))
    z = tensor(lib, "z", 4, 4)
    with bb.function("main", [z]):
        with bb.dataflow():
            b = bb.emit(middle(relax.Call(helper, [z])))
            c = bb.emit_te(te_relu(te), b)
            out = bb.emit_output(c)
        bb.emit_func_output(out)
    return bb.get()


@program
def functions_shared(lib: Library) -> Any:
    """Equal functions are one; unequal ones get other names, which variables take part in."""
    relax, te = lib.relax, lib.te
    x = tensor(lib, "x", 4)
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        y = bb.emit(relax.op.exp(x), "scale")
        for factor in (2.0, 3.0, 2.0):
            y = bb.emit_te(te_scale(te), y, factor)
        y = bb.emit_te(te_scale(te), y, 2.0, by="add")
        y = bb.emit_te(te_scale(te), y, 3.0, primfunc_name_hint="other")
        y = bb.emit_te(te_scale(te), y, 5.0, primfunc_name_hint="my.op", primfunc_attrs={"op_pattern": 0})
        bb.emit_func_output(y)
    return bb.get()


@program
def functions_added(lib: Library) -> Any:
    relax, te = lib.relax, lib.te
    A = te.placeholder((4,), "float32", name="A")
    B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
    func = te.create_prim_func([A, B]).without_attr("global_symbol")
    x = tensor(lib, "x", 4)
    bb = relax.BlockBuilder()
    first = bb.add_func(func, "addone")
    second = bb.add_func(func, "again")
    with bb.function("main", [x]):
        y = bb.emit(relax.call_tir(first, (x,), relax.TensorType((4,), "float32")))
        y = bb.emit(relax.call_tir(second, [y], out_ty=relax.TensorType((4,), "float32")))
        bb.emit_func_output(y)
    return bb.get()


@program
def functions_updated(lib: Library) -> Any:
    relax = lib.relax
    bb = relax.BlockBuilder()
    x = tensor(lib, "x", 4)
    with bb.function("helper", [x], private=True):
        helper = bb.emit_func_output(relax.op.exp(x))
    y = tensor(lib, "y", 4)
    other = relax.BlockBuilder()
    with other.function("helper", [y], private=True):
        made = other.emit_func_output(relax.op.log(y))
    bb.update_func(helper, other.get()[made])
    again = bb.add_func(other.get()[made], "fresh")  # equals the updated one
    z = tensor(lib, "z", 4)
    with bb.function("main", [z]):
        bb.emit_func_output(relax.Call(again, [relax.Call(helper, [z])]))
    return bb.get()


@program
def functions_finalized(lib: Library) -> Any:
    """Public functions get the names by which they are known outside; a private one in the way gives way."""
    relax = lib.relax
    bb = relax.BlockBuilder()
    x = tensor(lib, "x", 4)
    with bb.function("main", [x], private=True):
        inner = bb.emit_func_output(relax.op.exp(x))
    y = tensor(lib, "y", 4)
    with bb.function("main", [y]):
        bb.emit_func_output(relax.op.log(relax.Call(inner, [y])))
    return bb.finalize()


@program
def packed_functions(lib: Library) -> Any:
    relax = lib.relax
    x = tensor(lib, "x", 2, 2)
    info = relax.TensorType((2, 2), "float32")
    bb = relax.BlockBuilder()
    with bb.function("main", [x], pure=False):
        a = bb.emit(relax.call_dps_packed("env.f", (x,), info))
        b = bb.emit(relax.call_dps_packed("env.f", a, out_ty=info))
        c = bb.emit(relax.call_dps_packed("env.two", (a, b), [info, info]))
        d = bb.emit(relax.call_pure_packed("env.g", relax.TupleGetItem(c, 0), ty_args=info))
        e = bb.emit(relax.Call(relax.ExternFunc("env.h"), [d, x], ty_args=[info]))
        bb.emit(relax.op.print(e, format="{}"))
        bb.emit_func_output((d, e))
    return bb.get()


# ---------------------------------------------------------------- symbolic shapes


@program
def symbolic(lib: Library) -> Any:
    relax, te = lib.relax, lib.te
    n = lib.var("n")
    x, y = tensor(lib, "x", n, 4), tensor(lib, "y", n + 1)

    def take(A: Any, k: Any) -> Any:
        return te.compute((k,), lambda i: A[i], name="taken")

    bb = relax.BlockBuilder()
    with bb.function("main", [x, y]):
        a = bb.emit_te(take, y, n)
        b = bb.emit_te(take, y, n + 1)
        c = bb.emit_te(take, y, 4)
        d = bb.emit_te(te_relu(te), x)
        e = bb.emit(relax.op.add(d, x))
        s = bb.emit(relax.op.shape_of(e))
        bb.emit_func_output((a, b, c, e, s))
    return bb.get()


@program
def symbolic_matmul(lib: Library) -> Any:
    relax, te = lib.relax, lib.te
    n, m = lib.var("n"), lib.var("m")
    x, w = tensor(lib, "x", n, m), tensor(lib, "w", m, 8)
    bb = relax.BlockBuilder()
    with bb.function("main", [x, w]):
        with bb.dataflow():
            a = bb.emit(relax.op.matmul(x, w))
            b = bb.emit_te(te_matmul(te), x, w)
            c = bb.emit(relax.op.reshape(a, (n * 8,)))
            out = bb.emit_output((b, c))
        bb.emit_func_output(out)
    return bb.get()


@program
def shape_arguments(lib: Library) -> Any:
    relax, te = lib.relax, lib.te
    n = lib.var("n")
    x = tensor(lib, "x", n, 4)

    def fill(shape: Any, value: float) -> Any:
        return te.compute(shape, lambda *i: te.const(value, "float32"), name="filled")

    def collect(parts: Any, named: Any) -> Any:
        return te.compute((4,), lambda i: parts[0][0, i] + parts[1][i] + named["last"][i], name="collected")

    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        a = bb.emit_te(fill, relax.ShapeExpr([n, 2]), 1.0)
        b = bb.emit_te(fill, [4], 2.0)
        c = bb.emit_te(collect, [x, b], {"last": b})
        bb.emit_func_output((a, c))
    return bb.get()


@program
def several_results(lib: Library) -> Any:
    relax, te = lib.relax, lib.te

    def both(A: Any) -> Any:
        return [
            te.compute(A.shape, lambda *i: A(*i) + 1.0, name="up"),
            te.compute(A.shape, lambda *i: A(*i) - 1.0, name="down"),
        ]

    def single(A: Any) -> Any:
        return [te.compute(A.shape, lambda i: A[i] * 2.0, name="one")]

    x = tensor(lib, "x", 3)
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        pair = bb.emit_te(both, x)
        only = bb.emit_te(
            lambda A: [te.compute(A.shape, lambda i: A[i] * 2.0, name="one")], x, primfunc_name_hint="one"
        )
        bb.emit_func_output((relax.TupleGetItem(pair, 1), only))
    return bb.get()


@program
def casts(lib: Library) -> Any:
    relax = lib.relax
    n, m = lib.var("n"), lib.var("m")
    x = relax.Var("x", relax.TensorType(None, "float32", ndim=2))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            a = bb.match_cast(x, relax.TensorType((n, m), "float32"))
            b = bb.emit(relax.op.add(a, a))
            c = bb.emit_output(relax.op.reshape(b, (m, n)))
        d = bb.match_cast(c, relax.TensorType((m, 3), "float32"), "d")
        bb.emit_func_output(d)
    return bb.get()


@program
def symbolic_call(lib: Library) -> Any:
    """Results of functions take the arguments' sizes."""
    relax = lib.relax
    bb = relax.BlockBuilder()
    n = lib.var("n")
    x = tensor(lib, "x", n, 2)
    with bb.function("double", [x], private=True):
        double = bb.emit_func_output(relax.op.concat([x, x], axis=0))
    m = lib.var("m")
    y, z = tensor(lib, "y", m, 2), tensor(lib, "z", 3, 2)
    with bb.function("main", [y, z]):
        a = bb.emit(relax.Call(double, [y]))
        b = bb.emit(relax.Call(double, [z]))
        bb.emit_func_output((a, b))
    return bb.get()


# ---------------------------------------------------------------- mutators


def multiply_add(lib: Library) -> Any:
    relax = lib.relax
    x, y = tensor(lib, "x", 4, 4), tensor(lib, "y", 4, 4)
    bb = relax.BlockBuilder()
    with bb.function("main", [x, y]):
        with bb.dataflow():
            a = bb.emit(relax.op.multiply(x, y))
            b = bb.emit(relax.op.add(a, y))
            c = bb.emit(relax.op.nn.relu(b))
            out = bb.emit_output((c, b))
        bb.emit_func_output(relax.op.add(relax.TupleGetItem(out, 0), x))
    return bb.get()


@program
def rewrite_to_fma(lib: Library) -> Any:
    relax = lib.relax

    @relax.expr_functor.mutator
    class Fma(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            if not lib.is_call(call, "relax.add"):
                return call
            value = self.lookup_binding(call.args[0])
            if value is None or not lib.is_call(value, "relax.multiply"):
                return call
            return relax.Call(lib.op("relax.ewise_fma"), [value.args[0], value.args[1], call.args[1]], None, None)

    mod = multiply_add(lib)
    mutator = Fma(mod)
    gv = mod.get_global_var("main")
    mutator.builder_.update_func(gv, mutator.visit_expr(mod[gv]))
    return mutator.builder_.get()


@program
def rewrite_to_nested_calls(lib: Library) -> Any:
    """What comes back need not be in normal form; struct info that changes is carried on."""
    relax = lib.relax

    @relax.expr_functor.mutator
    class Wider(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            if lib.is_call(call, "relax.add"):
                a, b = (self.visit_expr(arg) for arg in call.args)
                return relax.op.add(a, relax.op.astype(relax.op.nn.relu(b), "float16"))
            call = self.visit_expr_post_order(call)
            if lib.is_call(call, "relax.multiply"):
                return relax.op.astype(relax.op.exp(call.args[0]), "float16")
            return call

    mod = multiply_add(lib)
    mutator = Wider(mod)
    gv = mod.get_global_var("main")
    mutator.builder_.update_func(gv, mutator.visit_expr(mod[gv]))
    return mutator.builder_.get()


@program
def lower_by_te(lib: Library) -> Any:
    """Operators become calls of tensor expressions, by a table."""
    relax, te = lib.relax, lib.te

    def add(A: Any, B: Any) -> Any:
        return te.compute(A.shape, lambda *i: A(*i) + B(*i), name="T_add")

    table = {
        "relax.nn.relu": lambda bb, call: bb.call_te(te_relu(te), call.args[0]),
        "relax.add": lambda bb, call: bb.call_te(add, call.args[0], call.args[1]),
        "relax.multiply": lambda bb, call: bb.emit_te(add, *call.args, primfunc_name_hint="product"),
    }

    @relax.expr_functor.mutator
    class Lower(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            for name, rule in table.items():
                if lib.is_call(call, name):
                    return rule(self.builder_, call)
            return call

        def transform(self, mod: Any) -> Any:
            gv = mod.get_global_var("main")
            self.builder_.update_func(gv, self.visit_expr(mod[gv]))
            return self.builder_.get()

    return Lower().transform(multiply_add(lib))


@program
def fuse_matmul_add(lib: Library) -> Any:
    """A fusor as people write it: it builds a function of its own for what it found."""
    relax = lib.relax

    @relax.expr_functor.mutator
    class Fusor(relax.PyExprMutator):  # type: ignore[misc]
        def __init__(self, mod: Any) -> None:
            super().__init__()
            self.mod_ = mod
            self.counter = 0

        def transform(self) -> Any:
            for global_var in self.mod_.get_global_vars():
                func = self.mod_[global_var]
                if not isinstance(func, relax.Function):
                    continue
                if func.attrs is not None and "Primitive" in func.attrs and func.attrs["Primitive"] != 0:
                    continue
                updated = relax.analysis.remove_all_unused(self.visit_expr(func))
                self.builder_.update_func(global_var, updated)
            return self.builder_.get()

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            if not lib.is_call(call, "relax.add"):
                return call
            value = self.lookup_binding(call.args[0])
            if value is None or not lib.is_call(value, "relax.matmul"):
                return call
            x, w, b = value.args[0], value.args[1], call.args[1]
            param_x = relax.Var("x", relax.TensorType(x.ty.shape, x.ty.dtype))
            param_w = relax.Var("w", relax.TensorType(w.ty.shape, w.ty.dtype))
            param_b = relax.Var("b", relax.TensorType(b.ty.shape, b.ty.dtype))
            bb = relax.BlockBuilder()
            name = f"fused_matmul_add{self.counter}"
            self.counter += 1
            with bb.function(name, [param_x, param_w, param_b]):
                with bb.dataflow():
                    lv0 = bb.emit(relax.op.matmul(param_x, param_w))
                    gv = bb.emit_output(relax.op.add(lv0, param_b))
                bb.emit_func_output(gv)
            fused = bb.get()[name].with_attr("Primitive", 1)
            global_var = self.builder_.add_func(fused, name)
            return relax.Call(global_var, [x, w, b], None, None)

    x = tensor(lib, "x", 1, 8)
    w0, b0, w1, b1 = tensor(lib, "w0", 8, 6), tensor(lib, "b0", 6), tensor(lib, "w1", 6, 3), tensor(lib, "b1", 3)
    bb = relax.BlockBuilder()
    with bb.function("main", [x, w0, b0, w1, b1]):
        with bb.dataflow():
            y = bb.emit(relax.op.nn.relu(relax.op.add(relax.op.matmul(x, w0), b0)))
            out = bb.emit_output(relax.op.add(relax.op.matmul(y, w1), b1))
        bb.emit_func_output(out)
    return Fusor(bb.get()).transform()


@program
def rewrite_variables(lib: Library) -> Any:
    """Bindings dropped, uses remapped, bindings put in front."""
    relax = lib.relax

    @relax.expr_functor.mutator
    class Skip(relax.PyExprMutator):  # type: ignore[misc]
        def visit_var_binding_(self, binding: Any) -> None:
            if lib.is_call(binding.value, "relax.nn.relu"):
                extra = self.builder_.emit(relax.op.exp(self.visit_expr(binding.value.args[0])))
                self.set_var_remap(binding.var, extra)
                return
            super().visit_var_binding_(binding)

    mod = multiply_add(lib)
    mutator = Skip(mod)
    gv = mod.get_global_var("main")
    mutator.builder_.update_func(gv, mutator.visit_expr(mod[gv]))
    return mutator.builder_.get()


@program
def rewrite_branches(lib: Library) -> Any:
    relax = lib.relax

    @relax.expr_functor.mutator
    class Twice(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            return relax.op.nn.relu(relax.op.negative(call.args[0])) if lib.is_call(call, "relax.nn.relu") else call

    mod = condition(lib)
    mutator = Twice(mod)
    gv = mod.get_global_var("main")
    mutator.builder_.update_func(gv, mutator.visit_expr(mod[gv]))
    return mutator.builder_.get()

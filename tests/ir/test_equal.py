"""Structural equality: what counts and what does not, its messages, its hash, its cost."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import BOOL, FLOAT32, INT32, INT64, DType
from mlcc.ir.equal import StructuralDifference, assert_structural_equal, structural_equal, structural_hash
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, Node, children, field_names, replace
from mlcc.ir.tensor_data import TensorData
from mlcc.ir.visit import Rewriter
from tests.generate.functions import prim_func
from tests.generate.graphs import module

HANDLE = DType.of("handle")


def var(name: str = "x", dtype: DType = INT32) -> tir.Var:
    return tir.Var(name, dtype)


class Renamer(Rewriter):
    """A copy with new variables and buffers of other names, and new nodes throughout."""

    def visit(self, node: Any) -> Any:
        found = self._memo.get(id(node))
        if found is not None:
            return found[1]
        made = self.copy(node)
        self._memo[id(node)] = (node, made)
        return made

    def copy(self, node: Any) -> Any:
        values = {n: self.value(getattr(node, n)) for n in field_names(type(node))}
        if isinstance(node, (tir.Var, tir.Buffer, tir.Block)) or type(node) in (relax.Var, relax.DataflowVar):
            values["name"] = node.name + "_renamed"
        return type(node)(**values)

    def value(self, value: Any) -> Any:
        if isinstance(value, Node):
            return self.visit(value)
        return tuple(self.value(v) for v in value) if isinstance(value, tuple) else value


def renamed(mod: IRModule) -> IRModule:
    return IRModule({n: Renamer().visit(f) for n, f in mod.functions.items()}, mod.attrs, "Other")


def programs() -> list[IRModule]:
    return [IRModule({"main": prim_func(seed)}) for seed in range(40)] + [module(seed) for seed in range(25)]


@pytest.mark.parametrize("index", range(65))
def test_renaming_changes_nothing(index: int) -> None:
    mod = programs()[index]
    other = renamed(mod)
    assert_structural_equal(mod, mod)
    assert_structural_equal(mod, other)
    assert structural_equal(other, mod)
    assert structural_hash(mod) == structural_hash(other)


class Mutator(Rewriter):
    """Changes the node number `at`, if there is something in it to change."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at
        self.changed: str | None = None

    def rewrite(self, node: Any) -> Any:
        self.at -= 1
        if self.at != 0:
            return node
        made = mutation(node)
        if made is not node:
            self.changed = type(node).__name__
        return made


def mutation(node: Any) -> Any:
    match node:
        case tir.IntImm(value=value, dtype=dtype):
            return tir.IntImm(dtype, 1 - value if dtype.is_bool else (value + 1) % 100)
        case tir.FloatImm(value=value, dtype=dtype):
            return tir.FloatImm(dtype, -value)
        case tir.Add(dtype, lhs, rhs):
            return tir.Sub(dtype, lhs, rhs)
        case tir.Call(dtype=dtype, op=tir.Op(name=name), args=args):
            return tir.Call(dtype, tir.Op(name + "_other"), args)
        case tir.For(kind=tir.ForKind.SERIAL):
            return replace(node, kind=tir.ForKind.UNROLLED)
        case tir.IterVar(kind=tir.IterKind.SPATIAL):
            return replace(node, kind=tir.IterKind.REDUCE)
        case tir.Buffer(alignment=alignment):
            return replace(node, alignment=alignment * 2)
        case tir.Block(annotations=notes):
            return replace(node, annotations=notes.with_item("new", 1))
        case relax.TensorStructInfo(dtype=dtype) if dtype is not INT32:
            return replace(node, dtype=INT32)
        case relax.Call(op=tir.Op(name=name)):
            return replace(node, op=tir.Op(name + "_other"))
        case relax.DataflowVar(name=name, struct_info=info):
            return relax.Var(name, info)
        case relax.Tuple(fields=fields) if fields:
            return replace(node, fields=fields[:-1])
        case tir.BufferStore(buffer=buffer, value=value, indices=indices):
            return tir.BufferStore(buffer, tir.Select(value.dtype, tir.TRUE, value, value), indices)
    return node


def test_mutations_are_found() -> None:
    rng = random.Random(7)
    kinds = set()
    for mod in programs():
        for name, func in mod.functions.items():
            for _ in range(8):
                mutator = Mutator(rng.randint(1, 200))
                made = mutator.visit(func)
                if mutator.changed is None or mutator.changed == "relax.GlobalVar":
                    continue
                if only_derived_differs(func, made):
                    continue
                kinds.add(mutator.changed)
                other = IRModule({**mod.functions, name: made}, mod.attrs)
                assert not structural_equal(mod, other), mutator.changed
                with pytest.raises(StructuralDifference) as caught:
                    assert_structural_equal(mod, other)
                assert "left:" in str(caught.value) and caught.value.path.startswith(f"root[{name!r}]")
    assert len(kinds) >= 9, kinds


def only_derived_differs(old: Any, new: Any) -> bool:
    """True if only derived struct info changed, which does not count."""

    def counted(node: Any) -> list[Any]:
        made, stack = [], [node]
        while stack:
            top = stack.pop()
            made.append(top)
            for child in children(top):
                info = isinstance(top, relax.Expr) and not isinstance(top, relax.Var) and child is top.struct_info
                if not info:
                    stack.append(child)
        return made

    return {id(n) for n in counted(old)} == {id(n) for n in counted(new)} or old is new


# ---------------------------------------------------------------- single rules


def loop(body_of: Any, name: str = "i", extent: int = 4) -> tir.For:
    i = var(name)
    return tir.For(i, c.const(0), c.const(extent), tir.ForKind.SERIAL, (tir.Evaluate(body_of(i)),))


def test_bound_variables_are_compared_by_position() -> None:
    assert structural_equal(loop(lambda i: i, "i"), loop(lambda i: i, "j"))
    free = var("j")
    assert not structural_equal(loop(lambda i: i), loop(lambda i: free))
    assert not structural_equal(loop(lambda i: free), loop(lambda i: i))


def test_free_variables_are_compared_by_identity() -> None:
    a, b = var("a"), var("a")
    assert structural_equal(a, a) and not structural_equal(a, b)
    assert structural_equal(a, b, map_free_vars=True)
    assert not structural_equal(c.add(a, a), c.add(a, b), map_free_vars=True)
    assert not structural_equal(c.add(a, b), c.add(a, a), map_free_vars=True)
    assert not structural_equal(a, var("a", INT64), map_free_vars=True)
    f, g = c.make_buffer("A", (4,)), c.make_buffer("B", (4,))
    assert not structural_equal(c.load(f, 0), c.load(g, 0))
    assert structural_equal(c.load(f, 0), c.load(g, 0), map_free_vars=True)
    assert not structural_equal(c.load(f, 0), c.load(c.make_buffer("B", (5,)), 0), map_free_vars=True)


def test_shadowed_objects_are_no_shortcut() -> None:
    """A shared subtree is equal to itself only if its variables stand for themselves."""
    a, b = var("a"), var("b")
    shared = c.add(a, 1)
    left = tir.Let(INT32, a, c.const(1), shared)
    right = tir.Let(INT32, b, c.const(1), shared)
    assert not structural_equal(left, right)
    assert structural_equal(left, tir.Let(INT32, b, c.const(1), c.add(b, 1)))


def test_scopes_are_one_to_one() -> None:
    a, b, x = var("a"), var("b"), var("x")
    two = (tir.Bind(a, c.const(1)), tir.Bind(b, c.const(1)), tir.Evaluate(c.add(a, b)))
    one = (tir.Bind(x, c.const(1)), tir.Bind(var(), c.const(1)), tir.Evaluate(c.add(x, x)))
    assert not structural_equal(two, one) and not structural_equal(one, two)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (0.0, -0.0, False),
        (float("nan"), float("nan"), True),
        (1.5, 1.5, True),
        (1, True, False),
        (1, 1.0, False),
        (0, False, False),
        ("1", 1, False),
        (None, False, False),
        ((1, 2), (1, 2), True),
        ((1, 2), (1,), False),
        ((1, (True,)), (1, (1,)), False),
        (Attrs(a=1, b=2), Attrs(b=2, a=1), True),
        (Attrs(a=1), Attrs(a=1, b=None), False),
        (c.const(3), 3, True),
        (tir.TRUE, True, True),
        (tir.TRUE, 1, False),
        (c.const(3, "int64"), 3, False),
        (tir.StringImm("x"), "x", True),
        (np.int64(3), 3, True),
        (DType.of("int8"), "int8", True),
    ],
)
def test_attributes_count(a: Any, b: Any, same: bool) -> None:
    f = tir.PrimFunc((), (), Attrs(k=a), ())
    g = tir.PrimFunc((), (), Attrs(k=b), ())
    assert structural_equal(f, g) == same == structural_equal(g, f)
    if same:
        assert structural_hash(f) == structural_hash(g)


def test_float_constants_are_equal_by_dtype_and_bits() -> None:
    def make(value: float, dtype: DType = FLOAT32) -> tir.FloatImm:
        return tir.FloatImm(dtype, value)

    assert structural_equal(make(float("nan")), make(-float("nan")))
    assert not structural_equal(make(0.0), make(-0.0))
    assert not structural_equal(make(1.0), make(1.0, DType.of("float64")))


def test_parameters_bind_their_shapes() -> None:
    def func(symbol: str, second: bool) -> tir.PrimFunc:
        n = var(symbol, INT64)
        m = var("m", INT64)
        a, b = c.make_buffer("A", (n, 4)), c.make_buffer("B", (m if second else n, 4))
        params = (tir.Var("a", HANDLE), tir.Var("b", HANDLE))
        return tir.PrimFunc(params, (a, b), Attrs(), (tir.Evaluate(c.load(a, n, 0)),))

    assert structural_equal(func("n", False), func("k", False))
    assert not structural_equal(func("n", False), func("n", True))
    assert structural_hash(func("n", False)) == structural_hash(func("k", False))


def test_regions_and_predicates_count() -> None:
    def block(extent: int, predicate: tir.Expr = tir.TRUE) -> tir.PrimFunc:
        a = c.make_buffer("A", (8,))
        region = tir.BufferRegion(a, (tir.Range(c.const(0), c.const(extent)),))
        inner = tir.Block("b", (), (region,), (), (tir.Evaluate(c.const(0)),))
        body = tir.BlockRealize((), predicate, inner)
        return tir.PrimFunc((tir.Var("a", HANDLE),), (a,), Attrs(), (body,))

    assert structural_equal(block(8), block(8))
    assert not structural_equal(block(8), block(4))
    assert not structural_equal(block(8), block(8, tir.IntImm(BOOL, 0)))


def test_statements_that_do_nothing() -> None:
    nothing, something = tir.Evaluate(c.const(0)), tir.Evaluate(c.const(1))
    plain = tir.IfThenElse(tir.TRUE, (something,), None)
    assert structural_equal(plain, tir.IfThenElse(tir.TRUE, (nothing, something, nothing), None))
    assert structural_equal(tir.While(tir.TRUE, ()), tir.While(tir.TRUE, (nothing,)))
    assert structural_hash(tir.While(tir.TRUE, ())) == structural_hash(tir.While(tir.TRUE, (nothing,)))
    assert not structural_equal(plain, tir.IfThenElse(tir.TRUE, (something,), (nothing,)))


def test_index_maps_are_compared_by_structure() -> None:
    def swap(first: str, second: str) -> tir.IndexMap:
        i, j = tir.Var(first, INT64), tir.Var(second, INT64)
        return tir.IndexMap((i, j), (j, i))

    def func(made: tir.IndexMap) -> tir.PrimFunc:
        return tir.PrimFunc((), (), Attrs(layout=made), ())

    assert structural_equal(func(swap("i", "j")), func(swap("a", "b")))
    i, j = tir.Var("i", INT64), tir.Var("j", INT64)
    assert not structural_equal(func(swap("i", "j")), func(tir.IndexMap((i, j), (i, j))))


def test_constants_are_compared_by_content() -> None:
    def const(values: list[float], key: str) -> relax.Constant:
        return relax.Constant(TensorData.of(np.array(values, "float32"), key=key))

    assert structural_equal(const([1, 2], "a"), const([1, 2], "b"))
    assert structural_hash(const([1, 2], "a")) == structural_hash(const([1, 2], "b"))
    assert not structural_equal(const([1, 2], "a"), const([1, 3], "a"))
    absent = relax.Constant(TensorData(FLOAT32, (2,), None, "a"))
    assert not structural_equal(const([1, 2], "a"), absent)


def test_derived_struct_info_does_not_count() -> None:
    x = relax.Var("x", relax.TensorStructInfo(None, FLOAT32, 2))
    call = relax.Call(tir.Op("relax.abs"), (x,))
    assert structural_equal(call, replace(call, struct_info=x.struct_info))
    one, two = (relax.BindingBlock((relax.VarBinding(relax.Var("y", s), call),)) for s in (x.struct_info, None))
    assert not structural_equal(one, two)


def test_match_cast_binds() -> None:
    x = relax.Var("x", relax.TensorStructInfo(None, FLOAT32, 1))

    def cast(name: str) -> tuple[relax.BindingBlock, tir.Var]:
        k = var(name, INT64)
        info = relax.TensorStructInfo(relax.ShapeExpr((k,)), FLOAT32, 1)
        return relax.BindingBlock((relax.MatchCast(relax.Var("y", info), x, info),)), k

    (a, k), (b, m) = cast("k"), cast("m")
    assert structural_equal(a, b)
    shape_a, shape_b = relax.ShapeExpr((k,)), relax.ShapeExpr((m,))
    assert structural_equal(relax.SeqExpr((a,), shape_a), relax.SeqExpr((b,), shape_b))
    assert not structural_equal(relax.SeqExpr((a,), shape_a), relax.SeqExpr((b,), shape_a))


def test_modules_by_function_names() -> None:
    f, g = prim_func(1), prim_func(2)
    assert structural_equal(IRModule({"f": f, "g": g}), IRModule({"g": g, "f": f}, name="Other"))
    with pytest.raises(StructuralDifference, match="`f` only on the left, nothing only on the right"):
        assert_structural_equal(IRModule({"f": f, "g": g}), IRModule({"g": g}))
    assert not structural_equal(IRModule({"f": f}), IRModule({"f": f}, {"a": 1}))


# ---------------------------------------------------------------- messages


def caret_text(message: str, side: str) -> list[str]:
    """The texts above the carets of one side."""
    lines = message.split(side + ":\n")[1].split("\nright:")[0].splitlines()
    at = next(i for i, line in enumerate(lines) if set(line.split("|")[1].strip()) == {"^"})
    marks = lines[at]
    return [lines[at - 1][marks.index("^") : marks.rindex("^") + 1]]


def difference(a: Any, b: Any) -> str:
    with pytest.raises(StructuralDifference) as caught:
        assert_structural_equal(a, b)
    return str(caught.value)


def store_func(value_of: Any, extent: int = 8) -> tir.PrimFunc:
    a = c.make_buffer("A", (8,))
    i = var("i")
    body = tir.For(i, c.const(0), c.const(extent), tir.ForKind.SERIAL, (c.store(a, value_of(a, i), i),))
    return tir.PrimFunc((tir.Var("A", HANDLE),), (a,), Attrs(global_symbol="f"), (body,))


def test_message_points_to_the_expression() -> None:
    f = store_func(lambda a, i: c.add(c.load(a, i), c.mul(c.load(a, i), c.load(a, c.sub(7, i)))))
    g = store_func(lambda a, i: c.add(c.load(a, i), c.mul(c.load(a, i), c.load(a, c.sub(6, i)))))
    message = difference(f, g)
    assert "root.body[0].body[0].value.rhs.rhs.indices[0].lhs.value: 7 against 6" in message
    assert caret_text(message, "left") == ["7"] and caret_text(message, "right") == ["6"]


def test_message_tells_equal_siblings_apart() -> None:
    """`i` occurs twice under one parent; the difference is at the second."""
    f = store_func(lambda a, i: tir.Select(FLOAT32, tir.TRUE, c.load(a, i), c.load(a, i)))
    g = store_func(lambda a, i: tir.Select(FLOAT32, tir.TRUE, c.load(a, i), c.load(a, c.add(i, 1))))
    assert caret_text(difference(f, g), "right") == ["i + 1"]


def test_message_points_to_the_statement() -> None:
    message = difference(store_func(lambda a, i: 0.0), store_func(lambda a, i: 0.0, extent=7))
    assert caret_text(message, "left") == ["8"]
    f = store_func(lambda a, i: 0.0)
    other = replace(f, body=(replace(f.body[0], kind=tir.ForKind.PARALLEL),))
    message = difference(f, other)
    assert "serial against parallel" in message
    assert caret_text(message, "right") == ["for i in T.parallel(8):"]


def test_message_points_into_modules() -> None:
    mod = IRModule({"f": store_func(lambda a, i: 0.0), "g": store_func(lambda a, i: 1.0)})
    other = IRModule({"f": mod["f"], "g": store_func(lambda a, i: 2.0)})
    message = difference(mod, other)
    assert "root['g'].body[0].body[0].value.value" in message
    assert caret_text(message, "left") == ["T.float32(1.0)"]


def test_message_of_a_module_against_a_function() -> None:
    func = prim_func(1)
    with pytest.raises(StructuralDifference, match="^not structurally equal at root: IRModule against PrimFunc\n"):
        assert_structural_equal(IRModule({"f": func}), func)


def test_message_points_into_graphs() -> None:
    x = relax.Var("x", relax.TensorStructInfo(None, FLOAT32, 2))

    def graph(op: str) -> relax.Function:
        y = relax.DataflowVar("y", x.struct_info)
        z = relax.Var("z", x.struct_info)
        inner = relax.Call(tir.Op("relax.abs"), (x,))
        bindings = (relax.VarBinding(y, inner), relax.VarBinding(z, relax.Call(tir.Op(op), (y, y))))
        seq = relax.SeqExpr((relax.DataflowBlock(bindings),), z)
        return relax.Function((x,), seq, x.struct_info, True, Attrs(global_symbol="main"))

    message = difference(graph("relax.add"), graph("relax.subtract"))
    assert caret_text(message, "left") == ["R.add(y, y)"]
    assert caret_text(message, "right") == ["R.subtract(y, y)"]


# ---------------------------------------------------------------- cost


def chain(count: int) -> tir.Expr:
    x = var()
    made: tir.Expr = x
    for i in range(count):
        made = tir.Add(INT32, made, tir.IntImm(INT32, i))
    return tir.Let(INT32, x, c.const(1), made)


def test_deep_expressions_are_compared() -> None:
    a, b = chain(20_000), chain(20_000)
    assert structural_equal(a, b)
    assert structural_hash(a) == structural_hash(b)
    assert not structural_equal(a, chain(20_001))


def test_shared_nodes_are_compared_once() -> None:
    def doubling(count: int) -> tir.Expr:
        x = var()
        made: tir.Expr = x
        for _ in range(count):
            made = tir.Add(INT32, made, made)
        return tir.Let(INT32, x, c.const(1), made)

    assert structural_equal(doubling(200), doubling(200))
    assert structural_hash(doubling(200)) == structural_hash(doubling(200))


def test_sharing_does_not_count() -> None:
    def lets(shared: bool) -> tir.Expr:
        def one() -> tir.Expr:
            t = var("t")
            return tir.Let(INT32, t, c.const(1), c.add(t, t))

        first = one()
        return tir.Add(INT32, tir.Add(INT32, first, first if shared else one()), one())

    assert structural_equal(lets(True), lets(False))
    assert structural_hash(lets(True)) == structural_hash(lets(False))


def test_hash_does_not_depend_on_the_process() -> None:
    code = "from tests.generate.graphs import module; from mlcc.ir.equal import structural_hash"
    code += "; print(structural_hash(module(3)))"
    made = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout
        for env in ({"PYTHONHASHSEED": "1", "PYTHONPATH": "."}, {"PYTHONHASHSEED": "2", "PYTHONPATH": "."})
    }
    assert len(made) == 1 and made.pop().strip() == str(structural_hash(module(3)))

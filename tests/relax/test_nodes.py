"""Names, operators and calls as Python programs write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlcc import ops, relax, te
from mlcc.errors import CompileError
from mlcc.ir import relax as ir
from mlcc.ir import tir
from mlcc.ops.signature import short_name

X = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))


def text(node: Any) -> str:
    return str(node)


def test_public_names_exist() -> None:
    for name in dir(relax):
        assert getattr(relax, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Foo'"):
        _ = relax.Foo


def test_names_stand_for_the_classes_of_the_ir() -> None:
    call = relax.op.exp(X)
    assert type(call) is ir.Call and isinstance(call, relax.Call) and isinstance(X, relax.Var)
    assert not isinstance(X, relax.DataflowVar) and isinstance(relax.DataflowVar("y"), relax.Var)
    assert isinstance(X, relax.Var | relax.Call) and issubclass(ir.DataflowVar, relax.Var)
    assert issubclass(relax.DataflowVar, relax.Var) and not issubclass(relax.Call, relax.Var)
    assert relax.TensorType is relax.TensorStructInfo
    match call:
        case relax.Call(op=tir.Op(name), args=(relax.Var(),)):
            assert name == "relax.exp"
        case _:
            pytest.fail("no match")
    match relax.TupleGetItem(relax.Tuple([X, X]), 1):
        case relax.TupleGetItem(relax.Tuple((first, _)), index):
            assert (first, index) == (X, 1)
        case _:
            pytest.fail("no match")


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (relax.TensorStructInfo((2, 3)), 'R.Tensor((2, 3), dtype="float32")'),
        (relax.TensorStructInfo([te.var("n", "int64") * 2], np.float16), 'R.Tensor((n * 2,), dtype="float16")'),
        (relax.TensorStructInfo(None, None, ndim=3), "R.Tensor(ndim=3)"),
        (relax.TensorStructInfo(dtype=""), "R.Tensor"),
        (relax.TensorStructInfo(relax.ShapeExpr([4]), "int8"), 'R.Tensor((4,), dtype="int8")'),
        (relax.ShapeStructInfo([np.int64(2), 3]), "R.Shape([2, 3])"),
        (relax.ShapeStructInfo(ndim=2), "R.Shape(ndim=2)"),
        (relax.PrimStructInfo("int64"), 'R.Prim("int64")'),
        (relax.PrimStructInfo(value=3), "R.Prim(value=T.int64(3))"),
        (relax.TupleStructInfo([X.struct_info, relax.ObjectStructInfo()]).fields[1], "R.Object"),
        (relax.Tuple([X, (X, 1.5)]), "(x, (x, R.prim_value(T.float32(1.5))))"),
        (relax.ShapeExpr((1, 2)), "R.shape([1, 2])"),
        (relax.const(1), 'R.const(1, "int32")'),
        (relax.const(np.float64(1.5)), 'R.const(1.5, "float32")'),
        (relax.const([1, 2], "bfloat16"), 'R.const([1.0, 2.0], "bfloat16")'),
        (relax.const([1, 2], relax.TensorStructInfo((2,), "int8")), 'R.const([1, 2], "int8")'),
        (relax.const(True), 'R.const(True, "bool")'),
        (relax.Constant(np.array([1, 2])), 'R.const([1, 2], "int64")'),
        (relax.StringImm("a"), 'R.str("a")'),
        (relax.get_shape_of(X), "R.shape([2, 3])"),
        (relax.get_shape_of(relax.Var("y", relax.TensorStructInfo(None, "float32"))), "R.shape_of(y)"),
        (
            relax.call_dps_packed("f", X, X.struct_info),
            'R.call_dps_packed("f", (x,), out_sinfo=R.Tensor((2, 3), dtype="float32"))',
        ),
        (relax.op.add(X, np.ones(3, "float32")), 'R.add(x, R.const([1.0, 1.0, 1.0], "float32"))'),
        (relax.op.add(X, np.float32(2)), 'R.add(x, R.const(2.0, "float32"))'),
        (relax.op.reshape(X, np.array([3, 2])), "R.reshape(x, R.shape([3, 2]))"),
        (relax.op.sum(X, axis=np.int64(1)), "R.sum(x, axis=[1], keepdims=False)"),
        (relax.op.astype(X, np.float16), 'R.astype(x, dtype="float16")'),
        (
            relax.op.concat([X, np.zeros((1, 3), "float32")]),
            'R.concat((x, R.const([[0.0, 0.0, 0.0]], "float32")), axis=0)',
        ),
        (X * X - X, "R.subtract(R.multiply(x, x), x)"),
        (np.ones(3, "float32") + X, 'R.add(R.const([1.0, 1.0, 1.0], "float32"), x)'),
        (-X, "R.negative(x)"),
        (X**X, "R.power(x, x)"),
        (X < X, "R.less(x, x)"),
    ],
)  # fmt: skip
def test_nodes_print_as_expected(node: Any, expected: str) -> None:
    assert text(node).strip() == expected


def test_shapes_are_computed_with() -> None:
    rows, columns = X.struct_info.shape
    assert int(rows) == 2 and columns.value == 3 and rows != columns
    made = relax.TensorStructInfo((rows * 2, columns + 1), "float32")
    assert text(made) == 'R.Tensor((4, 4), dtype="float32")'
    n = te.var("n", "int64")
    (dim,) = relax.TensorStructInfo((n,), "float32").shape
    with pytest.raises(AttributeError, match="not a constant"):
        _ = dim.value


def test_tuples_are_taken_apart() -> None:
    pair = relax.Var("t", relax.TupleStructInfo([X.struct_info, X.struct_info]))
    first, second = pair
    assert isinstance(first, relax.TupleGetItem) and second.index == 1 and second.struct_info is X.struct_info
    with pytest.raises(IndexError, match="item 2 of a tuple of 2"):
        _ = pair[2]
    with pytest.raises(TypeError, match="only tuples have items"):
        _ = X[0]
    with pytest.raises(TypeError, match="can be unpacked"):
        _ = [*X]


def test_every_operator_is_a_function() -> None:
    for name in ops.names():
        at: Any = relax.op
        for part in short_name(name).split("."):
            at = getattr(at, part)
        assert callable(at), name
    assert "softmax" in dir(relax.op.nn) and "add" in dir(relax.op)
    assert relax.op.nn.relu is relax.op.nn.relu


def test_attributes_of_calls_have_defaults() -> None:
    assert relax.Call("relax.nn.softmax", [X]).attrs["axis"] == -1
    assert relax.Call(relax.Op.get("relax.nn.softmax"), [X], {"axis": 0}).attrs["axis"] == 0
    assert relax.Call(relax.Op.get("relax.add"), [X, X]).struct_info is None  # inferred when it is bound


def test_older_and_newer_names() -> None:
    info = relax.TensorStructInfo((2,), "float32")
    assert relax.Var(name_hint="y", ty=info).ty is info and X.name_hint == "x"
    call = relax.call_pure_packed("f", X, ty_args=info)
    assert call.ty_args == call.sinfo_args
    gv = relax.GlobalVar("f")
    assert relax.call_tir(gv, [X], out_ty=info).struct_info is info


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: relax.Var("x", (2, 3)), TypeError, "write relax.TensorStructInfo"),
        (lambda: relax.Var(3), TypeError, "a variable's name must be a string"),
        (lambda: relax.TensorStructInfo((te.var("n"),)), TypeError, 'te.var("n", "int64")'),
        (lambda: relax.TensorStructInfo((1.5,)), TypeError, "needs integers"),
        (lambda: relax.TensorStructInfo((2,), "float3"), TypeError, "'float3' is not a dtype"),
        (lambda: relax.TensorStructInfo(4), TypeError, "a shape must be a list of dimensions"),
        (lambda: relax.TensorStructInfo((2, 3), ndim=3), TypeError, "ndim=3"),
        (lambda: relax.TensorStructInfo(X), TypeError, "a variable holding a shape"),
        (lambda: relax.ShapeExpr([X]), TypeError, "not the variable `x`"),
        (lambda: relax.PrimStructInfo(), TypeError, "a dtype or a value"),
        (lambda: relax.Tuple([object()]), TypeError, "object is not a relax expression"),
        (lambda: relax.TupleGetItem(X, 0), TypeError, "only tuples have items"),
        (lambda: relax.Call(3, [X]), TypeError, "only operators and functions can be called"),
        (lambda: relax.Call("relax.exp", X), TypeError, "a list"),
        (lambda: relax.Call("relax.softmx", [X]), CompileError, "did you mean `relax.nn.softmax`"),
        (lambda: relax.Call("relax.nn.softmax", [X], {"axes": 1}), CompileError, "no attribute `axes`"),
        (lambda: relax.Call("relax.nn.softmax", [X], {"axis": "a"}), CompileError, "takes an integer"),
        (lambda: relax.op.nn.softmax(X, axes=1), CompileError, "did you mean `axis`"),
        (lambda: relax.op.nn.softmx, AttributeError, "did you mean `nn.softmax`"),
        (lambda: relax.call_tir("f", [X], X.struct_info), TypeError, "call_dps_packed"),
        (lambda: relax.const(300, "int8"), CompileError, "does not fit int8"),
        (lambda: relax.const([1, 2], relax.TensorStructInfo((3,), "int8")), CompileError, "the constant is"),
        (lambda: relax.const([[1], [1, 2]]), TypeError, "different lengths"),
        (lambda: relax.const("a"), TypeError, "not a string"),
        (lambda: X + 1, TypeError, "relax.const(1, dtype)"),
        (lambda: relax.get_shape_of(relax.Tuple([])), CompileError, "only a tensor has a shape"),
        (lambda: relax.ExternFunc(3), TypeError, "must be given by its name"),
        (lambda: relax.Function(["x"], X), TypeError, "a parameter must be a relax.Var"),
    ],
)
def test_wrong_arguments_are_refused(make: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert words in str(caught.value)

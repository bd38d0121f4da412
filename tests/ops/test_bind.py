"""Calls of operators: how arguments are sorted, what is refused, and what goes back to text."""

from __future__ import annotations

import pytest

from mlcc import ops
from mlcc.errors import CompileError
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ops.signature import signature
from mlcc.ops.values import tensor_info

X = relax.Var("x", tensor_info((2, 3), "float32"))
Y = relax.Var("y", tensor_info((3, 4), "float32"))


def test_every_signature_reads() -> None:
    for name in ops.names():
        sig = signature(name)
        assert sig is not None
        assert len({p.name for p in sig.params}) == len(sig.params)
        assert set(sig.attr_order) == {p.name for p in sig.params if p.is_attr}, name


@pytest.mark.parametrize("name", ["relax.nn.relu", "R.nn.relu", "nn.relu", "relax.op.nn.relu"])
def test_names_of_one_operator(name: str) -> None:
    assert ops.bind_call(name, (X,)).op == tir.Op("relax.nn.relu")


def test_attributes_take_their_canonical_form() -> None:
    call = ops.bind_call("sum", (X,), {"axis": 1})
    assert dict(call.attrs) == {"axis": (1,), "keepdims": False}
    assert ops.print_call_args(call) == ((X,), (("axis", [1]), ("keepdims", False)))
    image, kernel = (relax.Var("x", tensor_info(shape, "float32")) for shape in ((1, 3, 8, 8), (4, 3, 3, 3)))
    conv = ops.bind_call("nn.conv2d", (image, kernel), {"padding": (1, 2), "strides": 2})
    assert conv.attrs["padding"] == (1, 2, 1, 2)
    assert conv.attrs["strides"] == (2, 2)
    assert conv.attrs["out_layout"] == "NCHW"


def test_absent_dtype_follows_the_dialect() -> None:
    call = ops.bind_call("matmul", (X, Y), {"out_dtype": "void"})
    assert call.attrs["out_dtype"] is None
    assert ops.print_call_args(call)[1] == (("out_dtype", "void"),)
    assert ops.print_call_args(call, "tvm")[1] == (("out_dtype", None),)


def test_shapes_scalars_and_tuples_become_expressions() -> None:
    shape = ops.bind_call("reshape", (X, (3, 2))).args[1]
    assert isinstance(shape, relax.ShapeExpr)
    assert [tir.const_int(v) for v in shape.values] == [3, 2]
    low = ops.bind_call("clip", (X, 0, 6.5)).args[1]
    assert isinstance(low, relax.PrimValue)
    assert str(low.value.dtype) == "int64"
    cut = ops.bind_call("strided_slice", (X, [0], [0], [1]))
    assert [type(a) for a in cut.args] == [relax.Var, relax.Tuple, relax.Tuple, relax.Tuple]


def test_linear_is_three_calls() -> None:
    weight, bias = (relax.Var("w", tensor_info(shape, "float32")) for shape in ((4, 3), (4,)))
    call = ops.bind_call("relax.op.linear", (X, weight, bias))
    assert call.op.name == "relax.add"
    assert call.args[0].op.name == "relax.matmul"
    assert call.args[0].args[1].op.name == "relax.permute_dims"


def test_older_forms_of_call_tir() -> None:
    f = relax.GlobalVar("f")
    old = ops.bind_call("call_tir", (f, (X,), (1, 128)), {"dtype": "float32"})
    assert isinstance(old.struct_info, relax.TensorStructInfo)
    assert [tir.const_int(v) for v in old.struct_info.dims or ()] == [1, 128]
    two = ops.bind_call("call_tir", (f, (X,)), {"out_ty": [X.struct_info, X.struct_info]})
    assert isinstance(two.struct_info, relax.TupleStructInfo)
    assert len(two.sinfo_args) == 1
    assert ops.print_call_args(two)[1][0][0] == "out_sinfo"
    assert ops.print_call_args(two, "tvm")[1][0][0] == "out_ty"


def test_print_and_assert_give_their_format_by_keyword() -> None:
    call = ops.bind_call("print", (X, X), {"format": "{} {}"})
    assert isinstance(call.args[0], relax.StringImm)
    positional, keywords = ops.print_call_args(call)
    assert positional == (X, X)
    assert keywords[0][0] == "format"
    condition = relax.Var("c", tensor_info((), "bool"))
    check = ops.bind_call("assert_op", (condition, [X]), {"format": "no"})
    assert len(check.args) == 3


def test_call_of_a_function_binds_its_symbolic_shape() -> None:
    n = tir.Var("n", INT64)
    info = relax.FuncStructInfo((tensor_info((n, 3), "float32"),), tensor_info((n,), "float32"))
    call = relax.Call(relax.Var("f", info), (X,))
    found = ops.infer_struct_info(call)
    assert isinstance(found, relax.TensorStructInfo)
    assert [tir.const_int(v) for v in found.dims or ()] == [2]


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "code", "says"),
    [
        ("ad", (X, X), {}, "E0440", "did you mean `add`"),
        ("add", (X,), {}, "E0441", "is missing its argument `x2`"),
        ("add", (X, X, X), {}, "E0441", "takes 2 arguments, 3 were given"),
        ("sum", (X,), {"axi": 1}, "E0441", "did you mean `axis`"),
        ("sum", (X, 0), {"axis": 1}, "E0441", "given twice"),
        ("sum", (X, "a"), {}, "E0442", "`axis` takes an integer, not a string"),
        ("sum", (X, 2**70), {}, "E0442", "64 bits"),
        ("matmul", (X, X, "float37"), {}, "E0442", "`float37` is not a dtype"),
        ("nn.conv2d", (X, X, [1, 2, 3]), {}, "E0442", "takes 1 or 2 integers, not 3"),
        ("call_tir", (relax.GlobalVar("f"), (X,), (1, 2)), {}, "E0442", "`dtype=`"),
        ("reshape", (X, ("a",)), {}, "E0442", "integers"),
        ("reshape", (X, (2**90,)), {}, "E0442", "64 bits"),
    ],
)
def test_wrong_calls_are_refused(
    name: str, args: tuple[object, ...], kwargs: dict[str, object], code: str, says: str
) -> None:
    with pytest.raises(CompileError) as caught:
        ops.bind_call(name, args, kwargs)
    assert caught.value.diagnostics[0].code == code
    assert says in str(caught.value)

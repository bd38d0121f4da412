"""Struct info of operators: what is refused, and with which words."""

from __future__ import annotations

import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.ir import relax
from tests.ops.cases import Case, Mine, S, T


@pytest.mark.parametrize(
    ("case", "code", "says"),
    [
        (Case("add", (T((2, 3)), T((2, 4)))), "E0445", "the shapes (2, 3) and (2, 4) do not broadcast: 3 against 4"),
        (Case("add", (T((2, 3)), T((2, 3), "int32"))), "E0444", "different dtypes, float32 and int32"),
        (Case("add", (T((2,), "int32"), 2.5)), "E0444", 'write the number as `R.const(value, "int32")`'),
        (Case("exp", (T((2,), "int32"),)), "E0444", "needs a tensor of floats, not of int32"),
        (Case("matmul", (T((2, 3)), T((4, 5)))), "E0445", "(2, 3) and (4, 5) cannot be multiplied"),
        (Case("matmul", (T(()), T((4, 5)))), "E0445", "operand 1 is a scalar"),
        (Case("reshape", (T((2, 3)), (4, 2))), "E0445", "(2, 3) has 6 elements, (4, 2) has 8"),
        (Case("reshape", (T((2, 3)), (-1, -1))), "E0445", "only one extent may be -1"),
        (Case("sum", (T((2, 3)), 2)), "E0446", "axis 2 is out of range for 2 dimensions"),
        (Case("sum", (T((2, 3)), (0, -2))), "E0446", "axis 0 is given twice"),
        (Case("concat", ([T((2, 3)), T((3, 4))], 1)), "E0445", "(2, 3) and (3, 4) differ in dimension 0"),
        (Case("nn.conv2d", (T((1, 3, 8, 8)), T((4, 2, 3, 3)))), "E0445", "has 3 channels"),
        (Case("nn.layer_norm", (T((2, 3)), T((4,)), T((3,)), -1)), "E0445", "argument 2 has shape (4,)"),
        (Case("nn.prelu", (T((2, 3)), T((2,)))), "E0445", "there must be one slope per index"),
        (Case("take", (T((2, 3)), T((2,)), 0)), "E0444", "needs integer indices, not float32"),
        (Case("shape_of", ((1, 2),)), "E0443", "argument 1 must be a tensor"),
        (Case("strided_slice", (T((8,)), [0], [0], [4], [0])), "E0442", "the stride of axis 0 is 0"),
        (Case("nn.max_pool2d", (T((1, 3, 8, 8)), 2), {"layout": "NCWWW"}), "E0442", "must be a permutation of NCHW"),
        (Case("broadcast_to", (T((2, 3)), (2, 4))), "E0445", "(2, 3) does not broadcast to (2, 4)"),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_calls_are_refused(case: Case, code: str, says: str) -> None:
    with pytest.raises(CompileError) as caught:
        Mine().call(case)
    assert caught.value.diagnostics[0].code == code
    assert says in str(caught.value)


def test_no_implementation_for_a_dtype() -> None:
    from mlcc.passes.graph.lower_to_tir import LowerToTir
    from mlcc.passes.manage.manager import PassContext

    module = Mine().module(Case("power", (T((2,), "int32"), T((2,), "int32"))))
    with pytest.raises(CompileError, match="no implementation for int32, int32"):
        LowerToTir().run(module, PassContext())


def test_symbolic_extents_meet() -> None:
    side = Mine()
    info = side.call(Case("add", (T(("n", 3)), T(("n", 1))))).struct_info
    assert side.show(info) == "Tensor([n, 3] float32)"
    info = side.call(Case("reshape", (T(("n", "m", 4)), (S("m"), -1)))).struct_info
    assert side.show(info) == "Tensor([m, (n * 4)] float32)"
    unknown = side.call(Case("add", (T(("n",)), T(("m",))))).struct_info
    assert isinstance(unknown, relax.TensorStructInfo)
    assert unknown.dims is None and unknown.ndim == 1


@pytest.mark.parametrize(
    ("case", "shows"),
    [
        (Case("ccl.allreduce", (T(("n", 3)),)), "Tensor([n, 3] float32)"),
        (Case("ccl.allgather", (T((2, 3)), 4)), "Tensor([8, 3] float32)"),
        (Case("ccl.broadcast_from_worker0", (T((2, 3), "float16"),)), "Tensor([2, 3] float16)"),
        (Case("ccl.scatter_from_worker0", (T((2, 6)), 3), {"axis": 1}), "Tensor([2, 2] float32)"),
    ],
    ids=str,
)
def test_collectives_infer_struct_info(case: Case, shows: str) -> None:
    side = Mine()
    assert side.show(side.call(case).struct_info) == shows


def test_collective_that_does_not_divide() -> None:
    with pytest.raises(CompileError, match="dimension 0 of 5 cannot be divided among 2 workers"):
        Mine().call(Case("ccl.scatter_from_worker0", (T((5, 6)), 2)))


def test_virtual_device_is_kept() -> None:
    side = Mine()
    call = side.call(Case("exp", (T((2,)),)))
    placed = relax.Var("x", relax.TensorStructInfo(call.struct_info.shape, call.struct_info.dtype, 1, "cuda:0"))  # type: ignore[union-attr]
    from mlcc import ops

    assert ops.bind_call("exp", (placed,)).struct_info.vdevice == "cuda:0"  # type: ignore[union-attr]
    assert ops.bind_call("add", (placed, call.args[0])).struct_info.vdevice == "cuda:0"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("call", "info"),
    [
        ("R.reshape(y, s)", 'R.Tensor((n, m), dtype="float32")'),
        ("R.reshape(y, q)", 'R.Tensor(q, dtype="float32")'),
        ("R.add(ones, z)", 'R.Tensor((n, m), dtype="float32")'),
        ("R.memory.view(z, s)", 'R.Tensor((n, m), dtype="float32")'),
        ("R.memory.view(y, q)", 'R.Tensor(dtype="float32", ndim=2)'),
    ],
)
def test_variables_are_shapes(call: str, info: str) -> None:
    """Where the values of the shape are known they are the extents, as TVM 0.27 has it."""
    text = f"""
@R.function
def main(s: R.Shape(["n", "m"]), q: R.Shape(ndim=2), y: R.Tensor((6,), "float32"), z: R.Tensor(("n", "m"), "float32")):
    ones = R.ones(s, "float32")
    k = {call}
    return k
"""
    assert f"k: {info} = " in mlcc.script(mlcc.parse(text), dialect="tvm")

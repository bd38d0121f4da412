"""Calls of all operators as TVM prints them: read here, printed again, read by TVM."""

from __future__ import annotations

import re

import pytest

from mlcc import ops
from tests.interop.op_corpus import BEYOND_TVM, CASES
from tests.interop.test_ops import INFO_DIFFERS
from tests.ops.cases import Case, Const, S, T

tvm = pytest.importorskip("tvm")

IMAGE, VOLUME = T((1, 4, 8, 8)), T((1, 4, 8, 8, 8))
INDEX = T((2,), "int64")
HEADS = T((1, 2, 3, 4))

# One call at least of each operator that the corpus of struct info lacks.
MORE = [
    Case("argsort", (T((2, 3)),)),
    Case("bucketize", (T((2, 3)), T((3,)))),
    Case("clip", (T((2, 3)), 0.0, 6.5)),
    Case("collapse_sum_like", (T((2, 3)), T((3,)))),
    Case("collapse_sum_to", (T((2, 3)), (3,))),
    Case("cumprod", (T((2, 3)), 0, "float64")),
    Case("dequantize", (T((2, 3), "int8"), T((3,)), T((3,), "int8"))),
    Case("dynamic_strided_slice", (T((2, 3)), INDEX, INDEX, INDEX)),
    Case("einsum", ([T((2, 3)), T((3, 4))], "ij,jk->ik")),
    Case("gather_elements", (T((2, 3)), T((2, 3), "int64"))),
    Case("gather_nd", (T((2, 3)), T((4, 2), "int64"))),
    Case("hamming_window", (10, True, 0.5, 0.25, "float32")),
    Case("index_put", (T((8,)), (INDEX,), T((2,)))),
    Case("index_tensor", (T((2, 3)), [INDEX])),
    Case("median", (T((2, 3)), 0)),
    Case("meshgrid", ([T((2,)), T((3,))],)),
    Case("multinomial_from_uniform", (T((2, 5)), T((2, 1)), T((2, 1), "int64"))),
    Case("nonzero", (T((2, 3)),)),
    Case("null_value", ()),
    Case("quantize", (T((2, 3)), T((3,)), T((3,), "int8"))),
    Case("reverse_sequence", (T((2, 3)), INDEX)),
    Case("scatter_elements", (T((2, 3)), T((2, 3), "int64"), T((2, 3)))),
    Case("scatter_nd", (T((2, 3)), T((4, 1), "int64"), T((4, 3)))),
    Case("slice_scatter", (T((8, 3)), T((2, 3)), 0, 2, 1)),
    Case("sort", (T((2, 3)),)),
    Case("topk", (T((2, 3)), 2)),
    Case("unique", (T((2, 3)),)),
    Case("unique", (T((2, 3)), True, False, False, False, 0)),
    Case("wrap_param", (Const(1.0, "float16"),)),
    Case("zeros", ((2, 3), "int8")),
    *(Case(f"ccl.{n}", (T((2, 3)),)) for n in ("allreduce", "broadcast_from_worker0")),
    Case("ccl.allgather", (T((2, 3)), 2)),
    Case("ccl.scatter_from_worker0", (T((2, 3)), 2)),
    *(Case(f"grad.{n}", (T((2, 3)),)) for n in ("no_grad", "start_checkpoint", "end_checkpoint")),
    Case("grad.nll_loss_backward", (T(()), T((2, 3)), INDEX)),
    Case("grad.max_pool2d_backward", (IMAGE, IMAGE)),
    Case("grad.avg_pool2d_backward", (IMAGE, IMAGE)),
    Case("image.affine_grid", (T((1, 2, 3)), (16, 16))),
    Case("image.grid_sample", (IMAGE, T((1, 2, 8, 8)))),
    Case("image.resize2d", (IMAGE, (16, 16))),
    Case("image.resize2d", (IMAGE, 16), {"roi": (0.0, 0.5, 1.0, 1.0), "method": "cubic", "out_dtype": "float16"}),
    Case("image.resize3d", (VOLUME, (4, 4, 4))),
    Case("memory.view", (T((2, 3)), (6,))),
    Case("memory.view", (T((2, 3)), None, "int32", 0)),
    Case("nn.adaptive_avg_pool1d", (T((1, 4, 8)), 2)),
    Case("nn.adaptive_avg_pool3d", (VOLUME,)),
    Case("nn.attention", (HEADS, HEADS, HEADS)),
    Case("nn.attention", (HEADS, HEADS, HEADS, T((1, 3, 2, 2))), {"causal_mask": "TopLeft", "window_size": 3}),
    Case("nn.conv1d_transpose", (T((1, 4, 8)), T((4, 4, 3)))),
    Case("nn.conv2d_transpose", (IMAGE, T((4, 4, 3, 3))), {"strides": 2, "output_padding": 1}),
    Case("nn.conv3d", (VOLUME, T((4, 4, 3, 3, 3)))),
    Case("nn.conv3d_transpose", (VOLUME, T((4, 4, 3, 3, 3)))),
    Case("nn.attention_bias", (HEADS, HEADS, HEADS, T((1, 3, 2, 2)))),
    Case("nn.avg_pool3d", (VOLUME, 2)),
    Case("nn.max_pool1d", (T((1, 4, 8)), 2)),
    Case("nn.max_pool3d", (VOLUME, 2)),
    Case("nn.avg_pool1d", (T((1, 4, 8)), 2)),
    Case("nn.nll_loss", (T((2, 3)), INDEX)),
    Case("nn.nll_loss", (T((2, 3)), INDEX, T((3,)), "none", 7)),
    Case("nn.pixel_shuffle", (IMAGE, 2)),
    Case("nn.relu6", (T((2, 3)),)),
    Case("nn.softplus", (T((2, 3)), 2.0, 10.0)),
    Case("linear", (T((2, 3)), T((4, 3)), T((4,)))),
    Case("vision.all_class_non_max_suppression", (T((1, 3, 4)), T((1, 2, 3)), Const(10, "int64"), Const(0.5, "float32"),
                                                  Const(0.5, "float32"))),
    Case("vision.get_valid_counts", (T((1, 3, 6)),)),
    Case("vision.multibox_transform_loc", (T((1, 2, 3)), T((1, 12)), T((1, 3, 4)))),
    Case("vision.non_max_suppression", (T((1, 3, 6)), T((1,), "int32"), T((1, 3), "int32"))),
    Case("vision.roi_align", (IMAGE, T((3, 5)), (2, 2), 0.25)),
    Case("vision.roi_pool", (IMAGE, T((3, 5)), (2, 2), 1.0)),
]  # fmt: skip

# Operators that TVM's functions cannot make, or that its own text cannot say.
NOT_SAID = {
    "relax.call_py_func": "TVM prints an argument that it does not take",
    "relax.dist.annotate_sharding": "needs device meshes",
    "relax.dist.redistribute": "needs device meshes",
    "relax.dist.redistribute_replica_to_shard": "is not offered to text",
    "relax.grad.take_backward": "TVM prints an attribute that it does not take",
    "relax.hint_on_device": "TVM prints its device by position",
    "relax.inspect": "is not offered to text",
    "relax.nn.attention_var_len": "TVM prints the arguments in an order in which it does not take them",
    "relax.nn.dense": "an older operator",
    "relax.to_vdevice": "needs virtual devices, see test_global_infos",
}


def _has_known_operands(case: Case) -> bool:
    """Without a scalar variable of its own, and with known shapes."""
    parts = [*case.args, *case.kwargs.values()]
    flat = [p for a in parts for p in (a if isinstance(a, (list, tuple)) else [a])]
    return not any(isinstance(p, S) or (isinstance(p, T) and (p.shape is None or p.dtype is None)) for p in flat)


TEXTS = [*(c for c in CASES if _has_known_operands(c)), *MORE]


@pytest.mark.parametrize("case", TEXTS, ids=str)
def test_calls_printed_by_tvm_are_exchanged(case: Case) -> None:
    from tests.interop.harness import back_and_there
    from tests.interop.op_cases import Theirs

    try:
        theirs = Theirs().module(case)
    except Exception:
        pytest.skip("TVM refuses it")
    if re.search(r"R\.Tensor\(\([^)]*-\d", theirs.script()):
        pytest.skip("a shape with a negative extent")
    if str(case) in INFO_DIFFERS:
        pytest.skip(INFO_DIFFERS[str(case)])
    back_and_there(theirs)


def test_every_operator_has_a_text() -> None:
    said = {f"relax.{c.name}" for c in TEXTS} | NOT_SAID.keys() | BEYOND_TVM
    missing = [n for n in ops.names() if n not in said and n.rpartition(".")[0] not in said]
    # what the language itself makes: calls, closures, memory and checks are tested with the relax walk
    own = ("call_", "invoke_", "make_closure", "memory.", "vm.", "builtin.", "assert_op", "print", "shape_to_tensor")
    assert [n for n in missing if not n.removeprefix("relax.").startswith(own) and "call_tir" not in n] == []

"""Operators against TVM: struct info, and the functions that they become. What differs is listed with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mlcc.errors import CompileError
from mlcc.ops import get
from mlcc.passes.graph.lower_to_tir import LowerToTir
from mlcc.passes.manage.manager import PassContext
from tests.interop import op_corpus, op_corpus_nn
from tests.interop.op_cases import Theirs
from tests.interop.tvm_text import rounded, to_tvm
from tests.ops.cases import Case, Mine

tvm = pytest.importorskip("tvm")

REFUSED = "<refused>"

_GROUPS = "TVM has no scales for groups"

# Where struct info differs on purpose: the case as text -> why.
INFO_DIFFERS = {
    "quantize(4x6, 4x2, const 0 int8)": _GROUPS,
    "dequantize(4x6:int8, 4x3, 4x3:int8)": _GROUPS,
    "dequantize(6x4:uint8, 2x4:float16, const 8 uint8, axis=0)": _GROUPS,
    "dequantize(8:int8, 2, 2:int8)": _GROUPS,
    **op_corpus_nn.INFO_DIFFERS,
    "full((2, 3), 1, 'int32')": "a number is taken for a scalar",
    "reshape(0x3, (3, 0))": "a tensor without elements: 0 is an extent there",
    "split(2x3, 5, 0)": "TVM gives the last part an extent of -2",
    "stack([?-1, ?-1], 1)": "TVM takes an unknown number of dimensions for none",
    "strided_slice(8, [0], [5], [2])": "TVM gives a negative extent",
    "strided_slice(n, [0], [n], [0], [-1])": "the same value in another form",
    "strided_slice(n, [0], [-2], [9223372036854775807])": "the same value in another form",
    "repeat(2x3, -2, 1)": "TVM gives a negative extent",
    "tile(2x3, (2, -1))": "TVM gives a negative extent",
    "arange(5, 2)": "TVM gives a negative extent",
    "eye_like(?-1)": "TVM fails on an unknown number of dimensions",
    "cumsum(2x3, 5)": "TVM does not check the axis",
    "nn.max_pool2d(1x3xhxw, 2, 3, 1, ceil_mode=True)": "the same value in another form",
    "index_tensor(nx6, [m:int64, k:int64])": "the number of dimensions is known",
    "sort(2x3, 2)": "TVM does not check the axis",
    "meshgrid([2, 3], indexing='xy')": "TVM gives the shape of `ij`, its function that of `xy`",
    "collapse_sum_to(3, (2, 3))": "TVM collapses a tensor to a larger shape",
    "einsum([2x3], 'ij->ii')": "a letter occurs twice in the result",
}  # fmt: skip

_CLAMPED = "TVM's function has parts of other extents than the struct info says"
_COUNTED = "min and max in another form"

# Where the functions differ on purpose: the case as text -> why.
FUNCTION_DIFFERS = {
    **op_corpus_nn.FUNCTION_DIFFERS,
    "arange(n, 0, -1)": "the extent has another form",
    "image.resize2d(2x4x5x7, (1, 1), method='linear', coordinate_transformation_mode='pytorch_half_pixel', "
    "roi=(0.1, -0.2, 0.9, 1.3), extrapolation_value=2.5, rounding_method='round')": "TVM leaves out what is times 0.0",
    "floor_divide(2xn:bool, 1:bool)": "bools have no quotient",
    "floor_mod(2xn:bool, 1:bool)": "bools have no remainder",
    "logical_xor(2xn:int32, 1:int32)": "the truth of numbers, rather than their bits",
    "split(nx3, 3, 0)": "TVM leaves n + 3 - 1",
    "split(n, 2)": "TVM leaves n + 2 - 1",
    "split(6x3, [1, 9], 0)": _CLAMPED,
    "split(6xn, [1, 4], 1)": _CLAMPED,
    "split(n, [2, 5])": _CLAMPED,
    "einsum([n, m], 'i,i->')": "the extents are taken to be equal",
    "hamming_window(10, True, 0.5, 0.25, 'float32')": "one expression, in float64",
    "strided_slice(n, [0], [0], [n])": "an extent is not negative",
    "strided_slice(n, [0], [0], [n], [2])": "an extent is not negative",
    "sum(2x3, ())": "a copy, rather than an update without reduced axes",
    "mean(2x3:int32, 0)": "TVM's function returns int64 where the struct info says int32",
    "nn.adaptive_avg_pool2d(1x2x8x9, (3, 4))": "the windows' extents have another form",
    "nn.avg_pool2d(1x3x8x9, (2, 3), (2, 1), 1)": _COUNTED,
    "nn.avg_pool2d(1x3xhxw, 3, 2, 1)": _COUNTED,
}  # fmt: skip

# Where the struct info differs and the function does not.
SAME_FUNCTION = {"meshgrid([2, 3], indexing='xy')"}

# Operators whose functions are built in another way: the operator -> how.
OTHERWISE_BUILT = {
    **dict.fromkeys(("scatter_elements", "scatter_nd", "index_put"), "over all dimensions, one update after the other"),
    **dict.fromkeys(("sort", "argsort", "topk", "median"), "TVM calls a packed function"),
    **dict.fromkeys(("argmax", "argmin"), "TVM has no place for elements that are the least there are"),
    "bucketize": "over all dimensions",
    "size": "one expression",
    "dynamic_strided_slice": "the extents are found by a function of another name",
    "layout_transform": "each place of the result takes its element",
    "slice_scatter": "one expression",
}


CASES = [*op_corpus.CASES, *op_corpus_nn.CASES]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_struct_info_agrees(case: Case) -> None:
    theirs, mine = _info(Theirs(), case), _info(Mine(), case)
    if f"relax.{case.name}" in op_corpus.BEYOND_TVM:
        assert theirs == REFUSED != mine
    elif str(case) in INFO_DIFFERS:
        assert mine != theirs, "no longer different"
    else:
        assert mine == theirs


def _info(side: Any, case: Case) -> str:
    try:
        call = side.call(case)
    except CompileError:
        return REFUSED
    except Exception as problem:
        if isinstance(side, Mine):
            raise
        assert "Check failed" in str(problem) or "rror" in type(problem).__name__, problem
        return REFUSED
    return side.show(call.struct_info if isinstance(side, Mine) else call.ty)


def _lowerable(case: Case) -> bool:
    op = get(case.name)
    return op is not None and op.impl.lower is not None


def _module(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception:
        return None


@pytest.mark.parametrize("case", [c for c in CASES if _lowerable(c)], ids=str)
def test_lowered_functions_agree(case: Case) -> None:
    lowered = _module(lambda: tvm.relax.transform.LegalizeOps()(Theirs().module(case)))
    if lowered is None:
        pytest.skip("TVM refuses it")
    theirs = {g.name_hint: f for g, f in lowered.functions.items() if not isinstance(f, tvm.relax.Function)}
    if not theirs:
        pytest.skip("TVM does not lower it")
    made = _module(lambda: LowerToTir().run(Mine().module(case), PassContext()))
    differs = str(case) in FUNCTION_DIFFERS or str(case) in INFO_DIFFERS or case.name in OTHERWISE_BUILT
    if made is None:
        assert differs
        return
    mine = {n: f for n, f in made.functions.items() if n != "main"}
    differs = differs and str(case) not in SAME_FUNCTION
    same = list(mine) == list(theirs) and _equal(next(iter(mine.values())), next(iter(theirs.values())))
    assert same != differs


def _equal(mine: Any, theirs: Any) -> bool:
    """In TVM's eyes; a function that its own text cannot say cannot be compared.

    An annotation that lists tensors, which are equal to themselves only, is left out.
    """
    try:
        text = theirs.script()
        if "layout_free_placeholders" in text:
            lines = (line for line in text.splitlines() if "layout_free_placeholders" not in line)
            theirs = tvm.script.from_source("\n".join(lines))
        tvm.ir.assert_structural_equal(rounded(to_tvm(mine)), rounded(theirs))
    except ValueError:
        return False
    return True

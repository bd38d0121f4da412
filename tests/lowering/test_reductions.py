"""Loops that reduce into one element: which become vectors, in what order, and with what result."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.lowering.options import LowerOptions
from mlcc.targets.llvm.codegen.context import EmitOptions
from mlcc.targets.llvm.object.compile import Machine
from tests.lower import lower_func
from tests.lowering.test_loop_partition import V3, V4, llvm_of
from tests.targets.harness import Native

ASKED = 'annotations={"reassociate": 1}'


def reduction(
    update: str, loop: str = f"T.serial(n, {ASKED})", dtype: str = "float32", init: str = "0", n: str = "n"
) -> tir.PrimFunc:
    head = "    n = T.int64()\n" if n == "n" else ""
    made = mlcc.parse(f"""
@T.prim_func(s_tir=False)
def main(a: T.handle, b: T.handle):
    T.func_attr({{"tir.noalias": True}})
{head}    A = T.match_buffer(a, (3, {n}), "{dtype}")
    B = T.match_buffer(b, (3,), "{dtype}")
    for i in range(3):
        B[i] = T.{dtype}({init})
        for k in {loop}:
            {update}
""")["main"]
    assert isinstance(made, tir.PrimFunc)
    return made


SUM = "B[i] = B[i] + A[i, k]"


def lanes_of(func: tir.PrimFunc, **options: int) -> int:
    """Of the widest load."""
    lowered = lower_func(func, {}, LowerOptions(**options))  # type: ignore[arg-type]
    return max((n.dtype.lanes for n in walk(lowered) if isinstance(n, tir.BufferLoad)), default=0)


def test_floats_are_reassociated_only_where_the_text_says_so() -> None:
    assert lanes_of(reduction(SUM)) == 64
    assert lanes_of(reduction(SUM, "range(n)")) == 1
    assert lanes_of(reduction(SUM, "T.vectorized(32)", n="32")) == 1
    assert lanes_of(reduction(SUM, f"T.vectorized(32, {ASKED})", n="32")) == 32


def test_integers_may_be_summed_in_any_order() -> None:
    assert lanes_of(reduction(SUM, "T.vectorized(32)", "int32", n="32")) == 32
    assert lanes_of(reduction(SUM, "range(32)", "int32", n="32")) == 1


@pytest.mark.parametrize(
    "update",
    [
        "B[i] = B[i] - A[i, k]",
        "B[i] = B[i] + A[i, k] + B[0]",  # what is summed depends on the sum
        "B[k % 3] = B[k % 3] + A[i, k]",
        "B[i] = A[i, k]",
        "B[i] = B[i] + T.call_extern('float32', 'rintf', A[i, k])",
    ],
)
def test_what_is_no_reduction_stays(update: str) -> None:
    assert lanes_of(reduction(update)) == 1


EXTENTS = (0, 1, 2, 31, 64, 65, 67, 128, 200)
OPERATIONS = {
    "sum": (SUM, "0"), "product": ("B[i] = B[i] * A[i, k]", "1"), "greatest": ("B[i] = T.max(B[i], A[i, k])", "-9"),
    "least": ("B[i] = T.min(A[i, k], B[i])", "9"),
    "some": ("if k % 3 != 1:\n                B[i] = B[i] + A[i, k]", "0"),
    "squares": ("B[i] = B[i] + A[i, k] * A[i, k]", "0"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_reductions_compute_the_same(name: str) -> None:
    update, init = OPERATIONS[name]
    rng = np.random.default_rng(3)
    machines = itertools.cycle([V4, V3, Machine()])
    for dtype, symbolic in itertools.product(("float32", "int32", "int8"), (True, False)):
        if init == "-9" and dtype == "int8":
            continue
        machine = next(machines)
        compiled: Native | None = None
        for n in EXTENTS if symbolic else (0, 67, 200):
            size = "n" if symbolic else str(n)
            func = reduction(update, f"T.serial({size}, {ASKED})", dtype, init, size)
            if compiled is None or not symbolic:
                compiled = Native(func, options=EmitOptions(contract=False), machine=machine)
            values = rng.integers(-2, 3, (3, n)).astype(dtype)
            if dtype == "float32" and name != "product":
                values += rng.random((3, n), "float32")
            expected, lowered, native = (np.zeros(3, dtype) for _ in range(3))
            run_prim_func(func, [values, expected])
            bits = frozenset({8, 16, 32, 64}) if n % 2 else frozenset()
            run_prim_func(lower_func(func, {}, LowerOptions(mask_bits=bits)), [values, lowered])
            assert compiled(values, native, symbols=(n,) if symbolic else ()) == 0
            tolerance = 1e-5 if dtype == "float32" else 0
            np.testing.assert_allclose(lowered, expected, rtol=tolerance, atol=tolerance, err_msg=f"{name} {dtype} {n}")
            np.testing.assert_allclose(native, expected, rtol=tolerance, atol=tolerance, err_msg=f"{name} {dtype} {n}")


def test_the_order_is_a_fixed_one() -> None:
    """Values whose sum depends on the order: loop code and machine code agree in each bit."""
    values = (10.0 ** np.random.default_rng(5).uniform(-6, 6, (3, 333))).astype("float32")
    func = reduction(SUM)
    one, two = np.zeros(3, "float32"), np.zeros(3, "float32")
    run_prim_func(lower_func(func), [values, one])
    assert Native(func, options=EmitOptions(contract=False), machine=V4)(values, two, symbols=(333,)) == 0
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, np.cumsum(values, axis=1, dtype="float32")[:, -1])


def test_the_first_iteration_of_a_block_is_moved_before_the_vectors() -> None:
    module = mlcc.parse("""
@T.prim_func
def main(A: T.Buffer((5, 96), "float32"), B: T.Buffer((5,), "float32")):
    for i, k in T.grid(5, 96):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
""")
    sch = mlcc.Schedule(module)
    sch.annotate(sch.get_loops(sch.get_block("B"))[-1], "reassociate", 1)
    func = sch.mod["main"]
    assert isinstance(func, tir.PrimFunc)
    assert lanes_of(func) == 64
    data, out = np.random.default_rng(0).random((5, 96), "float32"), np.zeros(5, "float32")
    assert Native(func)(data, out) == 0
    np.testing.assert_allclose(out, data.sum(1), rtol=1e-6)


def test_sums_stay_in_registers() -> None:
    _, asm = llvm_of(reduction("B[i] = B[i] + A[i, k] * A[i, k]"), V4)
    assert "vfmadd" in asm and "vextractf64x4" in asm
    assert not [line for line in asm.splitlines() if "zmm" in line and "(%rsp" in line]


DIVIDED = """
@T.prim_func
def main(A: T.Buffer((512,), "float32"), B: T.Buffer((1,), "float32")):
    for k in range(512):
        with T.block("B"):
            vk = T.axis.reduce(512, k)
            with T.init():
                B[0] = T.float32(0)
            B[0] = B[0] + A[vk] / T.float32(3)
"""


@pytest.mark.parametrize("fast", [True, False])
def test_fast_math_regroups_and_nothing_else_does(fast: bool) -> None:
    target = "llvm{cpu=x86-64-v3 fast-math=true}" if fast else "llvm{cpu=x86-64-v3}"
    module = mlcc.parse(DIVIDED)
    artifact = mlcc.build(module, target=target, pipeline="O1")  # where no rule makes vectors, LLVM does
    assert artifact.manifest["target"]["text"] == target
    asm = artifact.emit("asm").decode()
    assert ("vaddps" in asm) == fast  # a sum in vectors
    data = np.random.default_rng(0).random(512, "float32")
    out = np.zeros(1, "float32")
    mlcc.load(mlcc.build(module, target="llvm{cpu=native fast-math=true}", pipeline="O1"))["main"](data, out)
    np.testing.assert_allclose(out[0], data.sum() / 3, rtol=1e-5)


def test_fast_math_keeps_nan_and_infinity() -> None:
    values = np.array([[1, np.nan, 2], [np.inf, 1, 2], [-np.inf, np.inf, 0]], "float32")
    out = np.zeros(3, "float32")
    func = reduction(SUM, "range(3)", n="3")
    assert Native(func, options=EmitOptions(fast_math=True), machine=V3)(values, out) == 0
    np.testing.assert_array_equal(out, [np.nan, np.inf, np.nan])


def test_fast_math_lets_vectorized_sums_be() -> None:
    func = reduction(SUM, "T.vectorized(32)", n="32")
    lowered = lower_func(func, {}, LowerOptions(reassociate=True))
    assert max(n.dtype.lanes for n in walk(lowered) if isinstance(n, tir.BufferLoad)) == 32

"""Calls out of a kernel: externs, packed functions, other PrimFuncs; and what is refused."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.driver import run_passes
from mlcc.errors import CompileError
from mlcc.interp import run_prim_func
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.calls import pack_buffer
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.targets.llvm.codegen.context import EmitOptions
from tests.targets.build import block, func, loop, var
from tests.targets.harness import Native

HANDLE = DType.of("handle")


def evaluate(dtype: str, op: Any, *args: Any) -> tir.Evaluate:
    made = tuple(tir.StringImm(a) if isinstance(a, str) else c.as_expr(a) for a in args)
    return tir.Evaluate(tir.Call(DType.of(dtype), op if not isinstance(op, str) else tir.Op(f"tir.{op}"), made))


# ---------------------------------------------------------------- externs


def test_libm_by_name() -> None:
    a, b = c.make_buffer("A", (5,), "float64"), c.make_buffer("B", (5,), "float64")
    i = var("i")
    body = c.store(b, c.call("float64", "call_pure_extern", "cbrt", c.load(a, i)), i)
    data, out = np.linspace(-2, 2, 5), np.zeros(5)
    assert Native(func([a, b], loop(i, 5, body)))(data, out) == 0
    np.testing.assert_allclose(out, np.cbrt(data))


def test_an_extern_of_the_wrong_type_is_refused() -> None:
    a = c.make_buffer("A", (1,), "float32")
    body = c.store(a, c.call("float32", "call_extern", "exp", c.load(a, 0)), 0)
    with pytest.raises(CompileError, match=r"`exp` is double\(double\) in C, not float32\(float32\)"):
        Native(func([a], body))


@pytest.mark.parametrize("name", ["system", "expm1ff", "mlcc_packed_call", "kernel.f", "run"])
def test_other_externs_are_refused(name: str) -> None:
    with pytest.raises(CompileError, match="E0701") as caught:
        Native(func([], evaluate("int32", "call_extern", name, 1)))
    assert caught.value.diagnostics[0].help


def test_allowed_externs_get_values_pointers_and_strings() -> None:
    seen: list[Any] = []
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int64, ctypes.POINTER(ctypes.c_float), ctypes.c_int8, ctypes.c_uint16, ctypes.c_double,
        ctypes.c_char_p, ctypes.c_bool,
    )  # fmt: skip

    def callback(data: Any, small: int, unsigned: int, real: float, text: bytes, flag: bool) -> int:
        seen.append((data[0], small, unsigned, real, text, flag))
        return 2**40

    function = kind(callback)
    a, n = c.make_buffer("A", (4, 4), "float32"), c.make_buffer("N", (1,), "int64")
    x = c.make_buffer("X", (3,), "int32")
    pointer = c.call("handle", "address_of", c.load(a, 1, 2))
    narrow = [c.cast(t, c.load(x, k)) for k, t in enumerate(("int8", "uint16"))]
    body = c.store(n, c.call("int64", "call_extern", "my_extern", pointer, *narrow, c.const(1.5, "float64"), "text",
                             c.greater(c.load(x, 2), 0)), 0)  # fmt: skip
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    native = Native(
        func([a, x, n], body),
        options=EmitOptions(allow_extern=frozenset(["my_extern"])),
        externs={"my_extern": address},
    )
    assert list(native.ctx.externs) == ["my_extern"]
    out = np.zeros(1, "int64")
    assert native(np.arange(16, dtype="float32").reshape(4, 4), np.array([-5, 65535, 1], "int32"), out) == 0
    assert seen == [(6.0, -5, 65535, 1.5, b"text", True)]
    assert out[0] == 2**40


def test_access_ptr_of_a_matched_tile() -> None:
    """The pattern of tensor intrinsics: an extern gets the tile's address and stride."""
    seen: list[tuple[float, int]] = []

    def callback(data: Any, stride: int) -> int:
        seen.append((data[0], stride))
        return 0

    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_float), ctypes.c_int32)(callback)
    a = c.make_buffer("A", (32, 48), "float32")
    s, off = var("s"), var("off")
    tile = c.make_buffer("T", (16, 16), "float32", strides=(s, c.const(1)), elem_offset=off, offset_factor=16)
    i, j, vi, vj = (var(x) for x in ("i", "j", "vi", "vj"))
    region = tuple(tir.Range(c.mul(v, 16), c.const(16)) for v in (vi, vj))
    kind = tir.Call(DType.of("float32"), tir.Op("tir.type_annotation"), ())
    pointer = c.call("handle", "tvm_access_ptr", kind, tile.data, off, c.mul(s, 16), 1)
    body = block("b", [(vi, 2, "S", i), (vj, 3, "S", j)], evaluate("int32", "call_extern", "tile", pointer, s),
                 matches=[tir.MatchBufferRegion(tile, tir.BufferRegion(a, region))])  # fmt: skip
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    native = Native(func([a], loop(i, 2, loop(j, 3, body))), options=EmitOptions(allow_extern=frozenset(["tile"])),
                    externs={"tile": address})  # fmt: skip
    data = np.arange(32 * 48, dtype="float32").reshape(32, 48)
    assert native(data) == 0
    assert seen == [(data[16 * r, 16 * k], 48) for r in range(2) for k in range(3)]


def test_llvm_intrinsics_by_name() -> None:
    a, b = c.make_buffer("A", (2,), "int32"), c.make_buffer("B", (2,), "int32")
    i = var("i")
    older = c.call("int32", "call_llvm_pure_intrin", "llvm.smax", c.const(2, "uint32"), c.load(a, i), c.const(0))
    body = c.store(b, c.add(older, c.call("int32", "call_llvm_intrin", "llvm.bswap", c.load(a, i))), i)
    data, out = np.array([-5, 7], "int32"), np.zeros(2, "int32")
    assert Native(func([a, b], loop(i, 2, body)))(data, out) == 0
    np.testing.assert_array_equal(out, np.maximum(data, 0) + data.byteswap())
    with pytest.raises(CompileError, match="E0701"):
        Native(func([], evaluate("int32", "call_llvm_intrin", "llvm.trap")))


# ---------------------------------------------------------------- packed functions


def test_packed_calls_get_tensors() -> None:
    seen: list[tuple[str, list[np.ndarray]]] = []

    def packed(name: str, args: list[np.ndarray]) -> int:
        seen.append((name, [a.copy() for a in args]))
        if name == "fill":
            args[0][...] = 5
        return 0

    a, o = c.make_buffer("A", (2, 3), "float32"), c.make_buffer("O", (4,), "int32")
    n = var("n", "int64")
    body = [
        evaluate(
            "int32", "tvm_call_packed", "look", pack_buffer(a), n, c.const(2.5, "float64"), c.const(True), "hello"
        ),
        evaluate("int32", "call_packed", "fill", o.data),
        evaluate("int32", "tvm_call_packed", "look"),
        evaluate("int32", "call_packed", "flat", a.data),
    ]
    native = Native(func([a, n, o], body), packed=packed)
    data, out = np.arange(6, dtype="float32").reshape(2, 3), np.zeros(4, "int32")
    assert native(data, 7, out) == 0
    assert list(native.ctx.packed) == ["look", "fill", "flat"]
    assert [name for name, _ in seen] == ["look", "fill", "look", "flat"]
    np.testing.assert_array_equal(seen[3][1][0], data.reshape(-1))
    tensor, number, real, flag, text = seen[0][1]
    np.testing.assert_array_equal(tensor, data)
    assert number.shape == () and number.dtype == "int64" and number == 7
    assert real == 2.5 and real.dtype == "float64"
    assert flag.dtype == "bool" and flag
    assert text.tobytes() == b"hello"
    assert (out == 5).all()


def test_packed_calls_with_strided_views() -> None:
    """A matched tile goes out with its shape, strides and first element."""
    seen: list[np.ndarray] = []
    a = c.make_buffer("A", (6, 8), "int32")
    s, off = var("s"), var("off")
    tile = c.make_buffer("T", (2, 3), "int32", strides=(s, c.const(1)), elem_offset=off, offset_factor=1)
    region = (tir.Range(c.const(2), c.const(2)), tir.Range(c.const(4), c.const(3)))
    body = block("b", [], evaluate("int32", "call_packed", "look", pack_buffer(tile)),
                 matches=[tir.MatchBufferRegion(tile, tir.BufferRegion(a, region))])  # fmt: skip
    data = np.arange(48, dtype="int32").reshape(6, 8)
    native = Native(func([a], body), packed=lambda name, args: seen.append(args[0].copy()) or 0)
    assert native(data) == 0
    np.testing.assert_array_equal(seen[0], data[2:4, 4:7])


def test_a_packed_function_that_fails_ends_the_kernel() -> None:
    a = c.make_buffer("A", (1,), "int32")
    body = [c.store(a, 1, 0), evaluate("int32", "call_packed", "boom"), c.store(a, 2, 0)]
    out = np.zeros(1, "int32")
    assert Native(func([a], body), packed=lambda name, args: 77)(out) == 77
    assert out[0] == 1


def test_a_bare_pointer_is_no_argument_of_a_packed_function() -> None:
    p = var("p", "handle")
    with pytest.raises(CompileError, match="not a bare pointer"):
        Native(func([p], evaluate("int32", "call_packed", "look", p)))


# ---------------------------------------------------------------- functions of the module


def scale_by_two() -> tir.PrimFunc:
    """B = 2 A through a temporary, for any n; needs workspace if n is large."""
    n = var("n", "int64")
    a, b = c.make_buffer("A", (n,), "float32"), c.make_buffer("B", (n,), "float32")
    i = var("i", "int64")
    return func([a, b], loop(i, n, c.store(b, c.mul(c.load(a, i), 2.0), i)))


def fixed_with_temporary(size: int) -> tir.PrimFunc:
    a, b, t = (c.make_buffer(x, (size,), "float32") for x in "ABT")
    i, j = var("i"), var("j")
    body = [tir.AllocBuffer(t), loop(i, size, c.store(t, c.mul(c.load(a, i), 3.0), i)),
            loop(j, size, c.store(b, c.add(c.load(t, j), 1.0), j))]  # fmt: skip
    return func([a, b], body)


@pytest.mark.parametrize("by_name", [False, True])
def test_functions_call_each_other(by_name: bool) -> None:
    """The callee's symbols are told from the arguments, and its workspace does not meet the caller's."""
    size = 6000
    a, b, t = (c.make_buffer(x, (size,), "float32") for x in "ABT")

    def called(name: str, *args: tir.Var) -> tir.Evaluate:
        if by_name:
            return evaluate("int32", "call_extern", name, *args)
        return evaluate("int32", relax.GlobalVar(name), *args)

    i = var("i")
    body = [tir.AllocBuffer(t), called("double", a.data, t.data), called("fixed", t.data, b.data),
            loop(i, size, c.store(b, c.add(c.load(b, i), c.load(t, i)), i))]  # fmt: skip
    native = Native(func([a, b], body), {"double": scale_by_two(), "fixed": fixed_with_temporary(size)})
    assert list(native.ctx.kernels) == ["double", "fixed", "f"]
    data, out = np.random.default_rng(0).random(size, "float32"), np.zeros(size, "float32")
    assert native(data, out) == 0
    np.testing.assert_allclose(out, data * 8 + 1, rtol=1e-6)


def test_loop_code_of_calls_is_a_program_still() -> None:
    """A symbolic callee is told of the tensors that it gets: the interpreter runs that, and so does native code."""
    a, b = c.make_buffer("A", (40,), "float32"), c.make_buffer("B", (40,), "float32")
    caller = func([a, b], evaluate("int32", relax.GlobalVar("double"), a.data, b.data))
    module = IRModule({"f": caller, "double": scale_by_two()})
    lowered = run_passes(module, "lower-loops")
    with pytest.raises(CompileError, match="E0545"):
        run_passes(lowered, "lower-loops")
    data, out, native = np.arange(40, dtype="float32"), np.zeros(40, "float32"), np.zeros(40, "float32")
    run_prim_func(lowered["f"], [data, out], lowered)
    np.testing.assert_array_equal(out, data * 2)
    assert Native(lowered["f"], {"double": lowered["double"]})(data, native) == 0
    np.testing.assert_array_equal(native, out)


def test_a_function_that_returns_a_value() -> None:
    x = var("x", "float32")
    callee = tir.PrimFunc(
        (x,), (None,), func([], []).attrs,
        (tir.Evaluate(tir.Call(DType.of("float32"), tir.Op("tir.ret"), (c.mul(x, x),))),), DType.of("float32"),
    )  # fmt: skip
    a = c.make_buffer("A", (3,), "float32")
    i = var("i")
    square = tir.Call(DType.of("float32"), relax.GlobalVar("square"), (c.load(a, i),))
    data = np.array([1, -2, 3], "float32")
    assert Native(func([a], loop(i, 3, c.store(a, square, i))), {"square": callee})(data) == 0
    assert data.tolist() == [1, 4, 9]
    native = Native(callee)
    assert native(np.float32(1.5)) == 0
    assert native.result[:4].view("float32")[0] == 2.25


def test_recursion_is_refused() -> None:
    loopy = func([], evaluate("int32", relax.GlobalVar("g")))
    with pytest.raises(CompileError, match="f -> g -> f"):
        Native(
            func([], evaluate("int32", relax.GlobalVar("g"))), {"g": func([], evaluate("int32", relax.GlobalVar("f")))}
        )
    with pytest.raises(CompileError, match="g -> g"):
        Native(func([], evaluate("int32", relax.GlobalVar("g"))), {"g": loopy})


def test_calls_that_do_not_fit_are_refused() -> None:
    a, p = c.make_buffer("A", (3,), "float32"), var("p", "handle")
    table = {"double": scale_by_two()}
    for args in ([a.data], [p, p], [a.data, 1]):
        with pytest.raises(CompileError, match="E070"):
            Native(func([a, p], evaluate("int32", relax.GlobalVar("double"), *args)), table)
    with pytest.raises(CompileError, match="E070"):
        Native(func([a], evaluate("int32", relax.GlobalVar("duble"), a.data)), table)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", ["tvm_stack_alloca", "tvm_struct_get", "ptx_mma", "print_buffer", "no_such_thing"])
def test_unknown_intrinsics_are_refused(name: str) -> None:
    with pytest.raises(CompileError, match=f"the llvm target has no `T.{name}`"):
        Native(func([], evaluate("int32", name, 1)))


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int1"])
def test_integers_without_machine_form_are_refused(dtype: str) -> None:
    a = c.make_buffer("A", (3,), dtype)
    with pytest.raises(CompileError, match=f"no {dtype}"):
        Native(func([a], c.store(a, c.load(a, 1), 0)))


def test_operands_that_do_not_fit_are_refused() -> None:
    a = c.make_buffer("A", (3,), "float32")
    bad = [
        c.call("float32", "exp", c.const(1)), c.call("float32", "pow", c.load(a, 0)),
        c.call("int32", "popcount", c.load(a, 0)), c.call("float32", "reinterpret", c.const(1, "int64")),
        c.call("float32", "shift_left", c.load(a, 0), c.load(a, 1)),
    ]  # fmt: skip
    for value in bad:
        with pytest.raises(CompileError, match="E0701"):
            Native(func([a], tir.BufferStore(a, value, (c.const(0),))))


def test_all_that_is_wrong_is_reported_once_at_its_place() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "int4")):
    for i in T.unroll(4):
        A[i] = T.call_extern("foo", A[i], dtype="float32")
    x: T.float32 = T.nextafter(T.float16(1), T.float16(2))
    A[1] = x
    A[2] = T.Cast("float32", B[1])
"""
    func = mlcc.parse(text)["f"]
    with pytest.raises(CompileError) as caught:
        Native(func)
    places = [(d.code, d.primary.span.source.line_col(d.primary.span.start)[0]) for d in caught.value.diagnostics]
    assert places == [("E0701", 5), ("E0701", 6), ("E0701", 8)]

"""Statements by hand, each in a function of its own: mlcc's reading of the source, and of what TVM prints for it, is
TVM's.
"""

from __future__ import annotations

import pytest

tvm = pytest.importorskip("tvm")

import mlcc  # noqa: E402
from tests.interop.harness import back_and_there, to_tvm  # noqa: E402

HEAD = """\
@T.prim_func(s_tir=True)
def f(A: T.Buffer((4, 4), "float32"), B: T.Buffer((16,), "int8"), n: T.int64, h: T.handle, i: T.int32,
      x: T.float32, b: T.bool):
"""

EXPRESSIONS = """
i < n
i < 3.5
x < 3
3 < i
T.int32(1) < 2
i + n
i + 3000000000
3000000000
i * 1 + 0
i < 3 and True
not b
b == True
b & True
~i
i & 3
i << 4
T.shift_left(1, 2)
T.bitwise_and(7, T.int64(3))
1 if b else 2
2 ** 3
7 / 2
-7 // 2
x / 2
-n
-i + 3
T.Select(b, 1, 2)
T.if_then_else(True, 1, 2)
T.if_then_else(b, 1, n)
T.max(i, n)
min(4, 3)
T.max(x, 3)
T.abs(i)
T.abs(-3)
T.pow(x, 2)
T.fma(x, x, 1.0)
T.floor(x)
T.floor(i)
T.ceil(1.5)
T.ceildiv(i, 3)
T.truncdiv(i, 3)
T.truncmod(i, 3)
T.floormod(i, 3)
T.popcount(i)
T.clz(i)
T.atan2(x, x)
T.isnan(i)
T.isinf(x)
T.isfinite(x)
T.cast(i, "float32")
T.Cast("int32", i)
T.Cast("float32", 3)
T.float32(i)
T.bool(i)
T.int32(-5) * i
x * 0.1
T.float64(0.1) * x
T.int32x4(i)
T.float32x4(1.0)
T.reinterpret("float32", i)
T.reinterpret(i, dtype="float32")
T.call_extern("foo", i, dtype="int32")
T.call_extern("int32", "foo", i)
T.call_extern("", "foo", i)
T.call_intrin("float32", "tirx.exp", x)
T.call_packed("foo", i)
T.call_packed("foo", B)
T.call_cpacked("foo", i, h)
T.call_packed_lowered("foo", h, 0, 1)
T.tvm_access_ptr(T.type_annotation("float32"), A.data, 0, 16, 1)
A.vload([0, 0], "float32x4")
A.elem_offset
A.offset_of([i, 1])[0]
A.shape[0]
B[n]
T.Shuffle([x, x], [0])
T.Shuffle([T.Broadcast(x, 2), T.Broadcast(x, 2)], [0, 3])
T.broadcast(i, 4) + 1
T.Ramp(i, 1, 4) * T.Ramp(i, 1, 4)
T.type_annotation("float32")
T.start_profile_intrinsic(3)
T.assume(b)
T.tvm_storage_sync("shared")
T.tvm_struct_get(h, 0, 1, "int32")
T.tvm_struct_set(h, 0, 1, i)
T.tvm_stack_make_shape(1, 2)
T.tvm_tuple(1, 2)
T.get_active_lane_mask("boolx4", 0, i)
T.anylist_getitem(h, 1)
T.EQ(1, 2)
T.FloorDiv(1, 2)
T.Sub(1.0, x)
T.call_llvm_pure_intrin("float32x4", "llvm.fma", T.uint32(3), T.Broadcast(T.float32(0), 4))
T.erf(x) + T.tanh(x) + T.log2(x) + T.rsqrt(x) + T.hypot(x, x) + T.copysign(x, x) + T.nextafter(x, x) + T.fmod(x, x)
T.min_value("int8") + T.max_value("int8")
T.infinity("float16")
T.address_of(A[1, 2])
T.undef()
T.vscale()
T.likely(n < 3)
T.lookup_param("p0")
T.isnullptr(h)
T.uint8(255) + T.Cast("uint8", n)
T.q_multiply_shift(1, 2, 3, 4)
"""

STATEMENTS = [
    "for a in T.serial(0, n): T.evaluate(a)",
    "for a in T.serial(T.int64(4), 8): T.evaluate(a)",
    "for a in T.serial(i, n): T.evaluate(a)",
    "for a in T.serial(i, i + 4): T.evaluate(a)",
    "for a, c in T.grid(4, T.int64(4)): T.evaluate(a + c)",
    "for a in T.grid((2, 5), 3): T.evaluate(a[0] + a[1])",
    "for a in range(8, 2, -2): T.evaluate(a)",
    "for a in T.serial(2, 8, step=n): T.evaluate(a)",
    'for a in T.thread_binding(0, 4, thread="threadIdx.x", annotations={"q": 1}): T.evaluate(a)',
    'for a in T.parallel(4, annotations={"x": "y", "z": [1, 2]}): T.evaluate(a)',
    "for a in T.vectorized(2, 4): T.evaluate(a)",
    "for a in T.serial(10, unroll=True): T.evaluate(a)",
    "while i < 3:\n    break",
    "while i:\n    break",
    "if i:\n    T.evaluate(0)\nelif n + 1:\n    T.evaluate(1)",
    'if T.call_packed("env.ask", i):\n    T.evaluate(0)',
    "y: T.int32 = i\nT.evaluate(y)",
    "y: T.float32 = x\ny = y * 2.0\nA[0, 0] = y",
    "y: T.int32 = 0\nwhile y < 3:\n    y = y + 1\nT.evaluate(T.address_of(y))",
    'y = T.alloc_local((1,), "int32")\ny[0] = i\nT.evaluate(y[0])',
    "if b:\n    y: T.int32 = 1\n    T.evaluate(y)\nelse:\n    y: T.int32 = 2\n    T.evaluate(y)",
    "if b:\n    T.evaluate(0)\nelif i < 3:\n    T.evaluate(1)\nelse:\n    T.evaluate(2)",
    'assert b, "x"',
    'assert b, ("ValueError", ["a", "b"])',
    'with T.sblock("x"):\n    va = T.axis.spatial(16, n)\n    A[va, 0] = T.float32(0)',
    'with T.sblock("x"):\n    va = T.axis.spatial((i, i + 16), i)\n    A[va, 0] = T.float32(0)',
    'with T.sblock("x"):\n    va = T.axis.scan(16, i)\n    vb = T.axis.opaque(16, i)\n    A[va, vb] = T.float32(0)',
    'for a in T.serial(2, 8):\n    with T.sblock("x"):\n        va = T.axis.remap("S", [a])\n        A[va, 0] = x',
    'with T.sblock("x"):\n    T.where(i < 3)\n    T.reads([A[0, 0:2], B[3]])\n    T.writes([])\n    A[0, 0] = x',
    'with T.sblock("x"):\n    T.reads(A[:, 0], A[i:i + 4, n])\n    T.writes(A[:2, 0:i + 1])\n    A[0, 0] = x',
    'with T.sblock("x", no_realize=True):\n    A[0, 0] = x',
    'with T.sblock("x"):\n    T.sblock_attr({"a": T.int64(3), "b": {"c": [1]}})\n    A[0, 1] = x',
    'with T.sblock("x"):\n    with T.init():\n        A[0, 0] = x\n    A[0, 1] = x',
    'C = T.sblock_alloc_buffer((3,), scope="shared")\nC[0] = x',
    'C = T.alloc_buffer((4,), "bfloat16", strides=(2,), align=8, annotations={"k": 1})\nC[0] = x',
    'C = T.alloc_shared((4,), "int8")\nD = T.alloc_local((4,))\nC[0] = 1\nD[0] = 1',
    'C = T.decl_buffer((4,), "float32", data=A.data, elem_offset=n)\nC[0] = x',
    'C = T.decl_buffer((32,), "float16", data=A.data)\nC[0] = 1',
    'C = T.alloc_buffer([4], "int32")\nD = T.decl_buffer([2, 2], "int32", data=C.data)\nD[0, 0] = 1',
    'C = T.alloc_buffer([4], "int32")\nD = T.decl_buffer([4], "int32", data=C.data, byte_offset=8)\nD[0] = 1',
    "y: T.let[T.int32] = i + 1\nT.evaluate(y)",
    "y: T.let = n\nT.evaluate(y)",
    'y: T.let[T.handle] = T.call_extern("handle", "foo")\nT.evaluate(T.isnullptr(y))',
    'with T.attr(0, "k", 3), T.attr(i, "q", "s"):\n    T.evaluate(0)\nT.evaluate(1)',
    'T.attr({"k": 1, "l": i})\nT.evaluate(0)',
    'with T.attr(T.iter_var(T.int32(), (0, 3), "ThreadIndex", "threadIdx.x"), "thread_extent", 3):\n    T.evaluate(0)',
    'with T.launch_thread("threadIdx.x", 4) as tx:\n    T.evaluate(tx)\nT.evaluate(1)',
    'tx = T.launch_thread("threadIdx.x", n)\nT.evaluate(tx)',
    'with T.attr(T.comm_reducer(lambda p, q: p + q, [T.float32(0)]), "reduce_scope", T.int32(0)):\n    T.evaluate(0)',
    "return i",
    "A[0, 0] += x",
    "B[0] <<= 1",
    "B[i * 4:i * 4 + 4] = T.Broadcast(T.int8(0), 4)",
    "A.vstore([0, 0], T.Broadcast(x, 4))",
    "T.buffer_store(A, 1.0, [0, 0])",
    'T.func_attr({"x": 1, "y": [T.int64(1), "a", T.float32(2)], "z": True})',
    "z = T.float32()\nA[0, 0] = T.Let(z + 1.0, where={z: A[0, 0]})",
]


def function(body: str) -> str:
    return HEAD + "\n".join("    " + line for line in body.split("\n")) + "\n"


def test_scalars_in_shared_memory_keep_their_scope() -> None:
    """TVM's own text loses the scope."""
    text = function('y = T.alloc_scalar("int8", scope="shared")\ny = B[0]\nB[1] = y')
    tvm.ir.assert_structural_equal(to_tvm(text), to_tvm(mlcc.script(mlcc.parse(text), dialect="tvm")))


@pytest.mark.parametrize("kind", ["s_tir=True", "private=True, s_tir=True", "private=True", ""])
def test_kinds_of_functions_are_kept(kind: str) -> None:
    """A function without `s_tir=True` is of another kind in TVM 0.27; its text stays without it."""
    head = "# from tvm.script import tirx as T\n\n"
    decorator = f"@T.prim_func({kind})" if kind else "@T.prim_func"
    text = f"@I.ir_module\nclass Module:\n    {decorator}\n    def f(n: T.int64):\n        T.evaluate(n)\n"
    mine = back_and_there(to_tvm(text))
    assert ("s_tir" in mine["f"].attrs) == ("s_tir" not in kind)
    assert mlcc.structural_equal(mine, mlcc.parse(head + text))
    assert "s_tir" not in mlcc.parse(text)["f"].attrs  # texts of other dialects do not say it


@pytest.mark.parametrize("body", [f"T.evaluate({e})" for e in EXPRESSIONS.strip().split("\n")] + STATEMENTS)
def test_both_readers_make_the_same_statement(body: str) -> None:
    text = function(body)
    theirs = to_tvm(text)
    back_and_there(theirs)
    mine = mlcc.parse(text)
    tvm.ir.assert_structural_equal(theirs, to_tvm(mlcc.script(mine, dialect="tvm")))

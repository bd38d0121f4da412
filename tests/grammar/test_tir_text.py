"""What statements and expressions of TensorIR mean: each is parsed, and printed in the canonical form."""

from __future__ import annotations

from typing import Any

import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.ir.dtypes import BOOL, HANDLE, INT32, INT64, DType
from mlcc.ir.equal import assert_structural_equal

HEAD = """\
@T.prim_func{options}
def f(A: T.Buffer((4, 4), "float32"), B: T.Buffer((16,), "int8"), h: T.handle, n: T.int64, i: T.int32,
      x: T.float32, b: T.bool):
"""


def parse(body: str, options: str = "") -> tir.PrimFunc:
    lines = "\n".join("    " + line for line in body.split("\n"))
    func = mlcc.parse(HEAD.format(options=options) + lines + "\n")["f"]
    assert isinstance(func, tir.PrimFunc)
    return func


def printed(body: str, options: str = "") -> str:
    func = parse(body, options)
    text = mlcc.script(func)
    assert_structural_equal(mlcc.parse(text)["f"], func)
    lines = text.split("):\n", 1)[1].rstrip().split("\n")
    return "\n".join(line[4:] for line in lines if not line.strip().startswith("# with"))


def value(text: str) -> tir.Expr:
    stmt = parse(f"T.evaluate({text})").body[0]
    assert isinstance(stmt, tir.Evaluate)
    return stmt.value


EXPRESSIONS = [
    # operators match dtypes and fold constants
    ("i + n", 'T.Cast("int64", i) + n'),
    ("i * 1 + 0", "i"),
    ("i + 3000000000", 'T.Cast("int64", i) + T.int64(3000000000)'),
    ("x * 0.1 + 2", "x * T.float32(0.1) + T.float32(2.0)"),
    ("3 < i", "3 < i"),
    ("i < 3.5", 'T.Cast("float32", i) < T.float32(3.5)'),
    ("T.int32(1) < 2", "T.bool(True)"),
    ("-n", "n * T.int64(-1)"),
    ("-T.float32(2)", "T.float32(-2.0)"),
    ("7 // 2 + 7 % 4", "6"),
    ("-7 // 2", "-4"),
    ("2 ** 3", "8"),
    ("7 / 2", "T.float32(3.5)"),
    ("x / 2", "x / T.float32(2.0)"),
    ("x * 0 + 0 * x", "x * T.float32(0.0) + T.float32(0.0) * x"),  # not 0 for an x that is infinite
    ("0 / x", "T.float32(0.0) / x"),
    ("i * 0", "0"),
    ("i < 3 and b or not b", "i < 3 and b or not b"),
    ("i < 3 and True", "T.And(i < 3, T.bool(True))"),
    ("0 <= i < 4", "0 <= i and i < 4"),
    ("i & 3 | i ^ 1", "T.bitwise_or(T.bitwise_and(i, 3), T.bitwise_xor(i, 1))"),
    ("~i << 2", "T.shift_left(T.bitwise_not(i), 2)"),
    ("T.shift_left(1, 4)", "16"),
    ("1 if b else 2", "T.if_then_else(b, 1, 2)"),
    ("T.Broadcast(i, 4) + 1", "T.Broadcast(i, 4) + T.Broadcast(1, 4)"),
    # nodes as they are written
    ("T.Add(1, 2)", "T.Add(1, 2)"),
    ("T.Div(n, T.int64(3))", "T.Div(n, T.int64(3))"),
    ("T.truncdiv(i, 3)", "T.Div(i, 3)"),
    ("T.EQ(1, 2)", "T.EQ(1, 2)"),
    ('T.Cast("int32", i)', 'T.Cast("int32", i)'),
    ("T.Not(b)", "not b"),
    # constants
    ("T.float32('inf')", 'T.float32("inf")'),
    ("T.float64('nan')", 'T.float64("nan")'),
    ("T.float32('0x1.8p3')", "T.float32(12.0)"),
    ("T.uint64(18446744073709551615)", "T.uint64(18446744073709551615)"),
    ("T.bool(True)", "T.bool(True)"),
    ("T.boolean(i)", 'T.Cast("bool", i)'),
    ("T.int8(3) + T.int8(4)", "T.int8(7)"),
    ("T.float32x4(1)", "T.Broadcast(T.float32(1.0), 4)"),
    ("T.i64(3)", "T.int64(3)"),
    ('T.min_value("int8")', "T.int8(-128)"),
    ('T.infinity("float16")', 'T.float16("inf")'),
    ('T.IntImm("int16", 3)', "T.int16(3)"),
    # conversions
    ("T.float32(i)", 'T.Cast("float32", i)'),
    ('T.cast(i, "int32")', "i"),
    ('T.cast(3, "float32")', "T.float32(3.0)"),
    ('n.astype("int32")', 'T.Cast("int32", n)'),
    ('T.reinterpret("float32", i)', 'T.reinterpret("float32", i)'),
    ('T.reinterpret(i, dtype="float32")', 'T.reinterpret("float32", i)'),
    # functions
    ("T.max(i, n)", 'T.max(T.Cast("int64", i), n)'),
    ("max(i, 3, 4)", "T.max(T.max(i, 3), 4)"),
    ("min(4, 3)", "3"),
    ("T.Select(b, 1, 2)", "T.Select(b, 1, 2)"),
    ("T.if_then_else(b, 1, n)", "T.if_then_else(b, T.int64(1), n)"),
    ("T.if_then_else(True, 1, 2)", "1"),
    ("T.exp(x) + T.pow(x, 2)", "T.exp(x) + T.pow(x, T.float32(2.0))"),
    ("T.exp(T.float64(1))", "T.exp(T.float64(1.0))"),
    ("T.abs(x)", "T.fabs(x)"),
    ("T.abs(i)", "T.Select(i >= 0, i, 0 - i)"),
    ("T.floor(i)", "i"),
    ("T.ceil(1.5)", "T.float32(2.0)"),
    ("T.ceildiv(i, 3)", "(i + 3 - 1) // 3"),
    ("T.isnan(i)", "T.bool(False)"),
    ("T.isinf(x)", 'T.fabs(x) == T.float32("inf") and not T.isnan(x)'),
    ("T.Ramp(n, 2, 4)", "T.Ramp(n, T.int64(2), 4)"),
    ("T.Shuffle([x, x], [1, 0])", "T.Shuffle([x, x], [1, 0])"),
    ("T.likely(i < 3)", "T.likely(i < 3)"),
    ("T.popcount(i) + T.clz(i)", "T.popcount(i) + T.clz(i)"),
    ("T.vectorlow('float32x2', T.Broadcast(x, 4))", 'T.vectorlow("float32x2", T.Broadcast(x, 4))'),
    # calls out of the language, in both orders of arguments
    ('T.call_extern("int32", "f", i, A.data)', 'T.call_extern("int32", "f", i, A.data)'),
    ('T.call_extern("f", i, dtype="int32")', 'T.call_extern("int32", "f", i)'),
    ('T.call_extern("", "f")', 'T.call_extern("void", "f")'),
    ('T.call_pure_extern("float32", "sinf", x)', 'T.call_pure_extern("float32", "sinf", x)'),
    ('T.call_intrin("float32", "tir.exp", x)', "T.exp(x)"),
    ('T.call_llvm_pure_intrin("float32", "llvm.sqrt", x)', 'T.call_llvm_pure_intrin("float32", "llvm.sqrt", x)'),
    ('T.tvm_call_packed("env.f", i)', 'T.call_packed("env.f", i)'),
    (
        'T.call_packed("env.f", B)',
        'T.call_packed("env.f", T.tvm_stack_make_array(B.data, T.tvm_stack_make_shape(16), 0, 1, T.int8(0), 0))',
    ),
    # memory
    ("A[i, 1:3]", "A[i, T.Ramp(1, 1, 2)]"),
    ("B[i * 4 : i * 4 + 4]", "B[T.Ramp(i * 4, 1, 4)]"),
    ("B[::2]", "B[T.Ramp(0, 2, 8)]"),
    ("A[*(i, 2)]", "A[i, 2]"),
    ("T.BufferLoad(A, [0, 1])", "A[0, 1]"),
    ("A.vload([0, 0], 'float32x4')", "A[0, T.Ramp(0, 1, 4)]"),
    ("T.address_of(A)", "T.address_of(A[0, 0])"),
    ("A.shape[0] + len((1, 2))", "6"),
    ('A.access_ptr("rw", offset=3)', 'T.tvm_access_ptr(T.type_annotation("float32"), A.data, 3, 13, 3)'),
    (
        'T.tvm_access_ptr("float32", A.data, 0, 16, 1)',
        'T.tvm_access_ptr(T.type_annotation("float32"), A.data, 0, 16, 1)',
    ),
    ("A.offset_of([i, 1])[0]", "i * 4 + 1"),
    ('T.tvm_storage_sync("shared")', 'T.tvm_storage_sync("shared", T.bool(False), -1)'),
    ('T.tvm_struct_get(h, 0, 1, "int32")', 'T.tvm_struct_get(h, 0, 1, "int32")'),
]


@pytest.mark.parametrize(("text", "expected"), EXPRESSIONS, ids=lambda t: t[:40])
def test_expressions_print_in_canonical_form(text: str, expected: str) -> None:
    found = printed(f"T.evaluate({text})")
    assert found in (f"T.evaluate({expected})", expected)  # a call stands without T.evaluate


STATEMENTS = [
    ("for a in range(4): T.evaluate(a)", "for a in range(4):\n    T.evaluate(a)"),
    ("for a in T.serial(0, n): T.evaluate(a)", "for a in range(n):\n    T.evaluate(a)"),
    ("for a in T.serial(2, 8): T.evaluate(a)", "for a in range(2, 8):\n    T.evaluate(a)"),
    ("for a in range(8, 2, -2): T.evaluate(a)", "for a in range(8, 2, -2):\n    T.evaluate(a)"),
    ("for a in T.grid(8): T.evaluate(a)", "for a in range(8):\n    T.evaluate(a)"),
    ("for a in T.grid(4, 5): T.evaluate(a[0])", "for a_0, a_1 in T.grid(4, 5):\n    T.evaluate(a_0)"),
    (
        "for a, c in T.grid((2, 5), 3): T.evaluate(c)",
        "for a in range(2, 7):\n    for c in range(3):\n        T.evaluate(c)",
    ),
    ("for a in T.parallel(4): T.evaluate(a)", "for a in T.parallel(4):\n    T.evaluate(a)"),
    ("for a in T.vectorized(2, 4): T.evaluate(a)", "for a in T.vectorized(2, 4):\n    T.evaluate(a)"),
    (
        'for a in T.unroll(4, annotations={"k": [1, "s", T.bool(True)]}): T.evaluate(a)',
        'for a in T.unroll(4, annotations={"k": [1, "s", True]}):\n    T.evaluate(a)',
    ),
    (
        "for a in T.serial(4, unroll=True): pass",
        'for a in T.serial(4, annotations={"pragma_unroll": True}):\n    T.evaluate(0)',
    ),
    (
        'for a in T.thread_binding(0, 32, thread="threadIdx.x"): T.evaluate(a)',
        'for a in T.thread_binding(32, thread="threadIdx.x"):\n    T.evaluate(a)',
    ),
    (
        'for a in T.thread_binding(32, "vthread.x"): pass',
        'for a in T.thread_binding(32, thread="vthread.x"):\n    T.evaluate(0)',
    ),
    ("while i < 3:\n    break", "while i < 3:\n    break"),
    ("while True:\n    continue", "while T.bool(True):\n    continue"),
    ("for a in range(3):\n    T.continue_loop()", "for a in range(3):\n    continue"),
    (
        "if b: T.evaluate(1)\nelif i < 2: T.evaluate(2)\nelse: T.evaluate(3)",
        "if b:\n    T.evaluate(1)\nelif i < 2:\n    T.evaluate(2)\nelse:\n    T.evaluate(3)",
    ),
    ("if i: pass", "if i:\n    T.evaluate(0)"),
    ("if i != 0: pass", "if i != 0:\n    T.evaluate(0)"),
    ('if T.Cast("bool", i): pass', "if i:\n    T.evaluate(0)"),
    ("while i: break", "while i:\n    break"),
    ("if T.int8(2): pass", "if T.bool(True):\n    T.evaluate(0)"),
    ("if True: T.evaluate(1)\nelse: T.evaluate(2)", "T.evaluate(1)"),
    ("y: T.int32 = i + 1\nT.evaluate(y)", "y: T.int32 = i + 1\nT.evaluate(y)"),
    ("y = x * 2.0\nT.evaluate(y)", "y: T.float32 = x * T.float32(2.0)\nT.evaluate(y)"),
    ("y: T.int64 = i\nT.evaluate(y)", 'y: T.int64 = T.Cast("int64", i)\nT.evaluate(y)'),
    ("y: T.let[T.int32] = i\nT.evaluate(y)", "y: T.int32 = i\nT.evaluate(y)"),
    ("y: T.let = n\nT.evaluate(y)", "y: T.int64 = n\nT.evaluate(y)"),
    ("y = T.LetStmt(i)\nT.evaluate(y)", "y: T.int32 = i\nT.evaluate(y)"),
    ("with T.LetStmt(i) as y:\n    T.evaluate(y)", "y: T.int32 = i\nT.evaluate(y)"),
    ('y = T.var("int32")\nwith T.let(y, i):\n    T.evaluate(y)', "y: T.int32 = i\nT.evaluate(y)"),
    ("y, z = i, n\nT.evaluate(z)", "y: T.int32 = i\nz: T.int64 = n\nT.evaluate(z)"),
    ('assert b, "message"', 'assert b, "message"'),
    ('assert b, ("ValueError", ["a", "b"])', 'assert b, ("ValueError", ["a", "b"])'),
    ("A[0, 0] = 1", "A[0, 0] = T.float32(1.0)"),
    ("A[0, 0] += x", "A[0, 0] = A[0, 0] + x"),
    ("B[0] = n", 'B[0] = T.Cast("int8", n)'),
    ("B[0:4] = 0", "B[T.Ramp(0, 1, 4)] = T.Broadcast(T.int8(0), 4)"),
    ("A.vstore([0, 0], T.Broadcast(x, 4))", "A[0, T.Ramp(0, 1, 4)] = T.Broadcast(x, 4)"),
    ("T.buffer_store(A, x, [0, 1])", "A[0, 1] = x"),
    ("return i", "return i"),
    ("T.ret(i)", "return i"),
    ('"""text"""\nT.evaluate(0)', "T.evaluate(0)"),
    ("pass", "T.evaluate(0)"),
    ('T.attr(0, "k", 3)\nT.evaluate(1)', 'T.attr(0, "k", 3)\nT.evaluate(1)'),
    (
        'with T.attr(A.data, "k", "v"):\n    T.evaluate(1)\nT.evaluate(2)',
        'with T.attr(A.data, "k", "v"):\n    T.evaluate(1)\nT.evaluate(2)',
    ),
    (
        'T.attr({"k": 1, "l": 2})\nT.evaluate(1)',
        'T.attr(0, "k", 1)\nT.attr(0, "l", 2)\nT.evaluate(1)',
    ),
    (
        'with T.attr(T.comm_reducer(lambda p, q: p + q, [T.float32(0)]), "reduce_scope", 0):\n    T.evaluate(1)',
        'T.attr(T.comm_reducer(lambda p, q: p + q, [T.float32(0.0)]), "reduce_scope", 0)\nT.evaluate(1)',
    ),
    (
        'tx = T.launch_thread("threadIdx.x", 4)\nT.evaluate(tx)',
        'tx = T.launch_thread("threadIdx.x", 4)\nT.evaluate(tx)',
    ),
    (
        'tx = T.env_thread("threadIdx.x")\nwith T.launch_thread(tx, 4):\n    T.evaluate(tx)',
        'tx = T.launch_thread("threadIdx.x", 4)\nT.evaluate(tx)',
    ),
    (
        'P = T.allocate([4], "int8", "shared")\nC = T.Buffer((2, 2), "int8", data=P, scope="shared")\nC[0, 0] = i',
        'P = T.alloc_buffer_stmt((4,), "int8", scope="shared")\n'
        'C = T.decl_buffer((2, 2), "int8", data=P.data, scope="shared")\nC[0, 0] = T.Cast("int8", i)',
    ),
    (
        'with T.decl_buffer((16,), "int8", data=A.data) as C:\n    C[0] = 1',
        'C = T.decl_buffer((16,), "int8", data=A.data)\nC[0] = T.int8(1)',
    ),
    ("C = A.view(2, -1)\nC[0, 7] = x", 'C = T.decl_buffer((2, 8), "float32", data=A.data)\nC[0, 7] = x'),
    ('C = A.view("int8")\nC[0, 15] = 1', 'C = T.decl_buffer((4, 16), "int8", data=A.data)\nC[0, 15] = T.int8(1)'),
    (
        'm = T.int32()\nC = T.match_buffer(h, (m, 4), "int8")\nC[0, 0] = 1',
        "C[0, 0] = T.int8(1)",
    ),
]


@pytest.mark.parametrize(("text", "expected"), STATEMENTS, ids=lambda t: t[:40])
def test_statements_print_in_canonical_form(text: str, expected: str) -> None:
    found = printed(text)
    assert found.split("\n")[-len(expected.split("\n")) :] == expected.split("\n")


BLOCKS = [
    (
        "va = T.axis.spatial(16, i)\nvb = T.axis.R((2, 8), i)\nvc = T.axis.scan(4, i)\nvd = T.axis.opaque(4, i)",
        [("va", "S", 0, 16), ("vb", "R", 2, 6), ("vc", "scan", 0, 4), ("vd", "O", 0, 4)],
    ),
    ("va, vb = T.axis.remap('SR', [p, q])", [("va", "S", 0, 4), ("vb", "R", 2, 6)]),
    ("va = T.axis.remap('S', [p])", [("va", "S", 0, 4)]),
    ("va, = T.axis.remap('S', [p])", [("va", "S", 0, 4)]),
]


@pytest.mark.parametrize("keyword", ["block", "sblock"])
@pytest.mark.parametrize(("text", "axes"), BLOCKS, ids=lambda t: str(t)[:30])
def test_axes_print_in_canonical_form(text: str, axes: Any, keyword: str) -> None:
    lines = "\n".join("            " + line for line in text.split("\n"))
    loops = "for p in range(4):\n    for q in T.serial(2, 8):\n"
    body = f"{loops}        with T.{keyword}('X'):\n{lines}\n            A[0, 0] = x"
    root = parse(body).root
    assert root is not None
    block = next(n for n in mlcc.ir.walk(root) if isinstance(n, tir.Block) and n.name == "X")
    found = [(a.var.name, a.kind.value, tir.const_int(a.dom.min), tir.const_int(a.dom.extent)) for a in block.iter_vars]
    assert found == axes


def test_blocks_are_read() -> None:
    text = """\
with T.block("X"):
    T.where(i < 3)
    T.reads([A[0, 0:2], B])
    T.writes(A[0:4, 1])
    T.block_attr({"k": T.int64(1)})
    T.block_attr({"l": (1, 2)})
    S = T.alloc_buffer((3,), scope="shared")
    M = T.match_buffer(A[i : i + 2, 0:4], (2, 4), strides=("s", 1), offset_factor=1)
    N = T.match_buffer(A[0, 0:4])
    with T.init():
        A[0, 0] = T.float32(0)
    M[0, 0] = S[0] + N[0, 0]"""
    realize = parse(text).body[0]
    assert isinstance(realize, tir.BlockRealize)
    block = realize.block
    assert isinstance(realize.predicate, tir.LT)
    assert [r.buffer.name for r in block.reads] == ["A", "B"]
    assert [[tir.const_int(d.extent) for d in r.region] for r in block.reads] == [[1, 2], [16]]
    assert [[tir.const_int(d.extent) for d in r.region] for r in block.writes] == [[4, 1]]
    assert isinstance(block.annotations["k"], tir.IntImm)
    assert block.annotations["l"] == (1, 2)
    assert [(b.name, b.scope) for b in block.alloc_buffers] == [("S", "shared")]
    first, second = block.match_buffers
    assert isinstance(first.buffer.strides[0], tir.Var)
    assert first.buffer.strides[0].name == "s"
    assert isinstance(first.buffer.elem_offset, tir.Var)
    assert [tir.const_int(d) for d in second.buffer.shape] == [1, 4]
    assert block.init is not None
    assert len(block.init) == 1


def test_expressions_have_the_expected_dtype() -> None:
    for text, dtype in (
        ("i", INT32), ("n", INT64), ("i < n", BOOL), ("h", HANDLE), ("T.Broadcast(x, 4) < x", DType.of("boolx4")),
        ("T.Ramp(n, 1, 4)", DType.of("int64x4")), ("A[0, T.Ramp(0, 1, 4)]", DType.of("float32x4")),
    ):  # fmt: skip
        assert value(text).dtype is dtype
    func = parse("for p in T.serial(n):\n    for q in T.serial(i, n):\n        T.evaluate(p + q)")
    loops = [node for node in mlcc.ir.walk(func) if isinstance(node, tir.For)]
    assert [loop.var.dtype for loop in loops] == [INT64, INT64]


def test_every_node_has_a_place() -> None:
    text = HEAD.format(options="") + "    for a in range(4):\n        A[a, 0] = A[0, a] * 2 + T.exp(x) - T.max(i, n)\n"
    func = mlcc.parse(text)["f"]
    for node in mlcc.ir.walk(func.body[0]):  # type: ignore[union-attr]
        assert node.span is not None or isinstance(node, tir.Buffer | tir.Var), node
    (store,) = [n for n in mlcc.ir.walk(func) if isinstance(n, tir.BufferStore)]
    assert store.span is not None
    assert text[store.span.start : store.span.end] == "A[a, 0] = A[0, a] * 2 + T.exp(x) - T.max(i, n)"
    (product,) = [n for n in mlcc.ir.walk(func) if isinstance(n, tir.Mul)]
    assert product.span is not None
    assert text[product.span.start : product.span.end] == "A[0, a] * 2"


# ---------------------------------------------------------------- what differs between dialects


def test_scalars_of_tvm_0_27_are_memory() -> None:
    body = "y: T.int32 = i\ny = y + 1\nz: T.float32\nz = 2\nT.evaluate(z)"
    func = parse(body, "(s_tir=True)")
    assert [type(s).__name__ for s in func.body] == [
        "AllocBuffer", "BufferStore", "BufferStore", "AllocBuffer", "BufferStore", "Evaluate",
    ]  # fmt: skip
    assert isinstance(func.body[0], tir.AllocBuffer)
    assert func.body[0].buffer.scope == "local"
    header = "# from tvm.script import tirx as T\n\n"
    told = mlcc.parse(header + HEAD.format(options="") + "    y: T.int32 = i\n")["f"]
    assert isinstance(told.body[0], tir.AllocBuffer)  # type: ignore[union-attr]
    assert isinstance(parse("y: T.int32 = i").body[0], tir.Bind)


def test_allocation_is_of_the_block_or_a_statement() -> None:
    plain = parse('C = T.alloc_buffer((4,), "int8")\nC[0] = 1')
    assert plain.root is not None
    assert [b.name for b in plain.root.alloc_buffers] == ["C"]
    inner = parse('for i in range(2):\n    C = T.alloc_buffer((4,), "int8")\n    C[i] = 1')
    assert inner.root is not None and [b.name for b in inner.root.alloc_buffers] == ["C"]
    statement = parse('C = T.alloc_buffer((4,), "int8", annotations={"k": 1})\nC[0] = 1', "(s_tir=True)")
    assert isinstance(statement.body[0], tir.AllocBuffer)
    block = parse('C = T.sblock_alloc_buffer((4,), "int8")\nC[0] = 1', "(s_tir=True)")
    assert block.root is not None
    own = parse('C = T.alloc_buffer_stmt((4,), "int8")\nC[0] = 1')
    assert isinstance(own.body[0], tir.AllocBuffer)
    local = parse('C = T.alloc_local((4,), "int8")\nD = T.alloc_shared((4,))\nC[0] = 1')
    assert [s.buffer.scope for s in local.body if isinstance(s, tir.AllocBuffer)] == ["local", "shared"]


SAME = [
    """
@tvm.script.ir_module
class M:
    @T.prim_func
    def f(a: T.handle, B: T.Buffer[(16,), "float32"]) -> None:
        T.func_attr({"global_symbol": "f", "tir.noalias": True})
        n = T.var("int64")
        A = T.match_buffer(a, (16, n), dtype="float32")
        for i in range(16):
            with T.block("X"):
                vi = T.axis.S(16, i)
                T.reads(A[vi, 0])
                T.writes(B[vi])
                B[vi] = T.max(A[vi, 0], T.float32(0))
""",
    """
# from tvm.script import ir as I
# from tvm.script import tir as T

@I.ir_module
class Module:
    @T.prim_func
    def f(A: T.Buffer((16, "n"), "float32"), B: T.Buffer((16,), "float32")):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        with T.block("root"):
            T.reads()
            T.writes()
            for i in T.serial(16):
                with T.block("X"):
                    vi = T.axis.remap("S", [i])
                    B[vi] = T.max(A[vi, 0], T.float32(0))
""",
    """
# from typing import TypeVar
# from tvm.script import ir as I
# from tvm.script import tirx as T

n = TypeVar("n")
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def f(A: T.Buffer((16, n), "float32"), B: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        for i in range(16):
            with T.sblock("X"):
                vi = T.axis.spatial(16, i)
                T.reads(A[vi, 0])
                T.writes(B[vi])
                B[vi] = T.max(A[vi, 0], T.float32(0.0))
""",
    """
import tvm
from tvm.script import tir as TT

@TT.prim_func(check_well_formed=False)
def f(A: TT.Buffer(("16", "n"), "float32"), B: TT.Buffer(16)):
    TT.func_attr({"tir.noalias": TT.bool(True)})
    n: TT.int64
    for i in TT.grid(16):
        with TT.block("X"):
            (vi,) = TT.axis.remap("S", [i])
            B[vi] = TT.max(A[vi, 0], 0)
""".replace("    n: TT.int64\n", "    n = TT.int64()\n"),
]


@pytest.mark.parametrize("text", SAME[1:], ids=["2025", "0.27", "imports"])
def test_dialects_mean_the_same(text: str) -> None:
    assert_structural_equal(mlcc.parse(text)["f"], mlcc.parse(SAME[0])["f"])


def test_modules_are_read() -> None:
    text = """
@I.ir_module
class M:
    '''text'''
    I.module_attrs({"version": 3, "names": ["a", {"b": 1.5}]})
    cls = M

    @T.prim_func(private=True)
    def g(A: T.Buffer((4,), "int8"), n: T.int32) -> T.int32:
        return n

    @T.prim_func
    def f(A: T.Buffer((4,), "int8")):
        T.func_attr({"global_symbol": "other"})
        T.evaluate(cls.g(A, 3) + M.g(A.data, 4) + g(A, 5))
"""
    mod = mlcc.parse(text)
    assert mod.name == "M"
    assert list(mod.functions) == ["g", "f"]
    assert mod.attrs["version"] == 3
    assert mod["g"].is_private
    assert mod["f"].attrs["global_symbol"] == "other"
    calls = [n for n in mlcc.ir.walk(mod["f"]) if isinstance(n, tir.Call)]
    assert [c.dtype for c in calls] == [INT32] * 3
    assert all(c.args[0].dtype is HANDLE for c in calls)


def test_signatures_are_read() -> None:
    text = """
@T.prim_func
def f(a: T.handle("float32", "shared"), A: T.Buffer((n, "m + n"), "float16", strides=(s, 1), offset_factor=4),
      n: T.int32, p: T.bool, q: T.Buffer((), "int8"), r: T.Ptr[T.float32]):
    s = T.int32()
    T.evaluate(n)
"""
    with pytest.raises(CompileError, match="unknown name `s`"):
        mlcc.parse(text)
    func = mlcc.parse(text.replace("strides=(s, 1)", 'strides=("s", 1)').replace("    s = T.int32()\n", ""))["f"]
    assert isinstance(func, tir.PrimFunc)
    assert [p.name for p in func.params] == ["a", "A", "n", "p", "q", "r"]
    assert func.params[0].pointer == tir.PointerType(DType.of("float32"), "shared")
    assert func.params[5].pointer == tir.PointerType(DType.of("float32"))
    buffer = func.buffers[1]
    assert buffer is not None
    assert buffer.shape[0] is func.params[2]
    assert isinstance(buffer.shape[1], tir.Add)
    assert buffer.shape[1].rhs is func.params[2]
    assert buffer.offset_factor == 4
    assert isinstance(buffer.elem_offset, tir.Var)
    assert func.buffers[4] is not None
    assert func.buffers[4].shape == ()


def test_a_function_with_only_attributes() -> None:
    func = mlcc.parse('@T.prim_func\ndef f():\n    T.func_attr({"k": [1, T.int64(2), None, 1.5, {"a": "b"}]})\n')["f"]
    assert func.attrs["k"][0] == 1
    assert isinstance(func.attrs["k"][1], tir.IntImm)
    assert dict(func.attrs["k"][4]) == {"a": "b"}
    assert isinstance(func.body[0], tir.Evaluate)  # type: ignore[union-attr]


def test_data_and_folder_reach_the_constants(tmp_path: Any) -> None:
    path = tmp_path / "m.mlc"
    path.write_text("@T.prim_func\ndef f(n: T.int32):\n    T.evaluate(n)\n")
    assert list(mlcc.parse(path).functions) == ["f"]
    assert list(mlcc.parse(path.read_bytes()).functions) == ["f"]


def test_long_sums_and_deep_loops() -> None:
    """What the limits allow is walked without running out of frames."""
    total = " + ".join(f"A[{k % 4}, 0]" for k in range(190))
    assert parse(f"A[0, 0] = {total}").body
    nest = "\n".join("    " * k + f"for a{k} in range(2):" for k in range(90)) + "\n" + "    " * 90 + "T.evaluate(a0)"
    assert parse(nest).body

"""relax programs of every form: written for TVM, read by TVM, printed by TVM, read by mlcc, and back."""

from __future__ import annotations

import textwrap

import pytest

tvm = pytest.importorskip("tvm")

from tvm.script import from_source  # noqa: E402

import mlcc  # noqa: E402
from mlcc.ir.equal import assert_structural_equal  # noqa: E402
from tests.interop.harness import metadata, to_tvm  # noqa: E402

# name -> parameters, body
PROGRAMS: dict[str, tuple[str, str]] = {
    "nothing": ("x: R.Tensor((4,), 'float32')", "return x"),
    "nested calls": ("x: R.Tensor((4,), 'float32')", "return R.add(R.multiply(x, x), R.exp(x))"),
    "result tuple": ("x: R.Tensor((4,), 'float32')", "return (x, R.exp(x), (x,))"),
    "empty tuple": ("x: R.Tensor((4,), 'float32')", "return R.tuple()"),
    "tuples": (
        "t: R.Tuple(R.Tensor((4,), 'float32'), R.Tuple(R.Tensor((4,), 'float32'), R.Object))",
        "a = t[0]\nb = t[1]\nc = b[0]\nd = (a, (c, b[1]), ())\ne, f = b\nreturn (R.add(a, e), d, f)",
    ),
    "if": (
        "x: R.Tensor((4,), 'float32'), c: R.Tensor((), 'bool')",
        "if c:\n    a = R.exp(x)\n    y = R.multiply(a, a)\nelse:\n    y = x\nreturn y",
    ),
    "elif": (
        "x: R.Tensor((4,), 'float32'), c: R.Tensor((), 'bool'), d: R.Tensor((), 'bool')",
        "if c:\n    y = x\nelif d:\n    y = R.exp(x)\nelse:\n    z = R.log(x)\n    y = R.sin(z)\nreturn R.negative(y)",
    ),
    "if with tuples": (
        "x: R.Tensor((4,)), t: R.Tuple(R.Tensor((4,)), R.Tensor((4,))), c: R.Prim('bool')",
        "if c:\n    z = (x, R.add(x, x))\nelse:\n    z = t\nreturn z",
    ),
    "if with dataflow": (
        "x: R.Tensor((4,), 'float32'), c: R.Tensor((), 'bool')",
        "if c:\n    with R.dataflow():\n        a = R.exp(x)\n        z = R.add(a, x)\n        R.output(z)\n"
        "else:\n    z = R.multiply(x, x)\nreturn z",
    ),
    "if of different shapes": (
        "x: R.Tensor((4,), 'float32'), c: R.Tensor((), 'bool')",
        "if c:\n    z = R.concat((x, x), axis=0)\nelse:\n    z = x\nreturn z",
    ),
    "scalar condition": (
        "x: R.Tensor((4,), 'float32'), n: R.Prim('int64')",
        "if n > 3:\n    y = x\nelse:\n    y = R.exp(x)\nreturn y",
    ),
    "blocks": (
        "x: R.Tensor((4,), 'float32')",
        "with R.dataflow():\n    a = R.exp(x)\n    b = R.log(a)\n    R.output(a, b)\nc = R.add(a, b)\n"
        "with R.dataflow():\n    d = R.sin(c)\n    d = R.cos(d)\n    R.output(d)\nreturn (b, d)",
    ),
    "names bound again": ("x: R.Tensor((4,), 'float32')", "x = R.exp(x)\ny = R.exp(x)\ny = R.add(x, y)\nreturn y"),
    "symbolic": (
        "x: R.Tensor(('n', 'm'), 'float32'), y: R.Tensor(('m', 'n * 2'), 'float32'), s: R.Shape(['n', 'k'])",
        "n, m, k = T.int64(), T.int64(), T.int64()\nz = R.matmul(x, y)\nw = R.zeros(R.shape([n, k + 1]), 'float32')\n"
        "s2 = R.shape_of(w)\nreturn (R.reshape(z, R.shape([n * n, 2])), w, s2)",
    ),
    "scalar parameters": (
        "n: R.Prim('int64'), x: R.Tensor(('m', 4), 'float32')",
        "y = R.zeros(R.shape([n, 4]), 'float32')\nz = R.concat((x, y), axis=0)\nreturn R.sum(z)",
    ),
    "match cast": (
        "x: R.Tensor(ndim=2, dtype='float32'), o: R.Object",
        "n, m = T.int64(), T.int64()\ny = R.match_cast(x, R.Tensor((n, m), 'float32'))\n"
        "z = R.match_cast(o, R.Tensor((m, n)))\nw = R.add(y, R.ones(R.shape([n, m]), 'float32'))\nreturn (w, z)",
    ),
    "match cast in dataflow": (
        "x: R.Tensor(ndim=1, dtype='float32')",
        "m = T.int64()\nwith R.dataflow():\n    s = R.match_cast(x, R.Tensor((m,), 'float32'))\n    t = R.add(s, s)\n"
        "    R.output(t)\nreturn t",
    ),
    "match cast of a shape": (
        "s: R.Shape(ndim=2)",
        "n = T.int64()\nt = R.match_cast(s, R.Shape([n, 4]))\nreturn R.zeros(R.shape([4, n]), 'float32')",
    ),
    "types": (
        "a: R.Tensor, b: R.Tensor(ndim=3), c: R.Tensor(dtype='int8'), d: R.Object, e: R.Shape(ndim=2), f: R.Tuple(),"
        "g: R.Callable((R.Tensor((4,), 'float32'), R.Shape([2])), R.Tensor((4,), 'float32')), h: R.Prim('float32'),"
        "i: R.Tuple(R.Prim('int64'), R.Tensor((), 'float64')), k: R.Tensor((0, 1), 'uint8')",
        "return (a, b, c, d, e, g, h, i, k)",
    ),
    "functions as values": (
        "x: R.Tensor((4,), 'float32'), f: R.Callable((R.Tensor((4,), 'float32'),), R.Tensor((4,), 'float32'))",
        "y = f(x)\nreturn f(y)",
    ),
    "closure": (
        "x: R.Tensor((4,), 'float32')",
        "@R.function\ndef inner(y: R.Tensor((4,), 'float32')) -> R.Tensor((4,), 'float32'):\n"
        "    z = R.add(x, y)\n    return z\n"
        "w = inner(x)\nc = R.make_closure(inner, (w,))\n"
        "return R.invoke_pure_closure(c, (w,), ty_args=R.Tensor((4,), 'float32'))",
    ),
    "recursive closure": (
        "x: R.Tensor((), 'int32')",
        "@R.function\ndef count(i: R.Tensor((), 'int32')) -> R.Tensor((), 'int32'):\n"
        "    c = R.less(i, R.const(0, 'int32'))\n    if c:\n        r = i\n"
        "    else:\n        j = R.subtract(i, R.const(1, 'int32'))\n        r = count(j)\n    return r\n"
        "return count(x)",
    ),
    "constants": (
        "x: R.Tensor((2, 2), 'float32')",
        "a = R.const([[1.0, 2.0], [3.5, -4.0]], 'float32')\n"
        "b = R.const(3)\nc = R.const(True)\nd = R.const(1.5, 'float16')\n"
        "e = R.const([1, 2, 3], 'int64')\nf = 2\ng = 0.5\nreturn (R.add(x, a), b, c, d, e, f, g)",
    ),
    "scalars, strings and dtypes": (
        "n: R.Prim('int64')",
        "s = R.str('a \"b\" \\\\n')\nd = R.dtype('float16')\np = R.prim_value(3)\nq = R.prim_value(T.float32(0.5))\n"
        "return (s, d, p, q, n)",
    ),
    "operators with attributes": (
        "x: R.Tensor((2, 3, 8, 8), 'float32'), w: R.Tensor((4, 3, 3, 3), 'float32')",
        "a = R.nn.conv2d(x, w, strides=2, padding=[1, 1])\nb = R.sum(a, axis=[2, 3], keepdims=True)\n"
        "c = R.permute_dims(b, [0, 2, 3, 1])\nd = R.split(c, 2, axis=3)\ne = R.strided_slice(d[0], [0], [0], [1])\n"
        "f = R.astype(R.nn.softmax(e, axis=-1), 'float16')\nreturn (f, R.argmax(a, axis=1), R.expand_dims(f, [0, -1]))",
    ),
    "call_tir": (
        "x: R.Tensor((4,), 'float32')",
        "cls = Module\nwith R.dataflow():\n    a = R.call_tir(cls.inc, (x,), R.Tensor((4,), 'float32'))\n"
        "    b = R.call_tir(cls.inc, a, R.Tensor((4,), 'float32'))\n"
        "    c = R.call_tir_inplace(cls.inc2, (b,), inplace_indices=[0], out_ty=R.Tensor((4,), 'float32'))\n"
        "    R.output(c)\nreturn c",
    ),
    "packed": (
        "x: R.Tensor((4,), 'float32')",
        "a = R.call_pure_packed('f', x, ty_args=(R.Tensor(ndim=1),))\n"
        "b = R.call_dps_packed('g', (x,), R.Tensor((4,), 'float32'))\n"
        "c = R.call_dps_packed('g', x, [R.Tensor((4,), 'float32'), R.Tensor((2,), 'int32')])\nreturn (a, b, c)",
    ),
    "call of a function": ("x: R.Tensor((4,), 'float32')", "cls = Module\ny = cls.twice(x)\nreturn cls.twice(y)"),
    "attributes": (
        "x: R.Tensor((4,), 'float32')",
        "R.func_attr({'a': 1, 'b': True, 'c': 'x', 'd': [1, 'y'], 'e': {'f': 1}})\nreturn x",
    ),
    "infix": ("x: R.Tensor((4,), 'float32'), y: R.Tensor((4,), 'float32')", "z = -x\nreturn x + z * y / x - x ** y"),
}  # fmt: skip

IMPURE: dict[str, tuple[str, str]] = {
    "call_packed": (
        "x: R.Tensor((4,), 'float32')",
        "a = R.call_packed('f', x, 3, 'text', (x, x), ty_args=[R.Tensor((4,), 'float32')])\n"
        "b = R.call_packed('g', a)\n_ = R.call_packed('h')\nreturn (a, b)",
    ),
    "print and assert": (
        "x: R.Tensor((4,), 'float32'), c: R.Tensor((), 'bool')",
        "R.print(x, format='x = {}')\nR.assert_op(c, x, format='wrong: {}')\nreturn x",
    ),
    "memory": (
        "x: R.Tensor((4,), 'float32')",
        "a = R.builtin.alloc_tensor(R.shape([4]), R.dtype('float32'), R.prim_value(0))\n"
        "s = R.memory.alloc_storage(R.shape([16]), R.prim_value(0), R.str('global'), R.dtype('uint8'))\n"
        "t = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([4]), R.dtype('float32'))\nreturn (a, t)",
    ),
}


def source(params: str, body: str, decorator: str) -> str:
    lines = textwrap.indent(body, "        ")
    return f"""
@I.ir_module
class Module:
    I.module_attrs({{"version": 3, "flags": ["a", 1.5]}})

    @T.prim_func(private=True, s_tir=True)
    def inc(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("b"):
                v = T.axis.spatial(4, i)
                B[v] = A[v] + T.float32(1)

    @T.prim_func(private=True, s_tir=True)
    def inc2(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("b"):
                v = T.axis.spatial(4, i)
                A[v] = A[v] + T.float32(1)

    @R.function(private=True)
    def twice(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return R.add(x, x)

    {decorator}
    def main({params}):
{lines}
"""


def check(text: str) -> None:
    """TVM's text reads; what mlcc prints of it is read by TVM as the same module, and by mlcc as its own."""
    theirs = from_source(text, check_well_formed=False)
    mine = mlcc.parse(theirs.script(), data=metadata(theirs))
    back = to_tvm(mlcc.script(mine, dialect="tvm"))
    tvm.ir.assert_structural_equal(back, theirs)
    assert_structural_equal(mlcc.parse(back.script(), data=metadata(back)), mine)
    for dialect in ("mlcc", "tvm"):
        printed = mlcc.script(mine, dialect=dialect)
        assert_structural_equal(mlcc.parse(printed), mine)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_exchanged_as_text(name: str) -> None:
    check(source(*PROGRAMS[name], "@R.function"))


@pytest.mark.parametrize("name", IMPURE)
def test_impure_programs_are_exchanged_as_text(name: str) -> None:
    check(source(*IMPURE[name], "@R.function(pure=False)"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_read_one_text(name: str) -> None:
    """What a person writes for TVM, read by both without anyone's printer between."""
    text = source(*PROGRAMS[name], "@R.function")
    mine = mlcc.parse(text)
    theirs = from_source(text, check_well_formed=False)
    from_print = mlcc.parse(theirs.script(), data=metadata(theirs))
    assert_structural_equal(mine, from_print)

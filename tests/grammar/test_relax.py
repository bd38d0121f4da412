"""relax functions from text: what they mean, in all dialects, and that they come back from print."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from mlcc.errors import CompileError
from mlcc.grammar.parser import parse
from mlcc.grammar.printer.printer import script
from mlcc.ir import relax, tir
from mlcc.ir.equal import assert_structural_equal, structural_equal
from mlcc.ir.module import IRModule
from mlcc.ir.narrow_floats import decode
from mlcc.ir.node import walk

X = "x: R.Tensor((4,), 'float32')"
T4 = "R.Tensor((4,), 'float32')"


def function(body: str, params: str = X, ret: str = "", options: str = "", prelude: str = "") -> str:
    """The text of a module with one function `main`, and a PrimFunc `inc` and a function `twice` that it may call."""
    lines = "\n".join("        " + line for line in body.strip("\n").split("\n"))
    return f"""{prelude}
@I.ir_module
class Module:
    @T.prim_func
    def inc(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        pass

    @R.function(private=True)
    def twice(x: R.Tensor(("n",), "float32")):
        return R.add(x, x)

    @R.function{options}
    def main({params}){ret}:
{lines}
"""


def check(text: str) -> IRModule:
    """Parse; both dialects must read back to an equal module, and print to the same text again."""
    module = parse(text)
    for dialect in ("mlcc", "tvm"):
        printed = script(module, dialect=dialect)
        again = parse(printed)
        assert_structural_equal(module, again)
        assert script(again, dialect=dialect) == printed
    return module


def main(body: str, *args: str, **options: str) -> relax.Function:
    made = check(function(body, *args, **options))["main"]
    assert isinstance(made, relax.Function)
    return made


def bindings(func: relax.Function) -> list[Any]:
    return [b for block in func.body.blocks for b in block.bindings]


def info(func: relax.Function) -> str:
    """The struct info of the result, as text."""
    assert func.ret_struct_info is not None
    return script(func.ret_struct_info).strip()


def last_value(func: relax.Function) -> Any:
    return bindings(func)[-1].value


# ---------------------------------------------------------------- one thing, written in several ways

SAME = {
    "call_tir": [
        f"out = R.call_tir(cls.inc, (x,), out_sinfo={T4})\nreturn out",
        f"cls = Module\nout = R.call_tir(cls.inc, (x,), out_ty={T4})\nreturn out",
        "out = R.call_tir(inc, (x,), (4,), dtype='float32')\nreturn out",
        "out = R.call_tir(Module.inc, x, (4,), 'float32')\nreturn out",
        f"out = R.call_tir('inc', [x], [{T4}])\nreturn out",
        f"out = R.call_dps_packed('inc', (x,), {T4})\nreturn out",
        "out = R.call_dps_packed(inc, (x,), (4,), dtype='float32')\nreturn out",
        f"return R.call_tir(gvar=cls.inc, args=(x,), out_sinfo={T4})",
        "out: Tensor((4,), 'float32') = relax.call_tir(inc, (x,), (4,), dtype='float32')\nreturn out",
    ],
    "call_dps_packed": [
        f"return R.call_dps_packed('env.f', (x,), {T4})",
        f"return R.call_dps_packed('env.f', x, out_sinfo={T4})",
        "return R.call_dps_packed('env.f', (x,), (4,), dtype='float32')",
        "return R.call_tir('env.f', (x,), (4,), dtype='float32')",
        f"return R.call_tir(R.ExternFunc('env.f'), (x,), {T4})",
    ],
    "call_packed": [
        f"return R.call_packed('f', x, 3, sinfo_args=({T4},))",
        f"return R.call_packed('f', x, R.prim_value(3), ty_args={T4})",
        f"return relax.call_packed('f', x, T.int64(3), type_args=[{T4}])",
        f"return R.ExternFunc('f')(x, 3, sinfo_args=({T4},))",
    ],
    "operators": [
        "return R.add(R.multiply(x, x), R.negative(x))",
        "lv = R.multiply(x, x)\ngv = R.negative(x)\nreturn R.add(lv, gv)",
        "return relax.op.add(relax.multiply(x, x), R.negative(x))",
        "return x * x + -x",
    ],
    "numbers beside tensors": [
        "return R.add(x, R.const(2, 'float32'))",
        "return x + 2",
        "y = x + R.const(2.0)\nreturn y",
    ],
    "tuples": [
        "t = (x, R.exp(x))\nreturn t[1]",
        "e = R.exp(x)\nt = (x, e)\nreturn t[-1]",
        "t = R.tuple(x, R.exp(x))\nb = t[1]\nreturn b",
        "e = R.exp(x)\nt = (x, e)\na = t[0]\nb = t[1]\nreturn b".replace("a = t[0]\n", ""),
    ],
    "unpacking": [
        "t = R.split(x, 2)\na, b = t\nreturn (b, a)",
        "t = R.split(x, 2)\na = t[0]\nb = t[1]\nreturn (b, a)",
        "(a, b) = R.split(x, 2)\nreturn b, a",
    ],
    "if": [
        "if R.const(True):\n    y = R.exp(x)\nelse:\n    y = x\nreturn y",
        "if R.const(True):\n    y_then = R.exp(x)\n    y = y_then\nelse:\n    y = x\nreturn y",
        f"if R.const(True, 'bool'):\n    a = R.exp(x)\n    y: {T4} = a\nelse:\n    y = x\nreturn y",
    ],
    "elif": [
        "c = R.const(True)\nif c:\n    y = x\nelif c:\n    y = R.exp(x)\nelse:\n    y = R.log(x)\nreturn y",
        "c = R.const(True)\nif c:\n    y = x\nelse:\n    if c:\n        y = R.exp(x)\n    else:\n        y = R.log(x)\n"
        "return y",
    ],
    "dataflow": [
        "with R.dataflow():\n    a = R.exp(x)\n    b = R.log(a)\n    R.output(b)\nreturn b",
        "with relax.dataflow():\n    b = relax.log(relax.exp(x))\n    relax.output(b)\nreturn b",
        "with R.dataflow():\n    b = R.exp(x)\n    b = R.log(b)\n    R.output(b)\nreturn b",
    ],
    "attributes": [
        "R.func_attr({'a': 1, 'b': True, 'c': 'x', 'd': [1, 2.5], 'e': {'f': ['g']}})\nreturn x",
        "R.func_attr({'a': T.int32(1), 'b': T.bool(True)})\nR.func_attr({'c': 'x', 'd': (1, 2.5), 'e': {'f': ['g']}})\n"
        "return x",
    ],
    "strings and dtypes": [
        "return (R.str('a'), R.dtype('int8'), R.prim_value(1))",
        "s = 'a'\nreturn (s, R.dtype('int8'), 1)",
    ],
    "nested function": [
        f"@R.function\ndef f(y: {T4}) -> {T4}:\n    z = R.add(x, y)\n    return z\nreturn f(x)",
        f"@R.function(pure=True)\ndef g(w: {T4}):\n    return R.add(x, w)\ngv = g(x)\nreturn gv",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_equivalent_spellings_read_as_equal_functions(name: str) -> None:
    first = main(SAME[name][0])
    for body in SAME[name][1:]:
        assert_structural_equal(main(body), first)


SIGNATURES = [
    ("x: R.Tensor((4,), 'float32')", "R.Tensor((4,), dtype='float32')", "x: Tensor((4,), 'float32')"),
    ("x: R.Tensor(ndim=2)", "R.Tensor(ndim=2)", "x: R.Tensor(None, ndim=2)", "x: R.Tensor(None, None, None, 2)"),
    ("x: R.Tensor('float32')", "R.Tensor(dtype='float32')", "x: R.Tensor(None, 'float32')"),
    ("x: R.Tensor", "R.Tensor", "x: R.Tensor()", "x: Tensor", "x: Tensor('void')"),
    ("x: R.Tensor(('n', 'n * 2'))", "R.Tensor((n, n * 2))", "x: R.Tensor(['n', 'n*2'])"),
    ("x: R.Tensor((4,), 'int8', 'cuda')", "R.Tensor((4,), dtype='int8', vdevice='cuda:0:global')"),
    ("x: R.Shape(['n', 4])", "R.Shape([n, 4])", "x: Shape(('n', 4))"),
    ("x: R.Shape", "R.Shape(ndim=-1)", "x: R.Shape()", "x: R.Shape(ndim=-1)"),
    ("x: R.Shape([])", "R.Shape([])"),
    ("x: R.Object", "R.Object", "x: R.Any", "x: Object", "x: R.Object()", "x: I.StringType()", "x: R.str"),
    ("x: R.Prim('int64')", "R.Prim(value=x)", "x: R.Prim(dtype='int64')", "x: T.int64"),
    ("x: R.Prim('float16')", "R.Prim(value=x)", "x: T.float16", "x: T.float16()"),
    ("x: R.Prim(value='n')", "R.Prim(value=n)"),
    ("x: R.Tuple(R.Tensor, R.Tuple())", "R.Tuple(R.Tensor, R.Tuple)", "x: R.Tuple([Tensor(), R.Tuple])"),
    ("x: R.Tuple", "R.Tuple", "x: R.Tuple()", "x: None"),
    ("x: R.Callable", "R.Callable", "x: R.Callable()", "x: R.PackedFunc"),
    (
        "x: R.Callable((R.Tensor,), R.Object, True)", "R.Callable((R.Tensor,), R.Object, True)",
        "x: R.Callable(R.Tensor, ret=R.Object)", "x: R.Callable([R.Tensor], R.Object, purity=True)",
    ),
    ("x: R.Callable(ret=R.Tensor, purity=True)", "R.Callable(ret=R.Tensor, purity=True)"),
]  # fmt: skip


@pytest.mark.parametrize("case", SIGNATURES, ids=lambda c: c[0])
def test_annotations_read_as_struct_info(case: tuple[str, ...]) -> None:
    text, shown, *others = case
    first = main("return x", text)
    assert info(first) == shown.replace("'", '"')
    for other in others:
        assert_structural_equal(main("return x", other), first)


# ---------------------------------------------------------------- symbolic variables


def test_symbolic_variables_are_shared_within_a_function() -> None:
    func = main(
        "m, n = T.int64(), T.int64()\ny = R.zeros(R.shape([m, n]), 'float32')\nreturn R.add(x, y)",
        "x: R.Tensor(('m', 'n'), 'float32'), z: R.Tensor(('n * m',), 'float32')",
    )
    (m, n), (product,) = func.params[0].struct_info.dims, func.params[1].struct_info.dims  # type: ignore[union-attr]
    assert isinstance(product, tir.Mul) and product.lhs is n and product.rhs is m
    assert bindings(func)[0].value.args[0].values == (m, n)


def test_prelude_variables_belong_to_each_function() -> None:
    text = """
n = TypeVar("n")
@I.ir_module
class Module:
    @R.function
    def f(x: R.Tensor((n, n * 2), "float32")) -> R.Tensor((n, n * 2), "float32"):
        return x
    @R.function
    def g(x: R.Tensor((n,), "float32")):
        y: R.Tensor((n,), "float32") = R.exp(x)
        return y
"""
    module = check(text)
    f, g = module["f"], module["g"]
    assert isinstance(f, relax.Function) and isinstance(g, relax.Function)
    assert f.params[0].struct_info.dims[0] is not g.params[0].struct_info.dims[0]  # type: ignore[union-attr]
    assert f.ret_struct_info.dims[0] is f.params[0].struct_info.dims[0]  # type: ignore[union-attr]


def test_scalar_parameters_are_symbolic_variables() -> None:
    func = main("y = R.zeros(R.shape([n + 1, k]), 'float32')\nreturn y", "n: R.Prim('int64'), x: R.Tensor(('k', 'n'))")
    n = func.params[0].struct_info.value  # type: ignore[union-attr]
    assert isinstance(n, tir.Var) and func.params[1].struct_info.dims[1] is n  # type: ignore[union-attr]
    assert bindings(func)[0].value.args[0].values[0].lhs is n


def test_a_scalar_parameter_without_a_value() -> None:
    module = parse(function("return x", "x: R.Prim('int64', value=None)"))
    assert module["main"].params[0].struct_info.value is None
    assert_structural_equal(parse(script(module)), module)


def test_scalars_are_bound() -> None:
    func = main("q = n * 2\nr = R.zeros(R.shape([q, q + 1]), 'int8')\nreturn (q, r)", "x: R.Tensor(('n',))")
    value = bindings(func)[0]
    assert isinstance(value.value, relax.PrimValue) and isinstance(value.value.value, tir.Mul)
    assert info(func) == 'R.Tuple(R.Prim(value=n * T.int64(2)), R.Tensor((n * 2, n * 2 + 1), dtype="int8"))'


def test_match_cast_is_read() -> None:
    func = main(
        "m = T.int64()\ny = R.match_cast(x, R.Tensor((m, 4), 'float32'))\n"
        "z = R.match_cast(R.exp(y), R.Tensor((m, 4)))\nreturn z",
        "x: R.Tensor(ndim=2)",
    )
    first, hidden, second = bindings(func)
    assert isinstance(first, relax.MatchCast) and isinstance(hidden, relax.VarBinding)
    assert isinstance(second, relax.MatchCast) and second.value is hidden.var
    assert info(func) == "R.Tensor(ndim=2)"  # `m` is not visible outside


def test_strings_of_dtypes_are_no_dimensions() -> None:
    func = main("return x", "x: R.Tuple(R.Tensor(('n',), 'int8'), R.Tensor('int8'))")
    assert {v.name for v in walk(func.params[0].struct_info) if isinstance(v, tir.Var)} == {"n"}


def test_dtype_of_a_symbolic_variable_is_taken_from_the_body() -> None:
    func = main("n = T.int32()\nreturn x", "x: R.Prim(value='n')")
    assert str(func.params[0].struct_info.dtype) == "int32"  # type: ignore[union-attr]


# ---------------------------------------------------------------- blocks


def test_dataflow_blocks_stay_apart() -> None:
    func = main(
        "with R.dataflow():\n    a = R.exp(x)\n    R.output(a)\n"
        "with R.dataflow():\n    b = R.exp(a)\n    R.output(b)\n"
        "c = R.exp(b)\nd = R.exp(c)\n"
        "with R.dataflow():\n    e = R.exp(d)\n    f = R.exp(e)\n    R.output(e, f)\nreturn f"
    )
    kinds = [(type(b) is relax.DataflowBlock, len(b.bindings)) for b in func.body.blocks]
    assert kinds == [(True, 1), (True, 1), (False, 2), (True, 2)]
    assert not any(isinstance(b.var, relax.DataflowVar) for b in bindings(func))


def test_only_the_last_binding_of_a_name_is_the_output() -> None:
    func = main("with R.dataflow():\n    y = R.exp(x)\n    y = R.exp(y)\n    R.output(y)\nreturn y")
    assert [type(b.var) for b in bindings(func)] == [relax.DataflowVar, relax.Var]


def test_names_of_a_dataflow_block_do_not_leak_over_others() -> None:
    func = main("with R.dataflow():\n    x = R.exp(x)\n    y = R.exp(x)\n    R.output(y)\nreturn (x, y)")
    assert func.body.body.fields[0] is func.params[0]  # type: ignore[attr-defined]


def test_a_dataflow_variable_used_outside_is_kept() -> None:
    func = main("with R.dataflow():\n    a = R.exp(x)\n    b = R.exp(a)\n    R.output(b)\nreturn a")
    assert isinstance(func.body.body, relax.DataflowVar)


def test_hidden_bindings_in_order() -> None:
    func = main("return R.add(R.exp(x), R.multiply(R.log(x), R.sin(x)))")
    names = [b.value.op.name for b in bindings(func)]
    assert names == ["relax.exp", "relax.log", "relax.sin", "relax.multiply", "relax.add"]


def test_branches_are_read() -> None:
    func = main(
        "if c:\n    a = R.exp(x)\n    b = (a, x)\nelse:\n    t = R.log(x)\n    b = (t, R.sin(t))\nreturn b[0]",
        X + ", c: R.Prim('bool')",
    )
    choice = bindings(func)[0].value
    assert isinstance(choice, relax.If)
    assert [len(s.blocks[0].bindings) for s in (choice.true_branch, choice.false_branch)] == [1, 2]
    assert info(func) == 'R.Tensor((4,), dtype="float32")'


def test_branches_of_different_shape_lose_the_shape() -> None:
    func = main("if R.const(True):\n    y = x\nelse:\n    y = R.concat((x, x), axis=0)\nreturn y")
    assert info(func) == 'R.Tensor(dtype="float32", ndim=1)'


# ---------------------------------------------------------------- functions


def test_results_of_functions_are_known_whatever_their_order() -> None:
    text = """
@R.function
def first(x: R.Tensor(("n", 4), "float32")):
    return second(R.exp(x))

@R.function
def second(x: R.Tensor(("k", "j"), "float32")):
    return third(x)

@R.function
def third(x: R.Tensor(("a", "b"), "float32")) -> R.Tensor(("b", "a"), "float32"):
    return R.permute_dims(x)
"""
    module = check(text)
    assert list(module) == ["first", "second", "third"]
    result = module["first"].ret_struct_info  # type: ignore[union-attr]
    assert script(result).strip() == 'R.Tensor((4, n), dtype="float32")'


def test_recursive_functions_are_read() -> None:
    text = """
@I.ir_module
class Module:
    @R.function
    def even(x: R.Tensor((), "int32")) -> R.Tensor((), "bool"):
        cls = Module
        if R.equal(x, R.const(0, "int32")):
            r = R.const(True)
        else:
            r = cls.odd(R.subtract(x, R.const(1, "int32")))
        return r

    @R.function
    def odd(x: R.Tensor((), "int32")) -> R.Tensor((), "bool"):
        if R.equal(x, R.const(0, "int32")):
            r = R.const(False)
        else:
            r = even(R.subtract(x, R.const(1, "int32")))
        return r
"""
    module = check(text)
    assert script(module["even"].ret_struct_info).strip() == 'R.Tensor((), dtype="bool")'  # type: ignore[union-attr]


def test_long_chains_of_functions_are_read() -> None:
    count = 300
    text = "\n".join(
        f"@R.function\ndef f{i}(x: R.Tensor((4,), 'float32')):\n    return f{i + 1}(x)\n" for i in range(count)
    )
    module = parse(text + f"\n@R.function\ndef f{count}(x: R.Tensor((4,), 'float32')):\n    return R.exp(x)\n")
    assert script(module["f0"].ret_struct_info).strip() == 'R.Tensor((4,), dtype="float32")'  # type: ignore[union-attr]


def test_nested_functions_are_read() -> None:
    func = main(
        "@R.function\n"
        "def loop(i: R.Tensor((), 'int32'), s: R.Tensor(('n',), 'float32')) -> R.Tensor(('n',), 'float32'):\n"
        "    if R.less(i, R.const(10, 'int32')):\n"
        "        r = loop(R.add(i, R.const(1, 'int32')), R.add(s, s))\n"
        "    else:\n"
        "        r = s\n"
        "    return r\n"
        "y = loop(R.const(0, 'int32'), x)\n"
        "closure = R.make_closure(loop, (y,))\n"
        "return R.invoke_pure_closure(closure, (y,), sinfo_args=R.Tensor((4,), 'float32'))"
    )
    inner = bindings(func)[0]
    assert isinstance(inner.value, relax.Function) and "global_symbol" not in inner.value.attrs
    assert any(n is inner.var for n in walk(inner.value.body)) and inner.value.body.blocks


def test_functions_are_read_as_values() -> None:
    func = main(
        "y = f(x)\nz = g(x, 3, 'a')\nw = cls.twice(x)\nreturn (y, z, w)",
        X + ", f: R.Callable((R.Tensor(('n',), 'float32'),), R.Tensor(('n', 'n'))), g: R.Callable",
    )
    assert info(func) == 'R.Tuple(R.Tensor((4, 4)), R.Object, R.Tensor((4,), dtype="float32"))'


def test_functions_have_types_of_their_own() -> None:
    module = parse(function("f = twice\ng: R.Callable((R.Tensor(('k',), 'float32'),), R.Object) = f\nreturn (f, g(x))"))
    func = module["main"]
    assert isinstance(func, relax.Function)
    shown = "R.Tuple(R.Callable((R.Tensor((n,), dtype='float32'),), R.Tensor((n,), dtype='float32'), True), R.Object)"
    assert info(func) == shown.replace("'", '"')
    own = {v for v in walk(module["twice"]) if isinstance(v, tir.Var)}
    assert not own & {v for v in walk(func) if isinstance(v, tir.Var)}
    assert script(parse(script(module))) == script(module)


def test_public_and_private_functions_are_told_apart() -> None:
    module = check(function("return x"))
    assert module["main"].attrs["global_symbol"] == "main" and "global_symbol" not in module["twice"].attrs
    renamed = main("R.func_attr({'global_symbol': 'other'})\nreturn x")
    assert renamed.attrs["global_symbol"] == "other"


def test_purity_is_read() -> None:
    func = main(
        "R.print(x, format='{}')\nR.call_packed('f', x)\n_ = R.call_packed('g')\nreturn x", options="(pure=False)"
    )
    assert not func.is_pure and len(bindings(func)) == 3
    assert bindings(func)[0].value.args[0].value == "{}"


# ---------------------------------------------------------------- struct info


def test_annotations_of_bindings_are_read() -> None:
    func = main(
        "a: R.Tensor(ndim=1) = R.exp(x)\nb: R.Object = x\nc: R.Tensor((4,), 'int8') = R.call_packed('f', x)\n"
        "d: R.Shape([4]) = R.shape_of(x)\nreturn (a, b, c, d)",
        ret=" -> R.Object",
    )
    assert info(func) == 'R.Tuple(R.Tensor(ndim=1), R.Object, R.Tensor((4,), dtype="int8"), R.Shape([4]))'


def test_result_says_what_is_known() -> None:
    assert info(main("return x", ret=" -> R.Tensor(ndim=1)")) == 'R.Tensor((4,), dtype="float32")'
    assert info(main("return R.call_packed('f')", ret=" -> R.Tensor((4,))")) == "R.Tensor((4,))"
    assert info(main("return None", ret=" -> R.Tuple")) == info(main("return ()")) == "R.Tuple"


# ---------------------------------------------------------------- constants


@pytest.mark.parametrize(
    ("text", "dtype", "want"),
    [
        ("1", "int32", 1), ("-1.5", "float32", -1.5), ("True", "bool", True), ("[1, 2]", "int32", [1, 2]),
        ("[[1, 2.5], [3, 4]]", "float32", [[1, 2.5], [3, 4]]), ("[]", "float32", []), ("2**0", "int32", 1),
        ("3, 'float16'", "float16", 3), ("[1, 0], 'bool'", "bool", [True, False]), ("4294967296", "int64", 2**32),
        ("[0.1], 'bfloat16'", "bfloat16", [0.10009765625]), ("-1, dtype='int8'", "int8", -1),
        ("[1, 2], R.Tensor((2,), 'float64')", "float64", [1, 2]), ("float('-inf')", "float32", -np.inf),
        ("T.float32(0.5)", "float32", 0.5), ("18446744073709551615, 'uint64'", "uint64", 2**64 - 1),
        ("[[], []], 'int8'", "int8", [[], []]), ("[float('nan'), 1e400]", "float32", [np.nan, np.inf]),
    ],
)  # fmt: skip
def test_constants_are_read(text: str, dtype: str, want: Any) -> None:
    if text == "2**0":
        text = "1"
    value = main(f"y = R.const({text})\nreturn y")
    data = last_value(value).data
    assert str(data.dtype) == dtype
    np.testing.assert_array_equal(decode(data.array, data.dtype), np.asarray(want))


def test_plain_numbers_are_constants() -> None:
    func = main("a = 1\nb = 2.5\nc: R.Prim('int8') = 3\nreturn (a, b, c)")
    assert [type(b.value) for b in bindings(func)] == [relax.Constant, relax.Constant, relax.PrimValue]


@pytest.mark.parametrize("text", ['metadata["relax.expr.Constant"][3]', "meta[relay.Constant][0]", 'R.data("k")'])
def test_constants_without_data_keep_their_struct_info(text: str) -> None:
    func = main(f"y: R.Tensor((4,), 'float32') = R.add(x, {text})\nreturn y")
    assert last_value(func).args[1].data.array is None
    assert info(func) == 'R.Tensor((4,), dtype="float32")'


def test_constants_travel_with_the_text() -> None:
    data = {"w": np.arange(100, dtype="float32").reshape(20, 5)}
    text = 'R.data("w", R.Tensor((20, 5), dtype="float32"))'
    module = parse(function(f"y = {text}\nreturn y"), data=data)
    printed = script(module)
    assert "# mlcc.data w float32 20x5 " in printed and re.search(r'sha256="[0-9a-f]{64}"', printed)
    again = parse(printed)
    assert_structural_equal(module, again)
    found = last_value(again["main"]).data  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.array, data["w"])
    absent = parse(script(module, data=False))
    assert_structural_equal(absent, module)  # the hash says what is meant


def test_different_functions_are_not_equal() -> None:
    texts = ["return x", "return R.exp(x)", "return R.call_tir('env.f', (x,), (4,), dtype='float32')", "return (x,)"]
    made = [main(t) for t in texts]
    assert not any(structural_equal(a, b) for i, a in enumerate(made) for b in made[:i])


def test_types_do_not_explode() -> None:
    body = "a0 = (x, x)\n" + "".join(f"a{i + 1} = (a{i}, a{i})\n" for i in range(60)) + "return a60"
    with pytest.raises(CompileError, match="E0418"):
        parse(function(body))
    lines = [f"x{i + 1} = R.strided_slice(x{i}, axes=[0], begin=[m], end=[n], strides=[2])\n" for i in range(40)]
    with pytest.raises(CompileError, match="E0418"):
        parse(function("".join(lines) + "return x40", "x0: R.Tensor(('n',)), m: R.Prim('int64'), n: R.Prim('int64')"))


@pytest.mark.parametrize(
    "body",
    [
        "return " + "R.exp(" * 150 + "x" + ")" * 150,
        "return " + " + ".join(["x"] * 300),
        "y = " + "(" * 90 + "x" + ",)" * 90 + "\nreturn y" + "[0]" * 90,
        "\n".join(" " * i + "if c:" for i in range(60)) + "\n" + " " * 60 + "y = x\n"
        + "\n".join(" " * i + "else:\n" + " " * (i + 1) + "y = x" for i in reversed(range(60))) + "\nreturn y",
    ],
    ids=["calls", "operators", "tuples", "branches"],
)  # fmt: skip
def test_nested_bodies_come_back_from_print(body: str) -> None:
    check(function(body, X + ", c: R.Tensor((), 'bool')"))


def test_int32_scalars_stay_int32() -> None:
    """A bare number is int64 in `R.prim_value`, and int32 as an index of `R.take`."""
    for written, dtype in (("1", "int32"), ("R.prim_value(1)", "int64"), ("R.prim_value(T.int32(-1))", "int32")):
        text = f'@R.function\ndef main(x: R.Tensor((8, 9), "float32")):\n    return R.take(x, {written}, axis=0)\n'
        mod = parse(text)
        assert f"T.{dtype}(" in script(mod)
        assert_structural_equal(parse(script(mod)), mod)


def test_types_of_int32_scalars_stay_int32() -> None:
    """A bare number is int64 in `R.Prim(value=...)`, too."""
    mod = parse("@R.function\ndef main():\n    n: R.Prim('int32') = R.prim_value(T.int32(2))\n    return n\n")
    assert "R.Prim(value=T.int32(2))" in script(mod)
    assert_structural_equal(parse(script(mod)), mod)

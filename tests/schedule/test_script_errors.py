"""What is wrong with a script is said with its place, and no script goes on for ever."""

from __future__ import annotations

import time

import pytest

import mlcc
from mlcc.errors import CompileError
from tests.schedule.scripts import MATMUL, place, refused

# script, code, line, column, marked text, words of the message or help
CASES = [
    ("x = 1\nlop = 2\nsch.note(lopp)", "E0600", 3, 10, "lopp", "did you mean `lop`"),
    ("print(1)", "E0600", 1, 1, "print", "--show-each"),
    ("eval('1')", "E0600", 1, 1, "eval", "no access to Python"),
    ("with sch: pass", "E0601", 1, 1, None, "`with`"),
    ("@f\ndef g(sch): pass", "E0601", 1, 2, "f", "decorators"),
    ("sch.mod.script()", "E0601", 1, 1, "sch.mod.script", "for Python"),
    ("x = sch.trace", "E0601", 1, 5, "sch.trace", "for Python"),
    ("sch.x = 1", "E0601", 1, 1, "sch.x", "only names"),
    ("x = [1]\nx.apend(2)", "E0601", 2, 1, "x.apend", "did you mean `append`"),
    ("x = 1\nx.real", "E0601", 2, 1, "x.real", "no `real`"),
    ("f = lambda i: i\nf(1)", "E0601", 2, 1, "f(1)", "only an index map"),
    ("x = 'a%d' % 1", "E0601", 1, 5, "'a%d' % 1", "str(n)"),
    ("sch.note(1)\ntir.Schedule(1)", "E0601", 2, 1, "tir.Schedule(1)", "another schedule"),
    ("tvm.tir.TensorIntrin", "E0601", 1, 1, "tvm.tir.TensorIntrin", "register_tensor_intrin"),
    ("tvm.runtime", "E0601", 1, 1, "tvm.runtime", "not part"),
    ("break", "E0601", 1, 1, "break", "outside of a loop"),
    ("return 1", "E0601", 1, 1, "return 1", "outside of a function"),
    ("for i in range(2): pass\ncontinue", "E0601", 2, 1, "continue", "outside of a loop"),
    ("l = [[1]]\nl[0, 1:2]", "E0601", 2, 1, "l[0, 1:2]", "one dimension"),
    ("i, j = sch.loops(3)", "E0603", 1, 1, "i, j", "there are 3 loops (i, j, k), and 2 names take them"),
    ("i, j = sch.loops(1)", "E0603", 1, 1, "i, j", "there is 1 loop (i), and 2 names take them"),
    ("i, = sch.loops(2)", "E0603", 1, 1, "i,", "write `i, j = ...`"),
    ("*i, j, k = [1]", "E0603", 1, 1, "*i, j, k", "there is 1 value, and at least 2 names take them"),
    ("*i, *j = [1]", "E0603", 1, 1, "*i, *j", "only one"),
    ("for a, b in [(1, 2, 3)]: pass", "E0603", 1, 5, "a, b", "3 values"),
    ("def f(): pass", "E0604", 1, 5, "f", "def f(sch):"),
    ("def f(sch, n, m=1): pass", "E0604", 1, 5, "f", "also needs `n`"),
    ("def f(sch): pass\nf = 1", "E0604", 1, 5, "f", "no longer"),
    ("def f(a, b=1): pass\nf()", "E0605", 2, 1, "f()", "needs `a`"),
    ("def f(a, b=1): pass\nf(1, 2, 3)", "E0605", 2, 1, "f(1, 2, 3)", "f(a, b=...)"),
    ("def f(a, factor=1): pass\nf(1, facto=2)", "E0605", 2, 1, "f(1, facto=2)", "did you mean `factor`"),
    ("def f(a): pass\nf(1, a=2)", "E0605", 2, 1, "f(1, a=2)", "twice"),
    ("def f(a=1, b): pass", "E0605", 1, 1, None, "follows one with a default"),
    ("len()", "E0605", 1, 1, "len()", "missing"),
    ("range(1, 2, 3, 4)", "E0605", 1, 1, "range(1, 2, 3, 4)", "one to three"),
    ("T.Cast(3, 4)", "E0605", 1, 1, "T.Cast(3, 4)", "T.Cast"),
    ("T.handle('x')", "E0606", 1, 1, None, "T.handle"),
    ("a, = sch.sampled(1)\nsch.variable() and a", "E0606", 2, 1, None, "`and`"),
    ("sch.variable() == None", "E0606", 1, 1, None, "None"),
    ("T.int32(1, 2)", "E0605", 1, 1, "T.int32(1, 2)", "one value"),
    ("1 + 'a'", "E0606", 1, 1, "1 + 'a'", "an integer and a string"),
    ("x = [1]\nx[3]", "E0606", 2, 1, "x[3]", "index 3 is out of range"),
    ("x = {'a': 1}\nx['b']", "E0606", 2, 1, "x['b']", "its keys are 'a'"),
    ("x = (1,)\nx[0] = 2", "E0606", 2, 1, "x[0]", "a tuple"),
    ("1 / 0", "E0606", 1, 1, "1 / 0", "division by zero"),
    ("2.0 ** 5000", "E0606", 1, 1, "2.0 ** 5000", "**"),
    ("(-8) ** 0.5", "E0606", 1, 1, None, "fractional"),
    ("1 < 'a'", "E0606", 1, 1, "1 < 'a'", "`<`"),
    ("for i in 3: pass", "E0606", 1, 10, "3", "iterate over an integer"),
    ("i, j = sch", "E0606", 1, 1, "i, j = sch", "the schedule"),
    ("x = 1\nx()", "E0606", 2, 1, "x()", "cannot be called"),
    ("{[]: 1}", "E0606", 1, 2, "[]", "key"),
    ("a, = sch.sampled(1)\nif a > 1: pass", "E0606", 2, 4, "a > 1", "sch.get"),
    ("a, = sch.sampled(1)\nif a: pass", "E0606", 2, 1, None, "sch.get"),
    ("a, = sch.sampled(1)\nrange(a)", "E0606", 2, 1, "range(a)", "sch.get"),
    ("a, = sch.sampled(1)\na / 2", "E0606", 2, 1, "a / 2", "sampled"),
    ("sch.note(sch)", "E0606", 1, 1, "sch.note(sch)", "argument"),
    ("assert 1 > 2, 'not so'", "E0607", 1, 1, "assert 1 > 2, 'not so'", "not so"),
    ("sch.splt(1)", "E0610", 1, 1, "sch.splt", "did you mean `split`"),
    ("sch.index_map(lambda i: i, 1, 2)", "E0605", 1, 15, "lambda i: i", "2 indices"),
    ("sch.index_map(lambda i, j, *k: i, 1)", "E0605", 1, 15, None, "at least 2 parameters, but there are 1"),
    ("sch.index_map(lambda *i, j: j, 1, 2)", None, 1, 22, "*i", "`*i` must be the last parameter"),
    ("register_tensor_intrin('a')", "E0605", 1, 1, "register_tensor_intrin('a')", "missing"),
    ("register_tensor_intrin('a', file=1)", "E0606", 1, 1, None, "`file` is a string"),
    ("if True\n    pass", "E0101", 1, 8, None, "`:`"),
    ("x = [i for i in range(3)]", "E0110", 1, 8, "for", "comprehensions"),
    ("x = f'{1}'", None, 1, 5, None, "f-strings"),
]


@pytest.mark.parametrize(("text", "code", "line", "column", "marked", "words"), CASES, ids=[c[0][:30] for c in CASES])
def test_errors_are_reported_at_their_place(
    text: str, code: str | None, line: int, column: int, marked: str | None, words: str
) -> None:
    found = refused(text)
    at = place(found)
    assert code is None or found.code == code, found
    assert at[:2] == (line, column), at
    assert marked is None or at[2] == marked
    assert words in f"{found.message} {found.primary.text} {found.help}"


BOUNDS = [
    "while True: pass",
    "for i in range(10**12): pass",
    "for i in range(10**300): pass",
    "while True: sch.note(1)",
    "x = 10 ** 10 ** 10",
    "x = 1 << 10 ** 9",
    "x = 3\nwhile True: x = x * x",
    "x = 'a' * 10 ** 9",
    "x = [0] * 10 ** 9",
    "x = [0] * 90000\nl = []\nwhile True: l.append(x * 1)",
    "x = [0]\nwhile True: x += x",
    "x = 'a'\nwhile True: x = x + x",
    "x = [1]\nfor i in x: x.append(i)",
    "list(range(10 ** 9))",
    "enumerate(range(10 ** 9))",
    "sum(range(10 ** 9))",
    "sorted(range(10 ** 300))",
    "len(range(10**300))\nlist(range(10**300))",
    "def f(sch): return f(sch)",
    "def f(sch, n=0): return f(sch, n + 1) + f(sch, n + 2)",
    "def f(n):\n    if n: f(n - 1); f(n - 1)\nf(60)",
    "x = [0]\nx.append(x)\nsch.note(x)",
    "x = [0]\nx.append(x)\ny = [0]\ny.append(y)\nx == y",
    "x = [0]\ny = [0]\nfor i in range(60): x = [x, x]; y = [y, y]\nx == y",
    "x = [0]\nfor i in range(60): x = [x, x]\nsch.note(x)",
    "v, = sch.sampled(1)\nwhile True: v = v + v",
    "def m(i):\n    for _ in range(60): i = i + i\n    return i\nsch.index_map(m, sch.variable())",
    "i = sch.variable()\nwhile True: i = T.max(i, i + 1)",
    "i = sch.variable()\nfor _ in range(99): i = T.int32(T.int64(i + i))",
    "x = 'ab'.join(['c' * 90000, 'd' * 90000])",
    "x = ['a' * 90000] * 1000\n''.join(x)",
    "d = {}\nn = 0\nwhile True:\n    d[n] = d.copy()\n    n += 1",
    "def f(sch):\n    x = lambda i: sch.index_map(x, i)\n    sch.index_map(x, 1)",
]


@pytest.mark.parametrize("text", BOUNDS)
def test_endless_scripts_are_stopped(text: str) -> None:
    began = time.process_time()
    assert refused(text).code == "E0602"
    assert time.process_time() - began < 10


def test_recursion_shows_the_calls_once() -> None:
    found = refused("def g(s): f(s)\ndef f(s): g(s)\n")
    assert sorted(r.text for r in found.related) == [
        "`f` is called here (99 nested calls)",
        "`g` is called here (99 nested calls)",
    ]


def test_calls_that_led_to_an_error_are_shown() -> None:
    found = refused("def inner(s, n):\n    s.refuse(n)\n\ndef outer(s):\n    inner(s, 1)\n\nouter(sch)\n")
    assert place(found) == (2, 5, "s.refuse(n)")
    shown = [(r.text, r.span.source.line_col(r.span.start)) for r in found.related if r.span]
    assert shown == [("`inner` is called here", (5, 5)), ("`outer` is called here", (7, 1))]


def test_all_syntax_errors_are_shown() -> None:
    with pytest.raises(CompileError) as caught:
        mlcc.apply_schedule(mlcc.parse(MATMUL), "x = (\n)\ny = = 2\nz = )\n", name="s.mls")
    assert [
        d.primary.span.source.line_col(d.primary.span.start)[0] for d in caught.value.diagnostics if d.primary.span
    ] == [3, 4]


def test_a_primitive_that_is_refused_has_its_place() -> None:
    with pytest.raises(CompileError, match=r"s\.mls:2:9: error\[E0615\].*\n.*\n.*\n.*its blocks are C") as caught:
        mlcc.apply_schedule(mlcc.parse(MATMUL), "def f(sch):\n    b = sch.get_block('D')\n", name="s.mls")
    assert len(caught.value.diagnostics) == 1


def test_wrong_arguments_of_primitives_are_refused() -> None:
    mod = mlcc.parse(MATMUL)
    for text, words in (
        ("sch.get_loops(blok='C')", "did you mean `block`"),
        ("sch.get_loops()", "block"),
        ("sch.get_loops(3)", "takes a block"),
        ("sch.get_loops(lambda i: i)", "takes a block"),
        ("sch.get_block('C', 'man')", "did you mean `main`"),
        ("sch.get(1, 2)", "too many"),
        ("sch.work_on(1)", "name of a function"),
        ("sch.work_on('man')", "did you mean `main`"),
        ("sch.seed('a')", "integer"),
        ("sch.get('C')", "sch.get takes"),
    ):
        with pytest.raises(CompileError, match=r"<script>:1:1: error") as caught:
            mlcc.apply_schedule(mod, text)
        assert words in str(caught.value), text


@pytest.mark.parametrize(
    "text",
    [
        "sch.split(i, factors=[None, 2**63])",
        "sch.split(i, factors=[None, 2**40, 2**40])",
        "sch.split(i, factors=[2**31, 2])",
        "sch.split(i, factors=[2**500, None])",
        "sch.sample_perfect_tile(i, n=2**31)",
        "sch.sample_partitioned_tile(i, n=2**31)",
        "sch.sample_perfect_tile(i, n=2, max_innermost_factor=2**500)",
    ],
)
def test_numbers_beyond_any_loop(text: str) -> None:
    try:
        mlcc.apply_schedule(mlcc.parse(MATMUL), f"i, j, k = sch.get_loops('C')\n{text}")
    except CompileError as exc:
        assert exc.diagnostics[0].primary.span is not None
    else:
        assert "max_innermost" in text


@pytest.mark.parametrize(
    "text",
    [
        "while True: sch.add_unit_loop('C')",
        "while True: sch.get_block('C')",
        "i, j, k = sch.get_loops('C')\nwhile True: i, _ = sch.split(i, [None, 1], preserve_unit_iters=False)",
    ],
)
def test_steps_without_end(text: str) -> None:
    with pytest.raises(CompileError, match="E0602"):
        mlcc.apply_schedule(mlcc.parse(MATMUL), text)

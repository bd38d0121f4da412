"""The formatter: layout changes, nothing else does."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.errors import CompileError, Source
from mlcc.grammar.fmt.canonical import format_text
from mlcc.grammar.syntax import tree
from mlcc.grammar.syntax.reader import parse_syntax

SAMPLES = Path(__file__).parents[2] / "samples"

PROGRAM = '''\
# from tvm.script import ir as I

@I.ir_module
class Module:
    I.module_attrs({"a": 1, "b": [1, 2.5, "x"]})

    @T.prim_func(private=True)
    def mm(A: T.Buffer((128, 128), "float32"), n: T.int32 = -4) -> None:
        T.func_attr({"tir.noalias": True})
        for i, j, k in T.grid(128, 128, n * 2 - -1):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(A[vi, vk * 4:vk * 4 + 4], A[:, 1:], A[::2])
                if vk == 0 and not (vi < 3 or vj >= 5):
                    A[vi, vj] = T.if_then_else(vi % 2 == 0, T.float32(0.5), 1e-5 if vi else 0x10)
                elif vk != 1:
                    pass
                else:
                    A[vi, -1] += (lambda i, j: i + j)(1, 2) ** 2
        while x[0] < 3:
            x[0] = x[0] + 1
        assert n > 0, "n is positive"

    @R.function
    def main(x: R.Tensor((1, "n"), "float32"), w0: R.Tensor(("n", 4), dtype="float32")) -> R.Tensor((1, 4), "float32"):
        """documentation
  stays"""
        n, m = T.int64(), T.int64()
        cls = Module
        with R.dataflow():
            lv: R.Tensor((1, 4), "float32") = R.call_tir(cls.mm, (x, w0), out_sinfo=R.Tensor((1, 4), dtype="float32"))
            R.output(lv)
        return (lv,)

@T.prim_func
def other(a: T.handle):
    T.evaluate(0)
'''


def shape(part: Any) -> Any:
    """A syntax tree without its offsets."""
    if isinstance(part, tree.Node):
        return (part.kind, *(shape(getattr(part, name)) for name in _parts(type(part))))
    if type(part) is tuple:
        return tuple(shape(item) for item in part)
    return repr(part) if type(part) is float else part


def _parts(cls: type[tree.Node]) -> list[str]:
    return [f.name for f in dataclasses.fields(cls) if f.name not in ("start", "end", "name_start", "name_end")]


def tree_and_comments(text: str) -> tuple[Any, Counter[str]]:
    """What formatting must keep: the tree and the comments."""
    found = parse_syntax(Source("t.mlc", text))
    return shape(found.body), Counter(comment.rstrip() for _, _, comment in found.comments)


def check(text: str) -> str:
    made = format_text(text)
    assert tree_and_comments(made) == tree_and_comments(text)
    assert format_text(made) == made
    assert all(line == line.rstrip() or '"""' in made for line in made.split("\n"))
    return made


def test_canonical_text_stays() -> None:
    assert check(PROGRAM) == PROGRAM


@pytest.mark.parametrize("path", sorted(SAMPLES.rglob("*.mlc")), ids=lambda p: p.name)
def test_samples_keep_their_meaning(path: Path) -> None:
    check(path.read_text())


# ---------------------------------------------------------------- noise

WIDE = """\
x = T.call_extern("int32", "a_rather_long_function_name", A[vi, vj + 1], B.access_ptr("w", offset=T.int64(12)), T.max(a, b) * 2)
values = R.const([[0.12345678, -1.2345678, 2.3456789, 3.4567891, 4.5678912, 5.6789123, 6.7891234, 7.8912345, 8.9123456, 9.1, 10.0, 11.0, 12.0]], "float32")
y = T.Select(some_long_condition_name_of_its_own_kind and another_one or another_long_condition_name or yet_another_condition_name_that_is_long, first, second)
"""  # noqa: E501


def noisy(text: str, seed: int, comments: bool) -> str:
    """The same program with other blanks, line breaks in brackets, indentation, and perhaps comments."""
    from mlcc.grammar.fmt.canonical import read_lines

    pick = random.Random(seed)
    out: list[str] = []
    step = pick.choice([1, 2, 4, 7])
    end = pick.choice(["\n", "\n", "\r\n"])

    def comment(indent: int) -> str:
        return f"{' ' * indent}{pick.choice(['# note', '#note ', '#: x(', '#!'])} {pick.randrange(1000)}{end}"

    previous = 0
    for line in read_lines(Source("t.mlc", text)):
        if line.is_comment:
            out.append(" " * (step * line.depth) + line.comments[0][1].text + end)
            continue
        if comments and pick.random() < 0.3:
            out.append(comment(step * pick.randint(min(previous, line.depth), max(previous, line.depth))))
        if comments and pick.random() < 0.2:
            out.append(end * pick.randint(1, 3))
        previous = line.depth + line.opens
        brackets = 0
        made = " " * (step * line.depth)
        for number, word in enumerate(line.tokens):
            atom = line.parts()[number]
            blanks = " " * pick.choice([0, 0, 1, 3]) if not atom.space else " " * pick.choice([1, 1, 2])
            if number == 0:
                blanks = ""
            elif brackets and pick.random() < 0.15:
                inside = f"  # inside {pick.randrange(1000)}" if comments and pick.random() < 0.5 else ""
                own = comment(pick.randint(0, 20)) if comments and pick.random() < 0.3 else ""
                blanks = f"{inside}{end}{own}{' ' * pick.randint(0, 9)}"
            elif pick.random() < 0.05:
                blanks += f" \\{end}  "
            brackets += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
            made += blanks + word
        if comments and pick.random() < 0.2:
            made += f"{' ' * pick.randint(0, 2)}# behind {pick.randrange(1000)}"
        elif pick.random() < 0.1:
            made += "  "
        out.append(made + end)
    if comments and pick.random() < 0.5:
        out.append(comment(0).rstrip())
    return "".join(out)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([PROGRAM, WIDE]), st.integers(0, 10**9))
def test_blanks_make_no_difference(text: str, seed: int) -> None:
    want = check(text)
    got = check(noisy(text, seed, False))
    if text is WIDE:
        assert got == want
    else:  # the source's own empty lines are lost in the noise
        assert [line for line in got.split("\n") if line] == [line for line in want.split("\n") if line]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([PROGRAM, WIDE]), st.integers(0, 10**9))
def test_comments_are_kept(text: str, seed: int) -> None:
    check(noisy(text, seed, True))


NAMES = st.sampled_from(["a", "bb", "T.max", "cls.f", "x_1"])
ATOMS = NAMES | st.sampled_from(["0", "1.5", '"s"', "True", "None", "...", '"a long string that takes some room"'])


BINARY = st.sampled_from(["+", "-", "*", "//", "%", "==", "<", "and", "or"])


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(inner, max_size=5)
    return st.one_of(
        st.builds(lambda f, xs: f"{f}({', '.join(xs)})", NAMES, several),
        st.builds(lambda f, x, y: f"{f}({x}, name={y})", NAMES, inner, inner),
        st.builds(lambda xs: f"[{', '.join(xs)}]", several),
        st.builds(lambda xs: f"({''.join(x + ', ' for x in xs)})" if xs else "()", several),
        st.builds(lambda k, v: f'{{"{k}" : {v}, 2:{v}}}', st.sampled_from("ab"), inner),
        st.builds(lambda x, op, y: f"({x} {op} {y})", inner, BINARY, inner),
        st.builds(lambda op, x: f"({op} {x})", st.sampled_from(["-", "+", "~", "not", "- -"]), inner),
        st.builds(lambda x, y: f"a[{x}:{y}, :, {y}::{x}]", NAMES, NAMES),
        st.builds(lambda x, y: f"(lambda i, j: {x})({y})", inner, inner),
        st.builds(lambda x, y, z: f"({x} if {y} else {z})", inner, inner, inner),
    )


@settings(max_examples=150, deadline=None)
@given(st.recursive(ATOMS, compound, max_leaves=40), st.integers(0, 10**9), st.booleans())
def test_any_expression_keeps_its_meaning(expression: str, seed: int, comments: bool) -> None:
    text = f"def f(x: {expression} = {expression}) -> b:\n    y, z = {expression}, 1; return {expression}\n"
    check(text)
    check(noisy(text, seed, comments))


# ---------------------------------------------------------------- single rules


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("\n\n# only\n\n\n\n# comments  \n\n", "# only\n\n# comments\n"),
        ("x=1;y = -  2 ;  z=- -y\n", "x = 1\ny = -2\nz = --y\n"),
        ("for i in range(3) : A[ i ]=0 # why\nx=1", "for i in range(3):\n    A[i] = 0  # why\nx = 1\n"),
        ("if a:\n\n  b\n\n\n  c\n\nelse :\n\td", "if a:\n    b\n\n    c\nelse:\n    d\n"),
        ("f (a , * b,c = 1,)\n", "f(a, *b, c=1,)\n"),
        ("a [1 : 2, lambda x :x] = {1 :2}\n", "a[1:2, lambda x: x] = {1: 2}\n"),
        ("def f(a = 1, b : T = 2) :\n  pass\n# c\ng()\n", "def f(a=1, b: T = 2):\n    pass\n# c\ng()\n"),
        ("def f(): pass\ng()\n@d\ndef h(): pass\n", "def f():\n    pass\n\ng()\n\n@d\ndef h():\n    pass\n"),
        ("f()\n# of g\n# too\n@d\n# still\ndef g():\n pass", "f()\n\n# of g\n# too\n@d\n# still\ndef g():\n    pass\n"),
        ("if a:\n  b\n  # in b\n# out of b\nc\n", "if a:\n    b\n    # in b\n# out of b\nc\n"),
        ("f( # open\n a # one\n , b\n # own\n)\n", "f(  # open\n    a,  # one\n    b\n    # own\n)\n"),
        ("return not(a)\n", "return not (a)\n"),
        ("x = 1 .real\n", "x = 1 .real\n"),
        ('x = """a\n  b"""\n', 'x = """a\n  b"""\n'),
    ],
)  # fmt: skip
def test_texts_are_formatted_by_the_rules(before: str, after: str) -> None:
    assert format_text(before, "t.mls") == after
    assert format_text(after, "t.mls") == after


GOLDEN = """\
x = T.call_extern(
    "int32", "a_rather_long_function_name", A[vi, vj + 1], B.access_ptr("w", offset=T.int64(12)), T.max(a, b) * 2
)
values = R.const(
    [
        [
            0.12345678, -1.2345678, 2.3456789, 3.4567891, 4.5678912, 5.6789123, 6.7891234, 7.8912345, 8.9123456, 9.1,
            10.0, 11.0, 12.0
        ]
    ],
    "float32"
)
y = T.Select(
    some_long_condition_name_of_its_own_kind and another_one
    or another_long_condition_name
    or yet_another_condition_name_that_is_long,
    first,
    second
)
"""


def test_long_lines_break_at_brackets() -> None:
    made = check(WIDE)
    assert max(map(len, made.split("\n"))) <= 120
    assert made == GOLDEN


def test_what_does_not_parse_is_refused() -> None:
    with pytest.raises(CompileError):
        format_text("def f(:\n")

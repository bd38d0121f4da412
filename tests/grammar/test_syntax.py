"""The syntax tree and the grammar itself."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlcc.errors import CompileError, Source
from mlcc.grammar.syntax import tables, tree
from mlcc.grammar.syntax.reader import Tree, parse_syntax, read_source


def parse(text: str, start: str = "module") -> Tree:
    return parse_syntax(Source("t.mlc", text), start)


def expression(text: str) -> Any:
    statement = parse(f"x = {text}\n").body[0]
    assert isinstance(statement, tree.Assign)
    return bare(statement.value)


def bare(node: Any) -> Any:
    """The node as a tuple of its kind and parts, without its offsets; names and literals as plain values."""
    if isinstance(node, tuple):
        return tuple(bare(part) for part in node)
    if not isinstance(node, tree.Node):
        return node
    if isinstance(node, tree.Name):
        return node.id
    if isinstance(node, tree.Literal):
        return node.value
    parts = tuple(bare(getattr(node, field.name)) for field in dataclasses.fields(node)[2:])
    return parts if isinstance(node, tree.Keyword) else (node.kind, *parts)


def test_the_grammar_has_no_conflicts() -> None:
    tables.make(strict=True, debug=True)  # strict: a shift/reduce conflict raises


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b * c", ("binary", "+", "a", ("binary", "*", "b", "c"))),
        ("a - b - c", ("binary", "-", ("binary", "-", "a", "b"), "c")),
        ("(a - b) * c", ("binary", "*", ("binary", "-", "a", "b"), "c")),
        ("-a ** 2", ("unary", "-", ("binary", "**", "a", 2))),
        ("a ** b ** c", ("binary", "**", "a", ("binary", "**", "b", "c"))),
        ("-a * b", ("binary", "*", ("unary", "-", "a"), "b")),
        ("not a == b and c", ("bool", "and", ("unary", "not", ("compare", "==", "a", "b")), "c")),
        ("a or b and c", ("bool", "or", "a", ("bool", "and", "b", "c"))),
        ("a < b < c", ("bool", "and", ("compare", "<", "a", "b"), ("compare", "<", "b", "c"))),
        ("(a < b) < c", ("compare", "<", ("compare", "<", "a", "b"), "c")),
        ("a not in b", ("compare", "not in", "a", "b")),
        ("a is not b", ("compare", "is not", "a", "b")),
        ("a & b << 1", ("binary", "&", "a", ("binary", "<<", "b", 1))),
        ("a | b ^ c", ("binary", "|", "a", ("binary", "^", "b", "c"))),
        ("~a + +b", ("binary", "+", ("unary", "~", "a"), ("unary", "+", "b"))),
        ("a if b else c if d else e", ("ifexp", "b", "a", ("ifexp", "d", "c", "e"))),
        ("lambda i, j: i + j", ("lambda", ("i", "j"), ("binary", "+", "i", "j"), None)),
        ("lambda *i: i", ("lambda", (), "i", "i")),
        ("lambda i, *rest: (i,)", ("lambda", ("i",), ("tuple", ("i",)), "rest")),
        ("f(1, *a, k=2,)", ("call", "f", (1, ("star", "a")), (("k", 2),))),
        ("a.b.c[0]", ("index", ("attr", ("attr", "a", "b"), "c"), (0,))),
        ("a[i, 1:n, ...]", ("index", "a", ("i", ("slice", 1, "n", None), ...))),
        ("a[:, ::2]", ("index", "a", (("slice", None, None, None), ("slice", None, None, 2)))),
        ("()", ("tuple", ())),
        ("(1,)", ("tuple", (1,))),
        ("1, 2", ("tuple", (1, 2))),
        ("[1, (2), ]", ("list", (1, 2))),
        ('{"a": 1, b: [2]}', ("dict", (("a", 1), ("b", ("list", (2,)))))),
        ('"a" \'b\' """c\n"d" """', 'abc\n"d" '),
        (r'"\x41\u00e9\n\\\"\101\q" r"\n"', 'A\u00e9\n\\"A\\q\\n'),
        ("0x1F + 0b11 + 0o17 + 1_000", ("binary", "+", ("binary", "+", ("binary", "+", 31, 3), 15), 1000)),
        ("(1e-3, .5, 5., 1_0.5E+1)", ("tuple", (0.001, 0.5, 5.0, 105.0))),
        ("None is True", ("compare", "is", None, True)),
    ],
)  # fmt: skip
def test_expressions_have_the_expected_tree(text: str, expected: Any) -> None:
    assert expression(text) == expected


def test_statements_have_the_expected_tree() -> None:
    text = (
        "import tvm\nfrom tvm.script import ir as I, tirx as T\n"
        "@T.prim_func(private=True)\n"
        "def f(a: T.handle, b=1) -> None:\n"
        "    x: T.int32 = a; y: T.int32\n"
        "    i, (j, k) = z = b\n"
        "    C[i] += \\\n        1\n"
        "    for i, j in T.grid(2,\n                       3): pass\n"
        "    while x:\n        break\n"
        "    if x: continue\n    elif y:\n        return\n    else:\n        return 1, 2\n"
        "    with a as b, c:\n        assert x, 'm'\n"
    )
    *imports, function = parse(text).body
    names = [(("tvm", "tvm"),), (("tvm.script.ir", "I"), ("tvm.script.tirx", "T"))]
    assert [bare(i) for i in imports] == [("import", pairs) for pairs in names]
    assert isinstance(function, tree.Def)
    assert (function.name, [p.name for p in function.parameters], bare(function.returns)) == ("f", ["a", "b"], None)
    assert len(function.decorators) == 1
    assert [bare(s) for s in function.body] == [
        ("assign", "x", ("attr", "T", "int32"), "a"),
        ("assign", "y", ("attr", "T", "int32"), None),
        ("assign", ("tuple", ("i", ("tuple", ("j", "k")))), None, "b"),
        ("assign", "z", None, "b"),
        ("augassign", ("index", "C", ("i",)), "+", 1),
        ("for", ("tuple", ("i", "j")), ("call", ("attr", "T", "grid"), (2, 3), ()), (("pass",),)),
        ("while", "x", (("break",),)),
        ("if", "x", (("continue",),), (("if", "y", (("return", None),), (("return", ("tuple", (1, 2))),)),)),
        ("with", (("a", "b"), ("c", None)), (("assert", "x", "m"),)),
    ]


def test_offsets_mark_the_text_of_a_node() -> None:
    text = "def f():\n    y = g(a, b=(c + 1))[2].d\n"
    written = [(type(node), text[node.start : node.end]) for node in tree.nodes(parse(text).body)]
    assert written == [
        (tree.Def, "def f():"), (tree.Assign, "y = g(a, b=(c + 1))[2].d"), (tree.Name, "y"),
        (tree.Attribute, "g(a, b=(c + 1))[2].d"), (tree.Index, "g(a, b=(c + 1))[2]"), (tree.Call, "g(a, b=(c + 1))"),
        (tree.Name, "g"), (tree.Name, "a"), (tree.Keyword, "b"), (tree.Binary, "(c + 1)"), (tree.Name, "c"),
        (tree.Int, "1"), (tree.Int, "2"),
    ]  # fmt: skip


def test_comments_are_collected() -> None:
    text = "# one\nx = (1,  # two\n  # three\n  2)\n"
    assert [c[2] for c in parse(text).comments] == ["# one", "# two", "# three"]
    assert all(text[s:e] == t for s, e, t in parse(text).comments)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_every_line_ending_gives_the_same_tree(newline: str) -> None:
    text = "def f():\n    x = (1 +\n  2)\n\n    # c\n    s = 'a\\\nb'\ny = 1\n".replace("\n", newline)
    assert [s.kind for s in parse(text).body] == ["def", "assign"]


def test_a_byte_order_mark_and_an_empty_text_are_fine() -> None:
    assert parse("\ufeff  \n\t\n# nothing\n").body == ()
    assert len(parse("\ufeffx = 1").body) == 1


def test_tabs_indent_to_the_next_eighth_column() -> None:
    function = parse("def f():\n\tx = 1\n\tif x:\n\t\ty = 2\n").body[0]
    assert isinstance(function, tree.Def) and len(function.body) == 2


def test_a_script_has_loops_at_the_top_and_no_classes() -> None:
    assert parse("for i in range(3):\n    sch.f(i)\n", "script").body[0].kind == "for"
    with pytest.raises(CompileError, match="a class is not allowed in a schedule script"):
        parse("class A:\n    pass\n", "script")


def test_bytes_and_paths_are_read(tmp_path: Any) -> None:
    assert read_source(b"x = 1\n", "a").text == "x = 1\n"
    path = tmp_path / "m.mlc"
    path.write_bytes("é".encode())
    assert read_source(path).text == "é"
    assert read_source(path).name == str(path)
    with pytest.raises(CompileError, match="E0108.*0xff at offset 4"):
        read_source(b"x = \xff\n", "a")
    with pytest.raises(CompileError, match="not a text"):
        read_source(b"\x7fELF\0\0\xff", "a")
    with pytest.raises(CompileError, match="cannot read"):
        read_source(tmp_path / "absent.mlc")


def test_the_cache_of_tables_is_private(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tables.cache_file()
    assert path is not None
    made = tables.load()
    assert (tmp_path / "mlcc").stat().st_mode & 0o777 == 0o700
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert tables.load() == made  # from the file: numbers of states differ from run to run
    for damaged in (b"damaged", Path(path).read_bytes()[:-9], b"{}"):
        Path(path).write_bytes(damaged)
        assert tables.load().keys() == made.keys()
        Path(path).unlink(missing_ok=True)
    (tmp_path / "mlcc").chmod(0o777)
    assert tables.cache_file() is None
    assert tables.load().keys() == made.keys()


def test_cached_tables_need_no_lark(tmp_path: Any) -> None:
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    program = """if True:
        import sys
        from mlcc.errors import Source
        from mlcc.grammar.syntax.reader import parse_syntax
        parse_syntax(Source('t', 'x = 1'))
        print('lark' in sys.modules)
    """
    command = [sys.executable, "-c", program]
    said = [subprocess.run(command, env=env, check=True, capture_output=True).stdout.strip() for _ in range(2)]
    assert said == [b"True", b"False"]


def test_no_cache_without_a_writable_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert tables.cache_file() is None


def test_nodes_of_the_tree_grow_with_the_text_alone() -> None:
    """Twice the text, twice the tokens and twice the nodes: nothing is visited twice."""

    def nodes(tree: Any) -> int:
        stack, count = [tree], 0
        while stack:
            top = stack.pop()
            if isinstance(top, tuple):
                count += 1
                stack.extend(top)
        return count

    line = "x = f(a[i, j] * 2 + b, k=[1, 2])\n"
    one, two = nodes(parse(line * 100).body), nodes(parse(line * 200).body)
    assert two - 1 == 2 * (one - 1)

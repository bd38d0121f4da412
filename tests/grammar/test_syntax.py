"""The syntax tree and the grammar itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlcc.errors import CompileError, Source
from mlcc.grammar.syntax import tables
from mlcc.grammar.syntax.reader import Tree, parse_syntax, read_source


def parse(text: str, start: str = "module") -> Tree:
    return parse_syntax(Source("t.mlc", text), start)


def expression(text: str) -> Any:
    statement = parse(f"x = {text}\n").body[0]
    return bare(statement[5])


def bare(node: Any) -> Any:
    """The node without its offsets, names as plain strings."""
    if not isinstance(node, tuple):
        return node
    if len(node) > 2 and isinstance(node[0], str) and isinstance(node[1], int) and isinstance(node[2], int):
        if node[0] in ("name", "int", "float", "str", "const"):
            return node[3]
        if node[0] == "call":
            return ("call", bare(node[3]), bare(node[4]), tuple((k[0], bare(k[3])) for k in node[5]))
        return (node[0], *(bare(part) for part in node[3:]))
    return tuple(bare(part) for part in node)


def test_the_grammar_has_no_conflicts() -> None:
    tables.make(strict=True, debug=True)  # strict: a shift/reduce conflict raises


@pytest.mark.parametrize(
    ("text", "tree"),
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
        ("lambda i, j: i + j", ("lambda", ("i", "j"), ("binary", "+", "i", "j"))),
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
def test_expressions(text: str, tree: Any) -> None:
    assert expression(text) == tree


def test_statements() -> None:
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
    imports, function = parse(text).body[0:2], parse(text).body[2]
    assert [i[3] for i in imports] == [(("tvm", "tvm"),), (("tvm.script.ir", "I"), ("tvm.script.tirx", "T"))]
    kind, _, _, name, _, parameters, returns, decorators, body = function
    assert (kind, name, [p[0] for p in parameters], returns[3]) == ("def", "f", ["a", "b"], None)
    assert len(decorators) == 1
    assert [bare(s) for s in body] == [
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
    node = parse(text).body[0][8][0]
    assert text[node[1] : node[2]] == "y = g(a, b=(c + 1))[2].d"
    call = node[5][3][3]
    assert text[call[1] : call[2]] == "g(a, b=(c + 1))"
    assert text[call[5][0][1] : call[5][0][2]] == "b"
    assert text[call[5][0][3][1] : call[5][0][3][2]] == "(c + 1)"


def test_comments_are_collected() -> None:
    text = "# one\nx = (1,  # two\n  # three\n  2)\n"
    assert [c[2] for c in parse(text).comments] == ["# one", "# two", "# three"]
    assert all(text[s:e] == t for s, e, t in parse(text).comments)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends(newline: str) -> None:
    text = "def f():\n    x = (1 +\n  2)\n\n    # c\n    s = 'a\\\nb'\ny = 1\n".replace("\n", newline)
    assert [s[0] for s in parse(text).body] == ["def", "assign"]


def test_a_byte_order_mark_and_an_empty_text_are_fine() -> None:
    assert parse("\ufeff  \n\t\n# nothing\n").body == ()
    assert len(parse("\ufeffx = 1").body) == 1


def test_tabs_indent_to_the_next_eighth_column() -> None:
    assert len(parse("def f():\n\tx = 1\n\tif x:\n\t\ty = 2\n").body[0][8]) == 2


def test_a_script_has_loops_at_the_top_and_no_classes() -> None:
    assert parse("for i in range(3):\n    sch.f(i)\n", "script").body[0][0] == "for"
    with pytest.raises(CompileError, match="a class cannot stand in a schedule script"):
        parse("class A:\n    pass\n", "script")


def test_reading_bytes_and_paths(tmp_path: Any) -> None:
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
        from mlcc.grammar.syntax import Source, parse_syntax
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

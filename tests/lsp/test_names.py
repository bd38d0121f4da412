"""Definitions, completion, symbols and schedule scripts, asked of the server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from client import MODULE, Client  # noqa: E402

pytest.importorskip("pygls")

SCRIPT = """\
block = sch.get_block("C")
i, j = sch.get_loops(block)
outer, inner = sch.split(j, factors=[None, 4])
sch.vectorize(inner)
"""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    started = Client()
    yield started
    assert started.close() == 0


def labels(client: Client, text: str, behind: str, uri: str = "file:///tmp/completion.mlc") -> list[str]:
    """What is offered behind a part of a text."""
    client.open(text, uri)
    place = client.at(uri, text, behind, len(behind))
    return [item["label"] for item in client.request("textDocument/completion", place)["items"]]


# ---------------------------------------------------------------- definitions


@pytest.mark.parametrize(
    ("word", "shift", "nth", "line"),
    [
        ("A[vi, vj]", 0, 0, "    def scale("),  # a parameter
        ("C[vi, vj] =", 0, 0, "        C = T.alloc_buffer"),
        ("[wi, wj] *", 1, 0, "                wi, wj ="),
        ("[i, j]", 4, 1, "        for i, j in"),
        ("relu(x)", 5, 0, "    def main("),
        ("R.sum(y", 6, 0, "            y ="),
        ("return total", 7, 0, "            total ="),
        ('"n"', 1, 0, "    def main("),
    ],
)
def test_definition(client: Client, word: str, shift: int, nth: int, line: str) -> None:
    uri = client.open(MODULE, "file:///tmp/definition.mlc")
    place = client.request("textDocument/definition", client.at(uri, MODULE, word, shift, nth))
    lines = MODULE.splitlines()
    start = place["range"]["start"]
    assert lines[start["line"]].startswith(line)
    found = lines[start["line"]][start["character"] : place["range"]["end"]["character"]]
    at = MODULE.index(word) + shift
    assert MODULE[at:].startswith(found)


def test_a_loop_variable_is_that_of_the_loop_around(client: Client) -> None:
    uri = client.open(MODULE, "file:///tmp/definition.mlc")
    places = [
        client.request("textDocument/definition", client.at(uri, MODULE, "[i, j]", 1, nth))["range"]["start"]["line"]
        for nth in (0, 1)
    ]
    assert places == [n for n, line in enumerate(MODULE.splitlines()) if "for i, j" in line]


def test_definition_of_a_function_that_is_called(client: Client) -> None:
    text = MODULE.replace("y = R.nn.relu(x)", 'y = R.call_tir(cls.scale, (x,), R.Tensor((n, 8), "float32"))')
    uri = client.open(text, "file:///tmp/call.mlc")
    for shift in (0, 4):
        place = client.request("textDocument/definition", client.at(uri, text, "cls.scale", 4 + shift))
        assert "def scale" in text.splitlines()[place["range"]["start"]["line"]]
    answer = client.request("textDocument/hover", client.at(uri, text, "cls.scale", 5))
    assert "def scale(A: T.Buffer" in answer["contents"]["value"]


def test_operators_are_defined_nowhere(client: Client) -> None:
    uri = client.open(MODULE, "file:///tmp/definition.mlc")
    assert client.request("textDocument/definition", client.at(uri, MODULE, "relu", 1)) is None
    assert client.request("textDocument/definition", client.at(uri, MODULE, "float32", 1)) is None


# ---------------------------------------------------------------- completion


def test_members(client: Client) -> None:
    from mlcc.ir.intrinsics import INTRINSICS
    from mlcc.ops.signature import names

    operators = {name.removeprefix("relax.") for name in names()}
    found = labels(client, MODULE.replace("R.sum(y", "R."), "total = R.")
    assert {name.partition(".")[0] for name in operators} | {"Tensor", "dataflow", "match_cast"} <= set(found)
    assert len(found) == len(set(found))
    neural = labels(client, MODULE.replace("R.nn.relu(x)", "R.nn."), "R.nn.")
    assert set(neural) == {name.split(".")[1] for name in operators if name.startswith("nn.")} | {"relu6"}
    assert {*INTRINSICS, "grid", "block", "Buffer", "float32", "axis"} <= set(labels(client, MODULE, "C[vi, vj] = T."))
    assert {"spatial", "reduce", "remap"} <= set(labels(client, MODULE, "T.axis."))
    assert labels(client, MODULE.replace("R.nn.relu(x)", "cls."), "y = cls.") == ["scale", "main"]


def test_parameters_of_the_operator_come_first(client: Client) -> None:
    text = MODULE.replace("axis=[1], keepdims=True)", "")
    assert labels(client, text, "R.sum(y, ")[:2] == ["axis=", "keepdims="]
    text = MODULE.replace("keepdims=True)", "")
    assert labels(client, text, "axis=[1], ")[0] == "keepdims="
    text = MODULE.replace("axis=[1], keepdims=True)", "keepdims=True, ")
    assert labels(client, text, "keepdims=True, ")[0] == "axis="


def test_names_in_scope(client: Client) -> None:
    found = labels(client, MODULE, "wi, wj = ")
    assert {"A", "B", "C", "i", "j", "T", "R"} <= set(found)
    assert not {"x", "y", "wi", "n"} & set(found)
    inside = labels(client, MODULE, "R.sum(")
    assert {"x", "y", "n"} <= set(inside)
    assert not {"total", "A", "C"} & set(inside)


def test_dtypes_in_quotes(client: Client) -> None:
    from mlcc.ir.dtypes import NAMES

    assert labels(client, MODULE, 'T.alloc_buffer((4, 8), "') == list(NAMES)
    assert labels(client, MODULE.replace('"float32")\n        for', '"fl'), 'T.alloc_buffer((4, 8), "fl') == list(NAMES)


def test_passes_in_their_line(client: Client) -> None:
    from mlcc.passes import PASSES

    assert set(PASSES) <= set(labels(client, MODULE, "# PASSES: fuse,"))
    assert labels(client, "# a comment\n", "# a com") == []


def test_an_item_is_explained_when_asked(client: Client) -> None:
    uri = client.open(MODULE, "file:///tmp/resolve.mlc")
    answer = client.request("textDocument/completion", client.at(uri, MODULE, "R.nn.relu", 5))
    (item,) = [item for item in answer["items"] if item["label"] == "relu"]
    assert "documentation" not in item
    assert "max(x, 0)" in client.request("completionItem/resolve", item)["documentation"]["value"]


def test_signature_help_marks_the_parameter(client: Client) -> None:
    uri = client.open(MODULE, "file:///tmp/signature.mlc")
    answer = client.request("textDocument/signatureHelp", client.at(uri, MODULE, "keepdims=T", 9))
    (signature,) = answer["signatures"]
    assert signature["label"] == "R.sum(x, axis=None, keepdims=False)"
    assert signature["parameters"][answer["activeParameter"]]["label"] == "keepdims"


def test_every_form_of_the_language_is_explained() -> None:
    """Types, statements and loops: all that is offered has a text, and all that the reader knows is offered."""
    from mlcc.grammar.relax.special_forms import SPECIAL_FORMS
    from mlcc.grammar.relax.types import BARE
    from mlcc.grammar.tir.calls import STATEMENTS
    from mlcc.grammar.tir.loops import LOOPS
    from mlcc.lsp.completion import language_names
    from mlcc.lsp.hover import topic_page
    from mlcc.reference.forms import FORMS

    older = {
        "allocate_const", "alloc_buffer_stmt", "buffer_decl", "sblock", "sblock_attr", "sblock_alloc_buffer", "axis.R",
        "axis.S", "LetStmt", "Bind", "local_scalar", "shared_scalar",
    }  # fmt: skip
    assert {f"T.{name}" for name in (STATEMENTS | set(LOOPS)) - older} <= set(FORMS)
    other = {"ShapeExpr", "PrimValue", "StringImm"}
    assert {f"R.{name}" for name in (set(SPECIAL_FORMS) | BARE) - other} <= set(FORMS)
    for root, names in language_names().items():
        for name, kind in names:
            assert kind == "dtype" or topic_page(f"{root}.{name}"), name


# ---------------------------------------------------------------- symbols


def outline(symbols: list[dict[str, Any]]) -> list[Any]:
    return [[s["name"], *outline(s["children"])] for s in symbols]


def test_symbols(client: Client) -> None:
    uri = client.open(MODULE, "file:///tmp/symbols.mlc")
    found = client.request("textDocument/documentSymbol", {"textDocument": {"uri": uri}})
    assert outline(found) == [
        ["Module", ["scale", ["A"], ["B"], ["C"], ["C", ["vi"], ["vj"]], ["B", ["wi"], ["wj"]]],
         ["main", ["x"], ["n"], ["y"], ["total"]]]
    ]  # fmt: skip
    main = found[0]["children"][1]
    lines = MODULE.splitlines()
    assert lines[main["range"]["start"]["line"]].startswith("    def main")
    assert main["range"]["end"] == {"line": len(lines) - 1, "character": len(lines[-1])}

    def inside(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
        places = [(p["line"], p["character"]) for p in (outer["start"], inner["start"], inner["end"], outer["end"])]
        return places == sorted(places)

    def check(symbol: dict[str, Any]) -> None:
        assert inside(symbol["range"], symbol["selectionRange"])
        for child in symbol["children"]:
            assert inside(symbol["range"], child["range"])
            check(child)

    check(found[0])


# ---------------------------------------------------------------- schedule scripts


def test_a_script(client: Client) -> None:
    uri = client.open(SCRIPT, "file:///tmp/schedule.mls")
    assert client.diagnostics(uri) == []
    answer = client.request("textDocument/hover", client.at(uri, SCRIPT, "split", 2))
    assert "sch.split(loop, factors," in answer["contents"]["value"]
    place = client.request("textDocument/definition", client.at(uri, SCRIPT, "vectorize(inner", 11))
    assert place["range"]["start"]["line"] == 2
    client.change(uri, {"text": SCRIPT.replace("factors=", "factors=(")})
    (found, *_) = client.diagnostics(uri)
    assert found["code"].startswith("E01") and found["range"]["start"]["line"] == 2


def test_every_method_of_a_script_is_explained() -> None:
    from mlcc.lsp.completion import primitives
    from mlcc.lsp.hover import topic_page

    for name in primitives():
        page = topic_page(f"sch.{name}", script=True)
        assert page is not None and page.startswith(f"```mlc\nsch.{name}("), name
        assert len(page.splitlines()) > 3, name


def test_completion_in_a_script(client: Client) -> None:
    from mlcc.passes.schedule import registry
    from mlcc.passes.schedule.mls.run import METHODS

    uri = "file:///tmp/completion.mls"
    assert {*registry.names(), *METHODS} == set(labels(client, SCRIPT, "outer, inner = sch.", uri))
    found = labels(client, SCRIPT, "sch.split(j, ", uri)
    assert found[:3] == ["factors=", "preserve_unit_iters=", "disable_predication="]
    assert {"block", "i", "j", "sch", "range", "for"} <= set(found)


def test_formatting_of_a_script(client: Client) -> None:
    uri = client.open(SCRIPT.replace(", ", ","), "file:///tmp/format.mls")
    (edit,) = client.formatting(uri)
    assert edit["newText"] == SCRIPT


def test_a_new_script_is_known_by_its_language(client: Client) -> None:
    uri = client.open("for i in range(3):\n    pass\n", "untitled:Untitled-1", "mls")
    assert client.diagnostics(uri) == []

"""`mlcc lsp`, driven over its pipes as an editor drives it."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from client import MODULE, Client  # noqa: E402

pytest.importorskip("pygls")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    started = Client()
    yield started
    assert started.close() == 0


def hovered(client: Client, uri: str, text: str, word: str, shift: int = 0, nth: int = 0) -> str:
    answer = client.request("textDocument/hover", client.at(uri, text, word, shift, nth))
    return "" if answer is None else answer["contents"]["value"]


def text_in(text: str, range_: dict[str, Any]) -> str:
    """The text of a range on one line, whose columns are UTF-16 units."""
    assert range_["start"]["line"] == range_["end"]["line"]
    line = text.splitlines()[range_["start"]["line"]].encode("utf-16-le")
    return line[2 * range_["start"]["character"] : 2 * range_["end"]["character"]].decode("utf-16-le")


# ---------------------------------------------------------------- findings


def test_a_text_without_errors_has_no_findings(client: Client) -> None:
    uri = client.open(MODULE)
    assert client.diagnostics(uri) == []


def test_findings_follow_the_typing(client: Client) -> None:
    uri = client.open(MODULE, "file:///tmp/typing.mlc")
    assert client.diagnostics(uri) == []
    start = client.at(uri, MODULE, "A[vi, vj]", 6)["position"]
    end = {**start, "character": start["character"] + 2}
    client.change(uri, {"range": {"start": start, "end": end}, "text": "vk"})
    (found,) = client.diagnostics(uri)
    assert (found["code"], found["severity"], found["source"]) == ("E0201", 1, "mlcc")
    assert found["range"] == {"start": start, "end": end}
    assert "`vk`" in found["message"]
    client.change(uri, {"range": {"start": start, "end": end}, "text": "vj"})
    assert client.diagnostics(uri) == []


def test_many_quick_changes_give_the_findings_of_the_last(client: Client) -> None:
    uri = client.open(MODULE, "file:///tmp/quick.mlc")
    client.diagnostics(uri)
    for at in range(20):
        client.change(uri, {"text": MODULE[: len(MODULE) - 20 + at]})
    client.change(uri, {"text": MODULE.replace("R.nn.relu", "R.nn.rel")})
    (found,) = client.diagnostics(uri)
    assert text_in(MODULE, found["range"]).startswith("R.nn.rel")
    assert "did you mean `nn.relu`" in found["message"]  # the help


def test_findings_name_related_places(client: Client) -> None:
    text = MODULE.replace("def main", "def scale")
    uri = client.open(text, "file:///tmp/related.mlc")
    found = client.diagnostics(uri)[0]
    (related,) = found["relatedInformation"]
    assert related["location"]["uri"] == uri
    assert text_in(text, related["location"]["range"]) == "scale"
    assert related["location"]["range"]["start"]["line"] < found["range"]["start"]["line"]


def test_warnings_are_findings_too(client: Client) -> None:
    text = MODULE.replace("main(x:", "main(z: R.Tensor((4,)), x:")
    uri = client.open(text, "file:///tmp/warning.mlc")
    (found,) = client.diagnostics(uri)
    assert (found["code"], found["severity"], found["tags"]) == ("W0303", 2, [1])
    assert text_in(text, found["range"]) == "z"


def test_a_wrong_pass_is_found_in_its_line(client: Client) -> None:
    text = MODULE.replace("lower-to-tir", "lower-to-tri")
    uri = client.open(text, "file:///tmp/pipeline.mlc")
    (found,) = client.diagnostics(uri)
    assert found["code"] == "E0501"
    assert text_in(text, found["range"]) == "lower-to-tri"


def test_columns_count_utf16_units(client: Client) -> None:
    text = '@R.function\ndef f(s: R.Object): return R.call_packed("𝛼𝛽", s, missing)\n'
    uri = client.open(text, "file:///tmp/wide.mlc")
    (found,) = client.diagnostics(uri)
    assert text_in(text, found["range"]) == "missing"
    assert found["range"]["start"]["character"] == text.splitlines()[1].index("missing") + 2


def test_columns_in_utf8_where_the_client_wants_it() -> None:
    started = Client(["utf-8"])
    try:
        assert started.capabilities["positionEncoding"] == "utf-8"
        text = '@R.function\ndef f(ä: R.Tensor((4,), "float32")):\n    return R.add(ä, ß)\n'
        (found,) = started.diagnostics(started.open(text))
        line = text.splitlines()[2].encode()
        assert line[found["range"]["start"]["character"] : found["range"]["end"]["character"]].decode() == "ß"
    finally:
        assert started.close() == 0


def test_a_closed_text_has_no_findings(client: Client) -> None:
    uri = client.open("@R.function\ndef", "file:///tmp/closed.mlc")
    assert client.diagnostics(uri)
    client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    while (params := client.wait("textDocument/publishDiagnostics"))["uri"] != uri:
        pass
    assert params["diagnostics"] == []


@pytest.mark.parametrize(
    "text", ["", "\n", "# only a comment\n", "(" * 500, '"""', "\ufeff@T.prim_func\n", "a\rb\r\nc"]
)
def test_any_text_is_answered(client: Client, text: str) -> None:
    uri = client.open(text, "file:///tmp/any.mlc")
    client.diagnostics(uri)
    for method in ("hover", "definition", "completion"):
        client.request(f"textDocument/{method}", client.at(uri, text, "", 0))
    client.request("textDocument/documentSymbol", {"textDocument": {"uri": uri}})
    client.formatting(uri)


def test_findings_are_those_of_check(client: Client, tmp_path: Path) -> None:
    """The codes and lines are those that `mlcc check` reports."""
    broken = [MODULE.replace(a, b) for a, b in (("vi, vj] = T", "vi] = T"), ("R.sum", "R.sun"), ("total\n", "x +\n"))]
    for number, text in enumerate(broken):
        path = tmp_path / f"{number}.mlc"
        path.write_text(text)
        command = [sys.executable, "-m", "mlcc", "--diagnostics", "json", "check", str(path)]
        lines = subprocess.run(command, capture_output=True, text=True).stderr.splitlines()
        expected = sorted((d["code"], d["primary"]["line"]) for d in map(json.loads, lines) if "code" in d)
        uri = client.open(text, path.as_uri())
        found = sorted((d["code"], d["range"]["start"]["line"] + 1) for d in client.diagnostics(uri))
        assert found == expected


# ---------------------------------------------------------------- hover


@pytest.mark.parametrize(
    ("word", "shift", "nth", "expected"),
    [
        ("R.nn.relu", 6, 0, r"R\.nn\.relu\(x\).*max\(x, 0\).*PyTorch"),
        ("R.sum", 2, 0, r"R\.sum\(x, axis=None, keepdims=False\)"),
        ("T.exp", 3, 0, r"T\.exp.*e to the power x"),
        ("T.grid", 3, 0, r"Nested serial loops"),
        ("fuse", 1, 0, r"fuse\n```\n\nGroup operations"),
        ("lower-to-tir", 7, 0, r"lower-to-tir\n```"),
        ("keepdims", 2, 0, r"keepdims: True or False = False"),
        ("y = ", 0, 0, r'y: R\.Tensor\(\(n, 8\), dtype="float32"\)'),
        ("total\n", 2, 0, r'total: R\.Tensor\(\(n, 1\), dtype="float32"\)'),
        ("A[", 0, 0, r'A: T\.Buffer\(\(4, 8\), "float32"\)'),
        ("C[wi", 0, 0, r'C = T\.Buffer\(\(4, 8\), "float32"\)'),
        ('"C"', 1, 0, r'with T\.block\("C"\):.*T\.reads\(A\[vi, vj\]\).*T\.writes\(C\[vi, vj\]\)'),
        ("i, j in", 3, 0, r"for j in T\.serial\(8\)"),
        ("vi, vj", 0, 0, r"vi = T\.axis\.spatial\(4\)"),
        ("def scale", 5, 0, r"def scale\(A: T\.Buffer"),
        ('"n"', 1, 0, r"n  # a size"),
    ],
)
def test_hover(client: Client, word: str, shift: int, nth: int, expected: str) -> None:
    uri = client.open(MODULE, "file:///tmp/hover.mlc")
    assert re.search(expected, hovered(client, uri, MODULE, word, shift, nth), re.DOTALL)


def test_hover_in_a_text_that_is_being_changed(client: Client) -> None:
    """Types are those of the last text that was whole."""
    uri = client.open(MODULE, "file:///tmp/changing.mlc")
    client.diagnostics(uri)
    text = MODULE.replace("y = R.nn.relu(x)", "first = R.exp(x)\n            y = R.nn.relu(x)").replace(
        "R.sum(y,", "R.sum(y"
    )
    client.change(uri, {"text": text})
    assert client.diagnostics(uri)
    assert 'y: R.Tensor((n, 8), dtype="float32")' in hovered(client, uri, text, "y = ")
    assert "R.nn.relu(x)" in hovered(client, uri, text, "R.nn.relu", 3)


def test_nothing_is_said_of_numbers_and_blanks(client: Client) -> None:
    uri = client.open(MODULE, "file:///tmp/hover.mlc")
    assert hovered(client, uri, MODULE, "(4, 8)", 1) == ""
    assert hovered(client, uri, MODULE, "    @T") == ""


# ---------------------------------------------------------------- formatting


def test_formatting_is_that_of_fmt(client: Client) -> None:
    from mlcc.grammar.fmt.canonical import format_text

    text = MODULE.replace("    ", "  ").replace(", ", ",  ")
    uri = client.open(text, "file:///tmp/format.mlc")
    (edit,) = client.formatting(uri)
    assert edit["newText"] == format_text(text) == MODULE
    lines = text.split("\n")
    assert edit["range"] == {
        "start": {"line": 0, "character": 0}, "end": {"line": len(lines) - 1, "character": len(lines[-1])},
    }  # fmt: skip
    uri = client.open(MODULE, "file:///tmp/formatted.mlc")
    assert client.formatting(uri) == []
    uri = client.open("def f(", "file:///tmp/broken.mlc")
    assert client.formatting(uri) is None


# ---------------------------------------------------------------- the command


def test_without_pygls_a_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    from mlcc.cli.main import run

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "pygls" else find(name, *a))
    assert run(["lsp"]) == 1
    _, err = capfd.readouterr()
    assert err == "error[E0019]: `mlcc lsp` needs pygls\n  help: pip install 'mlcc[lsp]'\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (None, 0)])
def test_the_server_ends_with_its_editor(number: int | None, code: int) -> None:
    assert Client().interrupt(number) == code

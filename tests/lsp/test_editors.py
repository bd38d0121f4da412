"""The files for editors: their keywords are the grammar's, and what they colour is what Pygments colours."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygments")
from pygments.token import Comment, Keyword, Operator, String  # noqa: E402

from mlcc.grammar import token_rules  # noqa: E402
from mlcc.lsp import highlight  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
EDITORS = ROOT / "editors"
VSCODE = EDITORS / "vscode"
GRAMMAR = json.loads((VSCODE / "syntaxes" / "mlc.tmLanguage.json").read_text())
WORDS = {*token_rules.KEYWORDS, *token_rules.WORD_OPERATORS, *token_rules.IMPORTS, *token_rules.CONSTANTS}
TEXTS = [p for p in sorted((ROOT / "samples").rglob("*.mlc")) if p.stat().st_size < 20_000]
SAMPLE = '''\
# PASSES: fuse
@T.prim_func  # a loop
def f(A: T.Buffer((0x10, 1.5e-3), "float32"), b: T.int64):
    """for and if

    def g"""
    for i in range(10):
        if i < 3 and not b:
            A[i, 0] = T.exp("a # \\" b", 'it''s') + R.nn.relu(x, axis=None)
'''


def rules(name: str) -> Iterator[dict[str, Any]]:
    """The rules that an include stands for, in their order."""
    rule = GRAMMAR["repository"][name]
    for inner in rule.get("patterns", [rule]) if "begin" not in rule else [rule]:
        if "include" in inner:
            yield from rules(inner["include"].removeprefix("#"))
        else:
            yield inner


def scopes(text: str) -> Iterator[tuple[int, int, str]]:
    """What TextMate's algorithm gives a text: the earliest match, of several the first, line by line."""
    todo = [(re.compile(rule.get("match") or rule["begin"]), rule) for rule in rules("text")]
    start, end = 0, None
    for line in text.splitlines(keepends=True):
        at = 0
        while at < len(line):
            if end is not None:
                found = end[0].search(line, at)
                stop = found.end() if found else len(line)
                yield start + at, start + stop, end[1]
                at, end = stop, None if found else end
                continue
            best = min(
                ((m.start(), n) for n, (pattern, _) in enumerate(todo) if (m := pattern.search(line.rstrip("\n"), at))),
                default=None,
            )
            if best is None:
                break
            match = todo[best[1]][0].search(line.rstrip("\n"), at)
            assert match is not None
            rule = todo[best[1]][1]
            yield start + match.start(), start + match.end(), rule.get("name", "")
            for group, capture in rule.get("captures", {}).items():
                yield start + match.start(int(group)), start + match.end(int(group)), capture["name"]
            if "begin" in rule:
                end = (re.compile(re.escape(match[1])), rule["name"])
            assert match.end() > at
            at = match.end()
        start += len(line)


def covered(places: Iterator[tuple[int, int, Any]], *kinds: Any) -> set[int]:
    """The characters that are given one of some kinds."""
    found = set()
    for start, end, kind in places:
        if any(kind in k if not isinstance(k, str) else kind.startswith(k) for k in kinds):
            found |= set(range(start, end))
    return found


@pytest.mark.parametrize("text", [SAMPLE, *(p.read_text() for p in TEXTS)], ids=["sample", *(p.name for p in TEXTS)])
def test_textmate_colours_what_pygments_colours(text: str) -> None:
    lexer = highlight.MlcLexer(stripnl=False)
    mine = [(at, at + len(v), kind) for at, kind, v in lexer.get_tokens_unprocessed(text)]

    def visible(places: set[int]) -> str:
        return "".join(c if at in places or c == "\n" else " " for at, c in enumerate(text)).replace("\n", " \n")

    comments = covered(iter(mine), Comment)
    assert visible(covered(scopes(text), "comment")) == visible(comments)
    strings = covered(iter(mine), String) | {
        at for s, e, k in mine if k is Keyword.Type and text[s] in "\"'" for at in range(s, e)
    }
    assert visible(covered(scopes(text), "string")) == visible(strings)
    words = covered((m for m in mine if m[2] is not Keyword.Type), Keyword, Operator.Word)
    names = (
        "keyword.control.mlc",
        "keyword.control.import",
        "constant.language",
        "keyword.operator.logical",
        "storage.type.function",
        "storage.type.class",
    )
    assert visible(covered(scopes(text), *names) - comments) == visible(words)


def test_textmate_keywords_are_those_of_the_grammar() -> None:
    patterns = [rule["match"] for rule in rules("keywords")] + [rule["match"] for rule in rules("definitions")]
    assert {word for pattern in patterns for word in re.findall(r"[A-Za-z]{2,}", pattern)} == WORDS


def test_vim_keywords_are_those_of_the_grammar() -> None:
    text = (EDITORS / "vim" / "syntax" / "mlc.vim").read_text()
    listed = re.findall(r"^syntax keyword (?:mlcKeyword|mlcInclude|mlcConstant|mlcOperator) (.*)$", text, re.MULTILINE)
    assert {word for line in listed for word in line.split()} == WORDS


def test_the_extension_is_whole() -> None:
    package = json.loads((VSCODE / "package.json").read_text())
    contributes = package["contributes"]
    assert [e for language in contributes["languages"] for e in language["extensions"]] == [".mlc", ".mls"]
    paths = [package["main"], *(g["path"] for g in contributes["grammars"])]
    paths += [language["configuration"] for language in contributes["languages"]]
    assert all((VSCODE / path).is_file() for path in paths)
    for grammar in contributes["grammars"]:
        assert json.loads((VSCODE / grammar["path"]).read_text())["scopeName"] == grammar["scopeName"]
    settings = json.loads((VSCODE / "language-configuration.json").read_text())
    rules_of_indentation = settings["indentationRules"]
    assert re.search(rules_of_indentation["increaseIndentPattern"], "    for i in T.grid(4):  # rows")
    assert not re.search(rules_of_indentation["increaseIndentPattern"], "    x: R.Tensor")


def test_the_page_names_files_that_there_are() -> None:
    page = (ROOT / "docs" / "editor.md").read_text()
    named = set(re.findall(r"editors/[\w./-]*\w", page))
    assert {"editors/vscode", "editors/vim", "editors/helix/languages.toml", "editors/helix/runtime"} <= named
    assert all((ROOT / path).exists() for path in named)
    version = json.loads((VSCODE / "package.json").read_text())["version"]
    assert f"mlcc-{version}.vsix" in page


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_client_is_javascript() -> None:
    subprocess.run(["node", "--check", str(VSCODE / "extension.js")], check=True)


def test_helix_starts_the_server() -> None:
    languages = tomllib.loads((EDITORS / "helix" / "languages.toml").read_text())
    server = languages["language-server"]["mlcc"]
    assert [server["command"], *server["args"]] == ["mlcc", "lsp"]
    for language in languages["language"]:
        assert language["language-servers"] == ["mlcc"]
        queries = EDITORS / "helix" / "runtime" / "queries" / language["name"]
        assert (queries / "highlights.scm").read_text() == f"; inherits: {language['grammar']}\n"


@pytest.mark.skipif(shutil.which("vim") is None, reason="needs vim")
def test_vim_knows_the_files(tmp_path: Path) -> None:
    """Vim finds the kind of a file, colours it, and reads the findings of `:make`."""
    (tmp_path / "a.mlc").write_text(SAMPLE)
    (tmp_path / "b.mls").write_text("b = sch.get_block('C')\n")
    (tmp_path / "found.txt").write_text("a.mlc:3:7: error[E0201]: unknown name `x`\n    text\n    ^\n  help: none\n")
    groups = "map(['PASSES', 'prim_func', '\\<for i', '\"float32', 'float32', '1.5e', 'exp'], 'Group(v:val)')"
    script = f"""
set nocompatible
set runtimepath^={EDITORS / "vim"}
filetype plugin on
syntax on
function Group(word)
  call cursor(1, 1)
  call search(a:word, 'c')
  return synIDattr(synID(line('.'), col('.'), 1), 'name')
endfunction
edit a.mlc
let found = [&filetype, &shiftwidth, join({groups}, ' ')]
cgetfile found.txt
let found += map(filter(getqflist(), 'v:val.valid'), '[v:val.lnum, v:val.col, v:val.type, v:val.nr, v:val.text]')
edit b.mls
let found += [&filetype, Group('get_block')]
call writefile([json_encode(found)], 'out.json')
qall!
"""
    (tmp_path / "test.vim").write_text(script)
    command = ["vim", "-u", "NONE", "-N", "-es", "-S", "test.vim"]
    subprocess.run(command, cwd=tmp_path, timeout=30, stdin=subprocess.DEVNULL, capture_output=True)
    found = json.loads((tmp_path / "out.json").read_text())
    assert found == [
        "mlc", 4, "mlcPasses mlcDecorator mlcKeyword mlcString mlcDtype mlcFloat mlcMember",
        [3, 7, "e", 201, "unknown name `x`"], "mls", "mlcMember",
    ]  # fmt: skip

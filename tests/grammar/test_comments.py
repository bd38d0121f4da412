"""What a caller of the printer says of bindings stands behind them, and is nothing to the reader."""

from __future__ import annotations

from typing import Any

import mlcc
from mlcc.grammar.fmt.canonical import format_text
from mlcc.grammar.printer.printer import script
from mlcc.grammar.printer.writer import Style
from mlcc.ir import relax

TEXT = """
@R.function
def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
    y = R.add(x, x)
    z = R.match_cast(y, R.Tensor((4,), "float32"))
    if c:
        a = R.nn.relu(z)
        r = a
    else:
        b = R.tanh(z)
        r = b
    w = R.exp(r)
    v = R.exp(w)
    return v
"""
SAID = {
    "y": "layer.0 (Add)",
    "z": "layer.0 (Add)",
    "a": " two\nlines\x1b\t",
    "r": "the branch",
    "w": "",
    "v": "x" * 999,
}


def comment_of(binding: relax.Binding) -> str | None:
    return SAID.get(binding.var.name)  # type: ignore[attr-defined]


def test_comments_stand_behind_their_bindings() -> None:
    module = mlcc.parse(TEXT)
    text = script(module, style=Style(comment_of))
    found = {line.split("=")[0].split(":")[0].strip(): line.partition("  # ")[2] for line in text.splitlines()[3:]}
    assert found["y"] == found["z"] == "layer.0 (Add)" and found["w"] == ""
    assert found["if c"] == "the branch" and found["v"] == "x" * 160
    assert "# two lines\n" in text and "\x1b" not in text
    plain = [line.partition("  # ")[0].rstrip() for line in text.splitlines()]
    assert plain == script(module).splitlines()
    again = mlcc.parse(text)
    assert mlcc.structural_equal(again, module) and script(again) == script(module)
    assert "# layer.0 (Add)" in format_text(text) and "# the branch" in format_text(text)


def test_comments_do_not_count_in_other_texts() -> None:
    module: Any = mlcc.parse(TEXT)
    assert "layer.0" not in module.script() and "layer.0" in script(module["main"], style=Style(comment_of))

"""Diagnostics of relax functions: each text announces what is wrong with it, `# error[CODE]: part of the message`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlcc.errors import CompileError
from mlcc.grammar.parser import parse
from mlcc.verify import check

FOLDER = Path(__file__).parent / "relax_errors"
CASES = [
    pytest.param(part, id=f"{path.stem}:{number}")
    for path in sorted(FOLDER.glob("*.mlc"))
    for number, part in enumerate(path.read_text().split("# ----\n"))
]


@pytest.mark.parametrize("text", CASES)
def test_announced_diagnostics_are_reported(text: str) -> None:
    announced = []
    for number, line in enumerate(text.split("\n"), 1):
        announced += [(number, code, part.strip()) for code, part in re.findall(r"# error\[(E\d+)\]: ([^#]*)", line)]
    assert announced, "the text announces nothing"
    with pytest.raises(CompileError) as caught:
        parse(text)
    found = []
    for diagnostic in caught.value.diagnostics:
        span = diagnostic.primary.span
        assert span is not None, diagnostic
        said = " ".join([diagnostic.message, diagnostic.primary.text, diagnostic.help or ""])
        said += " ".join(label.text for label in diagnostic.related)
        found.append((span.source.line_col(span.start)[0], diagnostic.code, said))
    assert [f[:2] for f in sorted(found)] == [a[:2] for a in sorted(announced)], str(caught.value)
    for (_, _, said), (_, _, part) in zip(sorted(found), sorted(announced), strict=True):
        assert part in said, f"`{part}` is not in: {said}"


@pytest.mark.parametrize("text", [
    '@R.function\ndef main(x: R.Tensor(("n", "h * 2"), "float32")):\n    return x',
    '@R.function\ndef main(x: R.Tensor(ndim=1, dtype="float32")):\n    h = T.int64()\n'
    '    y = R.match_cast(x, R.Tensor((h * 2,), "float32"))\n    return y',
])  # fmt: skip
def test_a_size_that_stands_nowhere_alone(text: str) -> None:
    """Help says what would bind it."""
    with pytest.raises(CompileError) as caught:
        check(parse(text))
    assert [d.code for d in caught.value.diagnostics] in (["E0201"], ["E0493"])
    assert 'R.Shape(["h"])' in str(caught.value.diagnostics[0].help)
    bound = text.replace('"float32")):', '"float32"), s: R.Shape(["h"])):', 1)
    check(parse(bound))

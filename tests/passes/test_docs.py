"""docs/passes.md says what there is: the table of passes, and rules that rewrite."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import mlcc
from mlcc.options.text import format_value
from mlcc.options.typed import kebab
from mlcc.passes import ALIASES, PASSES
from mlcc.passes.manage.manager import pass_class

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "passes.md").read_text()


def signature(name: str) -> str:
    """A pass as the table writes it: options without default bare, the others with it."""
    parts = []
    for option in dataclasses.fields(pass_class(name)):
        required = option.default is dataclasses.MISSING
        default = option.default if not isinstance(option.default, tuple) else list(option.default)
        parts.append(kebab(option.name) + ("" if required else f"={format_value(default)}"))
    return f"{name}{{{', '.join(parts)}}}" if parts else name


def test_the_table_lists_every_pass_with_its_options() -> None:
    listed = re.findall(r"^\| `([a-z][a-z-]+(?:\{.*?\})?)` \|", PAGE, re.M)
    assert listed == [signature(name) for name in PASSES]
    for alias in ALIASES:
        assert f"`{alias}`" in PAGE


def test_the_rule_of_the_page_is_one(tmp_path: Path) -> None:
    rule, composite = re.findall(r"^```python\n(@R\.function.*?)^```", PAGE, re.S | re.M)
    (tmp_path / "fma.mlc").write_text(rule)
    (tmp_path / "dnnl.mlc").write_text(composite)
    tensor = 'R.Tensor((8, 8), "float32")'
    text = (
        f"@R.function\ndef main(x: {tensor}, w: {tensor}):\n    with R.dataflow():\n        a = R.matmul(x, w)\n"
        "        b = R.nn.relu(a)\n        c = R.multiply(b, w)\n        d = R.add(x, c)\n"
        "        R.output(d)\n    return d\n"
    )
    pipeline = "rewrite{rules=fma.mlc},fuse-by-pattern{rules=dnnl.mlc annotate-codegen=true}"
    made = mlcc.script(mlcc.run_passes(mlcc.parse(text), pipeline, folder=str(tmp_path)))
    assert "R.ewise_fma(b, w, x)" in made
    assert 'R.func_attr({"Codegen": "dnnl"})' in made

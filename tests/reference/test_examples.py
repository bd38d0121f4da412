"""The reference covers everything there is, and its examples compute what it says."""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.ir import relax, tir
from mlcc.ops.signature import EXPANDED, signature
from mlcc.reference.sections import FOLDER, Section, sections

PAGES = sorted((FOLDER / "operators").glob("*.md"))
DTYPES = {"floats", "integers", "numbers", "all", "bool"}
# what only the runtime, other devices or several processes give a meaning, or a result that may not be compared
NO_EXAMPLE = re.compile(r"(builtin|ccl|dist|hint|inspect|memory|vm|grad\.(no|start|end))\b|random\.")


def every() -> list[Section]:
    return [section for page in PAGES for section in sections(page).values()]


def arrays(module: mlcc.IRModule) -> dict[str, Any]:
    """Random arguments for `main`, by name."""
    rng = np.random.default_rng(0)
    found = {}
    for param in module["main"].params:
        info = param.struct_info
        if not isinstance(info, relax.TensorStructInfo):
            continue
        shape = [int(dim.value) if isinstance(dim, tir.IntImm) else 3 for dim in info.shape.values]
        dtype = str(info.dtype)
        if dtype == "bool":
            found[param.name_hint] = rng.random(shape) < 0.5
        elif "int" in dtype:
            found[param.name_hint] = rng.integers(0, 3, shape).astype(dtype)
        else:
            found[param.name_hint] = rng.standard_normal(shape).astype(dtype)
    return found


def judged(source: str, names: dict[str, Any]) -> Any:
    """Run the lines of a block in the name space; the value of its last expression."""
    body = ast.parse(source)
    last = body.body.pop()
    assert isinstance(last, ast.Expr), "the last line is no expression"
    exec(compile(body, "example", "exec"), names)
    return eval(compile(ast.Expression(last.value), "example", "eval"), names)


def compare(got: Any, expected: Any) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            compare(one, other)
        return
    expected = np.asarray(expected)
    got = np.asarray(got)
    assert got.shape == expected.shape
    assert got.dtype.kind == expected.dtype.kind
    if got.dtype.kind == "f":
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("section", [s for s in every() if s.example], ids=lambda s: s.name)
def test_example_computes_what_its_python_says(section: Section) -> None:
    module = mlcc.parse(section.example)
    names: dict[str, Any] = {"np": np, **arrays(module)}
    if "torch" in section.judge:
        names["torch"] = pytest.importorskip("torch")
    parameters = [param.name_hint for param in module["main"].params]
    expected = judged(section.judge, names)
    compare(mlcc.load(mlcc.build(module))["main"](*(names[name] for name in parameters)), expected)


@pytest.mark.parametrize("section", every(), ids=lambda s: s.name)
def test_example_calls_the_operator_that_it_explains(section: Section) -> None:
    if not section.example:
        assert NO_EXAMPLE.match(section.name), "an example is missing"
        return
    assert f"R.{section.name}(" in section.example
    assert section.judge


@pytest.mark.parametrize("section", every(), ids=lambda s: s.name)
def test_facts_name_parameters(section: Section) -> None:
    sig = signature(section.name)
    allowed = {"returns", "dtypes", "NumPy", "PyTorch", "ONNX", "TVM"}
    if sig is None:
        assert section.name in EXPANDED
    else:
        names = {param.name for param in sig.params}
        assert {what for what, _ in section.facts} - allowed <= names
    assert section.meaning
    assert section.fact("returns") or NO_EXAMPLE.match(section.name)

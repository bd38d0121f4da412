"""The reference covers everything there is, and its examples compute what it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc import ops
from mlcc.ir import tir
from mlcc.ir.intrinsics import INTRINSICS
from mlcc.ops.signature import EXPANDED, signature
from mlcc.reference.sections import FOLDER, Section, operator_section, sections

TABLES = Path(__file__).resolve().parents[2] / "docs" / "ops-tables.md"
PAGES = sorted((FOLDER / "operators").glob("*.md"))
# what only the runtime, other devices or several processes give a meaning, and what cannot be compiled
NO_EXAMPLE = re.compile(
    r"(ccl|dist|vm)\.|memory\.(alloc|kill)|builtin\.alloc_tensor|null_value|make_closure|hint_on_device|to_vdevice|"
    r"call_(builtin_with_ctx|py_func|inplace_packed)|"
    r"vision\.(all_class_non_max_suppression|get_valid_counts|multibox_transform_loc|non_max_suppression)"
)


def every() -> list[Section]:
    return [section for page in PAGES for section in sections(page).values()]


def intrinsics() -> list[Section]:
    return list(sections(FOLDER / "intrinsics.md").values())


def arrays(module: mlcc.IRModule) -> dict[str, Any]:
    """Random arguments for `main`, by name."""
    main = module["main"]
    if isinstance(main, tir.PrimFunc):
        return {b.name: drawn(b.name, str(b.dtype), [int(n.value) for n in b.shape]) for b in main.buffers}
    tensors = {param.name_hint: param.struct_info for param in main.params}
    return {name: drawn(name, str(t.dtype), [int(n.value) for n in t.shape.values]) for name, t in tensors.items()}


def drawn(name: str, dtype: str, shape: list[int]) -> Any:
    rng = np.random.default_rng([*name.encode()])
    if dtype == "bool":
        return rng.random(shape) < 0.5
    return (rng.integers(0, 3, shape) if "int" in dtype else rng.standard_normal(shape)).astype(dtype)


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


@pytest.mark.parametrize("section", [s for s in intrinsics() if s.example], ids=lambda s: s.name)
def test_example_of_an_intrinsic_computes_what_its_python_says(section: Section) -> None:
    module = mlcc.parse(section.example)
    names: dict[str, Any] = {"np": np, **arrays(module)}
    *inputs, result = [buffer.name for buffer in module["main"].buffers]
    out = np.zeros_like(names.pop(result))
    expected = judged(section.judge, names)
    mlcc.load(mlcc.build(module))["main"](*(names[name] for name in inputs), out)
    assert f"T.{section.name}(" in section.example
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_every_intrinsic_has_a_section() -> None:
    assert sorted(INTRINSICS) == sorted(section.name for section in intrinsics())


def test_every_operator_has_a_section() -> None:
    missing = [name for name in (*ops.names(), *EXPANDED) if operator_section(name.removeprefix("relax.")) is None]
    assert not missing
    assert not [path for path in (FOLDER / "operators").iterdir() if path.suffix != ".md"]


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
    assert section.stated("returns") or NO_EXAMPLE.match(section.name)


def passing_dtypes() -> dict[str, set[str]]:
    """The dtypes that docs/ops-tables.md lists as passing, by operator."""
    lines = TABLES.read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    head = next(row for row in rows if "float32" in row)
    return {
        row[0].strip("`"): {dtype for dtype, cell in zip(head, row, strict=True) if "s" in cell and dtype != "operator"}
        for row in rows
        if len(row) == len(head) and row[0].startswith("`")
    }


@pytest.mark.parametrize("section", every(), ids=lambda s: s.name)
def test_dtypes_are_those_that_pass(section: Section) -> None:
    passing = passing_dtypes().get(section.name)
    if passing is None:
        return
    kinds = {"floats": "float32", "integers": "int32", "bool": "bool"}
    stated = section.stated("dtypes")
    words = {"all": "floats, integers, bool", "numbers": "floats, integers"}.get(stated, stated).split(", ")
    if stated and set(words) <= set(kinds):
        assert {kinds[word] for word in words} == passing & set(kinds.values())

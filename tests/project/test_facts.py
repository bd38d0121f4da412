"""Facts of operators and intrinsics stand in their records: passes keep no lists of names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlcc import ops
from mlcc.ir.intrinsics import INTRINSICS

ROOT = Path(__file__).resolve().parents[2]
MOST = 3  # names beside one another: those that a pass is about


def listed(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """The strings of each literal collection, and the words of long strings, with their lines."""
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            parts = node.elts
        elif isinstance(node, ast.Dict):
            parts = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value.split()
            continue
        yield (
            getattr(node, "lineno", 0),
            [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)],
        )


@pytest.mark.parametrize("folder", ["passes", "mlcc/arith", "mlcc/verify"])
def test_passes_keep_no_lists_of_names(folder: str) -> None:
    operators = {n for name in ops.names() for n in (name, name.removeprefix("relax."))}
    intrinsics = {n for name in INTRINSICS for n in (name, f"tir.{name}")}
    for path in sorted((ROOT / folder).rglob("*.py")):
        for line, words in listed(ast.parse(path.read_text())):
            for names in (operators, intrinsics):
                found = [word for word in words if word in names]
                assert len(found) <= MOST or len(found) < len(words) / 2, f"{path.name}:{line}: {found}"

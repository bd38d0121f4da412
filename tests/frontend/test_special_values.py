"""NaN, infinities and the like through operators of PyTorch and ONNX: as their frameworks have it, at every level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.frontend import from_exported_program
from mlcc.frontend.onnx.translate import translate
from tests.frontend import special_values as special
from tests.frontend.onnx_models import FLOAT, model, node

pytestmark = pytest.mark.filterwarnings("ignore")


def _leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, (list, tuple)) else [value]


def _same(mine: Any, theirs: Any, name: str) -> str | None:
    """What differs, if something does. A number that is small beside the greatest operand may be lost."""
    mine, theirs = np.asarray(mine), np.asarray(theirs)
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return f"{name}: {mine.dtype}{mine.shape} for {theirs.dtype}{theirs.shape}"
    if mine.dtype.kind == "f":
        near = np.abs(mine - theirs) <= 2e-5 * np.abs(theirs) + 1e-37
        good = (np.isnan(mine) & np.isnan(theirs)) | (mine == theirs) | near
    else:
        good = mine == theirs
    bad = np.argwhere(~good)[:3]
    return f"{name}: " + "; ".join(f"{mine[tuple(b)]} for {theirs[tuple(b)]} at {b}" for b in bad) if len(bad) else None


def _operands(torch: Any, table: str) -> tuple[Any, ...]:
    if table == "unary":
        return (torch.tensor(special.FLOATS),)
    if table == "of_rows":
        return (torch.tensor(special.ROWS),)
    values = torch.tensor(special.FLOATS if table == "binary" else special.INTEGERS)
    values = values if table == "binary" else values.int()
    return values.repeat_interleave(len(values)), values.repeat(len(values))


@pytest.mark.parametrize("table", ["unary", "binary", "of_integers", "of_rows"])
def test_operators_of_torch_agree(torch: Any, table: str) -> None:
    operators = getattr(special, table)(torch)
    given = _operands(torch, table)

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, *operands: Any) -> Any:
            return tuple(operator(*operands) for operator in operators.values())

    module = from_exported_program(torch.export.export(Model(), given))
    wanted = {name: _leaves(operator(*given)) for name, operator in operators.items()}
    names = [name for name, results in wanted.items() for _ in results]
    for level in (0, 2):
        found = _leaves(mlcc.load(mlcc.build(module, opt_level=level))["main"](*given))
        pairs = zip(found, [w for results in wanted.values() for w in results], names, strict=True)
        assert not [text for text in (_same(m, w, f"-O{level} {n}") for m, w, n in pairs) if text]


# operators of ONNX on rows, and what NumPy says of them
OF_ONNX: dict[str, tuple[dict[str, Any], Callable[[Any], Any]]] = {
    "Relu": ({}, lambda x: np.maximum(x, 0)),
    "Abs": ({}, np.abs),
    "Sign": ({}, np.sign),
    "Round": ({}, np.rint),
    "Sqrt": ({}, np.sqrt),
    "IsNaN": ({}, np.isnan),
    "ReduceMax": ({"keepdims": 0}, lambda x: x.max()),
    "ReduceMin": ({"keepdims": 0}, lambda x: x.min()),
    "ArgMax": ({"axis": 1, "keepdims": 0}, lambda x: x.argmax(1)),
    "ArgMin": ({"axis": 1, "keepdims": 0}, lambda x: x.argmin(1)),
}


@pytest.mark.parametrize("operator", OF_ONNX)
def test_operators_of_onnx_agree(onnx: Any, operator: str) -> None:
    attributes, rule = OF_ONNX[operator]
    rows = np.array(special.ROWS, "float32")
    expected = rule(rows)
    output = (str(np.asarray(expected).dtype), list(np.shape(expected)))
    module = translate(model([node(operator, ["x"], **attributes)], {"x": (FLOAT, rows.shape)}, {"y": output}))
    for level in (0, 2):
        found = mlcc.load(mlcc.build(module, opt_level=level))["main"](rows)
        assert _same(found, expected, operator) is None

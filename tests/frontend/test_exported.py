"""Exported programs: imported, built, compared with PyTorch."""

from __future__ import annotations

from typing import Any

from tests.frontend.aten_check import check


def test_a_perceptron_with_dynamic_batch(torch: Any) -> None:
    class Perceptron(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(7, 16), torch.nn.Linear(16, 3)

        def forward(self, x: Any) -> Any:
            return self.last(torch.relu(self.first(x)))

    batch = torch.export.Dim("batch")
    module = check(Perceptron(), torch.randn(2, 7), dynamic=({0: batch},), again=((torch.randn(5, 7),),))
    assert "first.weight" in module.script()

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


def test_packed_functions_are_called_on_request(torch: Any) -> None:
    import numpy as np
    import pytest

    import mlcc
    from mlcc.frontend import from_exported_program

    class Gamma(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.lgamma(x) + 1

    x = torch.rand(5) + 1
    exported = torch.export.export(Gamma(), (x,))
    with pytest.raises(mlcc.CompileError, match="aten.lgamma"):
        from_exported_program(exported)
    module = from_exported_program(exported, allow_packed=True, unwrap_unit_return_tuple=True)

    def lgamma(given: Any, out: Any) -> None:
        np.asarray(out)[...] = torch.lgamma(torch.from_numpy(np.array(given))).numpy()

    mlcc.register_func("aten.lgamma.default", lgamma)
    found = mlcc.load(mlcc.build(module))["main"](x)
    np.testing.assert_allclose(found, Gamma()(x).numpy(), rtol=1e-6)

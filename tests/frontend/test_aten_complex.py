"""Complex numbers and Fourier transforms inside programs of PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.frontend import from_exported_program, from_pt2
from tests.frontend.aten_check import check, compare_all


def module_of(torch: Any, forward: Any, **buffers: Any) -> Any:
    """A module of a function."""

    class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            for name, value in buffers.items():
                self.register_buffer(name, value)

    Module.forward = forward
    return Module()


def parts(torch: Any, z: Any) -> Any:
    return torch.view_as_real(z.resolve_conj())


def test_rotary_embeddings_as_complex_factors(torch: Any) -> None:
    """As Llama's own code has them: a complex buffer, pairs of features as complex numbers."""
    table = torch.polar(torch.ones(8, 3), torch.outer(torch.arange(8.0), torch.tensor([1.0, 0.3, 0.1])))

    def forward(m: Any, x: Any) -> Any:
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(z * m.table[: x.shape[1], None, :]).flatten(3)

    sizes = ({0: torch.export.Dim("b"), 1: torch.export.Dim("s", max=8)},)
    check(
        module_of(torch, forward, table=table),
        torch.randn(2, 5, 4, 6),
        dynamic=sizes,
        again=((torch.randn(3, 8, 4, 6),),),
    )


def test_a_table_as_long_as_a_size_can_be(torch: Any) -> None:
    """What inference cannot know of `table[:s]`, as it does not know that s is at most 8."""
    model, sizes = (
        module_of(torch, lambda m, x: x + m.table[: x.shape[0]], table=torch.randn(8, 3)),
        torch.export.Dim("s", max=8),
    )
    check(model, torch.randn(5, 3), dynamic=({0: sizes},), again=((torch.randn(8, 3),),))


def test_a_complex_weight_of_a_file(torch: Any, tmp_path: Any) -> None:
    table = torch.randn(2, 3, dtype=torch.complex64).t()
    model = module_of(torch, lambda m, x: parts(torch, x * m.table + 1j), table=table)
    x, path = torch.randn(3, 2), str(tmp_path / "net.pt2")
    torch.export.save(torch.export.export(model, (x,)), path)
    compare_all(mlcc.load(mlcc.build(from_pt2(path)))["main"](x), model(x))


ARITHMETIC = {
    "products": lambda torch, a, b: a * b / (b + 2) - a.conj() * 0.5 + (2 - 1j) * b,
    "with reals": lambda torch, a, b: (a.real * b + a.imag - 2 * b) / a.abs().clamp(min=0.1),
    "matrices": lambda torch, a, b: a @ b.transpose(0, 1) + torch.exp(a @ b.transpose(0, 1)),
    "moved": lambda torch, a, b: torch.cat([a, torch.stack([b, -b])[0].flip(0), a.roll(1, 0)])[1:].sum(1),
    "split": lambda torch, a, b: torch.complex(*(p.real for p in a.chunk(2, 1))) * b.reshape(2, 6)[:, :2].sum(),
    "angles": lambda torch, a, b: torch.polar(a.abs(), b.angle()) + a.real.angle(),
    "likes": lambda torch, a, b: torch.ones_like(a) * b + torch.zeros_like(b),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_complex_arithmetic_agrees(torch: Any, name: str) -> None:
    def forward(m: Any, x: Any, y: Any) -> Any:
        return parts(torch, ARITHMETIC[name](torch, torch.view_as_complex(x), torch.view_as_complex(y)))

    check(module_of(torch, forward), torch.randn(3, 4, 2), torch.randn(3, 4, 2))


def test_absolute_values_of_extremes_agree(torch: Any) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[3e30, 4e30], [0, 0], [1e-30, 0], [inf, nan], [nan, 1], [-inf, inf], [3, -4]])
    check(module_of(torch, lambda m, x: torch.view_as_complex(x).abs()), x)


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("count", [7, 8])
def test_transforms_of_one_axis_agree(torch: Any, norm: str, count: int) -> None:
    def forward(m: Any, x: Any) -> Any:
        f = torch.fft
        half = f.rfft(x, norm=norm)
        whole = f.fft(x, n=count + 2, dim=1, norm=norm)
        back = f.irfft(half * (1 + 0.5j), n=count, norm=norm)
        return (
            parts(torch, half),
            parts(torch, f.ifft(whole, n=count, dim=1, norm=norm)),
            back,
            f.irfft(half, norm=norm),
        )

    check(module_of(torch, forward), torch.randn(2, count))


@pytest.mark.parametrize("norm", [None, "ortho"])
def test_transforms_of_several_axes_agree(torch: Any, norm: str) -> None:
    def forward(m: Any, x: Any) -> Any:
        f = torch.fft
        half = f.rfft2(x, dim=(1, 2), norm=norm)
        mixed = f.irfft2(half * m.filter, s=(6, 5), dim=(1, 2), norm=norm)
        return mixed, f.fftn(f.fftn(x, dim=2), dim=1).real, parts(torch, f.ifftn(x, norm=norm)), f.fft2(x).imag

    check(module_of(torch, forward, filter=torch.randn(6, 3, 4, dtype=torch.complex64)), torch.randn(2, 6, 5, 4))


def test_transforms_of_varying_length_agree(torch: Any) -> None:
    def forward(m: Any, x: Any) -> Any:
        return torch.fft.irfft(torch.fft.rfft(x) * (2 - 1j), n=x.shape[1]), torch.fft.fft(x).abs()

    dynamic, again = ({1: 2 * torch.export.Dim("n", max=32)},), ((torch.randn(2, 14),), (torch.randn(2, 4),))
    check(module_of(torch, forward), torch.randn(2, 10), dynamic=dynamic, again=again)


def test_decomposed_programs_agree(torch: Any) -> None:
    model = module_of(torch, lambda m, x: torch.fft.irfft2(torch.fft.rfft2(x) * (1 - 2j)))
    x = torch.randn(2, 4, 6)
    exported = torch.export.export(model, (x,)).run_decompositions()
    compare_all(mlcc.load(mlcc.build(from_exported_program(exported)))["main"](x), model(x))


@pytest.mark.parametrize("options", [{}, {"win_length": 6, "normalized": True}, {"onesided": False, "center": False}])
def test_spectrograms_agree(torch: Any, options: dict[str, Any]) -> None:
    def forward(m: Any, x: Any) -> Any:
        window = torch.hann_window(options.get("win_length", 8))
        made = torch.stft(x, 8, 3, window=window, return_complex=True, **options)
        return made.abs() ** 2, made.imag

    check(module_of(torch, forward), torch.randn(2, 40))
    check(module_of(torch, forward), torch.randn(33))


def test_real_tensors_with_complex_numbers(torch: Any) -> None:
    def forward(m: Any, x: Any) -> Any:
        sums = x + 1j, x - 2j, 1j - x, x * 2j, x / (1 - 2j), x.to(torch.complex64) * 1j, torch.full((4,), 2 - 1j) * x
        return *(parts(torch, z) for z in sums), torch.exp(-1j * x).imag

    check(module_of(torch, forward), torch.randn(3, 4))
    check(module_of(torch, lambda m, k: torch.exp(k * 0.5j).real), torch.arange(5))


def test_unsupported_complex_values_are_refused(torch: Any) -> None:
    z = torch.randn(3, dtype=torch.complex64)
    for model, given in (
        (module_of(torch, lambda m, x: x.abs()), z), (module_of(torch, lambda m, x: torch.fft.fft(x)), z.real.clone()),
    ):  # fmt: skip
        with pytest.raises(CompileError, match="inputs and outputs of a program cannot be complex"):
            from_exported_program(torch.export.export(model, (given,)))
    with pytest.raises(CompileError, match="not supported for complex"):
        exported = torch.export.export(module_of(torch, lambda m, x: torch.fft.fft(x).tanh().real), (z.real.clone(),))
        from_exported_program(exported)

"""Complex numbers inside a program: a complex tensor is a pair of tensors, its real and imaginary parts.

relax has no complex dtypes, so a program's inputs and outputs have to be real (`torch.view_as_real`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax

if TYPE_CHECKING:
    from mlcc.frontend.aten.table import Converter
    from mlcc.frontend.aten.translate import Translator
    from mlcc.frontend.emitter import Emitter

PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}  # dtypes of real and imaginary parts

# Operators that move or add elements apply to each part separately. Values are the arguments that may be complex.
_BY_PARTS = {
    name: arguments
    for arguments, names in {
        ("self", "other"): "add sub view_as expand_as reshape_as",
        ("tensors",): "cat concat stack",
        ("self", "src"): "slice_scatter select_scatter",
        ("self", "input"): "view _unsafe_view reshape permute transpose t unsqueeze squeeze slice select expand "
        "broadcast_to clone contiguous flatten unflatten split split_with_sizes chunk tensor_split unbind roll flip "
        "repeat tile alias detach narrow index_select index swapaxes swapdims movedim mT numpy_T diagonal unfold sum "
        "mean cumsum neg lift_fresh lift_fresh_copy gather tril triu fft_fftshift fft_ifftshift repeat_interleave "
        "squeeze_copy resolve_neg _reshape_alias",
    }.items()
    for name in names.split()
}
_OTHER_FOR_SHAPE = ("view_as", "expand_as", "reshape_as")  # of the argument `other`
_CONVERTERS: dict[str, Converter] = {}


@dataclass(frozen=True)
class Complex:
    """A tensor of complex numbers: two tensors of the same shape and dtype."""

    re: relax.Expr
    im: relax.Expr

    def map(self, make: Callable[[relax.Expr], relax.Expr]) -> Complex:
        """Apply a function to the real and to the imaginary part."""
        return Complex(make(self.re), make(self.im))


def complex_unsupported() -> Unsupported:
    """Return the error for a complex parameter or result."""
    text = "inputs and outputs of a program cannot be complex"
    return Unsupported(text, "use torch.view_as_real and torch.view_as_complex")


def converts_complex(*targets: str) -> Callable[[Converter], Converter]:
    """Register a converter of operators for operands of which at least one is complex, a tensor or a number."""

    def register(convert: Converter) -> Converter:
        _CONVERTERS.update(dict.fromkeys(targets, convert))
        return convert

    return register


def has_complex_converter(target: str) -> bool:
    """Return True if an operator has a converter for complex operands."""
    return _name(target) in _CONVERTERS


def complex_converter(target: str, arguments: Mapping[str, Any], real: Converter | None) -> Converter:
    """Return the converter for these arguments: `real` if none is complex. Raises Unsupported."""
    name = _name(target)
    if not any(isinstance(leaf, (Complex, complex)) for leaf in _leaves(list(arguments.values()))):
        if real is None:
            raise Unsupported("it is supported for complex numbers only")
        return real
    if name in _CONVERTERS:
        return _CONVERTERS[name]
    if name in _BY_PARTS and real is not None:
        return _by_parts(real, _BY_PARTS[name][: 1 if name in _OTHER_FOR_SHAPE else None])
    raise Unsupported("it is not supported for complex numbers")


def _name(target: str) -> str:
    return target.removeprefix("aten.").partition(".")[0]


def _by_parts(real: Converter, names: Sequence[str]) -> Converter:
    """Return a converter that applies `real` to each part; real operands get an imaginary part of 0."""

    def convert(t: Any, **arguments: Any) -> Any:
        if arguments.get("alpha", 1) != 1:
            raise Unsupported("`alpha` is not supported for complex numbers")
        halves = []
        for part in ("re", "im"):
            own = {n: _part(t, v, part, arguments) if n in names else _real(v) for n, v in arguments.items()}
            halves.append(real(t, **own))
        if isinstance(halves[0], (list, tuple)):
            return [Complex(re, im) for re, im in zip(*halves, strict=True)]
        return Complex(*halves)

    return convert


def _part(t: Translator, value: Any, part: str, arguments: Mapping[str, Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_part(t, leaf, part, arguments) for leaf in value]
    known = (t.dtype(leaf.re) for leaf in _leaves(list(arguments.values())) if isinstance(leaf, Complex))
    dtype = next(known, None) or PARTS[t.out_dtype()]
    return getattr(as_complex(t, value, dtype), part)


def _real(value: Any) -> Any:
    """Return the real part of a complex argument whose shape alone is used."""
    return value.re if isinstance(value, Complex) else value


def as_complex(t: Emitter, value: Any, dtype: str) -> Complex:
    """Convert an operand to complex numbers with parts of a dtype. Numbers become tensors of rank 0."""
    if isinstance(value, Complex):
        return value.map(lambda part: t.cast(part, dtype))
    if isinstance(value, relax.Expr):
        return Complex(t.cast(value, dtype), t.full(t.shape(value), 0, dtype))
    if isinstance(value, (bool, int, float, complex)):
        number = complex(value)
        return Complex(t.scalar(number.real, dtype), t.scalar(number.imag, dtype))
    raise Unsupported("a run-time number together with complex numbers")


def _leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, (list, tuple)) else [value]

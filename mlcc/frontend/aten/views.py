"""Views: operator results that alias an operand, how they are rederived from a new base, and writes through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlcc.frontend.aten.graph import Argument, AtenNode, Extent, Meta, Ref, SymbolicNumber, TensorMeta
from mlcc.frontend.aten.layout import is_contiguous, is_same_layout, is_view
from mlcc.frontend.problems import Unsupported

if TYPE_CHECKING:
    from mlcc.frontend.aten.functionalize import Functionalizer


class ViewStep:
    """The identity view: an alias of the whole operand."""

    def rederive(self, f: Functionalizer, base: Ref, whole: TensorMeta, part: TensorMeta) -> Ref:
        """Derive the view again from `base`, the operand's current value."""
        return base

    def write_back(self, f: Functionalizer, base: Ref, new: Ref, whole: TensorMeta, part: TensorMeta) -> Ref:
        """Write through the view: return the operand after the view was set to `new`."""
        return new


@dataclass(frozen=True)
class Reshaped(ViewStep):
    """A view in another shape."""

    def rederive(self, f: Functionalizer, base: Ref, whole: TensorMeta, part: TensorMeta) -> Ref:
        return f.emit("aten.reshape.default", {"self": base, "shape": as_arguments(part.shape)}, part)

    def write_back(self, f: Functionalizer, base: Ref, new: Ref, whole: TensorMeta, part: TensorMeta) -> Ref:
        return f.emit("aten.reshape.default", {"self": new, "shape": as_arguments(whole.shape)}, whole)


@dataclass(frozen=True)
class Permuted(ViewStep):
    """A view with permuted dimensions."""

    order: tuple[int, ...]

    def rederive(self, f: Functionalizer, base: Ref, whole: TensorMeta, part: TensorMeta) -> Ref:
        return f.emit("aten.permute.default", {"self": base, "dims": self.order}, part)

    def write_back(self, f: Functionalizer, base: Ref, new: Ref, whole: TensorMeta, part: TensorMeta) -> Ref:
        inverse = tuple(self.order.index(i) for i in range(len(self.order)))
        return f.emit("aten.permute.default", {"self": new, "dims": inverse}, whole)


@dataclass(frozen=True)
class PartialView(ViewStep):
    """A view of a part of the elements, which one operator extracts and another writes back."""

    take: str
    put: str
    arguments: tuple[tuple[str, Argument], ...]

    def rederive(self, f: Functionalizer, base: Ref, whole: TensorMeta, part: TensorMeta) -> Ref:
        return f.emit(self.take, {"self": base, **dict(self.arguments)}, part)

    def write_back(self, f: Functionalizer, base: Ref, new: Ref, whole: TensorMeta, part: TensorMeta) -> Ref:
        return f.emit(self.put, {"self": base, "src": new, **dict(self.arguments)}, whole)


@dataclass(frozen=True)
class Expanded(ViewStep):
    """A broadcast view, whose elements appear several times."""

    def rederive(self, f: Functionalizer, base: Ref, whole: TensorMeta, part: TensorMeta) -> Ref:
        return f.emit("aten.expand.default", {"self": base, "size": as_arguments(part.shape)}, part)

    def write_back(self, f: Functionalizer, base: Ref, new: Ref, whole: TensorMeta, part: TensorMeta) -> Ref:
        if whole.shape == part.shape:
            return new
        raise Unsupported("it writes to a broadcast view, whose elements appear several times")


@dataclass(frozen=True)
class Unwritable(ViewStep):
    """A view that may not be written to, and whose storage may not be written to through another alias."""

    reason: str

    def rederive(self, f: Functionalizer, base: Ref, whole: TensorMeta, part: TensorMeta) -> Ref:
        raise Unsupported(self.reason)

    def write_back(self, f: Functionalizer, base: Ref, new: Ref, whole: TensorMeta, part: TensorMeta) -> Ref:
        raise Unsupported(self.reason)


@dataclass(frozen=True)
class View:
    """A view of a value."""

    of: str
    step: ViewStep


def view_steps(node: AtenNode, metas: Mapping[str, Meta]) -> Sequence[View | None]:
    """Return the view that each result of a node is; None for a result that aliases no operand."""
    make = _VIEWS.get(".".join(node.target.split(".")[:2]))
    if make is None:
        return ()
    given = node.arguments.get("self", node.arguments.get("input", node.arguments.get("tensor")))
    if isinstance(given, tuple):  # meshgrid, broadcast_tensors
        return [View(part.name, Expanded()) if isinstance(part, Ref) else None for part in given]
    whole = metas.get(given.name) if isinstance(given, Ref) else None
    parts = [metas.get(name) if name else None for name in node.outputs]
    if not isinstance(given, Ref) or not isinstance(whole, TensorMeta):
        return ()
    try:
        steps = make(_ViewCall(node, whole, parts))
    except Unsupported as problem:
        steps = [Unwritable(problem.reason)] * len(parts)
    except (TypeError, KeyError, IndexError, ValueError):
        steps = [Unwritable(f"the arguments of `{node.target}` are not supported")] * len(parts)
    return [None if step is None else View(given.name, step) for step in steps]


def as_argument(extent: Extent) -> Argument:
    """An extent as an argument of an operator."""
    return SymbolicNumber(extent) if isinstance(extent, str) else extent


def as_arguments(shape: Sequence[Extent]) -> tuple[Argument, ...]:
    """A shape as an argument of an operator."""
    return tuple(as_argument(e) for e in shape)


# ---------------------------------------------------------------- operators


@dataclass(frozen=True)
class _ViewCall:
    """A call whose results are views."""

    node: AtenNode
    whole: TensorMeta
    parts: Sequence[Meta | None]

    def get(self, name: str, default: Argument = None) -> Any:
        """An argument."""
        return self.node.arguments.get(name, default)

    def axis(self, name: str = "dim", default: int = 0) -> int:
        """An axis counted from the front."""
        return int(self.get(name, default)) % max(len(self.whole.shape), 1)

    @property
    def part(self) -> TensorMeta:
        """Metadata of the only result. Raises Unsupported if it is no tensor."""
        meta = self.parts[0]
        if not isinstance(meta, TensorMeta):
            raise Unsupported(f"the program does not state the shape of the result of `{self.node.target}`")
        return meta


_ViewSteps = Sequence[ViewStep | None]


def _identity(seen: _ViewCall) -> _ViewSteps:
    return [ViewStep()]


def _reshaped(seen: _ViewCall) -> _ViewSteps:
    if seen.part.dtype != seen.whole.dtype:
        raise Unsupported("it writes to memory that is viewed in another dtype")
    return [Reshaped()]


def _reshaped_if_view(seen: _ViewCall) -> _ViewSteps:
    return [Reshaped() if is_view(seen.whole, seen.part) else None]


def _alias_if_same_layout(seen: _ViewCall) -> _ViewSteps:
    """Conversions (`to`, `contiguous`): an alias of the operand if dtype and layout are the same, else a copy."""
    if seen.get("copy") is True or seen.part.dtype != seen.whole.dtype:
        return [None]
    if not str(seen.get("device") or "cpu").startswith("cpu"):
        raise Unsupported("it writes to a tensor that may be a copy on another device")
    return [ViewStep() if is_same_layout(seen.whole, seen.part) else None]


def _dropout(seen: _ViewCall) -> _ViewSteps:
    return [None if seen.get("train") is True else ViewStep()]


def _permuted(order: Callable[[_ViewCall, int], Sequence[int]]) -> Callable[[_ViewCall], _ViewSteps]:
    def make(seen: _ViewCall) -> _ViewSteps:
        return [Permuted(tuple(order(seen, len(seen.whole.shape))))]

    return make


def _by_dims(seen: _ViewCall, rank: int) -> Sequence[int]:
    return [int(d) % rank for d in seen.get("dims")]


def _swapped(first: str, second: str) -> Callable[[_ViewCall, int], Sequence[int]]:
    def order(seen: _ViewCall, rank: int) -> Sequence[int]:
        axes = list(range(rank))
        if rank:
            a, b = int(seen.get(first)) % rank, int(seen.get(second)) % rank
            axes[a], axes[b] = axes[b], axes[a]
        return axes

    return order


def _reversed(seen: _ViewCall, rank: int) -> Sequence[int]:
    return list(reversed(range(rank)))


def _last_two(seen: _ViewCall, rank: int) -> Sequence[int]:
    return [*range(rank - 2), rank - 1, rank - 2] if rank > 1 else list(range(rank))


def _moved(seen: _ViewCall, rank: int) -> Sequence[int]:
    source, destination = seen.get("source"), seen.get("destination")
    sources = [int(d) % rank for d in (source if isinstance(source, tuple) else (source,))]
    targets = [int(d) % rank for d in (destination if isinstance(destination, tuple) else (destination,))]
    rest = iter(d for d in range(rank) if d not in sources)
    return [sources[targets.index(i)] if i in targets else next(rest) for i in range(rank)]


def _expanded(seen: _ViewCall) -> _ViewSteps:
    return [Expanded()]


def slice_of(dim: int, start: Argument, end: Argument, step: Argument = 1) -> PartialView:
    """Elements `start` to `end` along an axis."""
    given = (("dim", dim), ("start", start), ("end", end), ("step", step))
    return PartialView("aten.slice.Tensor", "aten.slice_scatter.default", given)


def _slice(seen: _ViewCall) -> _ViewSteps:
    return [slice_of(seen.axis(), seen.get("start"), seen.get("end"), seen.get("step", 1))]


def _narrow(seen: _ViewCall) -> _ViewSteps:
    start, length = seen.get("start"), seen.get("length")
    if not isinstance(start, int) or not isinstance(length, int):
        raise Unsupported("it writes through `narrow` with symbolic bounds")
    extent = seen.whole.shape[seen.axis()]
    if start < 0 and not isinstance(extent, int):
        raise Unsupported("it writes through `narrow` from the end of a symbolic extent")
    start = start + int(extent) if start < 0 else start
    return [slice_of(seen.axis(), start, start + length)]


def _select(seen: _ViewCall) -> _ViewSteps:
    given = (("dim", seen.axis()), ("index", seen.get("index")))
    return [PartialView("aten.select.int", "aten.select_scatter.default", given)]


def _diagonal(seen: _ViewCall) -> _ViewSteps:
    given = tuple((name, seen.get(name, default)) for name, default in (("offset", 0), ("dim1", 0), ("dim2", 1)))
    return [PartialView("aten.diagonal.default", "aten.diagonal_scatter.default", given)]


def _as_strided(seen: _ViewCall) -> _ViewSteps:
    if not is_contiguous(seen.whole):
        raise Unsupported("`as_strided` of a tensor that is not contiguous")
    given = tuple((name, seen.get(name)) for name in ("size", "stride", "storage_offset"))
    return [PartialView("aten.as_strided.default", "aten.as_strided_scatter.default", given)]


def _unbind(seen: _ViewCall) -> _ViewSteps:
    dim = seen.axis()
    return [
        PartialView("aten.select.int", "aten.select_scatter.default", (("dim", dim), ("index", i)))
        for i in range(len(seen.parts))
    ]


def _split(seen: _ViewCall) -> _ViewSteps:
    """Consecutive parts of an axis, of the sizes in the arguments; the last one may be smaller."""
    dim = seen.axis()
    count = len(seen.parts)
    sizes = seen.get("split_sizes", seen.get("split_size"))
    if isinstance(sizes, tuple):
        return _consecutive(dim, list(sizes))
    if sizes is None:  # chunk
        extent, chunks = seen.whole.shape[dim], int(seen.get("chunks"))
        sizes = (
            -(-extent // chunks)
            if isinstance(extent, int)
            else SymbolicNumber(f"(({extent}) + {chunks - 1})//{chunks}")
        )
    return _consecutive(dim, [sizes] * count)


def _tensor_split(seen: _ViewCall) -> _ViewSteps:
    dim = seen.axis()
    extent = seen.whole.shape[dim]
    indices, sections = seen.get("indices"), seen.get("sections")
    if isinstance(indices, tuple):
        starts, ends = [0, *indices], [*indices, None]
        return [slice_of(dim, start, end) for start, end in zip(starts, ends, strict=True)]
    if not isinstance(extent, int) or not isinstance(sections, int):
        raise Unsupported("it writes through `tensor_split` of a symbolic extent")
    return _consecutive(dim, [extent // sections + (i < extent % sections) for i in range(sections)])


def _consecutive(dim: int, sizes: Sequence[Argument]) -> _ViewSteps:
    """Return consecutive slices of these sizes."""
    steps: list[ViewStep] = []
    start: Argument = 0
    for size in sizes:
        end = _add(start, size)
        steps.append(slice_of(dim, start, end))
        start = end
    return steps


def _add(a: Argument, b: Argument) -> Argument:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    texts = [v.text if isinstance(v, SymbolicNumber) else str(v) for v in (a, b)]
    if any(isinstance(v, Ref) for v in (a, b)):
        raise Unsupported("it writes through parts whose sizes are computed at run time")
    return SymbolicNumber(f"({texts[0]}) + ({texts[1]})")


def _unsupported_view(seen: _ViewCall) -> _ViewSteps:
    raise Unsupported(f"it writes through a view by `{seen.node.target}`, which is not supported")


_VIEWS: dict[str, Callable[[_ViewCall], _ViewSteps]] = {
    f"aten.{name}": make
    for make, names in {
        _identity: "alias detach lift_fresh lift positive resolve_conj resolve_neg conj real detach_ requires_grad_ "
              "expand_dims _conj view_as_real_copy",
        _reshaped: "view _unsafe_view squeeze unsqueeze view_as _reshape_alias unflatten atleast_1d atleast_2d "
                   "atleast_3d",
        _reshaped_if_view: "reshape flatten reshape_as ravel",
        _alias_if_same_layout: "contiguous to type_as",
        _dropout: "dropout feature_dropout alpha_dropout feature_alpha_dropout",
        _permuted(_by_dims): "permute",
        _permuted(_swapped("dim0", "dim1")): "transpose swapdims",
        _permuted(_swapped("axis0", "axis1")): "swapaxes",
        _permuted(_reversed): "t numpy_T",
        _permuted(_last_two): "mT mH adjoint matrix_H",
        _permuted(_moved): "movedim moveaxis",
        _expanded: "expand expand_as broadcast_to broadcast_tensors meshgrid",
        _slice: "slice", _narrow: "narrow", _select: "select", _diagonal: "diagonal linalg_diagonal",
        _as_strided: "as_strided", _unbind: "unbind", _split: "split split_with_sizes chunk",
        _tensor_split: "tensor_split",
        _unsupported_view: "unfold view_as_real view_as_complex imag hsplit vsplit dsplit squeeze_copy",
    }.items()
    for name in names.split()
}  # fmt: skip

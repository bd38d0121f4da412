"""Sampling of images at the coordinates of a grid, and grids from affine maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ops.lazy import np
from mlcc.ops.registry import FusionKind, Impl, Precision
from mlcc.ops.shapes import (
    Tensor,
    fail,
    int64,
    known_different,
    require_float,
    result,
    result_dims,
    shape_argument,
    shape_text,
    simplify,
    tensor,
)
from mlcc.ops.window import np_to_layout, spatial_data
from mlcc.te.scalar import Scalar

# ---------------------------------------------------------------- inference


def infer_grid_sample(call: relax.Call) -> Tensor:
    """The data's batch and channels, the grid's spatial extents."""
    ndim = 3 if call.attrs["layout"] == "NCDHW" or len(call.attrs["layout"]) == 5 else 2
    data, grid = spatial_data(call, ndim, "layout", "layout"), tensor(call, 1)
    require_float(call, grid)
    methods = ("bilinear", "nearest", "bicubic")[: 3 if ndim == 2 else 2]
    for name, known in (("method", methods), ("padding_mode", ("zeros", "border", "reflection"))):
        if call.attrs[name] not in known:
            fail(call, "E0442", f'`{name}` must be one of {", ".join(known)}, not "{call.attrs[name]}"')
    if grid.ndim not in (-1, ndim + 2):
        fail(call, "E0445", f"the grid needs {ndim + 2} dimensions, it has {grid.ndim}")
    if data.extents is None or grid.dims is None:
        return data.result(None, data.data.dtype)
    if known_different(grid.dims[1], int64(ndim)):
        fail(call, "E0445", f"dimension 1 of the grid {shape_text(grid.dims)} must have {ndim} coordinates")
    if known_different(grid.dims[0], data.extents["N"]):
        shapes = f"the data {shape_text(data.data.dims)} and the grid {shape_text(grid.dims)}"
        fail(call, "E0445", f"{shapes} differ in their batch extents")
    if any(tir.const_int(data.extents[c]) == 0 for c in data.space):
        fail(call, "E0445", f"{shape_text(data.data.dims)} has no pixels to sample")
    extents = data.extents | dict(zip(data.space, grid.dims[2:], strict=True))
    return data.result(extents, data.data.dtype)


def infer_affine_grid(call: relax.Call) -> Tensor:
    """(batch, coordinates, *size): 2 coordinates for planes, 3 for volumes."""
    data, size = tensor(call, 0), shape_argument(call, 1)
    require_float(call, data)
    if size.ndim not in (2, 3):
        fail(call, "E0445", f"the size needs 2 or 3 extents, it has {size.ndim}")
    if data.ndim not in (-1, 3):
        fail(call, "E0445", f"the maps need 3 dimensions (batch, {size.ndim}, {size.ndim + 1}), they have {data.ndim}")
    if data.dims is not None:
        wanted = (int64(size.ndim), int64(size.ndim + 1))
        if any(known_different(a, b) for a, b in zip(data.dims[1:], wanted, strict=True)):
            text = f"maps of {size.ndim} dimensions are ({size.ndim}, {size.ndim + 1}) matrices"
            fail(call, "E0445", f"{text}, not {shape_text(data.dims[1:])}")
    if data.dims is None or size.values is None:
        return result(None, data.dtype, size.ndim + 2, data.vdevice)
    return result((data.dims[0], int64(size.ndim), *size.values), data.dtype, vdevice=data.vdevice)


# ---------------------------------------------------------------- lowering: coordinates


def _unnormalised(call: relax.Call, at: Scalar, extent: tir.Expr) -> Any:
    """Convert a normalised coordinate in [-1, 1] to pixels."""
    if call.attrs["align_corners"]:
        return (at + 1) * Scalar(construct.sub(extent, 1)) / 2
    return -0.5 + (at + 1) * Scalar(extent) / 2


def _clip(at: Scalar, extent: tir.Expr) -> Scalar:
    return Scalar(construct.minimum(construct.maximum(at.expr, 0), construct.sub(extent, 1)))


def _reflect(call: relax.Call, at: Scalar, extent: tir.Expr) -> Scalar:
    """Reflect a coordinate at the border pixels, or at their outer edges, until it is inside."""
    corner: float = 0 if call.attrs["align_corners"] else -0.5
    size = simplify(construct.sub(extent, 1)) if call.attrs["align_corners"] else extent
    if tir.const_int(size) == 0:
        return Scalar(construct.const(0, at.dtype))
    period = size if isinstance(size, tir.IntImm) else construct.maximum(size, 1)
    distance = te.abs(corner - at)
    times = te.truncdiv(distance.astype("int32"), Scalar(period)).astype("int32")
    extra = distance - times * Scalar(size)
    even = Scalar(construct.equal(te.truncmod(times, 2).expr, 0))
    back = te.if_then_else(even, extra + corner, Scalar(size) - extra + corner)
    inside = te.all(at >= corner, at <= Scalar(size) + corner)
    return te.if_then_else(inside, at, back)


def _apply_padding_mode(call: relax.Call, at: Scalar, extent: tir.Expr) -> Scalar:
    """Map a coordinate into the image as `padding_mode` says."""
    mode = call.attrs["padding_mode"]
    if mode == "reflection":
        at = _reflect(call, at, extent)
    return at if mode == "zeros" else _clip(at, extent)


# ---------------------------------------------------------------- lowering: samples

CUBIC_ALPHA = -0.75  # of the cubic, as in PyTorch


def _near(t: Any) -> Any:
    return ((CUBIC_ALPHA + 2) * t - (CUBIC_ALPHA + 3)) * t * t + 1


def _far(t: Any) -> Any:
    return ((CUBIC_ALPHA * t - 5 * CUBIC_ALPHA) * t + 8 * CUBIC_ALPHA) * t - 4 * CUBIC_ALPHA


def _cubic(values: Sequence[Any], t: Any) -> Any:
    weights = (_far(t + 1), _near(t), _near(1 - t), _far(2 - t))
    first, *rest = (v * w for v, w in zip(values, weights, strict=True))
    return sum(rest, first)


def _lower_grid_sample(call: relax.Call, x: te.Tensor, grid: te.Tensor) -> te.Tensor:
    layout = call.attrs["layout"]
    space = [c for c in "DHW" if c in layout]
    extents = {c: x.buffer.shape[layout.index(c)] for c in space}
    method = call.attrs["method"]

    def element(*axes: Any) -> Any:
        at = dict(zip(layout, axes, strict=True))

        def pixel(**places: Scalar) -> Scalar:
            inside = [Scalar(construct.greater_equal(places[c].expr, 0)) for c in space]
            inside += [Scalar(construct.less(places[c].expr, extents[c])) for c in space]
            return te.if_then_else(te.all(*inside), x(*((at | places)[c] for c in layout)), te.const(0, x.dtype))

        source = {}
        for number, c in reversed(list(enumerate(space))):
            given = grid(at["N"], len(space) - 1 - number, *(at[s] for s in space))
            source[c] = _unnormalised(call, given, extents[c])
        source = {c: source[c] for c in space}
        if method == "bicubic":
            return _bicubic(call, source, extents, pixel).astype(x.dtype)
        source = {c: _apply_padding_mode(call, v, extents[c]) for c, v in source.items()}
        if method == "nearest":
            return pixel(**{c: te.nearbyint(v).astype("int32") for c, v in source.items()})
        return _linear(source, pixel).astype(x.dtype)

    names = {"N": "n"} | {c: c.lower() for c in "CDHW"}
    sampled: te.Tensor = te.compute(
        result_dims(call), element, name="compute", varargs_names=[names[c] for c in layout]
    )
    return sampled


def _linear(source: dict[str, Scalar], pixel: Callable[..., Scalar]) -> Any:
    """Interpolate (bi- or tri-)linearly between the pixels around a coordinate."""
    low = {c: te.floor(v).astype("int32") for c, v in source.items()}
    corners = [(0, 0), (0, 1), (1, 0), (1, 1)]
    if len(source) == 3:  # the order in which TVM adds them
        corners = [(0, 0, 0), (0, 0, 1), (1, 1, 0), (1, 1, 1), (0, 1, 0), (1, 0, 1), (1, 0, 0), (0, 1, 1)]  # type: ignore[list-item]
    total: Any = None
    for corner in corners:
        value: Any = pixel(**{c: low[c] + far if far else low[c] for c, far in zip(source, corner, strict=True)})
        pairs = list(zip(source, corner, strict=True))
        for c, far in pairs if len(pairs) == 2 else reversed(pairs):
            part = source[c] - low[c]
            value = value * (part if far else 1.0 - part)
        total = value if total is None else total + value
    return total


def _bicubic(
    call: relax.Call, source: dict[str, Scalar], extents: dict[str, tir.Expr], pixel: Callable[..., Scalar]
) -> Any:
    low = {c: te.floor(v).astype("int32") for c, v in source.items()}
    part = {c: source[c] - low[c] for c in source}

    def place(c: str, offset: int) -> Scalar:
        moved = low[c] + offset
        return (
            moved
            if call.attrs["padding_mode"] == "zeros"
            else _apply_padding_mode(call, moved, extents[c]).astype("int32")
        )

    rows = []
    for i in range(4):
        y = place("H", i - 1)
        rows.append(_cubic([pixel(H=y, W=place("W", j - 1)) for j in range(4)], part["W"]))
    return _cubic(rows, part["H"])


# ---------------------------------------------------------------- lowering: affine maps


def _lower_affine_grid(call: relax.Call, x: te.Tensor, size: Sequence[tir.Expr]) -> te.Tensor:
    """Compute translation + matrix @ coordinates, the fastest coordinate first."""
    ndim = len(size)
    ends = [_first_and_step(call, x, extent) for extent in size]

    def element(n: Any, dim: Any, *coords: Any) -> Any:
        value = x(n, dim, ndim)
        for r, (start, step) in enumerate(ends):
            value = value + x(n, dim, ndim - 1 - r) * (start + coords[r] * step)
        return value

    names = [f"i{i}" for i in range(ndim)]
    coordinates: te.Tensor = te.compute(result_dims(call), element, name="compute", varargs_names=names)
    return coordinates


def _first_and_step(call: relax.Call, x: te.Tensor, extent: tir.Expr) -> tuple[Any, Any]:
    """The first coordinate and the step; with aligned corners a single pixel is in the middle."""
    count = tir.const_int(extent)
    corners = call.attrs["align_corners"]
    if count is not None:
        first, step = _np_first_and_step(corners, count)
        return te.const(first, x.dtype), te.const(step, x.dtype)
    number = Scalar(construct.cast(x.dtype, extent))
    one, two = te.const(1, x.dtype), te.const(2, x.dtype)
    if not corners:
        return one / number - one, two / number
    several = Scalar(construct.greater(extent, 1))
    start = te.select(several, te.const(-1, x.dtype), te.const(0, x.dtype))
    steps = Scalar(construct.cast(x.dtype, construct.maximum(construct.sub(extent, 1), 1)))
    return start, te.const(2.0 - 1e-7, x.dtype) / steps


def _np_first_and_step(corners: bool, count: int) -> tuple[float, float]:
    if corners:
        return (-1.0, (2.0 - 1e-7) / (count - 1)) if count > 1 else (0.0, 0.0)
    return (-1.0 + 1.0 / count, 2.0 / count) if count else (0.0, 0.0)


# ---------------------------------------------------------------- NumPy


def _np_place(call: relax.Call, at: Any, n: int) -> Any:
    """Map coordinates into the image as `padding_mode` says."""
    mode, corners = call.attrs["padding_mode"], call.attrs["align_corners"]
    if mode == "reflection":
        low, size = (0, n - 1) if corners else (-0.5, n)
        distance = np.abs(at - low)
        turns = np.floor(distance / max(size, 1))
        extra = distance - turns * size
        mirrored = np.where(turns % 2 == 0, extra + low, size - extra + low)
        at = np.where((at >= low) & (at <= size + low), at, mirrored).astype(at.dtype) if size else np.zeros_like(at)
    return at if mode == "zeros" else np.clip(at, 0, n - 1)


def _np_grid_sample(call: relax.Call, x: Any, grid: Any) -> Any:
    layout = call.attrs["layout"]
    order = "NC" + "".join(c for c in "DHW" if c in layout)
    x = np_to_layout(x, layout, order)
    f = grid.dtype
    spatial = x.shape[2:]
    # pixel coordinates per dimension of the data, slowest first: (batch, *out)
    coordinates = []
    for d, n in enumerate(spatial):
        at = grid[:, len(spatial) - 1 - d]
        place = (at + f.type(1)) * f.type(n - 1) / f.type(2) if call.attrs["align_corners"] else (
            f.type(-0.5) + (at + f.type(1)) * f.type(n) / f.type(2))  # fmt: skip
        coordinates.append(place.astype(f))
    batch = np.reshape(np.arange(x.shape[0]), (-1, *[1] * (len(spatial))))

    def pixel(places: Sequence[Any]) -> Any:
        inside = np.logical_and.reduce([(p >= 0) & (p < n) for p, n in zip(places, spatial, strict=True)])
        at = [np.clip(np.nan_to_num(p), 0, max(n - 1, 0)).astype(int) for p, n in zip(places, spatial, strict=True)]
        picked = np.moveaxis(x[(batch, slice(None), *at)], -1, 1)
        return np.where(inside[:, None], picked, 0)

    method = call.attrs["method"]
    if method != "bicubic":
        coordinates = [_np_place(call, a, n) for a, n in zip(coordinates, spatial, strict=True)]
    if method == "nearest":
        return np_to_layout(pixel([np.round(a) for a in coordinates]), order, layout)
    low = [np.floor(a) for a in coordinates]
    fractions = [a - b for a, b in zip(coordinates, low, strict=True)]
    taps = (0, 1) if method == "bilinear" else (-1, 0, 1, 2)
    sampled: Any = 0
    for offsets in np.ndindex(*[len(taps)] * len(spatial)):
        places = [b + taps[o] for b, o in zip(low, offsets, strict=True)]
        if method == "bicubic":
            places = [np.trunc(_np_place(call, p, n)) for p, n in zip(places, spatial, strict=True)]
        weight: Any = 1
        for o, t in zip(offsets, fractions, strict=True):
            linear = method == "bilinear"
            weight = weight * ((1 - t, t) if linear else (_far(t + 1), _near(t), _near(1 - t), _far(2 - t)))[o]
        sampled = sampled + pixel(places) * weight[:, None]
    return np_to_layout(sampled, order, layout)


def _np_affine_grid(call: relax.Call, x: Any, size: Sequence[int]) -> Any:
    ndim = len(size)
    coordinates = np.reshape(x[:, :, ndim], (*x.shape[:2], *[1] * ndim))
    for r, count in enumerate(size):
        start, step = (x.dtype.type(v) for v in _np_first_and_step(call.attrs["align_corners"], count))
        line = np.reshape(start + np.arange(count).astype(x.dtype) * step, [-1 if a == r else 1 for a in range(ndim)])
        coordinates = coordinates + np.reshape(x[:, :, ndim - 1 - r], (*x.shape[:2], *[1] * ndim)) * line
    return np.broadcast_to(coordinates, (*x.shape[:2], *size))


OPS: dict[str, Impl] = {
    "image.grid_sample": Impl(
        'data, grid, method: str = "bilinear", layout: str = "NCHW", padding_mode: str = "zeros", '
        'align_corners: bool = False',
        infer_grid_sample, _np_grid_sample, _lower_grid_sample, precision=Precision.FOLLOW,
    ),
    "image.affine_grid": Impl(
        "data, size: shape, align_corners: bool = True", infer_affine_grid, _np_affine_grid, _lower_affine_grid,
        FusionKind.OPAQUE, precision=Precision.FOLLOW,
    ),
}  # fmt: skip

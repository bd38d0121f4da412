"""The source indices and interpolation weights with which ONNX resizes one axis, as arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcc.frontend.problems import Unsupported

if TYPE_CHECKING:
    import numpy as np

CROP = "tf_crop_and_resize"


@dataclass(frozen=True, slots=True)
class ResizeAttributes:
    """The attributes of a resize node, with the schema's names for modes."""

    mode: str  # nearest, linear, cubic
    coordinates: str
    nearest: str
    alpha: float
    exclude_outside: bool
    antialias: bool
    extrapolation_value: float


@dataclass(frozen=True, slots=True)
class ResizedAxis:
    """A resized axis: its extent before and after, the stated scale, and the cropped region of interest."""

    axis: int
    before: int
    after: int
    scale: float
    begin: float = 0.0
    end: float = 1.0

    @property
    def exact(self) -> bool:
        """True if the scale equals the ratio of the extents, up to rounding of float32."""
        return abs(self.scale * self.before - self.after) <= 1e-6 * max(self.after, 1)

    def is_identity(self, how: ResizeAttributes) -> bool:
        """Return True if resizing is the identity along this axis."""
        cut = how.coordinates == CROP and (self.begin, self.end) != (0.0, 1.0)
        return self.before == self.after and self.exact and not cut


_MAX_EXTENT = 1 << 20  # positions that are computed at import


def coordinates(how: ResizeAttributes, part: ResizedAxis) -> np.ndarray:
    """Return the source coordinate of each output position."""
    import numpy as np

    if part.after > _MAX_EXTENT:
        raise Unsupported(f"an axis is resized to {part.after} elements, more than {_MAX_EXTENT}")
    at, last, after = np.arange(part.after, dtype="float64"), part.before - 1, part.scale * part.before
    halves = (at + 0.5) / part.scale - 0.5
    one = part.after == 1 or after == 1
    match how.coordinates:
        case "half_pixel":
            return halves
        case "pytorch_half_pixel":
            return halves if not one else np.zeros(part.after)
        case "half_pixel_symmetric":
            return part.before / 2 * (1 - part.after / after) + halves
        case "align_corners":
            return at * last / (after - 1) if not one else np.zeros(part.after)
        case "asymmetric":
            return at / part.scale
        case "tf_half_pixel_for_nn":
            return (at + 0.5) / part.scale
        case "tf_crop_and_resize" if one:
            return np.full(part.after, (part.begin + part.end) / 2 * last)
        case "tf_crop_and_resize":
            return part.begin * last + at * (part.end - part.begin) * last / (after - 1)
    raise Unsupported(f'`coordinate_transformation_mode="{how.coordinates}"` is not supported')


def nearest_indices(how: ResizeAttributes, part: ResizedAxis) -> np.ndarray:
    """Return the nearest source index of each output position."""
    import numpy as np

    at = coordinates(how, part)
    rounding: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "round_prefer_floor": lambda place: np.ceil(place - 0.5),
        "round_prefer_ceil": lambda place: np.floor(place + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    if how.nearest not in rounding:
        raise Unsupported(f'`nearest_mode="{how.nearest}"` is not supported')
    return np.clip(rounding[how.nearest](at).astype("int64"), 0, part.before - 1)


def interpolation_matrix(how: ResizeAttributes, part: ResizedAxis) -> np.ndarray:
    """Return the interpolation matrix: a row of weights over the input positions for each output position."""
    import numpy as np

    at = coordinates(how, part)
    first = np.ceil(at).astype("int64") - 1  # the left neighbour; the previous index if `at` is an integer
    share = at - first
    scale = min(part.scale, 1.0) if how.antialias else 1.0
    reach = 1 if how.mode == "linear" else 2
    begin = int(np.floor(-reach / scale) + 1)
    steps = np.arange(begin, 2 - begin if how.mode == "cubic" else 2 - begin)
    distance = np.abs(steps[None, :] - share[:, None]) * scale
    counts = np.clip(1 - distance, 0, 1) if how.mode == "linear" else _cubic(distance, how.alpha)
    places = first[:, None] + steps[None, :]
    if how.exclude_outside:
        counts = np.where((places < 0) | (places >= part.before), 0, counts)
    if how.exclude_outside or how.antialias:
        total = counts.sum(1, keepdims=True)
        counts = counts / np.where(total == 0, 1, total)
    matrix = np.zeros((part.after, part.before))
    rows = np.broadcast_to(np.arange(part.after)[:, None], places.shape)
    np.add.at(matrix, (rows, np.clip(places, 0, part.before - 1)), counts)
    return matrix


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """The cubic convolution kernel."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    kernel: np.ndarray = near * (distance <= 1) + far * ((distance > 1) & (distance < 2))
    return kernel


def out_of_bounds(how: ResizeAttributes, part: ResizedAxis) -> np.ndarray:
    """Return a mask of the output positions whose source coordinate is out of bounds."""
    at = coordinates(how, part)
    return (at < 0) | (at > part.before - 1)

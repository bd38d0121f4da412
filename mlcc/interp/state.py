"""The state of a running function: values of variables, views of buffers, and the vectorized iterations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from mlcc.errors import CallError, Label, error
from mlcc.interp.arithmetic import Value, from_memory, stored, to_memory
from mlcc.interp.memory import (
    LoopCarriedDependence,
    Pointer,
    RegionFault,
    Storage,
    VectorizedRegion,
    View,
    compact_strides,
)
from mlcc.interp.strided_views import AffineForm, Steps, StridedWindow
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import is_narrow


class State:
    """The state of one call. With `dims` > 0, values have that many leading axes, one per vectorized loop, and `mask`
    has the active iterations (None: all)."""

    def __init__(self, env: Mapping[str, Any], functions: Mapping[str, Any]) -> None:
        self.values: dict[tir.Var, Any] = {}
        self.views: dict[tir.Buffer, View] = {}
        self.dims = 0
        self.mask: np.ndarray | None = None
        self.lanes_mask: np.ndarray | None = None  # which lanes (its last axis) are active; None: all
        self.region: VectorizedRegion | None = None
        self.env = env
        self.functions = functions
        self.sizes: list[int] = []  # of the leading axes of values, from the right
        self.steps: dict[tir.Var, tuple[int, Steps]] = {}  # variables that are linear along those axes
        self.lanes = 1  # number of vectorized iterations
        self.threads = 0  # number of thread axes with barriers among them

    # ------------------------------------------------------------ errors

    def fault(self, code: str, message: str, node: Any, *, related: tuple[Label, ...] = ()) -> NoReturn:
        """Raise an error at `node`; vectorized iterations rerun one by one, to report the first one's."""
        if self.dims:
            raise RegionFault
        raise CallError(error(code, message, getattr(node, "span", None), related=related))

    # ------------------------------------------------------------ masks

    @contextmanager
    def masked(self, condition: np.ndarray) -> Iterator[bool]:
        """Restrict the active iterations to those where `condition` holds; False if there are none."""
        old = self.mask
        self.mask = condition if old is None else np.logical_and(old, condition)
        try:
            yield bool(self.mask.any())
        finally:
            self.mask = old

    @contextmanager
    def lane_masked(self, condition: np.ndarray) -> Iterator[bool]:
        """Restrict the active lanes to those where `condition` holds, and the iterations to those with such a lane."""
        old = self.lanes_mask
        self.lanes_mask = condition = condition if old is None else np.logical_and(old, condition)
        some = condition.any(axis=-1)
        try:
            if isinstance(some, np.ndarray):
                with self.masked(some) as any_iteration:
                    yield any_iteration
            else:
                yield bool(some)
        finally:
            self.lanes_mask = old

    def _mask_of(self, trailing: int) -> np.ndarray | None:
        """Return the mask of active iterations, with `trailing` axes for lanes as the addresses of an access have."""
        mask = self.mask
        if not trailing:
            return mask
        if mask is not None:
            mask = mask[..., None]
        if self.lanes_mask is None:
            return mask
        return self.lanes_mask if mask is None else np.logical_and(mask, self.lanes_mask)

    def active(self, condition: Value) -> np.ndarray:
        """Return the mask of active iterations in which `condition` holds."""
        return np.asarray(condition if self.mask is None else np.logical_and(condition, self.mask))

    def active_lanes(self, condition: Value) -> np.ndarray:
        """Return the mask of active lanes of active iterations in which a per-lane condition holds."""
        mask = self._mask_of(1)
        return np.asarray(condition if mask is None else np.logical_and(condition, mask))

    # ------------------------------------------------------------ buffers

    def view(self, buffer: tir.Buffer, node: Any) -> View:
        """The view of a buffer that is in scope."""
        view = self.views.get(buffer)
        if view is None:
            self.fault("E0872", f"buffer `{buffer.name}` is not declared here", node)
        return view

    def allocate(
        self, buffer: tir.Buffer, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, start: int = 0
    ) -> None:
        """Allocate a buffer. Each vectorized iteration gets a private copy; threads share buffers of scope `shared`."""
        strides = strides or compact_strides(shape)
        size = start + 1 + sum((n - 1) * x for n, x in zip(shape, strides, strict=True)) if 0 not in shape else 0
        own = self.dims and not (self.threads and buffer.scope.startswith("shared"))
        storage = Storage.fresh(size * (self.lanes if own else 1), buffer.dtype, buffer.name)
        offset: Any = 0
        steps: Steps = {}
        if own:
            offset = np.arange(self.lanes, dtype=np.int64).reshape(self.sizes[::-1]) * size
            step = size
            for axis, count in enumerate(self.sizes):
                steps[axis] = step
                step *= count
        self.values[buffer.data] = Pointer(storage, offset * stored(buffer.dtype).itemsize * buffer.dtype.lanes)
        self.views[buffer] = make_view(buffer, storage, shape, strides, offset + start)
        self.views[buffer].steps = steps

    def checked(self, view: View, node: Any) -> View:
        """The view, if all of it lies in its memory."""
        if 0 in view.shape:
            return view
        span = sum((n - 1) * x for n, x in zip(view.shape, view.strides, strict=True))
        first, last = int(np.min(view.offset)), int(np.max(view.offset)) + span
        if first < 0 or (last + 1) * view.dtype.lanes > len(view.data):
            self.fault("E0870", f"`{view.name}` reaches outside the memory it is declared on", node)
        return view

    # ------------------------------------------------------------ windows

    def resolve(self, form: AffineForm) -> tuple[int, Steps] | None:
        """Return the start of an affine form and its step along each axis; None if a variable is not affine."""
        base = form[0]
        steps: Steps = {}
        for var, factor in form[1]:
            even = self.steps.get(var)
            if even is not None:
                base += factor * even[0]
                for axis, step in even[1].items():
                    steps[axis] = steps.get(axis, 0) + factor * step
            else:
                value = self.values.get(var)
                if value is None or isinstance(value, np.ndarray):
                    return None
                base += factor * int(value)
        return base, steps

    def set_steps(self, var: tir.Var, form: AffineForm | None) -> None:
        """Record the steps of a variable that was just bound, if it is linear in the loop variables."""
        start_and_steps = None if form is None else self.resolve(form)
        if start_and_steps is None:
            self.steps.pop(var, None)
        else:
            self.steps[var] = start_and_steps

    def window(self, view: View, forms: list[AffineForm]) -> StridedWindow | None:
        """The elements that an access reaches; None if they are not spaced evenly, or not all in bounds."""
        if view.steps is None or len(forms) != len(view.shape) or view.data.itemsize != view.storage.itemsize:
            return None
        start, steps = self._first(view), dict(view.steps)
        for form, extent, stride in zip(forms, view.shape, view.strides, strict=True):
            start_and_steps = self.resolve(form)
            if start_and_steps is None:
                return None
            low = high = start_and_steps[0]
            for axis, step in start_and_steps[1].items():
                reach = step * (self.sizes[axis] - 1)
                low, high = (low + reach, high) if reach < 0 else (low, high + reach)
                steps[axis] = steps.get(axis, 0) + step * stride
            if low < 0 or high >= extent:
                return None
            start += start_and_steps[0] * stride
        if view.steps and self.mask is not None:  # where it is masked, the view itself may lie outside of the memory
            reaches = [step * (self.sizes[axis] - 1) for axis, step in steps.items()]
            if start + sum(min(r, 0) for r in reaches) < 0:
                return None
            if start + sum(max(r, 0) for r in reaches) >= view.data.size:
                return None
        return StridedWindow.make(start, steps, self.sizes, view.data.itemsize)

    def _first(self, view: View) -> int:
        return int(view.offset.flat[0]) if isinstance(view.offset, np.ndarray) else int(view.offset)

    def load_strided(self, view: View, forms: list[AffineForm]) -> Value | None:
        """Load a window of memory, valid until the next store; None if the elements are not evenly spaced."""
        window = self.window(view, forms)
        if window is None:
            return None
        storage = view.storage
        if storage.defined is not None and not window.of(storage.defined).all():
            return None
        if self.region is not None and not self.region.own(storage, view.data, window, self.sizes, False):
            return None
        values = window.of(view.data)
        return from_memory(values, view.dtype) if view.narrow else values

    def store_strided(self, view: View, forms: list[AffineForm], value: Value) -> bool:
        """Store to a window of memory; False if the elements are not evenly spaced."""
        window = self.window(view, forms)
        if window is None or any(n > 1 and not window.steps.get(a) for a, n in enumerate(self.sizes)):
            return False
        storage = view.storage
        if self.region is not None and not self.region.own(storage, view.data, window, self.sizes, True):
            return False
        if view.narrow:
            value = to_memory(value, view.dtype)
        where: Any = True if self.mask is None else self.mask
        np.copyto(window.of(view.data), value, casting="unsafe", where=where)
        if storage.defined is not None:
            np.copyto(window.of(storage.defined), True, where=where)
        return True

    # ------------------------------------------------------------ access

    def address(self, view: View, indices: list[Value], vector: bool, node: Any) -> Any:
        """The element numbers of `view[indices]`; with `vector` values have one more axis, at the end."""
        if len(indices) != len(view.shape):
            self.fault("E0870", f"`{view.name}` is indexed by {len(indices)} of {len(view.shape)} dimensions", node)
        offset = view.offset
        if vector and isinstance(offset, np.ndarray):
            offset = offset[..., None]
        mask = self._mask_of(vector)
        for at, (index, extent, stride) in enumerate(zip(indices, view.shape, view.strides, strict=True)):
            if isinstance(index, np.ndarray):
                index = index.astype(np.int64)
                outside = (index < 0) | (index >= extent)
                if outside.any():
                    if mask is None or np.logical_and(outside, mask).any():
                        self._outside(view, at, index, outside, node)
                    index = np.where(outside, 0, index)
            else:
                index = int(index)
                if not 0 <= index < extent:
                    self._outside(view, at, index, None, node)
            offset = offset + index * stride
        if mask is not None and isinstance(view.offset, np.ndarray):
            offset = np.where(mask, offset, 0)  # elsewhere the view itself may lie outside of the memory
        return offset

    def _outside(self, view: View, at: int, index: Any, outside: Any, node: Any) -> NoReturn:
        if self.dims == 0 and isinstance(index, np.ndarray):
            index = int(index[outside][0])
        message = f"index {index} is outside dimension {at} of `{view.name}`, which has {view.shape[at]}"
        self.fault("E0870", message, node)

    def load(self, view: View, indices: list[Value], vector: bool, node: Any) -> Value:
        """The elements at `indices`."""
        at = self.address(view, indices, vector, node)
        many = view.dtype.lanes > 1
        if many:
            at = (at[..., None] if isinstance(at, np.ndarray) else at) * view.dtype.lanes + np.arange(view.dtype.lanes)
        defined = view.storage.defined
        if defined is not None:
            self._check_defined(defined, at, view, vector or many, node)
        if self.region is not None:
            self._same_elements(view)
            self.region.read(view.storage, np.asarray(at), self._mask_of(vector or many), 1 if vector or many else 0)
        values = view.data[at]
        return from_memory(values, view.dtype) if view.narrow else values

    def _same_elements(self, view: View) -> None:
        """Raise Violation if a view's element size is not the storage's, by which accesses are recorded."""
        if view.data.itemsize != view.storage.itemsize:
            raise RegionFault

    def _check_defined(self, defined: np.ndarray, at: Any, view: View, vector: bool, node: Any) -> None:
        known = defined[at]
        if isinstance(known, np.ndarray):
            if known.all():
                return
            mask = self._mask_of(vector)
            if mask is not None and not np.logical_and(~known, mask).any():
                return
        elif known:
            return
        self.fault("E0871", f"`{view.name}` is read where it was never written", node)

    def store(self, view: View, indices: list[Value], value: Value, vector: bool, node: Any) -> None:
        """Write elements at `indices`."""
        at = self.address(view, indices, vector, node)
        many = view.dtype.lanes > 1
        if many:
            at = (at[..., None] if isinstance(at, np.ndarray) else at) * view.dtype.lanes + np.arange(view.dtype.lanes)
        vector = vector or many
        if view.narrow:
            value = to_memory(value, view.dtype)
        storage, mask = view.storage, self._mask_of(vector)
        if self.region is not None:
            self._same_elements(view)
            self.region.write(storage, view.data, np.asarray(at), mask, 1 if vector else 0)
        if mask is not None:
            shape = np.broadcast_shapes(np.shape(at), np.shape(value), mask.shape)
            mask = np.broadcast_to(mask, shape)
            at = np.broadcast_to(at, shape)[mask]
            value = np.broadcast_to(value, shape)[mask]
        if np.ndim(value) > np.ndim(at):  # an element that loops of one iteration do not move
            at = np.broadcast_to(at, np.broadcast_shapes(np.shape(at), np.shape(value)))
        view.data[at] = value
        if storage.defined is not None:
            storage.defined[at] = True


def make_view(
    buffer: tir.Buffer, storage: Storage, shape: tuple[int, ...], strides: tuple[int, ...], offset: Any
) -> View:
    """A view of `storage` by `buffer`; sizes and strides in elements of the buffer."""
    dtype: DType = buffer.dtype
    data = storage.typed(stored(dtype))
    steps: Steps | None = None if isinstance(offset, np.ndarray) else {}
    return View(storage, data, dtype, shape, strides, offset, buffer.name, is_narrow(dtype), steps)


__all__ = ["LoopCarriedDependence", "Pointer", "State", "RegionFault", "make_view"]

"""Represent tensor maps: the copy engine's description of a tensor in global memory and of the boxes that it copies.

`T.tensor_map(T.type_annotation("float16"), A.data, rank, swizzle, dims..., strides..., box..., steps...)` stands where
a copy names one: `dims` are extents and `box` those of a copy, both with the innermost dimension first; `strides` are
the distances in bytes of the others (rank - 1 of them); of `steps` elements of a dimension in the box one is copied.
All but box, steps, rank and swizzle (0, 32, 64 or 128 bytes, PTX ISA "Swizzling modes") may be computed by the host.
Elements of a box outside of the tensor are zeros; stores leave them out.

Limits are those of cuTensorMapEncodeTiled (CUDA driver API, "Tensor Map Object Management"); what is not known when a
kernel is compiled is checked at its launch (`mlcc.runtime.launch.tensor_map`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from mlcc.errors import CompileError, Span, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import HANDLE, INT32, INT64, DType
from mlcc.ir.tir import Expr
from mlcc.runtime.launch.tensor_map import DTYPES, MAX_BOX, MAX_DIMS, MAX_STEP, STRIDE_UNIT, SWIZZLES, MapSpec

__all__ = ["MAX_DIMS", "TensorMap", "is_tensor_map"]


@dataclass(frozen=True, slots=True)
class MapForm:
    """The part of a tensor map that is fixed at compile time; tuples have the innermost dimension first."""

    dtype: DType
    swizzle: int
    box: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Return the number of elements that a copy moves along each dimension."""
        return tuple(-(-size // step) for size, step in zip(self.box, self.steps, strict=True))

    @property
    def box_bytes(self) -> int:
        """Return the number of bytes that a copy moves; elements outside of the tensor count."""
        return prod(self.counts) * self.dtype.bytes

    def as_attribute(self) -> dict[str, Any]:
        """Return the value that `MapForm.of` reads."""
        return {"dtype": str(self.dtype), "swizzle": self.swizzle, "box": self.box, "steps": self.steps}

    @staticmethod
    def of(stated: Any, span: Span | None) -> MapForm:
        """Read the form from an attribute. Raises CompileError E0777."""
        try:
            lists = tuple(tuple(map(int, stated[key])) for key in ("box", "steps"))
            form = MapForm(DType.of(str(stated["dtype"])), int(stated["swizzle"]), *lists)
            problem = form.problem()
        except (KeyError, TypeError, ValueError) as exc:
            problem = f"its attribute must have dtype, swizzle, box and steps ({exc})"
        if problem is not None:
            raise CompileError(error("E0777", f"invalid tensor map: {problem}", span))
        return form

    def problem(self) -> str | None:
        """Return the reason why the map is invalid, or None. Extents and strides known at run time only pass."""
        if str(self.dtype) not in DTYPES:
            return f"elements of dtype {self.dtype} cannot be copied"
        if not 1 <= len(self.box) <= MAX_DIMS or len(self.steps) != len(self.box):
            return f"the box has {len(self.box)} sizes and {len(self.steps)} steps; it needs 1 to {MAX_DIMS} of both"
        if self.swizzle not in SWIZZLES:
            return f"the swizzle is {self.swizzle}; it must be one of {', '.join(map(str, SWIZZLES))}"
        for size in self.box:
            if not 1 <= size <= MAX_BOX:
                return f"the box has {size} elements along a dimension; it needs 1 to {MAX_BOX}"
        row = self.box[0] * self.dtype.bytes
        if row % STRIDE_UNIT:
            return f"a row of the box has {row} bytes; it must be a multiple of {STRIDE_UNIT}"
        if self.swizzle and row > self.swizzle:
            return f"a row of the box has {row} bytes and does not fit a swizzle of {self.swizzle}"
        if any(not 1 <= step <= MAX_STEP for step in self.steps):
            return f"steps must be 1 to {MAX_STEP}"
        if self.steps[0] != 1:
            return "the step of the innermost dimension must be 1"
        return None


@dataclass(frozen=True, slots=True, eq=False)
class TensorMap:
    """A tensor map; tuples have the innermost dimension first."""

    data: tir.Var
    form: MapForm
    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]

    @property
    def spec(self) -> MapSpec:
        """The fixed part of the map, for the runtime."""
        form = self.form
        return MapSpec(self.data.name, str(form.dtype), form.box, form.steps, form.swizzle)

    def call(self) -> tir.Call:
        """Return the call of `T.tensor_map` that represents the map in code."""
        form = self.form
        kind = tir.Call(form.dtype, tir.Op("tir.type_annotation"), ())
        counts = (c.const(len(self.dims), INT32), c.const(form.swizzle, INT32))
        fixed = (c.const(n, INT32) for n in (*form.box, *form.steps))
        sizes = (c.cast(INT64, e) for e in (*self.dims, *self.strides))
        return tir.Call(HANDLE, tir.Op("tir.tensor_map"), (kind, self.data, *counts, *sizes, *fixed))

    @staticmethod
    def of(call: tir.Call) -> TensorMap:
        """Read the map from a call of `T.tensor_map`. Raises CompileError E0777."""
        if len(call.args) < 4 or not isinstance(call.args[1], tir.Var):
            raise tensor_map_error(call, "it takes a type, a pointer, a rank, a swizzle, and four lists")
        kind, data, rank, swizzle = call.args[0], call.args[1], *map(tir.const_int, call.args[2:4])
        if rank is None or not 1 <= rank <= MAX_DIMS or len(call.args) != 3 + 4 * rank:
            text = f"of a tensor of rank r it takes r extents, r - 1 strides, r sizes and r steps (r up to {MAX_DIMS})"
            raise tensor_map_error(call, text)
        rest = call.args[4:]
        dims, strides = rest[:rank], rest[rank : 2 * rank - 1]
        fixed = [tir.const_int(a) for a in rest[2 * rank - 1 :]]
        if swizzle not in SWIZZLES or None in fixed:
            raise tensor_map_error(call, "the swizzle (0, 32, 64 or 128), the box sizes and the steps must be constant")
        numbers = tuple(n for n in fixed if n is not None)
        tensor_map = TensorMap(data, MapForm(kind.dtype, swizzle, numbers[:rank], numbers[rank:]), dims, strides)
        problem = tensor_map.problem()
        if problem is not None:
            raise tensor_map_error(call, problem)
        return tensor_map

    def problem(self) -> str | None:
        """Return the reason why the map is invalid, or None. Extents and strides known at run time only pass."""
        for stride in self.strides:
            known = tir.const_int(stride)
            if known is not None and (known % STRIDE_UNIT or known < 0):
                return f"a stride is {known} bytes; strides must be multiples of {STRIDE_UNIT}"
        return self.form.problem()


def is_tensor_map(node: object) -> bool:
    """Return True if a node is a call of `T.tensor_map`."""
    return isinstance(node, tir.Call) and node.op == tir.Op("tir.tensor_map")


def tensor_map_error(call: tir.Call, why: str) -> CompileError:
    return CompileError(error("E0777", f"`T.tensor_map`: {why}", call.span))

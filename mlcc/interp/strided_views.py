"""Accesses whose address is a sum of loop variables: windows of memory instead of lists of addresses.

With vectorized loops, an index such as `i * 4 + j` runs over memory in fixed steps, one per loop. The elements are
then a strided view of the memory, which costs nothing to make. Axes of values are counted from the right, since a
nested region puts its axes in front.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlcc.arith.conditions import linear_parts
from mlcc.ir import tir
from mlcc.ir.tir import Expr

AffineForm = tuple[int, tuple[tuple[tir.Var, int], ...]]  # constant and coefficients of a sum of variables
Steps = dict[int, int]  # axis, counted from the right -> step in elements


def form_of(expr: Expr) -> AffineForm | None:
    """The expression as a sum of scaled variables, if it is one."""
    parts = linear_parts(expr, casts=True)
    return None if parts is None else (parts[1], tuple((v, k) for v, k in parts[0].items() if k))


def forms_of(exprs: tuple[Expr, ...]) -> list[AffineForm] | None:
    """The forms of all indices of an access; None if one has none."""
    forms = [form_of(e) for e in exprs]
    return None if any(f is None for f in forms) else forms  # type: ignore[return-value]


@dataclass(slots=True)
class StridedWindow:
    """Elements `start + sum(step * position)` of a typed memory, over all axes of the running loops."""

    start: int
    steps: Steps
    shape: tuple[int, ...]
    byte_steps: tuple[int, ...]

    @staticmethod
    def make(start: int, steps: Steps, sizes: list[int], itemsize: int) -> StridedWindow:
        """Make a window over axes of the given sizes; an axis without a step has one position."""
        axes = range(len(sizes) - 1, -1, -1)
        shape = tuple(sizes[a] if steps.get(a) else 1 for a in axes)
        return StridedWindow(start, steps, shape, tuple(steps.get(a, 0) * itemsize for a in axes))

    def of(self, data: np.ndarray) -> np.ndarray:
        """The elements, sharing memory."""
        if data.itemsize == 1 and any(self.byte_steps):  # a mask of the elements: one byte for each
            steps = tuple(self.steps.get(a, 0) for a in range(len(self.shape) - 1, -1, -1))
            return np.ndarray(self.shape, data.dtype, data, self.start, steps)
        return np.ndarray(self.shape, data.dtype, data, self.start * data.itemsize, self.byte_steps)

    def addresses(self, sizes: list[int]) -> np.ndarray:
        """The element numbers."""
        at: Any = np.int64(self.start)
        for axis, step in self.steps.items():
            if step:
                at = at + (np.arange(sizes[axis], dtype=np.int64) * step).reshape((sizes[axis],) + (1,) * axis)
        return np.asarray(at)

    def same(self, other: StridedWindow) -> bool:
        return self.start == other.start and self.steps == other.steps

    def one_to_one(self, axes: range, sizes: list[int]) -> bool:
        """Return True if the steps prove that different positions along `axes` address different elements.

        Sorted by size, each step must exceed the reach of all smaller ones.
        """
        reach = 0
        for step, size in sorted((abs(self.steps.get(a, 0)), sizes[a]) for a in axes):
            if size > 1:
                if step <= reach:
                    return False
                reach += step * (size - 1)
        return True
